//! The `make-certificates` program.

use std::{
    collections::BTreeSet,
    fs::{self, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result};
use clap::Parser;
use comfy_table::{Table, presets::ASCII_FULL_CONDENSED};
use datafusion_transport_core::tls::CertificateAuthority;
use serde_json::{Value, json};

use crate::program::{bad_option, usage};

const EXAMPLES: &str = "\
Examples:
  A CA and certificates for two workers and a coordinator, then the first worker and a query:
    make-certificates --out certs --name worker1.example --name 10.0.0.5 --name coordinator
    worker --listen 0.0.0.0:8080 --transports quic,tcp-tls --mutual-tls --tls-ca certs/ca.pem \\
           --tls-cert certs/worker1.example.pem --tls-key certs/worker1.example.key
    query --workers worker1.example:8080,10.0.0.5:8080 --tls-ca certs/ca.pem \\
          --tls-cert certs/coordinator.pem --tls-key certs/coordinator.key 'select 1'

  One more worker of the same cluster, which others reach under two names:
    make-certificates --ca certs --out more --name worker3.example,10.0.0.7

Whoever has ca.key can let anybody in: keep it off the cluster. To renew, sign again with --ca into a
new directory and copy the files over the old ones; running programs take them within a second, for
new connections.

Exit codes: 0 done, 1 failed, 2 wrong use, such as a file that is there already.";

/// Make a certificate authority and certificates for a cluster
///
/// Writes a private CA, unless --ca names one, and a certificate with its key per --name. Nothing is
/// overwritten, and key files are for their owner alone.
#[derive(Parser, Debug, Clone)]
#[command(name = "make-certificates", version, after_long_help = EXAMPLES)]
pub struct CertificateArgs {
    /// Directory for the files, made if missing
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,

    /// A worker or a client: DNS name, IP address or URI; several with commas share a certificate (repeatable)
    ///
    /// A worker's certificate must be for the host in its URL. The first name names the files.
    #[arg(long = "name", value_name = "NAME,...", required = true)]
    pub names: Vec<String>,

    /// Sign with the CA in this directory (ca.pem and ca.key, made by this program)
    #[arg(long, value_name = "DIR")]
    pub ca: Option<PathBuf>,

    /// Days for which the certificates are valid
    #[arg(long, value_name = "N", default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    pub days: u32,

    /// Days for which a new CA is valid
    #[arg(long, value_name = "N", default_value_t = 3650, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    pub ca_days: u32,

    /// How to print which file goes where
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    pub format: CertificateFormat,
}

/// How `make-certificates` prints its files.
#[derive(clap::ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertificateFormat {
    /// A table for people
    Table,
    /// An array of objects
    Json,
}

/// Makes the files and prints which goes where.
///
/// # Errors
/// When a file is there already or can't be written, a name is none, or the CA can't be used. Names
/// the file or the name. Nothing is written unless all can be signed.
pub fn run(args: &CertificateArgs) -> Result<()> {
    let files = args.files()?;
    check(&files)?;
    fs::create_dir_all(&args.out)
        .with_context(|| format!("cannot create --out {}", args.out.display()))?;
    for file in &files {
        file.write()
            .with_context(|| format!("cannot write {}", file.path.display()))?;
    }
    print(&files, args.format)?;
    Ok(())
}

/// Nothing is written twice, and nothing that is there already.
fn check(files: &[File]) -> Result<()> {
    let mut paths = BTreeSet::new();
    for file in files {
        let path = file.path.display();
        if !paths.insert(&file.path) {
            return Err(usage(format!(
                "two certificates would be {path}: give each a first name of its own"
            )));
        }
        if file.content.is_some() && file.path.symlink_metadata().is_ok() {
            return Err(usage(format!(
                "{path} is there already and is not overwritten: name a new directory with --out, \
                 or sign with a CA that is there with --ca"
            )));
        }
    }
    Ok(())
}

const CA_CERT: &str = "ca.pem";
const CA_KEY: &str = "ca.key";
const DAY: Duration = Duration::from_secs(86_400);

