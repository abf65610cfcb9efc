//! Record batches as Arrow IPC messages (`docs/protocol.md`, B-1 to B-7).
//!
//! The payload of a batch frame is a run of encapsulated IPC messages: the schema before the first batch, dictionaries
//! as they are needed, then exactly one record batch. Buffers are not copied on the way out, and on the way in the
//! arrays point into the frame's payload.

use crate::wire::DecodeError;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_buffer::{Buffer, MutableBuffer};
use arrow_ipc::reader::StreamDecoder;
use arrow_ipc::writer::{IpcWriteOptions, StreamEncoder};
use arrow_ipc::{CompressionType, MessageHeader};
use arrow_schema::{ArrowError, Schema};
use arrow_select::dictionary::garbage_collect_any_dictionary;
use bytes::Bytes;
use datafusion::common::{DataFusionError, Result, config_err};
use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Buffers under this size are copied together into one chunk: a chunk of its own costs more than the copy.
const GATHER_BYTES: usize = 4 * 1024;

/// B-5: the most that one compressed byte may stand for. A zstd frame can't pass 128 KiB per 4 bytes, lz4 stays under 256.
const MAX_COMPRESSION_RATIO: u64 = 32 * 1024;

/// How the bodies of record batches are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Compression {
    /// Not at all.
    None,
    /// LZ4 frames, the engine's default.
    #[default]
    Lz4,
    /// Zstandard.
    Zstd,
}

impl Compression {
    /// Reads the engine's `distributed.compression` or `transport.compression`; `option` names it in the error.
    ///
    /// # Errors
    /// `Configuration` for a value other than `none`, `lz4` and `zstd`.
    pub fn from_config(option: &str, value: &str) -> Result<Self> {
        match value {
            "none" => Ok(Self::None),
            "lz4" => Ok(Self::Lz4),
            "zstd" => Ok(Self::Zstd),
            other => config_err!("{option} is '{other}', expected one of none, lz4, zstd"),
        }
    }

    fn to_ipc(self) -> Option<CompressionType> {
        match self {
            Self::None => None,
            Self::Lz4 => Some(CompressionType::LZ4_FRAME),
            Self::Zstd => Some(CompressionType::ZSTD),
        }
    }
}

/// When batches are compressed, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CompressionPolicy {
    /// All of them the same way.
    Always(Compression),
    /// By LZ4 while the connection is slower than that, else not at all; decided for each batch.
    Auto,
}

/// Encodes the batches of one partition, in order.
pub struct BatchEncoder {
    encoder: StreamEncoder,
    schema: Schema,
    compression: Compression,
    /// The encoder's next output begins with the schema, and the stream has had it.
    repeats_schema: bool,
    begun: bool,
}

impl BatchEncoder {
    /// An encoder for batches of `schema`.
    ///
    /// # Errors
    /// A schema that Arrow IPC can't carry.
    pub fn try_new(schema: &Schema, compression: Compression) -> Result<Self> {
        Ok(Self {
            encoder: stream_encoder(schema, compression)?,
            schema: schema.clone(),
            compression,
            repeats_schema: false,
            begun: false,
        })
    }

    /// Compresses this way from the next batch on (B-7). Arrow's encoder keeps the options it began with, and knows which dictionaries
    /// the reader has; so a new one takes over, which knows none, and sends all that the next batches use.
    ///
    /// # Errors
    /// As [`try_new`](Self::try_new).
    pub fn set_compression(&mut self, compression: Compression) -> Result<()> {
        if compression != self.compression {
            self.encoder = stream_encoder(&self.schema, compression)?;
            self.compression = compression;
            self.repeats_schema = self.begun;
        }
        Ok(())
    }

    /// Appends the batch's payload to `out` as chunks, large buffers uncopied, and returns its length in bytes.
    ///
    /// # Errors
    /// What Arrow's encoder reports; a panic of the encoder is reported as an internal error.
    pub fn encode(&mut self, batch: &RecordBatch, out: &mut VecDeque<Bytes>) -> Result<u64> {
        let batch = compact(batch)?;
        let encoder = &mut self.encoder;
        let buffers = catch(|| encoder.encode(&batch))
            .map_err(|panic| DataFusionError::Internal(format!("Arrow IPC encoder: {panic}")))??;
        self.begun = true;
        let repeated = match std::mem::take(&mut self.repeats_schema) {
            true => message_bytes(&buffers),
            false => 0,
        };
        Ok(gather(skip(buffers, repeated), out))
    }
}

fn stream_encoder(schema: &Schema, compression: Compression) -> Result<StreamEncoder> {
    let options = IpcWriteOptions::default().try_with_compression(compression.to_ipc())?;
    Ok(StreamEncoder::try_new_with_options(schema, options)?)
}

