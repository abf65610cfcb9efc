//! [`Report`]: the target table and what every subject did, for people and for machines.

use crate::fit::{self, Fit};
use crate::samples::{Samples, Series};
use crate::subject::GRPC;
use crate::targets::{Figure, Ratio, Target, Verdict, judge, quantile, spread, targets};
use serde_json::{Value, json};
use std::fmt::Write;

/// What was measured, judged.
pub struct Report {
    verdicts: Vec<(Target, Option<Ratio>, Verdict)>,
    scenarios: Vec<Samples>,
    fits: Vec<Fit>,
}

impl Report {
    /// Of these samples.
    pub fn new(scenarios: Vec<Samples>) -> Self {
        let judged = targets().into_iter().map(|target| {
            let (ratio, verdict) = judge(&target, &scenarios);
            (target, ratio, verdict)
        });
        Self {
            verdicts: judged.collect(),
            fits: fit::all(&scenarios),
            scenarios,
        }
    }

    /// Tables in Markdown.
    pub fn markdown(&self) -> String {
        let mut out = String::new();
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        let _ = writeln!(
            out,
            "{cores} cores. Ratios are medians over rounds that all subjects took in turns, with quartiles.\n"
        );
        self.target_table(&mut out);
        for samples in self
            .scenarios
            .iter()
            .filter(|samples| !fit::is_curve(samples))
        {
            scenario_table(samples, &mut out);
        }
        self.fit_table(&mut out);
        out
    }

    fn target_table(&self, out: &mut String) {
        let _ = writeln!(
            out,
            "| scenario | figure | ratio | to reach | measured | quartiles | verdict |"
        );
        let _ = writeln!(out, "|---|---|---|---|---|---|---|");
        for (target, ratio, verdict) in &self.verdicts {
            let sign = if target.figure == Figure::Throughput {
                "≥"
            } else {
                "≤"
            };
            let (measured, quartiles) = ratio.map_or((String::new(), String::new()), |ratio| {
                (
                    format!("{:.2}", ratio.median),
                    format!("{:.2} … {:.2}", ratio.low, ratio.high),
                )
            });
            let compared = match target.references.as_slice() {
                [] => target.subject.to_owned(),
                references => format!("{} : {}", target.subject, references.join(" or ")),
            };
            let _ = writeln!(
                out,
                "| {} | {} | {compared} | {sign} {} | {measured} | {quartiles} | {verdict} |",
                target.scenario, target.figure, target.bound,
            );
        }
    }

    fn fit_table(&self, out: &mut String) {
        if self.fits.is_empty() {
            return;
        }
        let _ = writeln!(
            out,
            "\n**Cost**, fitted over partitions and rows per batch\n"
        );
        let _ = writeln!(
            out,
            "| transport | µs per stream | µs per message | ns per KiB | typical error |"
        );
        let _ = writeln!(out, "|---|---|---|---|---|");
        for fit in &self.fits {
            let _ = writeln!(
                out,
                "| {} | {:.1} | {:.2} | {:.0} | {:.0} % |",
                fit.subject,
                fit.us_per_stream,
                fit.us_per_message,
                fit.ns_per_kib,
                fit.error * 100.0
            );
        }
    }

    /// The same for machines.
    pub fn json(&self) -> Value {
        let targets = self.verdicts.iter().map(|(target, ratio, verdict)| {
            json!({
                "scenario": target.scenario,
                "figure": target.figure.to_string(),
                "subject": target.subject,
                "references": target.references,
                "bound": target.bound,
                "ratio": ratio,
                "verdict": verdict,
            })
        });
        let scenarios = self.scenarios.iter().map(|samples| {
            let subjects = samples
                .series
                .iter()
                .map(|series| Line::new(samples, series).json());
            json!({
                "scenario": samples.scenario,
                "bytes": samples.bytes,
                "messages": samples.messages,
                "streams": samples.streams,
                "subjects": subjects.collect::<Vec<_>>(),
            })
        });
        json!({
            "targets": targets.collect::<Vec<_>>(),
            "scenarios": scenarios.collect::<Vec<_>>(),
            "fits": self.fits,
        })
    }
}

