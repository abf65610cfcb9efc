//! TPC-H tables in Parquet files, generated once and reused.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

use anyhow::{Context, Result, bail, ensure};
use parquet::{
    arrow::ArrowWriter,
    basic::Compression,
    file::properties::{EnabledStatistics, WriterProperties},
};
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator,
    PartSuppGenerator, RegionGenerator, SupplierGenerator,
};
use tpchgen_arrow::{
    CustomerArrow, LineItemArrow, NationArrow, OrderArrow, PartArrow, PartSuppArrow,
    RecordBatchIterator, RegionArrow, SupplierArrow,
};

use super::TABLES;
use crate::scratch::Scratch;

/// Goes into the directory's name: raise it when the files change, and old ones are left alone.
const LAYOUT_VERSION: u32 = 1;
/// Files per table for every started unit of scale: enough that a few workers each get some.
const FILES_PER_SCALE: usize = 4;
/// At most so many files per table, whatever the scale.
const MAX_FILES: usize = 64;
/// Scales that the generator is known to handle and a machine can hold.
const SCALES: std::ops::RangeInclusive<f64> = 0.001..=1000.0;

/// A complete set of tables on disk.
#[derive(Debug, Clone)]
pub struct Dataset {
    dir: PathBuf,
    generated: bool,
}

impl Dataset {
    /// The directory with one sub-directory of Parquet files per table.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether the files were written by this call (`false`: they were there already).
    pub fn generated(&self) -> bool {
        self.generated
    }

