//! Reads what `cargo bench` measured, and prints how it compares with the targets.
#![forbid(unsafe_code)]

use anyhow::Result;
use clap::{Parser, ValueEnum};
use datafusion_transport_benches::plot;
use datafusion_transport_benches::report::Report;
use datafusion_transport_benches::samples::{Samples, default_dir};
use datafusion_transport_benches::timeline::Timeline;
use std::path::PathBuf;

/// Print what the last benchmarks measured: the targets and whether they are met, then every scenario
///
/// Measure first, in an optimised build: `cargo bench`, or `BENCH_SET=full cargo bench` for the curves too.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// How to print it
    #[arg(long, value_enum, default_value = "markdown")]
    format: Format,

    /// Draw plots into this directory, as SVG
    #[arg(long, value_name = "DIR")]
    plots: Option<PathBuf>,

    /// Where the measurements are [default: below the build directory]
    #[arg(long, value_name = "DIR")]
    samples: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Markdown,
    Json,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let kept = args.samples.unwrap_or_else(default_dir);
    let samples = Samples::load_all(&kept)?;
    if let Some(dir) = args.plots {
        for file in plot::draw(&samples, &Timeline::load(&kept)?, &dir)? {
            eprintln!("drawn: {}", dir.join(file).display());
        }
    }
    let report = Report::new(samples);
    match args.format {
        Format::Markdown => print!("{}", report.markdown()),
        Format::Json => println!("{:#}", report.json()),
    }
    Ok(())
}