/// The length of the first message, which has no body: `[continuation, length, metadata]`.
fn message_bytes(buffers: &[Buffer]) -> usize {
    let bytes = buffers.iter().flat_map(|buffer| buffer.as_slice());
    let length = bytes.skip(4).take(4).zip([0, 8, 16, 24]);
    8 + length.fold(0, |length, (byte, shift)| {
        length | usize::from(*byte) << shift
    })
}

/// The buffers without their first `bytes`.
fn skip(buffers: Vec<Buffer>, mut bytes: usize) -> impl Iterator<Item = Buffer> {
    buffers.into_iter().filter_map(move |buffer| {
        let skipped = bytes.min(buffer.len());
        bytes -= skipped;
        (skipped < buffer.len()).then(|| buffer.slice(skipped))
    })
}

/// Decodes the batches of one partition, in order.
#[derive(Default)]
pub struct BatchDecoder {
    decoder: StreamDecoder,
    compressed: bool,
}

impl BatchDecoder {
    /// A decoder that has seen nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the last batch arrived compressed.
    pub fn was_compressed(&self) -> bool {
        self.compressed
    }

    /// Decodes a batch frame's payload; the arrays point into it where it isn't compressed.
    ///
    /// # Errors
    /// Anything other than IPC messages that end with exactly one valid record batch (B-2), or a compressed buffer that
    /// states an impossible size (B-5). After an error the stream is unusable.
    pub fn decode(&mut self, mut payload: Buffer) -> Result<RecordBatch, DecodeError> {
        let Last {
            body_bytes: last_body_bytes,
            compressed,
        } = check_messages(&payload)?;
        self.compressed = compressed;
        let decoder = &mut self.decoder;
        let decode = || match decoder.decode(&mut payload)? {
            // Arrow's decoder looks at a message without body only once more bytes are there. It doesn't take them.
            None if last_body_bytes == 0 => decoder.decode(&mut Buffer::from([0u8])),
            batch => Ok(batch),
        };
        let batch = catch(decode)
            .map_err(|panic| DecodeError::new(format!("record batch: decoder panicked: {panic}")))?
            .map_err(|err| DecodeError::new(format!("record batch: {err}")))?
            .ok_or_else(|| DecodeError::new("batch frame holds no record batch (B-2)"))?;
        if !payload.is_empty() {
            return Err(DecodeError::new(format!(
                "{} bytes follow the record batch in its frame (B-2)",
                payload.len()
            )));
        }
        Ok(batch)
    }
}

/// What the encoder returned, as few chunks as pay off. Returns the total length.
fn gather(buffers: impl Iterator<Item = Buffer>, out: &mut VecDeque<Bytes>) -> u64 {
    let mut total = 0;
    let mut small = MutableBuffer::new(0);
    for buffer in buffers {
        total += buffer.len() as u64;
        if buffer.len() < GATHER_BYTES {
            small.extend_from_slice(buffer.as_slice());
            continue;
        }
        flush_small(&mut small, out);
        out.push_back(Bytes::from_owner(SharedBuffer(buffer)));
    }
    flush_small(&mut small, out);
    total
}

fn flush_small(small: &mut MutableBuffer, out: &mut VecDeque<Bytes>) {
    if !small.is_empty() {
        let buffer: Buffer = std::mem::take(small).into();
        out.push_back(Bytes::from_owner(SharedBuffer(buffer)));
    }
}

/// Lets `Bytes` own an Arrow buffer.
struct SharedBuffer(Buffer);

impl AsRef<[u8]> for SharedBuffer {
    fn as_ref(&self) -> &[u8] {
        self.0.as_slice()
    }
}

/// Drops what a batch holds without showing it: dictionary values without keys, view buffers of which little is used.
/// The reference transport does the same; a filtered batch would otherwise send all that was filtered out.
fn compact(batch: &RecordBatch) -> Result<RecordBatch> {
    // Arrow's encoder gives an empty slice of runs a run that ends at 0, which no decoder takes.
    if batch.num_rows() == 0 {
        return Ok(RecordBatch::new_empty(batch.schema()));
    }
    let columns = batch.columns().iter().map(compact_array);
    let columns = columns.collect::<Result<Vec<_>, ArrowError>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(
        batch.schema(),
        columns,
        &options,
    )?)
}

