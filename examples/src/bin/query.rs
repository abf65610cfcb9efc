//! Runs SQL on a set of workers. See `query --help`.

use std::process::ExitCode;

use clap::Parser;
use datafusion_transport_examples::{
    program,
    query::{QueryArgs, run},
};

fn main() -> ExitCode {
    let args = QueryArgs::parse();
    program::run(&args.log.clone(), |queries| run(args, queries))
}
