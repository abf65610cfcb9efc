//! Time that a user waits: small calls, new connections, siblings of a stalled partition, small queries.
#![allow(missing_docs, clippy::expect_used)]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use datafusion_transport_benches::cluster::{self, Queries};
use datafusion_transport_benches::rounds::{self, Runner, Set};
use datafusion_transport_benches::samples::{Samples, default_dir};
use datafusion_transport_benches::subject;
use datafusion_transport_benches::timeline::Timeline;
use datafusion_transport_benches::waiting::{NewConnection, Siblings, WarmCall};
use datafusion_transport_tests::ChannelHarness;
use std::sync::Arc;
use tokio::runtime::Runtime;

/// Starts a subject's runner.
type Start<'a> = dyn Fn(Arc<dyn ChannelHarness>) -> Vec<Box<dyn Runner>> + 'a;

/// What one sample is.
struct Bench {
    name: &'static str,
    rounds: usize,
    bytes: usize,
    streams: usize,
}

struct Benches<'a> {
    criterion: &'a mut Criterion,
    runtime: &'a Runtime,
}

impl Benches<'_> {
    fn run(&mut self, bench: &Bench, subjects: Vec<Arc<dyn ChannelHarness>>, start: &Start<'_>) {
        if !rounds::is_chosen(bench.name) {
            return;
        }
        let mut subjects = subjects;
        subjects.retain(|harness| subject::is_chosen(harness.name()));
        let mut runners: Vec<_> = subjects.into_iter().flat_map(start).collect();
        let series = rounds::take(self.runtime, &mut runners, bench.rounds);
        self.runtime.block_on(async { drop(runners) });
        let samples = Samples {
            scenario: bench.name.into(),
            bytes: bench.bytes as u64,
            messages: bench.streams as u64,
            streams: bench.streams as u64,
            series,
        };
        let mut group = self.criterion.benchmark_group(bench.name);
        if bench.bytes > 0 {
            group.throughput(Throughput::Bytes(bench.bytes as u64));
        }
        rounds::publish(&mut group, &samples);
        group.finish();
    }
}

fn latency(c: &mut Criterion) {
    let runtime = Runtime::new().expect("threads");
    let set = Set::chosen();
    let rounds = |calls: usize| match set {
        Set::Smoke => 1,
        Set::Short => calls,
        Set::Full => calls * 4,
    };
    let bench = |name, rounds| Bench {
        name,
        rounds,
        bytes: 0,
        streams: 1,
    };
    let mut benches = Benches {
        criterion: c,
        runtime: &runtime,
    };

    benches.run(
        &bench("warm call", rounds(500)),
        subject::all(),
        &|harness| vec![Box::new(runtime.block_on(WarmCall::start(harness)))],
    );
    benches.run(
        &bench("new connection", rounds(40)),
        subject::all(),
        &|harness| vec![Box::new(runtime.block_on(NewConnection::start(harness)))],
    );
    let siblings = Bench {
        bytes: (Siblings::PARTITIONS - 1) * Siblings::PARTITION_BYTES,
        streams: Siblings::PARTITIONS,
        ..bench("stalled sibling", set.rounds())
    };
    // Not the reference: it hangs.
    benches.run(&siblings, subject::ours(), &|harness| {
        let start = |stalled| {
            let siblings = Siblings::start(Arc::clone(&harness), stalled);
            Box::new(runtime.block_on(siblings)) as Box<dyn Runner>
        };
        vec![start(true), start(false)]
    });

    if rounds::is_chosen("stalled sibling") && set != Set::Smoke {
        let subjects = subject::references().into_iter().take(1);
        let subjects = subjects.chain(subject::ours().into_iter().take(2));
        let taken: Vec<_> = subjects
            .map(|harness| runtime.block_on(Timeline::take(harness)))
            .collect();
        Timeline::save(&taken, &default_dir()).expect("a place for the time lines");
    }

    let data = tempfile::tempdir().expect("a temporary directory");
    runtime
        .block_on(cluster::write_data(data.path()))
        .expect("the data");
    for (name, at_once, per_sample) in [("tiny queries", 1, 32), ("concurrent queries", 32, 64)] {
        benches.run(&bench(name, set.rounds()), subject::all(), &|harness| {
            let queries = Queries::start(harness, data.path(), at_once, per_sample);
            vec![Box::new(runtime.block_on(queries))]
        });
    }
}

criterion_group!(benches, latency);
criterion_main!(benches);