    /// Each table's name with the directory of its Parquet files.
    pub fn tables(&self) -> impl Iterator<Item = (&'static str, PathBuf)> + '_ {
        TABLES.into_iter().map(|name| (name, self.dir.join(name)))
    }
}

/// Makes sure that the tables at `scale` exist below `dir`, and writes them if they don't.
///
/// `progress` is told how many rows of about how many are written, from several threads. The files
/// are written under another name and moved into place when complete: an interrupted call leaves
/// nothing that a later one would take for data, and two calls at once do no harm. It computes for
/// seconds, so call it outside of an async task (or with `spawn_blocking`).
///
/// # Errors
/// When `scale` is out of range, or `dir` cannot be written.
pub fn generate(dir: &Path, scale: f64, progress: &(dyn Fn(u64, u64) + Sync)) -> Result<Dataset> {
    generate_until(dir, scale, progress, &AtomicBool::new(false))
}

/// As [`generate`], but fails, and leaves nothing, soon after `stop` is set.
///
/// # Errors
/// As [`generate`], or that it was stopped.
pub fn generate_until(
    dir: &Path,
    scale: f64,
    progress: &(dyn Fn(u64, u64) + Sync),
    stop: &AtomicBool,
) -> Result<Dataset> {
    check_scale(scale)?;
    let target = dir.join(format!("sf{scale}-v{LAYOUT_VERSION}"));
    if target.is_dir() {
        return Ok(Dataset {
            dir: target,
            generated: false,
        });
    }
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let staging = Scratch::create(dir, ".incomplete-")
        .with_context(|| format!("cannot write in {}", dir.display()))?;
    write_all(&jobs(staging.path(), scale)?, progress, stop)?;
    match staging.publish(&target) {
        Ok(()) => Ok(Dataset {
            dir: target,
            generated: true,
        }),
        // Another process was faster; its files are the same.
        Err(_) if target.is_dir() => Ok(Dataset {
            dir: target,
            generated: false,
        }),
        Err(error) => Err(error).with_context(|| format!("cannot create {}", target.display())),
    }
}

/// Checks that [`generate`] can produce data at `scale`.
///
/// # Errors
/// When it cannot: says which scales it can.
pub fn check_scale(scale: f64) -> Result<()> {
    let (smallest, largest) = (SCALES.start(), SCALES.end());
    match SCALES.contains(&scale) {
        true => Ok(()),
        false => bail!("scale {scale} is out of range: use {smallest} to {largest}"),
    }
}

/// One file to write.
struct Job {
    table: &'static str,
    path: PathBuf,
    scale: f64,
    part: i32,
    parts: i32,
    expected_rows: u64,
}

fn jobs(dir: &Path, scale: f64) -> Result<Vec<Job>> {
    let mut jobs = Vec::new();
    for table in TABLES {
        let dir = dir.join(table);
        fs::create_dir(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let parts = file_count(table, scale);
        for part in 1..=parts {
            let path = dir.join(format!("part-{part:03}.parquet"));
            let expected_rows = expected_rows(table, scale) / u64::from(parts.unsigned_abs());
            jobs.push(Job {
                table,
                path,
                scale,
                part,
                parts,
                expected_rows,
            });
        }
    }
    Ok(jobs)
}

fn file_count(table: &str, scale: f64) -> i32 {
    match table {
        "nation" | "region" => 1,
        // Saturating conversion; the scale is positive and checked.
        _ => (FILES_PER_SCALE * scale.ceil() as usize).min(MAX_FILES) as i32,
    }
}

/// Rows by the specification, for the progress display only (line items vary per order).
fn expected_rows(table: &str, scale: f64) -> u64 {
    let rows_at_scale_1 = match table {
        "lineitem" => 6_000_000.0,
        "orders" => 1_500_000.0,
        "partsupp" => 800_000.0,
        "part" => 200_000.0,
        "customer" => 150_000.0,
        "supplier" => 10_000.0,
        "nation" => return 25,
        _ => return 5,
    };
    (rows_at_scale_1 * scale) as u64
}

/// Writes the files on all processors, until `stop` is set; the first failure sets it.
fn write_all(jobs: &[Job], progress: &(dyn Fn(u64, u64) + Sync), stop: &AtomicBool) -> Result<()> {
    let total: u64 = jobs.iter().map(|job| job.expected_rows).sum();
    let done = AtomicU64::new(0);
    let wrote = |rows: u64| {
        let now = done.fetch_add(rows, Ordering::Relaxed) + rows;
        progress(now.min(total), total);
    };
    let queue = Mutex::new(jobs.iter());
    let next = || queue.lock().ok().and_then(|mut queue| queue.next());
    let threads = thread::available_parallelism()
        .map_or(1, usize::from)
        .min(jobs.len());
    thread::scope(|scope| {
        let work = || {
            while !stop.load(Ordering::Relaxed)
                && let Some(job) = next()
            {
                if let Err(error) = job.write(&wrote, stop) {
                    stop.store(true, Ordering::Relaxed);
                    return Err(error);
                }
            }
            Ok(())
        };
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        running
            .into_iter()
            .try_for_each(|thread| match thread.join() {
                Ok(result) => result,
                Err(_) => {
                    bail!("the data generator failed; please report this with the scale used")
                }
            })
    })?;
    ensure!(
        !stop.load(Ordering::Relaxed),
        "stopped before all was written"
    );
    Ok(())
}

impl Job {
    fn write(&self, wrote: &dyn Fn(u64), stop: &AtomicBool) -> Result<()> {
        let batches = self.batches();
        let describe = || format!("cannot write {}", self.path.display());
        let file = File::create(&self.path).with_context(describe)?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            // The engine prunes by row group; page statistics only cost time here.
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .build();
        let mut writer = ArrowWriter::try_new(file, batches.schema().clone(), Some(properties))
            .with_context(describe)?;
        for batch in batches {
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            writer.write(&batch).with_context(describe)?;
            wrote(batch.num_rows() as u64);
        }
        writer.close().with_context(describe)?;
        Ok(())
    }

    fn batches(&self) -> Box<dyn RecordBatchIterator> {
        let (scale, part, parts) = (self.scale, self.part, self.parts);
        match self.table {
            "lineitem" => Box::new(LineItemArrow::new(LineItemGenerator::new(
                scale, part, parts,
            ))),
            "orders" => Box::new(OrderArrow::new(OrderGenerator::new(scale, part, parts))),
            "partsupp" => Box::new(PartSuppArrow::new(PartSuppGenerator::new(
                scale, part, parts,
            ))),
            "part" => Box::new(PartArrow::new(PartGenerator::new(scale, part, parts))),
            "customer" => Box::new(CustomerArrow::new(CustomerGenerator::new(
                scale, part, parts,
            ))),
            "supplier" => Box::new(SupplierArrow::new(SupplierGenerator::new(
                scale, part, parts,
            ))),
            "nation" => Box::new(NationArrow::new(NationGenerator::new(scale, part, parts))),
            _ => Box::new(RegionArrow::new(RegionGenerator::new(scale, part, parts))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generates_once_and_leaves_nothing_else() -> Result<()> {
        let dir = tempfile::tempdir()?;
        let rows = AtomicU64::new(0);
        let count = |done, _total| {
            rows.fetch_max(done, Ordering::Relaxed);
        };
        let first = generate(dir.path(), 0.001, &count)?;
        assert!(first.generated());
        assert!(rows.into_inner() > 0);
        assert!(!generate(dir.path(), 0.001, &|_, _| {})?.generated());
        assert_eq!(fs::read_dir(dir.path())?.count(), 1);
        for (_, table) in first.tables() {
            assert!(fs::read_dir(table)?.count() >= 1);
        }
        Ok(())
    }

    #[test]
    fn stopped_it_leaves_nothing() -> Result<()> {
        let dir = tempfile::tempdir()?;
        let stop = AtomicBool::new(false);
        // The first rows ask for the end.
        let progress = |_, _| stop.store(true, Ordering::Relaxed);
        assert!(generate_until(dir.path(), 0.01, &progress, &stop).is_err());
        assert_eq!(fs::read_dir(dir.path())?.count(), 0);
        Ok(())
    }

    #[test]
    fn refuses_a_scale_out_of_range() -> Result<()> {
        let dir = tempfile::tempdir()?;
        for scale in [0.0, -1.0, f64::NAN, 1e9] {
            assert!(generate(dir.path(), scale, &|_, _| {}).is_err());
        }
        Ok(())
    }
}
