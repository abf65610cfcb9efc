//! [`Fit`]: what a stream, a message and a byte cost, fitted over the curves of the full set.

use crate::samples::Samples;
use crate::targets::quantile;
use serde::Serialize;

/// A transport's costs.
#[derive(Clone, Debug, Serialize)]
pub struct Fit {
    /// The transport.
    pub subject: String,
    /// Fixed cost of a partition's stream.
    pub us_per_stream: f64,
    /// Fixed cost of a batch.
    pub us_per_message: f64,
    /// Cost of the bytes.
    pub ns_per_kib: f64,
    /// The median of how far the fit is off, relative.
    pub error: f64,
}

/// Whether a scenario is a point on a curve, which the fit is made from.
pub fn is_curve(samples: &Samples) -> bool {
    curve_of(&samples.scenario).is_some()
}

/// The curve that a scenario is a point on, and the point.
pub fn curve_of(scenario: &str) -> Option<(&str, f64)> {
    let (curve, point) = scenario.split_once(' ')?;
    Some((curve, point.parse().ok()?))
}

/// One for each subject; none without the full set.
pub fn all(scenarios: &[Samples]) -> Vec<Fit> {
    let curves: Vec<_> = scenarios
        .iter()
        .filter(|samples| is_curve(samples))
        .collect();
    let subjects = curves
        .first()
        .into_iter()
        .flat_map(|samples| &samples.series);
    subjects
        .filter_map(|series| fit(&series.subject, &curves))
        .collect()
}

/// Least squares of relative errors.
fn fit(subject: &str, curves: &[&Samples]) -> Option<Fit> {
    let points: Vec<_> = curves
        .iter()
        .filter_map(|samples| {
            let walls = samples
                .of(subject)?
                .samples
                .iter()
                .map(|sample| sample.wall_s);
            let wall = quantile(walls.collect(), 0.5);
            (wall > 0.0).then(|| {
                [samples.streams, samples.messages, samples.bytes].map(|count| count as f64 / wall)
            })
        })
        .collect();
    if points.len() < 6 {
        return None;
    }
    let costs = solve(&points)?;
    let predicted = |point: &[f64; 3]| (0..3).map(|i| at(point, i) * at(&costs, i)).sum::<f64>();
    let errors = points
        .iter()
        .map(|point| (predicted(point) - 1.0).abs())
        .collect();
    let [stream, message, byte] = costs;
    Some(Fit {
        subject: subject.into(),
        us_per_stream: stream * 1e6,
        us_per_message: message * 1e6,
        ns_per_kib: byte * 1e9 * 1024.0,
        error: quantile(errors, 0.5),
    })
}

/// The costs for which every point comes nearest to 1, by the normal equations and Cramer's rule.
fn solve(points: &[[f64; 3]]) -> Option<[f64; 3]> {
    let sum = |f: &dyn Fn(&[f64; 3]) -> f64| points.iter().map(f).sum::<f64>();
    let column = |i: usize| [0, 1, 2].map(|j| sum(&|point| at(point, i) * at(point, j)));
    let [a, b, c] = [0, 1, 2].map(column);
    let right = [0, 1, 2].map(|i| sum(&|point| at(point, i)));
    let all = determinant(&a, &b, &c);
    let costs = [(&right, &b, &c), (&a, &right, &c), (&a, &b, &right)];
    (all != 0.0).then(|| costs.map(|(a, b, c)| determinant(a, b, c) / all))
}

fn determinant(a: &[f64; 3], b: &[f64; 3], c: &[f64; 3]) -> f64 {
    let ([a0, a1, a2], [b0, b1, b2], [c0, c1, c2]) = (a, b, c);
    a0 * (b1 * c2 - b2 * c1) - b0 * (a1 * c2 - a2 * c1) + c0 * (a1 * b2 - a2 * b1)
}

fn at(point: &[f64; 3], index: usize) -> f64 {
    point.get(index).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::samples::{Sample, Series};

    #[test]
    fn the_costs_that_made_the_times_are_found() {
        let counts = [
            (1, 100),
            (4, 100),
            (64, 500),
            (512, 9000),
            (16, 70_000),
            (1024, 2000),
        ];
        let scenarios = counts.map(|(streams, messages)| {
            let bytes = messages * 5000 + streams * streams;
            let wall_s = streams as f64 * 30e-6 + messages as f64 * 4e-6 + bytes as f64 * 0.25e-9;
            let sample = Sample {
                wall_s,
                ..Sample::default()
            };
            let series = vec![Series {
                subject: "it".into(),
                samples: vec![sample],
            }];
            let scenario = format!("partitions {streams}");
            Samples {
                scenario,
                bytes,
                messages,
                streams,
                series,
            }
        });
        let fit = all(&scenarios).remove(0);
        assert!((fit.us_per_stream - 30.0).abs() < 0.1, "{fit:?}");
        assert!((fit.us_per_message - 4.0).abs() < 0.1, "{fit:?}");
        assert!((fit.ns_per_kib - 256.0).abs() < 1.0, "{fit:?}");
        assert!(fit.error < 1e-6);
    }
}
