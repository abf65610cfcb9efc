//! Plots of a report, as SVG files.

use crate::fit::{self, Fit, curve_of};
use crate::samples::Samples;
use crate::targets::quantile;
use crate::timeline::Timeline;
use anyhow::{Context, Result};
use plotters::coord::Shift;
use plotters::coord::ranged1d::ValueFormatter;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const SIZE: (u32, u32) = (900, 520);
const GIB: f64 = (1u64 << 30) as f64;

/// What is fitted: its name, what its axis says, and its value.
type Cost = (&'static str, &'static str, fn(&Fit) -> f64);

const COSTS: [Cost; 3] = [
    ("stream", "µs per stream", |fit| fit.us_per_stream),
    ("message", "µs per message", |fit| fit.us_per_message),
    ("byte", "ns per KiB", |fit| fit.ns_per_kib),
];

/// Points of one subject.
type Points = Vec<(f64, f64)>;

/// Draws what the samples have: throughput by transport, and by partitions and rows per batch and the fitted costs where the full set was
/// run, and the time line of a stalled sibling where it was taken. Returns the names of the files.
///
/// # Errors
/// Where a file can't be written.
pub fn draw(scenarios: &[Samples], timelines: &[Timeline], dir: &Path) -> Result<Vec<String>> {
    fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
    let mut files = vec![];
    for (curve, axis) in [
        ("partitions", "partitions of a call"),
        ("rows", "rows per batch"),
    ] {
        let lines = curve_lines(scenarios, curve);
        if !lines.is_empty() {
            let file = format!("throughput-by-{curve}.svg");
            let axes = (axis, "GiB/s");
            draw_lines(&dir.join(&file), axes, true, &lines).with_context(|| file.clone())?;
            files.push(file);
        }
    }
    if !timelines.is_empty() {
        let file = "stalled-sibling.svg".to_owned();
        let lines = timelines.iter().map(|line| {
            let points = line.points.iter();
            let points = points.map(|(second, bytes)| (*second, bytes / GIB));
            (line.subject.clone(), points.collect())
        });
        let axes = (
            "seconds since the call of 8 partitions, one of which is never polled",
            "GiB that its siblings have received",
        );
        let lines = lines.collect();
        draw_lines(&dir.join(&file), axes, false, &lines).with_context(|| file.clone())?;
        files.push(file);
    }
    for (cost, axis, of) in COSTS {
        let fits = fit::all(scenarios);
        if !fits.is_empty() {
            let file = format!("cost-per-{cost}.svg");
            let bars: Vec<_> = fits
                .iter()
                .map(|fit| (fit.subject.as_str(), of(fit)))
                .collect();
            draw_bars(&dir.join(&file), axis, &bars).with_context(|| file.clone())?;
            files.push(file);
        }
    }
    if let Some(bulk) = scenarios.iter().find(|samples| samples.scenario == "bulk") {
        let file = "throughput-by-transport.svg".to_owned();
        let rates = bulk.series.iter().filter_map(|series| {
            let name = series.subject.as_str();
            Some((name, gib_per_s(bulk, name)?))
        });
        let rates: Vec<_> = rates.collect();
        draw_bars(&dir.join(&file), "GiB/s, bulk", &rates).with_context(|| file.clone())?;
        files.push(file);
    }
    Ok(files)
}

fn gib_per_s(samples: &Samples, subject: &str) -> Option<f64> {
    let walls = samples
        .of(subject)?
        .samples
        .iter()
        .map(|sample| sample.wall_s);
    let wall = quantile(walls.collect(), 0.5);
    (wall > 0.0).then(|| samples.bytes as f64 / wall / GIB)
}

fn curve_lines(scenarios: &[Samples], curve: &str) -> BTreeMap<String, Points> {
    let mut lines: BTreeMap<String, Points> = BTreeMap::new();
    for samples in scenarios {
        let Some((name, x)) = curve_of(&samples.scenario) else {
            continue;
        };
        for series in samples.series.iter().filter(|_| name == curve) {
            if let Some(y) = gib_per_s(samples, &series.subject) {
                lines
                    .entry(series.subject.clone())
                    .or_default()
                    .push((x, y));
            }
        }
    }
    for points in lines.values_mut() {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    lines
}

fn canvas(path: &Path) -> Result<DrawingArea<SVGBackend<'_>, Shift>> {
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    Ok(root)
}

/// The titles of the axes, of `x` and of `y`.
type Axes<'a> = (&'a str, &'a str);

fn draw_lines(
    path: &Path,
    axes: Axes<'_>,
    logarithmic: bool,
    lines: &BTreeMap<String, Points>,
) -> Result<()> {
    let root = canvas(path)?;
    let all = || lines.values().flatten();
    let (left, right) = all().fold((f64::MAX, 0.0_f64), |(low, high), (x, _)| {
        (low.min(*x), high.max(*x))
    });
    let top = all().fold(0.0_f64, |top, (_, y)| top.max(*y)) * 1.05;
    let mut builder = ChartBuilder::on(&root);
    builder
        .margin(12)
        .x_label_area_size(45)
        .y_label_area_size(55);
    match logarithmic {
        true => {
            let chart = builder.build_cartesian_2d((left..right).log_scale(), 0.0..top)?;
            fill_chart(chart, axes, lines)?;
        }
        false => fill_chart(
            builder.build_cartesian_2d(left..right, 0.0..top)?,
            axes,
            lines,
        )?,
    }
    root.present()?;
    Ok(())
}

type Plane<X> = Cartesian2d<X, RangedCoordf64>;

fn fill_chart<'a, X>(
    mut chart: ChartContext<'a, SVGBackend<'a>, Plane<X>>,
    (x, y): Axes<'_>,
    lines: &BTreeMap<String, Points>,
) -> Result<()>
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let mut mesh = chart.configure_mesh();
    mesh.x_desc(x).y_desc(y).light_line_style(WHITE).draw()?;
    for (number, (subject, points)) in lines.iter().enumerate() {
        let color = Palette99::pick(number).to_rgba();
        let line = LineSeries::new(points.iter().copied(), color.stroke_width(2)).point_size(3);
        let key = move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], color.stroke_width(2));
        chart.draw_series(line)?.label(subject.as_str()).legend(key);
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    Ok(())
}

fn draw_bars(path: &Path, axis: &str, rates: &[(&str, f64)]) -> Result<()> {
    let root = canvas(path)?;
    let widest = rates
        .iter()
        .fold(0.0_f64, |widest, (_, rate)| widest.max(*rate))
        * 1.05;
    let mut chart = ChartBuilder::on(&root)
        .margin(12)
        .x_label_area_size(45)
        .y_label_area_size(110)
        .build_cartesian_2d(0.0..widest, (0..rates.len()).into_segmented())?;
    let name = |place: &SegmentValue<usize>| match place {
        SegmentValue::CenterOf(number) => {
            rates.get(*number).map_or("", |(name, _)| *name).to_owned()
        }
        _ => String::new(),
    };
    let mut mesh = chart.configure_mesh();
    mesh.disable_y_mesh()
        .x_desc(axis)
        .y_labels(rates.len())
        .y_label_formatter(&name);
    mesh.light_line_style(WHITE).draw()?;
    let bars = rates.iter().enumerate().map(|(number, (_, rate))| {
        let corners = [
            (0.0, SegmentValue::Exact(number)),
            (*rate, SegmentValue::Exact(number + 1)),
        ];
        let mut bar = Rectangle::new(corners, Palette99::pick(number).filled());
        bar.set_margin(6, 6, 0, 0);
        bar
    });
    chart.draw_series(bars)?;
    root.present()?;
    Ok(())
}
