//! Prints how each transport keeps each case of the contracts.

use clap::{Parser, ValueEnum};
use datafusion_transport_tests::report::{Selection, Subjects};
use std::process::ExitCode;

/// Runs the contracts of connection, channel and cluster against every transport, and prints a table of the results.
///
/// Known shortcomings are run too, and must fail as stated. The exit code is 1 where anything failed.
#[derive(Debug, Parser)]
#[command(name = "contract-report")]
struct Args {
    /// How the result is printed.
    #[arg(long, value_enum, default_value_t = Format::Markdown)]
    format: Format,
    /// Only this transport; may be repeated. Default: all.
    #[arg(long = "transport", value_name = "NAME")]
    transports: Vec<String>,
    /// Only cases whose path, such as `channel::data::rows_arrive_in_order`, contains this.
    #[arg(long, value_name = "TEXT", default_value = "")]
    case: String,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// Tables and lists, for people and documents.
    Markdown,
    /// An array of objects, for programs.
    Json,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let subjects = Subjects::ours();
    let known = subjects.names();
    if let Some(unknown) = args.transports.iter().find(|name| !known.contains(name)) {
        eprintln!("no transport '{unknown}'; there are: {}", known.join(", "));
        return ExitCode::from(2);
    }
    // A case that fails panics, and is reported below.
    std::panic::set_hook(Box::new(|_| {}));
    let selection = Selection {
        transports: args.transports,
        filter: args.case,
    };
    let report = subjects.run(&selection, |case, transport| {
        eprintln!("{case} on {transport}");
    });
    match args.format {
        Format::Markdown => println!("{}", report.to_markdown()),
        Format::Json => println!("{:#}", report.to_json()),
    }
    match report.failures().len() {
        0 => ExitCode::SUCCESS,
        failures => {
            eprintln!("{failures} cases failed");
            ExitCode::FAILURE
        }
    }
}
