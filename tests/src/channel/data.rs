//! Batches, whatever their shape.

use super::Kit;
use crate::probe::ProbeExec;
use crate::rows::{counting, counting_from, counts, numbers, schema, values};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Int64Array, ListArray, RecordBatch, RecordBatchOptions,
    StringArray, StructArray, new_null_array,
};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use futures::{StreamExt, TryStreamExt, stream};
use std::collections::HashMap;
use std::sync::Arc;

/// Sends batches over one partition and compares them, and their schemas, with what arrives. How they are cut is not compared.
pub(super) async fn round_trip(t: &Kit, schema: SchemaRef, batches: Vec<RecordBatch>) {
    let rig = t.rig().await;
    let arrived = carry(&rig, Arc::clone(&schema), batches.clone()).await;
    for batch in &arrived {
        assert_eq!(batch.schema(), schema, "the schema arrived otherwise");
    }
    let whole = |batches: &[RecordBatch]| {
        datafusion::arrow::compute::concat_batches(&schema, batches).expect("batches of one schema")
    };
    assert_eq!(whole(&arrived), whole(&batches));
}

pub(super) async fn carry(
    rig: &crate::Rig,
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
) -> Vec<RecordBatch> {
    let source = batches.clone();
    let plan = ProbeExec::new(schema, 1, move |_| {
        stream::iter(source.clone()).map(Ok).boxed()
    });
    let task = rig.set_plan(plan.clone()).await;
    let mut run = rig.execute(&task, 0..1).await;
    let arrived = run
        .take(0)
        .try_collect::<Vec<_>>()
        .await
        .expect("a clean end");
    task.finish().await;
    arrived
}

/// The rows of a partition arrive in the order it made them in, each partition's apart.
pub async fn rows_arrive_in_order(t: Kit) {
    let rig = t.rig().await;
    let plan = ProbeExec::new(schema(), 4, |p| counting_from(p * 1_000_000, 200, 100));
    let task = rig.set_plan(plan.clone()).await;
    let parts = rig.execute(&task, 0..4).await.read_all().await;
    for (p, batches) in parts.expect("clean ends").iter().enumerate() {
        assert!(counts(batches, p * 1_000_000, 20_000), "partition {p}");
    }
}

/// A batch of the engine's usual size stays a batch: what follows a boundary is tuned to the size of batches (dfd#242).
pub async fn usual_batches_keep_their_borders(t: Kit) {
    let rig = t.rig().await;
    let sizes = [8192, 8192, 5000, 8192];
    let batches = sizes.map(|rows| numbers(0, rows)).to_vec();
    let arrived = carry(&rig, schema(), batches).await;
    let arrived: Vec<_> = arrived.iter().map(RecordBatch::num_rows).collect();
    assert_eq!(arrived, sizes);
}

/// A transport may merge small batches, but to no more than a usual one: memory and latency of what follows depend on it.
pub async fn small_batches_become_usual_ones_at_most(t: Kit) {
    let rig = t.rig().await;
    let plan = ProbeExec::new(schema(), 1, |_| counting(1000, 100));
    let task = rig.set_plan(plan.clone()).await;
    let parts = rig.execute(&task, 0..1).await.read_all().await;
    let parts = parts.expect("clean ends");
    assert!(counts(&parts[0], 0, 100_000));
    let largest = parts[0].iter().map(RecordBatch::num_rows).max();
    assert!(largest <= Some(8192), "{largest:?} rows in one batch");
}

/// `count(*)` needs rows and no columns (comet#4445, where their count was lost).
pub async fn zero_columns_keep_their_row_count(t: Kit) {
    let schema = Arc::new(Schema::empty());
    let batch = |rows| {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options)
            .expect("no columns")
    };
    let rig = t.rig().await;
    let arrived = carry(&rig, schema, vec![batch(5), batch(0), batch(8192)]).await;
    let rows: usize = arrived.iter().map(RecordBatch::num_rows).sum();
    assert_eq!(rows, 8197);
    assert!(arrived.iter().all(|batch| batch.num_columns() == 0));
}