/// One subject in one scenario.
struct Line<'a> {
    subject: &'a str,
    gib_per_s: f64,
    cpu_s_per_gib: f64,
    wall: Option<Ratio>,
    p99_s: f64,
    peak_bytes: u64,
    rounds: usize,
}

impl<'a> Line<'a> {
    fn new(samples: &Samples, series: &'a Series) -> Self {
        let gib = samples.bytes as f64 / (1u64 << 30) as f64;
        let walls: Vec<_> = series.samples.iter().map(|sample| sample.wall_s).collect();
        let peaks = series.samples.iter();
        let peaks = peaks.map(|sample| sample.peak_bytes as f64).collect();
        let cpus = series.samples.iter().map(|sample| sample.cpu_s).collect();
        Self {
            subject: &series.subject,
            gib_per_s: gib / quantile(walls.clone(), 0.5).max(f64::MIN_POSITIVE),
            cpu_s_per_gib: quantile(cpus, 0.5) / gib.max(f64::MIN_POSITIVE),
            p99_s: quantile(walls.clone(), 0.99),
            peak_bytes: quantile(peaks, 0.5) as u64,
            rounds: walls.len(),
            wall: spread(walls),
        }
    }

    fn json(&self) -> Value {
        json!({
            "subject": self.subject,
            "rounds": self.rounds,
            "wall_s": self.wall,
            "p99_s": self.p99_s,
            "gib_per_s": self.gib_per_s,
            "cpu_s_per_gib": self.cpu_s_per_gib,
            "peak_bytes": self.peak_bytes,
        })
    }
}

fn memory_table(samples: &Samples, out: &mut String) {
    let (name, streams) = (&samples.scenario, samples.streams.max(1));
    let _ = writeln!(
        out,
        "\n**{name}**, memory\n\n| transport | MiB | KiB per partition |\n|---|---|---|"
    );
    for series in &samples.series {
        let line = Line::new(samples, series);
        let (mib, kib) = (line.peak_bytes >> 20, line.peak_bytes / streams / 1024);
        let _ = writeln!(out, "| {} | {mib} | {kib} |", line.subject);
    }
}

fn scenario_table(samples: &Samples, out: &mut String) {
    let all = || samples.series.iter().flat_map(|series| &series.samples);
    if all().any(|sample| sample.peak_bytes > 0) {
        return memory_table(samples, out);
    }
    let moves = samples.bytes > 0;
    let _ = writeln!(out, "\n**{}**\n", samples.scenario);
    let _ = match moves {
        true => writeln!(
            out,
            "| transport | GiB/s | CPU s/GiB | ms, median | quartiles | : gRPC |\n|---|---|---|---|---|---|"
        ),
        false => writeln!(
            out,
            "| transport | ms, median | quartiles | p99 | : gRPC |\n|---|---|---|---|---|"
        ),
    };
    let reference = samples.of(GRPC).map(|series| Line::new(samples, series));
    for series in &samples.series {
        let line = Line::new(samples, series);
        let Some(wall) = line.wall else { continue };
        let ratio = reference
            .as_ref()
            .and_then(|it| it.wall)
            .map_or(String::new(), |grpc| {
                format!("{:.2}", grpc.median / wall.median.max(f64::MIN_POSITIVE))
            });
        let [median, low, high, p99] =
            [wall.median, wall.low, wall.high, line.p99_s].map(|s| s * 1e3);
        let _ = match moves {
            true => writeln!(
                out,
                "| {} | {:.2} | {:.2} | {median:.1} | {low:.1} … {high:.1} | {ratio} |",
                line.subject, line.gib_per_s, line.cpu_s_per_gib
            ),
            false => writeln!(
                out,
                "| {} | {median:.3} | {low:.3} … {high:.3} | {p99:.3} | {ratio} |",
                line.subject
            ),
        };
    }
}
