//! [`Places`]: where bytes lie in memory, to tell what was copied from what was handed on.

use arrow_array::{Array, RecordBatch};
use arrow_buffer::Buffer;
use std::ops::Range;

/// The address ranges of some buffers.
pub struct Places(Vec<Range<usize>>);

impl Places {
    /// Of these.
    pub fn of(buffers: &[Buffer]) -> Self {
        Self(buffers.iter().map(|buffer| range(buffer)).collect())
    }

    /// Whether bytes lie in one of them.
    pub fn hold(&self, bytes: &[u8]) -> bool {
        let inner = range(bytes);
        let holds = |outer: &Range<usize>| outer.start <= inner.start && inner.end <= outer.end;
        bytes.is_empty() || self.0.iter().any(holds)
    }
}

fn range(bytes: &[u8]) -> Range<usize> {
    let start = bytes.as_ptr() as usize;
    start..start + bytes.len()
}

/// All buffers of a batch, validity and children included.
pub fn buffers(batch: &RecordBatch) -> Vec<Buffer> {
    let mut all = vec![];
    let mut data: Vec<_> = batch
        .columns()
        .iter()
        .map(|column| column.to_data())
        .collect();
    while let Some(one) = data.pop() {
        all.extend(one.buffers().iter().cloned());
        all.extend(one.nulls().map(|nulls| nulls.buffer().clone()));
        data.extend(one.child_data().iter().cloned());
    }
    all
}
