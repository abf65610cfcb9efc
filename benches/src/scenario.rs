//! [`Scenario`]: what crosses the network.

use arrow_array::{
    ArrayRef, BooleanArray, Date32Array, Float64Array, Int32Array, Int64Array, RecordBatch,
    StringArray, StringViewArray,
};
use std::sync::Arc;

/// Consumers, partitions, batches and rows.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its name in results.
    pub name: String,
    /// Clients, each with connections of its own.
    pub consumers: usize,
    /// Partitions that each of them reads, in one call.
    pub partitions: usize,
    /// Rows of a batch.
    pub rows: usize,
    /// Batches of a partition.
    pub batches: usize,
    /// The session's `distributed.compression`, or `auto` for that of `transport.compression`.
    pub compression: &'static str,
    /// Its texts.
    pub texts: Texts,
}

impl Scenario {
    /// One consumer, no compression, as many batches as make about `bytes`.
    pub fn of_bytes(name: impl Into<String>, partitions: usize, rows: usize, bytes: usize) -> Self {
        let batches = bytes / (partitions * rows * BYTES_PER_ROW);
        Self {
            name: name.into(),
            consumers: 1,
            partitions,
            rows,
            batches: batches.max(1),
            compression: "none",
            texts: Texts::Plain,
        }
    }

    /// With another compression.
    pub fn compressed(mut self, compression: &'static str) -> Self {
        self.compression = compression;
        self
    }

    /// With views.
    pub fn of_views(mut self) -> Self {
        self.texts = Texts::Views;
        self
    }

    /// One of its batches.
    pub fn batch(&self) -> RecordBatch {
        batch(self.rows, self.texts)
    }

    /// With this many clients, which share the bytes.
    pub fn consumed_by(mut self, consumers: usize) -> Self {
        self.consumers = consumers;
        self.batches = (self.batches / consumers).max(1);
        self
    }

    /// Partitions of the task.
    pub fn all_partitions(&self) -> usize {
        self.consumers * self.partitions
    }

    /// Batches that cross the network.
    pub fn all_batches(&self) -> usize {
        self.all_partitions() * self.batches
    }

    /// Rows that cross the network.
    pub fn all_rows(&self) -> usize {
        self.all_batches() * self.rows
    }

    /// Bytes of the arrays that cross the network, uncompressed.
    pub fn bytes(&self) -> usize {
        self.all_batches() * array_bytes(&self.batch())
    }
}

/// Of [`batch`], about.
const BYTES_PER_ROW: usize = 53;

/// Bytes of its buffers that hold data, whatever their allocations.
pub fn array_bytes(batch: &RecordBatch) -> usize {
    let bytes = |column: &ArrayRef| column.to_data().get_slice_memory_size().unwrap_or(0);
    batch.columns().iter().map(bytes).sum()
}

/// What texts are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Texts {
    /// Offsets and bytes (`Utf8`).
    Plain,
    /// Views (`Utf8View`), of which each is checked by itself when it arrives.
    Views,
}

/// Eight columns of the usual kinds, two of them texts. The same rows for the same number.
pub fn batch(rows: usize, texts: Texts) -> RecordBatch {
    let n = rows as i64;
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..n));
    let scattered = (0..n).map(|i| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15_u64 as i64)) >> 20);
    let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(scattered));
    let some = (0..n).map(|i| (i % 7 != 0).then_some(i as i32 * 31));
    let sparse: ArrayRef = Arc::new(some.collect::<Int32Array>());
    let prices = (0..n).map(|i| (i * 7919 % 100_000) as f64 * 0.01);
    let prices: ArrayRef = Arc::new(Float64Array::from_iter_values(prices));
    let days = (0..n).map(|i| 9_000 + (i * 31 % 2_500) as i32);
    let dates: ArrayRef = Arc::new(Date32Array::from_iter_values(days));
    let shipped = (0..n).map(|i| Some(i * i % 5 < 2));
    let shipped: ArrayRef = Arc::new(shipped.collect::<BooleanArray>());
    let flags = (0..n).map(|i| if i % 3 == 0 { "A" } else { "N" });
    let names = (0..n).map(|i| format!("part {i}"));
    let (flags, names): (ArrayRef, ArrayRef) = match texts {
        Texts::Plain => (
            Arc::new(StringArray::from_iter_values(flags)),
            Arc::new(StringArray::from_iter_values(names)),
        ),
        Texts::Views => (
            Arc::new(StringViewArray::from_iter_values(flags)),
            Arc::new(StringViewArray::from_iter_values(names)),
        ),
    };
    let columns = [
        ("number", numbers),
        ("key", keys),
        ("sparse", sparse),
        ("price", prices),
        ("date", dates),
        ("shipped", shipped),
        ("flag", flags),
        ("name", names),
    ];
    let nullable = columns.map(|(name, column)| (name, column, true));
    RecordBatch::try_from_iter_with_nullable(nullable).unwrap_or_else(|err| unreachable!("{err}"))
}
