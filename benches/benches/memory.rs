//! Memory of a process with 10,000 open partitions, and of one that moves bulk data: both ends together.
//!
//! Every figure is from a process of its own, so that this can't be criterion's: its samples are times.
#![allow(missing_docs)]

use anyhow::Result;
use datafusion_transport_benches::memory::{Load, in_a_child, is_child};
use datafusion_transport_benches::rounds::{Set, is_chosen};
use datafusion_transport_benches::samples::{Samples, Series, default_dir};
use datafusion_transport_benches::subject;

fn main() -> Result<()> {
    if is_child()? {
        return Ok(());
    }
    let (partitions, rounds) = match Set::chosen() {
        Set::Smoke => (100, 1),
        Set::Short => (10_000, 3),
        Set::Full => (10_000, 9),
    };
    for load in [Load::Open(partitions), Load::Bulk] {
        if is_chosen(load.name()) {
            measure(load, rounds)?;
        }
    }
    Ok(())
}

fn measure(load: Load, rounds: usize) -> Result<()> {
    let mut series: Vec<Series> = vec![];
    for harness in subject::all() {
        let subject = harness.name().to_owned();
        if subject::is_chosen(&subject) {
            let samples = vec![];
            series.push(Series { subject, samples });
        }
    }
    for _ in 0..rounds {
        for one in &mut series {
            let sample = in_a_child(load, &one.subject)?;
            println!(
                "{}/{}: {} MiB",
                load.name(),
                one.subject,
                sample.peak_bytes >> 20
            );
            one.samples.push(sample);
        }
    }
    let samples = Samples {
        scenario: load.name().to_owned(),
        bytes: 0,
        messages: 0,
        streams: load.streams() as u64,
        series,
    };
    match Set::chosen() {
        Set::Smoke => Ok(()),
        _ => samples.save(&default_dir()),
    }
}
