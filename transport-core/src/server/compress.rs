//! [`Compressor`]: whether a partition's next batch is compressed.

use crate::connection::StreamError;
use crate::framed::FrameWriter;
use crate::server::link::{Link, Sent};
use crate::wire::batch::{BatchEncoder, Compression, CompressionPolicy};
use bytes::Bytes;
use datafusion::arrow::array::Array;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::Result;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::time::{Duration, Instant};

/// What LZ4 is taken to do, in bytes per second, until it was measured: less than one core of a current machine, so that a link which starts
/// a trial is likely to be worth it.
const ASSUMED_RATE: f64 = 400e6;

/// What it is taken to leave of the bytes, until it was measured.
const ASSUMED_RATIO: f64 = 0.5;

/// How much slower than what compression makes of it a link must be before it begins. Where both are about the same, it would go to and fro.
const MARGIN: f64 = 1.25;

/// Uncompressed batches until what was measured of the codec has mostly faded.
const FADE: f64 = 1024.0;

/// The codec as observed on this partition's data.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Codec {
    /// Bytes in per second.
    rate: f64,
    /// Bytes out per byte in.
    ratio: f64,
}

impl Codec {
    const ASSUMED: Self = Self {
        rate: ASSUMED_RATE,
        ratio: ASSUMED_RATIO,
    };

    /// Takes a batch into account: half by it, half by those before.
    fn observe(&mut self, bytes_in: u64, bytes_out: u64, took: Duration) {
        if bytes_in == 0 || took.is_zero() {
            return;
        }
        let rate = bytes_in as f64 / took.as_secs_f64();
        let ratio = bytes_out as f64 / bytes_in as f64;
        self.rate = (self.rate + rate) / 2.0;
        self.ratio = (self.ratio + ratio) / 2.0;
    }

    /// A batch went uncompressed. One slow or incompressible batch must not decide for all that follow: what was measured fades, and is
    /// measured anew after a few dozen.
    fn forget(&mut self) {
        self.rate += (ASSUMED_RATE - self.rate) / FADE;
        self.ratio += (ASSUMED_RATIO - self.ratio) / FADE;
    }

    /// Whether to compress over a link of this rate. A byte takes `1 / link` as it is, and `1 / rate + ratio / link` compressed: the latter is
    /// less where `link < rate * (1 - ratio)`.
    fn pays(&self, link: Option<f64>, compressing: bool) -> bool {
        let break_even = self.rate * (1.0 - self.ratio);
        let margin = if compressing { 1.0 } else { MARGIN };
        link.is_some_and(|link| link * margin < break_even)
    }
}

/// Encodes and sends one partition's batches as its policy says.
pub(super) struct Compressor<'a> {
    policy: CompressionPolicy,
    link: &'a Link,
    codec: Codec,
    /// What the last batch was before it was compressed; `None` where it was not.
    compressed_from: Option<u64>,
}

impl<'a> Compressor<'a> {
    pub(super) fn new(policy: CompressionPolicy, link: &'a Link) -> Self {
        Self {
            policy,
            link,
            codec: Codec::ASSUMED,
            compressed_from: None,
        }
    }

    /// What the encoder begins with.
    pub(super) fn initial(&self) -> Compression {
        match self.policy {
            CompressionPolicy::Always(compression) => compression,
            CompressionPolicy::Auto => Compression::None,
        }
    }

    /// As [`BatchEncoder::encode`]; decides before.
    pub(super) fn encode(
        &mut self,
        encoder: &mut BatchEncoder,
        batch: &RecordBatch,
        out: &mut VecDeque<Bytes>,
    ) -> Result<u64> {
        if self.policy != CompressionPolicy::Auto {
            return encoder.encode(batch, out);
        }
        let compressing = self.compressed_from.is_some();
        if !self.codec.pays(self.link.rate(), compressing) {
            self.compressed_from = None;
            self.codec.forget();
            encoder.set_compression(Compression::None)?;
            return encoder.encode(batch, out);
        }
        encoder.set_compression(Compression::Lz4)?;
        let (bytes_in, start) = (bytes_of(batch), Instant::now());
        let bytes_out = encoder.encode(batch, out)?;
        self.codec.observe(bytes_in, bytes_out, start.elapsed());
        self.compressed_from = Some(bytes_in);
        Ok(bytes_out)
    }

    /// Sends what is queued, and observes how the link takes it. Cancel safe.
    pub(super) async fn flush(&self, writer: &mut FrameWriter) -> Result<(), StreamError> {
        if self.policy != CompressionPolicy::Auto {
            return writer.flush().await;
        }
        let frame = Sent {
            wire_bytes: writer.queued_bytes(),
            compressed_from: self.compressed_from,
        };
        let mut blocked = None;
        let flushed = poll_fn(|cx| {
            let poll = writer.poll_flush(cx);
            if poll.is_pending() && blocked.is_none() {
                blocked = Some(self.link.block(writer.queued_bytes()));
            }
            poll
        });
        flushed.await?;
        self.link.sent(frame, blocked);
        Ok(())
    }
}

/// What a batch's rows take, without what its buffers hold beside them.
fn bytes_of(batch: &RecordBatch) -> u64 {
    let columns = batch.columns().iter();
    let bytes = columns.map(|column| column.to_data().get_slice_memory_size().unwrap_or(0));
    bytes.sum::<usize>() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: f64 = 1e6;

    #[test]
    fn a_link_that_holds_up_nobody_gets_no_compression() {
        assert!(!Codec::ASSUMED.pays(None, false));
        assert!(!Codec::ASSUMED.pays(None, true));
    }

    #[test]
    fn a_slow_link_gets_it_and_a_fast_one_does_not() {
        assert!(Codec::ASSUMED.pays(Some(10.0 * MB), false));
        assert!(Codec::ASSUMED.pays(Some(117.0 * MB), false), "1 Gbit/s");
        assert!(!Codec::ASSUMED.pays(Some(1170.0 * MB), false), "10 Gbit/s");
        assert!(!Codec::ASSUMED.pays(Some(1170.0 * MB), true));
    }

    #[test]
    fn between_begin_and_end_nothing_changes() {
        let link = Some(180.0 * MB);
        assert!(!Codec::ASSUMED.pays(link, false));
        assert!(Codec::ASSUMED.pays(link, true));
    }

    #[test]
    fn data_that_does_not_shrink_is_left_alone() {
        let mut codec = Codec::ASSUMED;
        for _ in 0..10 {
            codec.observe(1_000_000, 1_001_000, Duration::from_millis(1));
        }
        assert!(!codec.pays(Some(10.0 * MB), true));
        let uncompressed = (1..).find(|_| {
            codec.forget();
            codec.pays(Some(10.0 * MB), false)
        });
        assert!(
            uncompressed.is_some_and(|batches| batches > 10),
            "{uncompressed:?}"
        );
    }

    #[test]
    fn a_slow_codec_is_worth_only_a_slower_link() {
        let mut codec = Codec::ASSUMED;
        for _ in 0..20 {
            codec.observe(1_000_000, 500_000, Duration::from_millis(50));
        }
        assert!(!codec.pays(Some(15.0 * MB), true));
        assert!(codec.pays(Some(5.0 * MB), false));
    }
}
