//! [`targets`]: what the measurements must come to, and [`judge`], whether they do.
//!
//! Every figure but memory is a ratio of two subjects that were measured in the same rounds. Where there are two references,
//! the better one of each round counts.

use crate::samples::{Sample, Samples, Series};
use crate::subject::{GRPC, GRPC_TLS, GRPC_TUNED, SOCKET_COPY};
use crate::waiting::alone;
use serde::Serialize;
use std::fmt;

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// How many times as much per second.
    Throughput,
    /// How many times as many CPU seconds for the same bytes.
    Cpu,
    /// How many times as long, for half of the samples.
    Median,
    /// How many times as long, for 99 of 100 samples.
    P99,
    /// KiB of memory for each stream: no ratio.
    Memory,
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Throughput => "throughput",
            Self::Cpu => "CPU time",
            Self::Median => "time, p50",
            Self::P99 => "time, p99",
            Self::Memory => "KiB per partition",
        })
    }
}

/// One line of the table.
#[derive(Clone, Debug)]
pub struct Target {
    /// A scenario's name.
    pub scenario: &'static str,
    /// What is compared.
    pub figure: Figure,
    /// Whose figure it is.
    pub subject: &'static str,
    /// Compared with the best of these.
    pub references: Vec<String>,
    /// The ratio to reach: at least, or at most where less is better.
    pub bound: f64,
}

impl Target {
    fn is_met_by(&self, ratio: f64) -> bool {
        match self.figure {
            Figure::Throughput => ratio >= self.bound,
            Figure::Cpu | Figure::Median | Figure::P99 | Figure::Memory => ratio <= self.bound,
        }
    }
}

/// The table.
pub fn targets() -> Vec<Target> {
    use Figure::{Cpu, Median, Memory, P99, Throughput};
    let plain: &[&str] = &[GRPC, GRPC_TUNED];
    let tls: &[&str] = &[GRPC_TLS];
    let copy: &[&str] = &[SOCKET_COPY];
    let target = |scenario, figure, subject, references: &[&str], bound| Target {
        scenario,
        figure,
        subject,
        references: references.iter().map(ToString::to_string).collect(),
        bound,
    };
    let mut all = vec![
        target("bulk", Throughput, "tcp", plain, 4.0),
        target("bulk", Throughput, "tcp", copy, 0.8),
        target("bulk", Throughput, "quic", plain, 1.3),
        target("bulk", Throughput, "quic", tls, 2.0),
        target("bulk", Throughput, "tcp+tls", tls, 2.5),
        target("bulk", Cpu, "tcp", plain, 0.35),
        target("bulk", Cpu, "quic", plain, 0.8),
        target("small batches", Throughput, "tcp", plain, 4.0),
        target("small batches", Throughput, "quic", plain, 2.0),
        target("fan-out", Throughput, "tcp", plain, 3.0),
        target("fan-out", Throughput, "quic", plain, 1.2),
        target("many partitions", Throughput, "tcp", plain, 3.0),
        target("many partitions", Throughput, "quic", plain, 1.2),
        target("bulk lz4", Throughput, "tcp", plain, 1.6),
        target("bulk lz4", Throughput, "quic", plain, 1.0),
        target("bulk auto", Throughput, "tcp", plain, 4.0),
        target("warm call", Median, "tcp", plain, 0.5),
        target("warm call", P99, "tcp", plain, 0.5),
        target("warm call", Median, "quic", plain, 0.8),
        target("warm call", P99, "quic", plain, 0.8),
        target("new connection", Median, "quic", tls, 0.7),
        target("tiny queries", Throughput, "tcp", plain, 1.5),
        target("tiny queries", Throughput, "quic", plain, 1.5),
        target("concurrent queries", Throughput, "tcp", plain, 1.5),
        target("concurrent queries", Throughput, "quic", plain, 1.5),
        target("open partitions", Memory, "tcp", &[], 64.0),
        target("open partitions", Memory, "quic", &[], 64.0),
    ];
    for subject in ["tcp", "quic"] {
        let alone = alone(subject);
        all.push(target(
            "stalled sibling",
            Throughput,
            subject,
            &[&alone],
            0.95,
        ));
    }
    all
}

/// A ratio and how it spreads over blocks of rounds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Ratio {
    /// The middle one.
    pub median: f64,
    /// A quarter is below.
    pub low: f64,
    /// A quarter is above.
    pub high: f64,
}

/// What a target came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Also by the lower quartile.
    Met,
    /// Also by the upper quartile.
    Missed,
    /// The bound is between the quartiles.
    WithinNoise,
    /// Its scenario is not among the samples.
    NotMeasured,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Met => "met",
            Self::Missed => "missed",
            Self::WithinNoise => "within the noise",
            Self::NotMeasured => "not measured",
        })
    }
}

