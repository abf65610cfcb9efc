//! Makes the certificates of a cluster. See `make-certificates --help`.

use std::process::ExitCode;

use clap::Parser;
use datafusion_transport_examples::{
    certificates::{CertificateArgs, run},
    program,
};

fn main() -> ExitCode {
    let args = CertificateArgs::parse();
    program::run("warn", |_queries| async move { run(&args) })
}
