//! [`Batches`]: a partition's batches as they are sent.

use crate::server::call::guarded;
use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::Result;
use datafusion::execution::SendableRecordBatchStream;
use futures::{FutureExt, StreamExt, poll};
use std::task::Poll;
use std::time::{Duration, Instant};

/// B-8: batches are merged up to about this size, beyond which what a message costs no longer counts beside its bytes. No more than
/// the least credit of a partition.
const MERGED_BYTES: usize = 64 * 1024;

/// B-8: and up to the engine's usual batch.
const MERGED_ROWS: usize = 8192;

/// B-8: larger ones are left alone: to copy them costs as much as to send them apart.
const SMALL_BYTES: usize = 16 * 1024;

/// A source that took longer for its last batch computes it: asking for the next one would hold up those that are there.
const READY_WITHIN: Duration = Duration::from_micros(20);

/// The stream of a partition. Small batches that are there at once come as one.
pub(super) struct Batches {
    stream: SendableRecordBatchStream,
    polled: bool,
    merges: bool,
    /// What came behind the last merged batch.
    next: Option<Option<Result<RecordBatch>>>,
}

impl Batches {
    pub(super) fn new(stream: SendableRecordBatchStream) -> Self {
        let schema = stream.schema();
        Self {
            merges: schema
                .fields()
                .iter()
                .all(|field| is_merged(field.data_type())),
            stream,
            polled: false,
            next: None,
        }
    }

    pub(super) fn schema(&self) -> SchemaRef {
        self.stream.schema()
    }

    /// The next batch. Cancel safe.
    pub(super) async fn next(&mut self) -> Result<Option<RecordBatch>> {
        if let Some(next) = self.next.take() {
            return next.transpose();
        }
        guarded(async {
            self.polled = true;
            // Only from here on is anything taken from the stream, and then it is returned without waiting.
            let first = self.stream.next().await.transpose()?;
            match first {
                Some(first) if self.merges => self.merged(first).await.map(Some),
                other => Ok(other),
            }
        })
        .await
    }

    /// Adds to a batch what follows it, as long as that is small and there.
    async fn merged(&mut self, first: RecordBatch) -> Result<RecordBatch> {
        let (mut rows, mut bytes) = (first.num_rows(), bytes_of(&first));
        if !is_small(rows, bytes) {
            return Ok(first);
        }
        let mut group = vec![first];
        let mut start = Instant::now();
        while rows < MERGED_ROWS && bytes < MERGED_BYTES {
            let Poll::Ready(next) = poll!(self.stream.next()) else {
                break;
            };
            match next {
                Some(Ok(batch)) if fits(&batch, rows, bytes) => {
                    rows += batch.num_rows();
                    bytes += bytes_of(&batch);
                    group.push(batch);
                }
                other => {
                    self.next = Some(other);
                    break;
                }
            }
            if start.elapsed() > READY_WITHIN {
                break;
            }
            start = Instant::now();
        }
        if group.len() == 1 {
            return Ok(group.remove(0));
        }
        Ok(concat_batches(&self.stream.schema(), &group)?)
    }

    /// Drops the stream, after one poll if it had none: until then a `RepartitionExec` keeps the partition's channel, goes on
    /// to fill it, and takes the partition for one that may be read yet.
    pub(super) async fn release(mut self) {
        if !self.polled {
            let _ = guarded(async { Ok(self.stream.next().now_or_never().is_some()) }).await;
        }
    }
}

fn is_small(rows: usize, bytes: usize) -> bool {
    rows <= MERGED_ROWS / 2 && bytes <= SMALL_BYTES
}

fn fits(batch: &RecordBatch, rows: usize, bytes: usize) -> bool {
    let (more_rows, more_bytes) = (batch.num_rows(), bytes_of(batch));
    is_small(more_rows, more_bytes)
        && rows + more_rows <= MERGED_ROWS
        && bytes + more_bytes <= MERGED_BYTES
}

/// What its rows take, whatever the buffers that they are a slice of.
fn bytes_of(batch: &RecordBatch) -> usize {
    let bytes = |column: &ArrayRef| {
        column
            .to_data()
            .get_slice_memory_size()
            .unwrap_or(usize::MAX)
    };
    let columns = batch.columns().iter().map(bytes);
    columns.fold(0, usize::saturating_add)
}