/// Batches without rows disturb nothing, wherever they come (comet#4445).
pub async fn batches_without_rows_arrive(t: Kit) {
    let batches = [0, 3, 0, 0, 2, 0].map(|rows| numbers(7, rows));
    round_trip(&t, schema(), batches.to_vec()).await;
    round_trip(&t, schema(), vec![numbers(0, 0)]).await;
}

/// A partition may have no batch at all (comet#4445).
pub async fn partitions_without_batches_end_cleanly(t: Kit) {
    let rig = t.rig().await;
    let plan = ProbeExec::new(schema(), 3, |p| counting(p % 2, 5));
    let task = rig.set_plan(plan.clone()).await;
    let parts = rig.execute(&task, 0..3).await.read_all().await;
    let parts = parts.expect("clean ends");
    let rows: Vec<_> = parts.iter().map(|batches| values(batches).len()).collect();
    assert_eq!(rows, [0, 5, 0]);
}

/// Metadata of schema and fields is part of the schema: extension types live in it (comet#4445).
pub async fn schema_and_field_metadata_arrive(t: Kit) {
    let map = |pairs: &[(&str, &str)]| -> HashMap<String, String> {
        let pair = |(k, v): &(&str, &str)| ((*k).to_owned(), (*v).to_owned());
        pairs.iter().map(pair).collect()
    };
    let field = Field::new("n", DataType::Int64, true);
    let field = field.with_metadata(map(&[("ARROW:extension:name", "größe"), ("empty", "")]));
    let inner = Field::new("inner", DataType::Utf8, true).with_metadata(map(&[("deep", "yes")]));
    let nested = Field::new("s", DataType::Struct(vec![inner.clone()].into()), false);
    let metadata = map(&[("origin", "kit"), ("pandas", "{\"a\": 1}")]);
    let schema = Arc::new(Schema::new_with_metadata(vec![field, nested], metadata));
    let strings: ArrayRef = Arc::new(StringArray::from(vec!["a", "b"]));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(vec![Some(1), None])),
        Arc::new(StructArray::from(vec![(Arc::new(inner), strings)])),
    ];
    let batch = RecordBatch::try_new(Arc::clone(&schema), columns).expect("two columns");
    round_trip(&t, schema, vec![batch]).await;
}

/// A slice is its rows and no others, where values, offsets and bits begin in the middle of a byte or buffer.
pub async fn sliced_arrays_arrive_as_their_slice(t: Kit) {
    let text = |i: usize| (!i.is_multiple_of(5)).then(|| format!("value {i}"));
    let bits: ArrayRef = Arc::new(BooleanArray::from_iter((0..1000).map(|i| Some(i % 3 == 0))));
    let strings: ArrayRef = Arc::new(StringArray::from_iter((0..1000).map(text)));
    let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<
        arrow_array::types::Int32Type,
        _,
        _,
    >(
        (0..1000).map(|i| (i % 4 != 0).then(|| (0..i % 7).map(Some).collect::<Vec<_>>())),
    ));
    let columns = [("bits", bits), ("strings", strings), ("lists", lists)];
    let columns = columns.map(|(name, array)| (name, array, true));
    let batch = RecordBatch::try_from_iter_with_nullable(columns).expect("three columns");
    let cuts = [(0, 1), (1, 7), (3, 0), (13, 500), (999, 1)];
    let slices = cuts.map(|(from, rows)| batch.slice(from, rows));
    round_trip(&t, batch.schema(), slices.to_vec()).await;
}