/// Compares a target with what was measured.
pub fn judge(target: &Target, all: &[Samples]) -> (Option<Ratio>, Verdict) {
    let scenario = all
        .iter()
        .find(|samples| samples.scenario == target.scenario);
    let Some(ratio) = scenario.and_then(|samples| ratio(target, samples)) else {
        return (None, Verdict::NotMeasured);
    };
    let verdict = match [ratio.low, ratio.high].map(|end| target.is_met_by(end)) {
        [true, true] => Verdict::Met,
        [false, false] => Verdict::Missed,
        _ => Verdict::WithinNoise,
    };
    (Some(ratio), verdict)
}

fn ratio(target: &Target, samples: &Samples) -> Option<Ratio> {
    let subject = samples.of(target.subject)?;
    if target.figure == Figure::Memory {
        let kib = samples.streams as f64 * 1024.0;
        let peaks = subject.samples.iter();
        return spread(peaks.map(|sample| sample.peak_bytes as f64 / kib).collect());
    }
    let references: Vec<_> = target
        .references
        .iter()
        .filter_map(|name| samples.of(name))
        .collect();
    let block = match target.figure {
        Figure::Throughput | Figure::Cpu | Figure::Memory => 1,
        Figure::Median => 10,
        Figure::P99 => 100,
    };
    let rounds = subject.samples.len();
    let block = block.min(rounds.max(1));
    let ratios = (0..rounds / block).filter_map(|number| {
        let range = number * block..(number + 1) * block;
        let of = |series: &Series| {
            series
                .samples
                .get(range.clone())
                .map(|some| cost(target.figure, some))
        };
        let best = references
            .iter()
            .filter_map(|series| of(series))
            .min_by(f64::total_cmp)?;
        let own = of(subject)?;
        Some(match target.figure {
            Figure::Throughput => best / own,
            Figure::Cpu | Figure::Median | Figure::P99 | Figure::Memory => own / best,
        })
    });
    spread(ratios.collect())
}

/// What counts of some samples: less is better.
fn cost(figure: Figure, samples: &[Sample]) -> f64 {
    let wall = samples.iter().map(|sample| sample.wall_s);
    match figure {
        Figure::Throughput | Figure::Median => quantile(wall.collect(), 0.5),
        Figure::P99 => quantile(wall.collect(), 0.99),
        Figure::Cpu => quantile(samples.iter().map(|sample| sample.cpu_s).collect(), 0.5),
        Figure::Memory => quantile(
            samples
                .iter()
                .map(|sample| sample.peak_bytes as f64)
                .collect(),
            0.5,
        ),
    }
}

/// The median and the quartiles.
pub fn spread(values: Vec<f64>) -> Option<Ratio> {
    (!values.is_empty()).then(|| Ratio {
        median: quantile(values.clone(), 0.5),
        low: quantile(values.clone(), 0.25),
        high: quantile(values, 0.75),
    })
}

/// The value below which this part of `values` lies, the nearest one; 0 where there are none.
pub fn quantile(mut values: Vec<f64>, part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let last = values.len().saturating_sub(1);
    let index = (last as f64 * part).round() as usize;
    values.get(index).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn series(subject: &str, walls: &[f64]) -> Series {
        let sample = |&wall_s| Sample {
            wall_s,
            cpu_s: wall_s,
            ..Sample::default()
        };
        Series {
            subject: subject.into(),
            samples: walls.iter().map(sample).collect(),
        }
    }

    fn bulk(tcp: &[f64], grpc: &[f64], tuned: &[f64]) -> Vec<Samples> {
        vec![Samples {
            scenario: "bulk".into(),
            bytes: 1,
            messages: 1,
            streams: 1,
            series: vec![
                series("tcp", tcp),
                series(GRPC, grpc),
                series(GRPC_TUNED, tuned),
            ],
        }]
    }

    fn tcp_bulk() -> Target {
        targets().remove(0)
    }

    #[test]
    fn the_better_reference_of_each_round_counts() {
        let all = bulk(&[1.0; 4], &[5.0, 9.0, 5.0, 9.0], &[9.0, 5.0, 9.0, 5.0]);
        let (ratio, verdict) = judge(&tcp_bulk(), &all);
        assert_eq!((ratio.unwrap().median, verdict), (5.0, Verdict::Met));
    }

    #[test]
    fn a_bound_between_the_quartiles_is_noise() {
        let walls = [3.0, 3.0, 4.1, 4.1, 5.0, 5.0];
        let all = bulk(&[1.0; 6], &walls, &[9.0; 6]);
        assert_eq!(judge(&tcp_bulk(), &all).1, Verdict::WithinNoise);
        let all = bulk(&[1.0; 6], &[2.0; 6], &[9.0; 6]);
        assert_eq!(judge(&tcp_bulk(), &all).1, Verdict::Missed);
        assert_eq!(judge(&tcp_bulk(), &[]).1, Verdict::NotMeasured);
    }

    #[test]
    fn less_time_is_better_for_latency() {
        let target = Target {
            figure: Figure::Median,
            bound: 0.5,
            ..tcp_bulk()
        };
        let all = bulk(&[1.0; 20], &[3.0; 20], &[4.0; 20]);
        let (ratio, verdict) = judge(&target, &all);
        assert_eq!(verdict, Verdict::Met);
        assert!((ratio.unwrap().median - 1.0 / 3.0).abs() < 1e-9);
    }
}
