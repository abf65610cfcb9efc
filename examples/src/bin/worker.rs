//! Runs a worker. See `worker --help`.

use std::process::ExitCode;

use clap::Parser;
use datafusion_transport_examples::{
    program,
    worker::{WorkerArgs, run},
};

fn main() -> ExitCode {
    let args = WorkerArgs::parse();
    program::run(&args.log.clone(), |queries| run(args, queries))
}
