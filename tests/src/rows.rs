//! Batches of numbers that tell where they came from.

use arrow_array::{Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use datafusion::common::Result;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use std::sync::Arc;

/// The batches of a partition.
pub type Batches = BoxStream<'static, Result<RecordBatch>>;

/// One column of 64-bit numbers.
pub fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]))
}

/// A batch of `rows` consecutive numbers: 8 bytes each.
pub fn numbers(from: usize, rows: usize) -> RecordBatch {
    let range = from as i64..(from + rows) as i64;
    let column = Int64Array::from_iter_values(range);
    RecordBatch::try_new(schema(), vec![Arc::new(column)]).expect("one column")
}

/// `batches` batches of `rows` rows, counting up from 0.
pub fn counting(batches: usize, rows: usize) -> Batches {
    counting_from(0, batches, rows)
}

/// `batches` batches of `rows` rows, counting up.
pub fn counting_from(first: usize, batches: usize, rows: usize) -> Batches {
    let batch = move |i| Ok(numbers(first + i * rows, rows));
    stream::iter((0..batches).map(batch)).boxed()
}

/// Batches of `rows` rows, without end.
pub fn endless(rows: usize) -> Batches {
    let batch = numbers(0, rows);
    stream::repeat_with(move || Ok(batch.clone())).boxed()
}

/// All numbers, in order.
pub fn values(batches: &[RecordBatch]) -> Vec<i64> {
    let column = |batch: &RecordBatch| {
        let column = batch.column(0).as_any().downcast_ref::<Int64Array>();
        column.expect("64-bit numbers").values().to_vec()
    };
    batches.iter().flat_map(column).collect()
}

/// True for exactly the numbers `from..from + rows`, in order.
pub fn counts(batches: &[RecordBatch], from: usize, rows: usize) -> bool {
    values(batches)
        .into_iter()
        .eq(from as i64..(from + rows) as i64)
}
