//! Plots of a report, as SVG files.

use crate::fit::curve_of;
use crate::samples::Samples;
use crate::targets::quantile;
use anyhow::{Context, Result};
use plotters::coord::Shift;
use plotters::prelude::*;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const SIZE: (u32, u32) = (900, 520);

/// Points of one subject.
type Points = Vec<(f64, f64)>;

/// Draws what the samples have: throughput by transport, and by partitions and rows per batch where the full set was run.
/// Returns the names of the files.
///
/// # Errors
/// Where a file can't be written.
pub fn draw(scenarios: &[Samples], dir: &Path) -> Result<Vec<String>> {
    fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
    let mut files = vec![];
    for (curve, axis) in [
        ("partitions", "partitions of a call"),
        ("rows", "rows per batch"),
    ] {
        let lines = curve_lines(scenarios, curve);
        if !lines.is_empty() {
            let file = format!("throughput-by-{curve}.svg");
            draw_lines(&dir.join(&file), axis, &lines).with_context(|| file.clone())?;
            files.push(file);
        }
    }
    if let Some(bulk) = scenarios.iter().find(|samples| samples.scenario == "bulk") {
        let file = "throughput-by-transport.svg".to_owned();
        draw_bars(&dir.join(&file), bulk).with_context(|| file.clone())?;
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
    (wall > 0.0).then(|| samples.bytes as f64 / wall / (1u64 << 30) as f64)
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

fn draw_lines(path: &Path, axis: &str, lines: &BTreeMap<String, Points>) -> Result<()> {
    let root = canvas(path)?;
    let all = || lines.values().flatten();
    let (left, right) = all().fold((f64::MAX, 1.0_f64), |(low, high), (x, _)| {
        (low.min(*x), high.max(*x))
    });
    let top = all().fold(0.0_f64, |top, (_, y)| top.max(*y)) * 1.05;
    let mut chart = ChartBuilder::on(&root)
        .margin(12)
        .x_label_area_size(45)
        .y_label_area_size(55)
        .build_cartesian_2d((left..right).log_scale(), 0.0..top)?;
    chart
        .configure_mesh()
        .x_desc(axis)
        .y_desc("GiB/s")
        .light_line_style(WHITE)
        .draw()?;
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
    root.present()?;
    Ok(())
}

fn draw_bars(path: &Path, samples: &Samples) -> Result<()> {
    let root = canvas(path)?;
    let rates = samples.series.iter().filter_map(|series| {
        Some((
            series.subject.as_str(),
            gib_per_s(samples, &series.subject)?,
        ))
    });
    let rates: Vec<_> = rates.collect();
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
        .x_desc("GiB/s, bulk")
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
