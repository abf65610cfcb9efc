//! How to reach the workers that stay.

use std::io::{self, Write};

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

use super::args::LocalClusterArgs;
use crate::{cluster::Cluster, output::Format, tables::Table, workers::display_url};

/// Prints where the workers are and the `query` command that plans as this program does: one line of
/// JSON on standard output where JSON was asked for, else text on standard error.
pub(super) fn announce(args: &LocalClusterArgs, cluster: &Cluster, tables: &[Table]) -> Result<()> {
    let command = query_command(args, cluster, tables)?;
    if args.format == Format::Json {
        let mut stdout = io::stdout().lock();
        writeln!(stdout, "{}", as_json(args, cluster, &command))?;
        stdout.flush()?;
        return Ok(());
    }
    let words: Vec<_> = command.iter().map(|word| quoted(word)).collect();
    let text = words.join(" ").replace(" --", " \\\n    --");
    writeln!(
        io::stderr(),
        "to use the workers, while they stay:\n  {text} \\\n    'SQL'"
    )?;
    Ok(())
}

/// The command without its SQL.
fn query_command(
    args: &LocalClusterArgs,
    cluster: &Cluster,
    tables: &[Table],
) -> Result<Vec<String>> {
    let identity = cluster.identity_dir().canonicalize();
    let identity = identity.context("cannot find the workers' certificate")?;
    let mut words = vec!["query".to_owned()];
    let mut option = |name: &str, value: String| words.extend([format!("--{name}"), value]);
    option("workers", cluster.display_urls(","));
    option("transport", args.transport.to_string());
    option("dev-tls", identity.display().to_string());
    let session = args.session();
    if let Some(partitions) = session.partitions {
        option("partitions", partitions.to_string());
    }
    for (key, value) in &session.settings {
        option("set", format!("{key}={value}"));
    }
    for table in tables {
        let path = table.path.canonicalize();
        let path = path.with_context(|| format!("cannot find table {}", table.name))?;
        option("table", format!("{}={}", table.name, path.display()));
    }
    if session.dynamic {
        words.push("--dynamic".to_owned());
    }
    Ok(words)
}

fn as_json(args: &LocalClusterArgs, cluster: &Cluster, command: &[String]) -> Value {
    let urls = cluster.urls();
    let workers: Vec<_> = urls.iter().map(display_url).collect();
    let settings = args.session().settings.into_iter();
    let settings: Map<String, Value> = settings.map(|(key, value)| (key, value.into())).collect();
    json!({
        "workers": workers,
        "transport": args.transport.name(),
        "dev_tls": cluster.identity_dir(),
        "settings": settings,
        "query_command": command,
    })
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_=./:,@+".contains(letter);
    match word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_they_must_be() {
        assert_eq!(quoted("--table"), "--table");
        assert_eq!(quoted("t=/a b/it's"), "'t=/a b/it'\\''s'");
    }
}