fn compact_array(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    if let Some(dictionary) = array.as_any_dictionary_opt() {
        // A dictionary that is smaller than the batch stays as it is: the same one again is not sent again.
        if dictionary.values().len() <= dictionary.keys().len() {
            return Ok(Arc::clone(array));
        }
        return garbage_collect_any_dictionary(dictionary);
    }
    if let Some(views) = array.as_string_view_opt() {
        let held = views.data_buffers().iter().map(Buffer::len).sum();
        if is_wasteful(held, views.total_buffer_bytes_used()) {
            return Ok(Arc::new(views.gc()));
        }
    }
    if let Some(views) = array.as_binary_view_opt() {
        let held = views.data_buffers().iter().map(Buffer::len).sum();
        if is_wasteful(held, views.total_buffer_bytes_used()) {
            return Ok(Arc::new(views.gc()));
        }
    }
    Ok(Arc::clone(array))
}

/// Whether copying what is used costs less than sending what isn't.
fn is_wasteful(held_bytes: usize, used_bytes: usize) -> bool {
    held_bytes > GATHER_BYTES && used_bytes < held_bytes - held_bytes / 4
}

/// What is to be known of a frame's last message.
#[derive(Default)]
struct Last {
    body_bytes: usize,
    compressed: bool,
}

/// B-2, B-5: walks the encapsulated messages and checks what Arrow's decoder would take on trust.
fn check_messages(payload: &Buffer) -> Result<Last, DecodeError> {
    let mut rest = payload.as_slice();
    let mut last = Last::default();
    while !rest.is_empty() {
        let (metadata, after) = split_metadata(rest)?;
        let message = arrow_ipc::root_as_message(metadata)
            .map_err(|err| DecodeError::new(format!("IPC message: {err}")))?;
        let body_bytes = usize::try_from(message.bodyLength())
            .map_err(|_| DecodeError::new("IPC message: negative bodyLength"))?;
        let (body, after) = after.split_at_checked(body_bytes).ok_or_else(|| {
            DecodeError::new(format!(
                "IPC message: bodyLength {body_bytes} passes the frame's end"
            ))
        })?;
        let batch = match message.header_type() {
            MessageHeader::RecordBatch => message.header_as_record_batch(),
            MessageHeader::DictionaryBatch => {
                message.header_as_dictionary_batch().and_then(|d| d.data())
            }
            _ => None,
        };
        if let Some(batch) = &batch {
            check_compressed(batch, body)?;
        }
        rest = after;
        last = Last {
            body_bytes,
            compressed: batch.is_some_and(|batch| batch.compression().is_some()),
        };
    }
    Ok(last)
}

/// Splits `[continuation, length, metadata, rest]` into metadata and rest.
fn split_metadata(bytes: &[u8]) -> Result<(&[u8], &[u8]), DecodeError> {
    let short = || DecodeError::new("IPC message: cut short");
    let (marker, rest) = bytes.split_first_chunk::<4>().ok_or_else(short)?;
    if *marker != [0xff; 4] {
        return Err(DecodeError::new("IPC message: no continuation marker"));
    }
    let (length, rest) = rest.split_first_chunk::<4>().ok_or_else(short)?;
    let length = u32::from_le_bytes(*length) as usize;
    if length == 0 {
        return Err(DecodeError::new(
            "IPC message: end of stream inside a frame (B-2)",
        ));
    }
    rest.split_at_checked(length).ok_or_else(short)
}

/// A compressed buffer starts with its uncompressed length (Arrow format, "Message.fbs", BodyCompression).
fn check_compressed(batch: &arrow_ipc::RecordBatch<'_>, body: &[u8]) -> Result<(), DecodeError> {
    if batch.compression().is_none() {
        return Ok(());
    }
    for buffer in batch.buffers().into_iter().flatten() {
        let stated = usize::try_from(buffer.offset())
            .ok()
            .and_then(|start| body.get(start..))
            .and_then(|rest| rest.get(..usize::try_from(buffer.length()).ok()?))
            .ok_or_else(|| DecodeError::new("IPC buffer lies outside its body"))?;
        let Some((uncompressed, compressed)) = stated.split_first_chunk::<8>() else {
            continue; // Empty buffers have no prefix.
        };
        let uncompressed = i64::from_le_bytes(*uncompressed);
        let limit = (compressed.len() as u64).saturating_mul(MAX_COMPRESSION_RATIO);
        if uncompressed < -1 || (uncompressed > 0 && uncompressed as u64 > limit) {
            return Err(DecodeError::new(format!(
                "IPC buffer of {} compressed bytes states {uncompressed} uncompressed ones (B-5)",
                compressed.len()
            )));
        }
    }
    Ok(())
}

/// Runs code of a library that may panic on what a peer sent.
fn catch<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| panic_text(panic.as_ref()))
}

/// The message of a caught panic.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_string())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "panic without a message".to_string())
}

#[cfg(test)]
mod tests;
