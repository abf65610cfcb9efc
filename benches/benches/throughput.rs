//! Throughput of `WorkerChannel::execute_task`, by scenario and transport.
//!
//! Compare transports within one run, never absolute numbers between runs or machines.
#![allow(missing_docs)]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use datafusion_transport_benches::rounds::{self, Runner, Set};
use datafusion_transport_benches::samples::Samples;
use datafusion_transport_benches::scenario::Scenario;
use datafusion_transport_benches::subject::{self, Spread};
use datafusion_transport_benches::transfer::{SocketCopy, Transfer};
use tokio::runtime::Runtime;

const MIB: usize = 1 << 20;

/// The target table's.
fn targets() -> Vec<Scenario> {
    vec![
        Scenario::of_bytes("bulk", 16, 8192, 192 * MIB),
        Scenario::of_bytes("bulk views", 16, 8192, 192 * MIB).of_views(),
        Scenario::of_bytes("bulk lz4", 16, 8192, 64 * MIB).compressed("lz4"),
        Scenario::of_bytes("bulk auto", 16, 8192, 192 * MIB).compressed("auto"),
        Scenario::of_bytes("small batches", 64, 128, 24 * MIB),
        Scenario::of_bytes("fan-out", 16, 2048, 128 * MIB).consumed_by(16),
        Scenario::of_bytes("many partitions", 512, 512, 64 * MIB),
    ]
}

/// How cost grows.
fn curves() -> Vec<Scenario> {
    let partitions = [1, 4, 16, 64, 256, 1024, 4096];
    let by_partitions =
        partitions.map(|n| Scenario::of_bytes(format!("partitions {n}"), n, 512, 64 * MIB));
    let rows = [8, 32, 128, 512, 2048, 8192, 65536];
    let by_rows =
        rows.map(|n| Scenario::of_bytes(format!("rows {n}"), 16, n, (64 * MIB).min(n * 40_000)));
    by_partitions.into_iter().chain(by_rows).collect()
}

fn measure(runtime: &Runtime, scenario: &Scenario, rounds: usize) -> Samples {
    let mut harnesses = subject::all();
    if scenario.name == "bulk" {
        harnesses.extend([2, 4].map(Spread::over));
        harnesses.push(subject::cubic());
    }
    harnesses.retain(|harness| subject::is_chosen(harness.name()));
    let mut runners: Vec<Box<dyn Runner>> = vec![];
    for harness in harnesses {
        runners.push(Box::new(
            runtime.block_on(Transfer::start(harness, scenario)),
        ));
    }
    if scenario.name == "bulk" && subject::is_chosen(subject::SOCKET_COPY) {
        runners.push(Box::new(SocketCopy::connect(scenario)));
    }
    let series = rounds::take(runtime, &mut runners, rounds);
    runtime.block_on(async { drop(runners) });
    Samples {
        scenario: scenario.name.clone(),
        bytes: scenario.bytes() as u64,
        messages: scenario.all_batches() as u64,
        streams: scenario.all_partitions() as u64,
        series,
    }
}

fn throughput(c: &mut Criterion) {
    #[allow(clippy::expect_used)]
    let runtime = Runtime::new().expect("threads");
    let set = Set::chosen();
    let mut scenarios = targets();
    if set == Set::Full {
        scenarios.extend(curves());
    }
    for scenario in scenarios
        .iter()
        .filter(|scenario| rounds::is_chosen(&scenario.name))
    {
        let samples = measure(&runtime, scenario, set.rounds());
        let mut group = c.benchmark_group(&scenario.name);
        group.throughput(Throughput::Bytes(samples.bytes));
        rounds::publish(&mut group, &samples);
        group.finish();
    }
}

criterion_group!(benches, throughput);
criterion_main!(benches);
