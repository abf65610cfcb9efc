//! Query results as people and programs read them.

use std::io::{self, Write};

use anyhow::{Context, Result};
use datafusion::arrow::{
    csv,
    error::ArrowError,
    json::{WriterBuilder, writer::JsonArray},
    util::pretty::pretty_format_batches_with_schema,
};

use crate::execution::Execution;

/// How results are written to standard output.
#[derive(clap::ValueEnum, Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// A table for people
    #[default]
    Table,
    /// JSON, numbers as numbers and missing values as null
    Json,
    /// CSV with a header line
    Csv,
}

/// Writes the rows of `result`, and a line end after them.
///
/// # Errors
/// When `out` cannot be written, or a column has a type that the format cannot express.
pub fn write_result(out: &mut dyn Write, format: Format, result: &Execution) -> Result<()> {
    match format {
        Format::Table => {
            let table = pretty_format_batches_with_schema(result.schema(), result.batches())?;
            writeln!(out, "{table}")?;
        }
        Format::Json => writeln!(out, "{}", rows_as_json(result)?)?,
        Format::Csv => {
            let mut writer = csv::WriterBuilder::new().with_header(true).build(&mut *out);
            if result.batches().iter().all(|batch| batch.num_rows() == 0) {
                // The writer takes the header from a batch.
                let empty = datafusion::arrow::array::RecordBatch::new_empty(result.schema());
                writer.write(&empty).map_err(in_csv)?;
            }
            for batch in result.batches() {
                writer.write(batch).map_err(in_csv)?;
            }
        }
    }
    Ok(())
}

/// The rows as one JSON array of objects.
///
/// # Errors
/// When a column has a type that JSON cannot express.
pub fn rows_as_json(result: &Execution) -> Result<String> {
    let mut buffer = Vec::new();
    let mut writer = WriterBuilder::new()
        .with_explicit_nulls(true)
        .build::<_, JsonArray>(&mut buffer);
    for batch in result.batches() {
        writer
            .write(batch)
            .context("cannot write this result as JSON: try --format table")?;
    }
    writer.finish()?;
    // Without a batch the writer writes nothing at all.
    match String::from_utf8(buffer)? {
        empty if empty.is_empty() => Ok("[]".to_owned()),
        rows => Ok(rows),
    }
}

/// Whether `error` only says that the reader of our output has gone away (`| head`).
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause
            .downcast_ref::<io::Error>()
            .is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
            || matches!(cause.downcast_ref::<ArrowError>(),
                Some(ArrowError::IoError(_, e)) if e.kind() == io::ErrorKind::BrokenPipe)
    })
}

fn in_csv(error: ArrowError) -> anyhow::Error {
    anyhow::Error::new(error).context("cannot write this result as CSV: try --format json")
}