/// Types that concatenate by copying bytes. Dictionaries would have to be merged, and sent anew each time.
fn is_merged(data_type: &DataType) -> bool {
    match data_type {
        DataType::List(field) | DataType::LargeList(field) => is_merged(field.data_type()),
        DataType::Struct(fields) => fields.iter().all(|field| is_merged(field.data_type())),
        DataType::Boolean
        | DataType::Utf8
        | DataType::LargeUtf8
        | DataType::Utf8View
        | DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_) => true,
        other => other.is_primitive(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use datafusion::arrow::array::{AsArray, Int64Array, StringViewArray};
    use datafusion::arrow::datatypes::{Field, Int64Type, Schema};
    use datafusion::common::exec_datafusion_err;
    use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
    use futures::stream::{self, Stream};
    use std::sync::Arc;

    fn schema() -> SchemaRef {
        let number = Field::new("n", DataType::Int64, false);
        let text = Field::new("t", DataType::Utf8View, false);
        Arc::new(Schema::new(vec![number, text]))
    }

    fn batch(from: i64, rows: i64) -> RecordBatch {
        let numbers = Int64Array::from_iter_values(from..from + rows);
        let texts = (from..from + rows).map(|n| format!("a text that is not inlined, {n}"));
        let texts = StringViewArray::from_iter_values(texts);
        RecordBatch::try_new(schema(), vec![Arc::new(numbers), Arc::new(texts)]).unwrap()
    }

    fn batches(stream: impl Stream<Item = Result<RecordBatch>> + Send + 'static) -> Batches {
        Batches::new(Box::pin(RecordBatchStreamAdapter::new(schema(), stream)))
    }

    fn numbers(batch: &RecordBatch) -> Vec<i64> {
        batch
            .column(0)
            .as_primitive::<Int64Type>()
            .values()
            .to_vec()
    }

    #[tokio::test]
    async fn small_batches_that_are_there_come_as_one_in_order() {
        let mut all = batches(stream::iter((0..100).map(|i| Ok(batch(i * 10, 10)))));
        let (mut got, mut messages) = (vec![], 0);
        while let Some(batch) = all.next().await.unwrap() {
            assert!(bytes_of(&batch) <= MERGED_BYTES);
            got.extend(numbers(&batch));
            messages += 1;
        }
        assert_eq!(got, (0..1000).collect::<Vec<_>>());
        assert!(messages < 50, "{messages} messages");
    }

    #[tokio::test]
    async fn a_lone_batch_comes_at_once() {
        let one = stream::iter([Ok(batch(0, 10))]).chain(stream::pending());
        let got = batches(one).next().now_or_never();
        assert_eq!(got.unwrap().unwrap().unwrap().num_rows(), 10);
    }

    #[tokio::test]
    async fn a_large_batch_comes_as_it_is_and_neither_grows_nor_is_lost() {
        let sizes = [10, 10, 8000, 10];
        let mut from = 0;
        let made = sizes.map(|rows| {
            from += rows;
            Ok(batch(from - rows, rows))
        });
        let mut all = batches(stream::iter(made));
        let (mut got, mut large) = (vec![], 0);
        while let Some(batch) = all.next().await.unwrap() {
            large += usize::from(batch.num_rows() == 8000);
            got.extend(numbers(&batch));
        }
        assert_eq!((got, large), ((0..8030).collect(), 1));
    }

    #[tokio::test]
    async fn rows_before_an_error_come_before_it() {
        let failing = stream::iter([Ok(batch(0, 10)), Err(exec_datafusion_err!("broken"))]);
        let mut all = batches(failing);
        assert_eq!(all.next().await.unwrap().unwrap().num_rows(), 10);
        assert!(all.next().await.unwrap_err().to_string().contains("broken"));
    }

    #[tokio::test]
    async fn a_source_that_computes_is_not_waited_for() {
        let slow = stream::iter(0..10).map(|i| {
            std::thread::sleep(Duration::from_millis(1));
            Ok(batch(i, 1))
        });
        let mut all = batches(slow);
        all.next().await.unwrap().unwrap();
        // The second took long: no third was asked for.
        assert!(all.next().await.unwrap().unwrap().num_rows() <= 2);
    }
}
