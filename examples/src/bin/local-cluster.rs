//! Runs queries on a cluster of worker processes on this machine. See `local-cluster --help`.

use std::process::ExitCode;

use clap::Parser;
use datafusion_transport_examples::{
    local_cluster::{LocalClusterArgs, run},
    program,
};

fn main() -> ExitCode {
    // The cluster's workers are this very program.
    if let Some(worker) = program::worker_if_asked() {
        return worker;
    }
    let args = LocalClusterArgs::parse();
    program::run(&args.log.clone(), |queries| run(args, queries))
}