impl CertificateArgs {
    fn files(&self) -> Result<Vec<File>> {
        let dir = self.ca.as_ref().unwrap_or(&self.out);
        let authority = match &self.ca {
            Some(dir) => read_authority(dir)?,
            None => CertificateAuthority::generate(DAY * self.ca_days).map_err(bad_option)?,
        };
        let new = self.ca.is_none();
        let mut files = vec![
            File {
                path: dir.join(CA_CERT),
                content: new.then(|| authority.certificate_pem().to_owned()),
                secret: false,
                host: "every worker and client".to_owned(),
                option: "--tls-ca",
            },
            File {
                path: dir.join(CA_KEY),
                content: new.then(|| authority.key_pem()),
                secret: true,
                host: "none: keep it safe, to sign more".to_owned(),
                option: "",
            },
        ];
        for names in &self.names {
            let names: Vec<_> = names.split(',').map(str::to_owned).collect();
            let issued = authority
                .issue(&names, DAY * self.days)
                .map_err(bad_option)?;
            let path = |kind| self.out.join(format!("{}.{kind}", file_stem(&names)));
            let file = |path, content, secret, option| File {
                path,
                content: Some(content),
                secret,
                host: names.join(", "),
                option,
            };
            files.push(file(
                path("pem"),
                issued.certificate_pem,
                false,
                "--tls-cert",
            ));
            files.push(file(path("key"), issued.key_pem, true, "--tls-key"));
        }
        Ok(files)
    }
}

fn read_authority(dir: &Path) -> Result<CertificateAuthority> {
    let read = |name| {
        let path = dir.join(name);
        fs::read_to_string(&path).map_err(|error| {
            usage(format!(
                "--ca: cannot read {}: {error}; make a CA by leaving --ca out",
                path.display()
            ))
        })
    };
    let authority = CertificateAuthority::from_pem(&read(CA_CERT)?, &read(CA_KEY)?);
    authority.map_err(|error| usage(format!("--ca {}: {error}", dir.display())))
}

/// The first name, as far as file systems take it.
fn file_stem(names: &[String]) -> String {
    let first = names.first().map_or("", String::as_str);
    let keep = |char: char| char.is_ascii_alphanumeric() || ".-".contains(char);
    first.replace(|char| !keep(char), "_")
}

/// A file, and where it belongs.
struct File {
    path: PathBuf,
    /// Absent for one that was there.
    content: Option<String>,
    secret: bool,
    host: String,
    /// What names it to the programs.
    option: &'static str,
}

impl File {
    fn write(&self) -> io::Result<()> {
        let Some(content) = &self.content else {
            return Ok(());
        };
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(
            &mut options,
            if self.secret { 0o600 } else { 0o644 },
        );
        let mut file = options.open(&self.path)?;
        file.write_all(content.as_bytes())?;
        file.sync_all()
    }

    fn to_json(&self) -> Value {
        json!({
            "file": self.path,
            "host": self.host,
            "option": self.option,
            "secret": self.secret,
            "new": self.content.is_some(),
        })
    }
}

fn print(files: &[File], format: CertificateFormat) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    match format {
        CertificateFormat::Json => {
            let files: Vec<_> = files.iter().map(File::to_json).collect();
            writeln!(stdout, "{}", Value::Array(files))
        }
        CertificateFormat::Table => {
            let mut table = Table::new();
            table
                .load_preset(ASCII_FULL_CONDENSED)
                .set_header(["file", "goes to", "option"]);
            for file in files {
                let path = file.path.display().to_string();
                table.add_row([path.as_str(), &file.host, file.option]);
            }
            writeln!(stdout, "{table}")
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        CertificateArgs::command().debug_assert();
    }

    #[test]
    fn files_are_named_after_the_first_name() {
        for (name, stem) in [
            ("worker-1.example", "worker-1.example"),
            ("*.hosts.example", "_.hosts.example"),
            ("::1", "__1"),
            ("spiffe://a/../b", "spiffe___a_.._b"),
        ] {
            assert_eq!(file_stem(&[name.to_owned(), "x".to_owned()]), stem);
        }
    }
}
