//! Rounds: every subject once, then every subject again, so that what the machine does meanwhile hits all alike.

use crate::samples::{Sample, Samples, Series, default_dir};
use async_trait::async_trait;
use cpu_time::ProcessTime;
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, SamplingMode};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// A subject at work on a scenario.
#[async_trait]
pub trait Runner: Send {
    /// Its name.
    fn subject(&self) -> &str;

    /// Does it once. What is prepared before and checked after is not in the sample.
    async fn run(&mut self) -> Sample;
}

/// Takes the time.
pub struct Stopwatch {
    wall: Instant,
    cpu: ProcessTime,
}

impl Stopwatch {
    /// From now.
    pub fn start() -> Self {
        Self {
            wall: Instant::now(),
            cpu: ProcessTime::now(),
        }
    }

    /// Until now.
    pub fn stop(self) -> Sample {
        Sample {
            wall_s: self.wall.elapsed().as_secs_f64(),
            cpu_s: self.cpu.elapsed().as_secs_f64(),
            peak_bytes: 0,
        }
    }
}

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Set {
    /// Each once: do they work? (`cargo bench -- --test`)
    Smoke,
    /// The target table, in a few minutes.
    Short,
    /// With the curves, and more rounds (`BENCH_SET=full`).
    Full,
}

impl Set {
    /// What the command line and the environment ask for.
    pub fn chosen() -> Self {
        if std::env::args().any(|argument| argument == "--test") {
            return Self::Smoke;
        }
        match std::env::var("BENCH_SET").as_deref() {
            Ok("full") => Self::Full,
            _ => Self::Short,
        }
    }

    /// Rounds. Criterion wants at least ten.
    pub fn rounds(self) -> usize {
        match self {
            Self::Smoke => 1,
            Self::Short => 11,
            Self::Full => 25,
        }
    }
}

/// True where the command line names this scenario, or its curve, or none at all: `cargo bench -- bulk`.
pub fn is_chosen(scenario: &str) -> bool {
    let mut names = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with('-'));
    names.next().is_none_or(|name| {
        let name = name.split('/').next().unwrap_or_default();
        scenario == name || crate::fit::curve_of(scenario).is_some_and(|(curve, _)| curve == name)
    })
}

/// One warm-up each, then the rounds; each begins with another subject.
pub fn take(runtime: &Runtime, runners: &mut [Box<dyn Runner>], rounds: usize) -> Vec<Series> {
    let names = runners.iter().map(|runner| runner.subject().to_owned());
    let empty = |subject| Series {
        subject,
        samples: Vec::with_capacity(rounds),
    };
    let mut all: Vec<_> = names.map(empty).collect();
    for runner in &mut *runners {
        runtime.block_on(runner.run());
    }
    let count = runners.len();
    for round in 0..rounds {
        let mut order: Vec<_> = runners.iter_mut().zip(&mut all).collect();
        order.rotate_left(round % count);
        for (runner, series) in order {
            series.samples.push(runtime.block_on(runner.run()));
        }
    }
    all
}

/// Keeps what was taken, and shows it to criterion: its samples are the rounds, so its figures and its comparisons with
/// earlier runs are of them. Smoke tests are not kept.
///
/// # Panics
/// Where it can't be kept.
#[allow(clippy::panic)]
pub fn publish(group: &mut BenchmarkGroup<'_, WallTime>, samples: &Samples) {
    if Set::chosen() != Set::Smoke {
        let saved = samples.save(&default_dir());
        saved.unwrap_or_else(|err| panic!("{err:#}"));
    }
    // Nothing is run here: one call to warm up, then one for each sample.
    group.sampling_mode(SamplingMode::Flat);
    group.warm_up_time(Duration::from_nanos(1));
    group.measurement_time(Duration::from_secs(3600));
    for series in &samples.series {
        group.sample_size(series.samples.len().max(10));
        let mut replay = series
            .samples
            .first()
            .into_iter()
            .chain(series.samples.iter().cycle());
        let id = BenchmarkId::from_parameter(&series.subject);
        group.bench_function(id, |bencher| {
            bencher.iter_custom(|times| {
                let sample = replay.next().copied().unwrap_or_default();
                Duration::from_secs_f64(sample.wall_s * times as f64)
            });
        });
    }
}
