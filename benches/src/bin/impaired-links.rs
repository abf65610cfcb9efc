//! Measures the transports over links that are slow, far, or lose packets.
#![forbid(unsafe_code)]

use anyhow::{Context, Result, bail, ensure};
use clap::{Parser, ValueEnum};
use datafusion_transport_benches::impaired::link::{self, Profile};
use datafusion_transport_benches::impaired::report::{Table, measure};
use datafusion_transport_benches::impaired::subject;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Measure bulk throughput, small calls, and how far a lost packet delays other partitions, over impaired links
///
/// Needs Linux, root, and the commands `ip` and `tc` (package iproute2). Each link is a TUN device in a network namespace of
/// its own, which vanishes with the process: nothing is left behind, whatever happens. Use an optimised build.
#[derive(Parser, Debug)]
#[command(version)]
struct Args {
    /// Links to measure, of lan, slow, far, lossy, lossy-near
    #[arg(long, value_delimiter = ',', default_value = "slow,far,lossy")]
    links: Vec<String>,

    /// Transports to measure, of grpc, grpc tls, tcp, tcp+tls, quic, quic cubic [default: all]
    #[arg(long, value_delimiter = ',')]
    transports: Vec<String>,

    /// Seconds for each of the three figures of a transport
    #[arg(long, value_name = "S", default_value_t = 10)]
    seconds: u64,

    /// Which packets are lost
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// The kernel's congestion control, for all but QUIC: reno, cubic, bbr [default: the kernel's]
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,

    /// How to print it
    #[arg(long, value_enum, default_value = "markdown")]
    format: Format,

    /// One link, in this process's own namespace; prints JSON
    #[arg(long, hide = true)]
    inside: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Markdown,
    Json,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let profiles = profiles(&args.links)?;
    let known = subject::all();
    for name in &args.transports {
        let mut names = known.iter().map(|harness| harness.name());
        ensure!(
            names.any(|known| known == name),
            "no transport `{name}`: see --help"
        );
    }
    match (args.inside, profiles.as_slice()) {
        (true, [profile]) => inside(&args, profile),
        (true, _) => bail!("--inside takes one link"),
        (false, _) => outside(&args, &profiles),
    }
}

fn profiles(names: &[String]) -> Result<Vec<Profile>> {
    let find = |name: &String| {
        let mut all = Profile::all().into_iter();
        let found = all.find(|profile| profile.name == *name);
        found.with_context(|| format!("no link `{name}`: see --help"))
    };
    names.iter().map(find).collect()
}

/// Runs this program again in a namespace of its own for each link.
fn outside(args: &Args, profiles: &[Profile]) -> Result<()> {
    let program = std::env::current_exe()?;
    let mut tables: Vec<Table> = vec![];
    for profile in profiles {
        eprintln!("{}: {}", profile.name, profile.describe());
        let mut command = Command::new("unshare");
        command.args(["--net", "--"]).arg(&program).arg("--inside");
        command.args(["--links", &profile.name]);
        command.args(["--seconds", &args.seconds.to_string()]);
        command.args(["--seed", &args.seed.to_string()]);
        if !args.transports.is_empty() {
            command.args(["--transports", &args.transports.join(",")]);
        }
        if let Some(congestion) = &args.congestion {
            command.args(["--congestion", congestion]);
        }
        let output = command.stderr(Stdio::inherit()).output();
        let output = output.context("running `unshare` (package util-linux)")?;
        ensure!(
            output.status.success(),
            "link {} failed ({}): making a namespace and a device needs root",
            profile.name,
            output.status
        );
        let table: Table = serde_json::from_slice(&output.stdout)?;
        if args.format == Format::Markdown {
            println!("{}", table.markdown());
        }
        tables.push(table);
    }
    if args.format == Format::Json {
        println!("{:#}", serde_json::to_value(&tables)?);
    }
    Ok(())
}

fn inside(args: &Args, profile: &Profile) -> Result<()> {
    let congestion_control = link::congestion_control(args.congestion.as_deref())?;
    link::start(profile, args.seed)?;
    let runtime = tokio::runtime::Runtime::new()?;
    let mut rows = vec![];
    for harness in subject::all() {
        if !args.transports.is_empty() && !args.transports.iter().any(|name| name == harness.name())
        {
            continue;
        }
        eprintln!("  {} …", harness.name());
        rows.push(runtime.block_on(measure(harness, Duration::from_secs(args.seconds))));
    }
    let table = Table {
        link: profile.clone(),
        congestion_control,
        rows,
    };
    println!("{}", serde_json::to_string(&table)?);
    Ok(())
}