/// Columns with no null, some, only nulls, and none allowed.
pub async fn batches_without_nulls_and_all_null_arrive(t: Kit) {
    let schema = Arc::new(Schema::new(vec![
        Field::new("a", DataType::Int64, true),
        Field::new("b", DataType::Utf8, true),
        Field::new("c", DataType::Int64, false),
    ]));
    let number = |values: Vec<Option<i64>>| -> ArrayRef { Arc::new(Int64Array::from(values)) };
    let text = |values: Vec<Option<&str>>| -> ArrayRef { Arc::new(StringArray::from(values)) };
    let batch = |a, b| {
        let columns = vec![a, b, number(vec![Some(1), Some(2)])];
        RecordBatch::try_new(Arc::clone(&schema), columns).expect("three columns")
    };
    let batches = vec![
        batch(
            number(vec![Some(1), Some(2)]),
            text(vec![Some("x"), Some("")]),
        ),
        batch(number(vec![None, Some(2)]), text(vec![Some("x"), None])),
        batch(
            new_null_array(&DataType::Int64, 2),
            new_null_array(&DataType::Utf8, 2),
        ),
    ];
    round_trip(&t, Arc::clone(&schema), batches).await;
}

/// A batch of 48 MB: no limit of a message stands in its way.
pub async fn large_batches_arrive(t: Kit) {
    let rig = t.rig().await;
    let arrived = carry(&rig, schema(), vec![numbers(5, 6_000_000), numbers(0, 3)]).await;
    assert_eq!(
        arrived.iter().map(RecordBatch::num_rows).sum::<usize>(),
        6_000_003
    );
    let first: Vec<_> = values(&arrived).into_iter().take(6_000_000).collect();
    assert!(first.into_iter().eq(5..6_000_005));
}

/// Ten thousand batches of a row each (dfd#242, #385).
pub async fn many_small_batches_arrive(t: Kit) {
    let rig = t.rig().await;
    let plan = ProbeExec::new(schema(), 1, |_| counting(10_000, 1));
    let task = rig.set_plan(plan.clone()).await;
    let mut run = rig.execute(&task, 0..1).await;
    let batches = run
        .take(0)
        .try_collect::<Vec<_>>()
        .await
        .expect("a clean end");
    assert!(counts(&batches, 0, 10_000));
}

/// A batch larger than the whole budget goes through by itself.
pub async fn a_batch_over_the_budget_goes_through(t: Kit) {
    let rig = t.rig().await;
    let plan = ProbeExec::new(schema(), 2, |_| counting(3, 200_000));
    let task = rig.set_plan(plan.clone()).await;
    let run = rig.call(task.key, 0..2).budget(1024).send().await;
    let pool = Arc::clone(&run.pool);
    let parts = run.read_all().await.expect("clean ends");
    assert!(parts.iter().all(|batches| counts(batches, 0, 600_000)));
    assert_eq!(pool.reserved(), 0);
}

/// Uncompressed arrays point into the message that carried them, at addresses that Arrow recommends: every buffer of a batch lies in one allocation, on a
/// multiple of 64 (arrow-rs#10206, #10273).
pub async fn decoding_copies_nothing(t: Kit) {
    let rig = t.rig().await;
    let text = |i: usize| format!("row {i}");
    let columns: [(&str, ArrayRef); 3] = [
        ("a", Arc::new(Int64Array::from_iter_values(0..5000))),
        (
            "b",
            Arc::new(StringArray::from_iter_values((0..5000).map(text))),
        ),
        (
            "c",
            Arc::new(
                (0..5000)
                    .map(|i| (i % 3 != 0).then_some(i))
                    .collect::<Int64Array>(),
            ),
        ),
    ];
    let batch = RecordBatch::try_from_iter(columns).expect("three columns");
    let arrived = carry(&rig, batch.schema(), vec![batch.clone(); 5]).await;
    assert_eq!(arrived.len(), 5);
    for batch in &arrived {
        let mut allocations = vec![];
        for column in batch.columns() {
            let data = column.to_data();
            let nulls = data.nulls().map(|nulls| nulls.buffer().clone());
            for buffer in data.buffers().iter().chain(&nulls) {
                assert_eq!(buffer.as_ptr() as usize % 64, 0, "a buffer is not aligned");
                allocations.push(buffer.data_ptr());
            }
        }
        allocations.dedup();
        assert_eq!(allocations.len(), 1, "buffers were copied");
    }
}
