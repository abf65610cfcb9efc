//! What the codecs and the multiplexer cost by themselves: time, allocations, and bytes copied per message.
//!
//! Time is criterion's. Allocations and copies are counted once for each case, exactly, and printed before: a copied byte is one that the
//! output holds in another place than the input.
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing)]

use allocation_counter::measure;
use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use bytes::Bytes;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use datafusion_transport_benches::copies::{Places, buffers};
use datafusion_transport_benches::pipe::Pipe;
use datafusion_transport_benches::scenario::{Texts, array_bytes, batch};
use datafusion_transport_core::wire::batch::{BatchDecoder, BatchEncoder, Compression};
use datafusion_transport_core::wire::frame::{
    Frame, FrameAssembler, FrameHeader, FrameKind, put_frame,
};
use std::collections::VecDeque;
use std::hint::black_box;
use tokio::runtime::Builder;

/// Of a batch: small ones cost per message, large ones per byte.
const ROWS: [usize; 3] = [8, 512, 8192];

/// One message on its way out, and on its way in, in a stream that has begun.
struct Message {
    name: String,
    batch: RecordBatch,
    encoder: BatchEncoder,
    decoder: BatchDecoder,
    payload: Buffer,
}

impl Message {
    fn new(rows: usize, texts: Texts, compression: Compression) -> Self {
        let batch = batch(rows, texts);
        let mut encoder = BatchEncoder::try_new(&batch.schema(), compression).unwrap();
        let mut decoder = BatchDecoder::new();
        let first = joined(&encode(&mut encoder, &batch));
        decoder.decode(first).unwrap();
        let payload = joined(&encode(&mut encoder, &batch));
        let texts = if texts == Texts::Views { ", views" } else { "" };
        let compression = match compression {
            Compression::None => String::new(),
            named => format!(", {named:?}").to_lowercase(),
        };
        Self {
            name: format!("{rows} rows{texts}{compression}"),
            batch,
            encoder,
            decoder,
            payload,
        }
    }

    fn all() -> Vec<Self> {
        let plain = ROWS.map(|rows| Self::new(rows, Texts::Plain, Compression::None));
        let others = [
            Self::new(8192, Texts::Views, Compression::None),
            Self::new(8192, Texts::Plain, Compression::Lz4),
        ];
        plain.into_iter().chain(others).collect()
    }
}

fn encode(encoder: &mut BatchEncoder, batch: &RecordBatch) -> VecDeque<Bytes> {
    let mut out = VecDeque::new();
    encoder.encode(batch, &mut out).unwrap();
    out
}

/// As it arrives: in one aligned allocation.
fn joined(chunks: &VecDeque<Bytes>) -> Buffer {
    let mut whole = arrow_buffer::MutableBuffer::new(0);
    for chunk in chunks {
        whole.extend_from_slice(chunk);
    }
    whole.into()
}

fn report(case: &str, bytes: usize, allocations: u64, copied: usize) {
    println!("{case}: {allocations} allocations, {copied} of {bytes} bytes copied");
}

fn encoding(c: &mut Criterion) {
    let mut group = c.benchmark_group("encode");
    for mut message in Message::all() {
        let bytes = array_bytes(&message.batch);
        let mut out = VecDeque::with_capacity(64);
        let places = Places::of(&buffers(&message.batch));
        let counted = measure(|| {
            message.encoder.encode(&message.batch, &mut out).unwrap();
        });
        let copied = out
            .iter()
            .filter(|chunk| !places.hold(chunk))
            .map(Bytes::len);
        report(
            &format!("encode {}", message.name),
            bytes,
            counted.count_total,
            copied.sum(),
        );
        group.throughput(Throughput::Bytes(bytes as u64));
        group.bench_function(&message.name, |bencher| {
            bencher.iter(|| {
                out.clear();
                black_box(message.encoder.encode(&message.batch, &mut out).unwrap())
            });
        });
    }
}

fn decoding(c: &mut Criterion) {
    let mut group = c.benchmark_group("decode");
    for mut message in Message::all() {
        let bytes = array_bytes(&message.batch);
        let mut decoded = None;
        let payload = message.payload.clone();
        let counted = measure(|| decoded = message.decoder.decode(payload).ok());
        let places = Places::of(&[message.payload.clone()]);
        let arrived = buffers(&decoded.unwrap());
        let copied = arrived
            .iter()
            .filter(|buffer| !places.hold(buffer))
            .map(Buffer::len);
        report(
            &format!("decode {}", message.name),
            bytes,
            counted.count_total,
            copied.sum(),
        );
        group.throughput(Throughput::Bytes(bytes as u64));
        group.bench_function(&message.name, |bencher| {
            bencher.iter(|| black_box(message.decoder.decode(message.payload.clone()).unwrap()));
        });
    }
}

/// A frame out and in: a header before the chunks, and the chunks put together again.
fn framing(c: &mut Criterion) {
    let mut group = c.benchmark_group("frame");
    for rows in ROWS {
        let mut message = Message::new(rows, Texts::Plain, Compression::None);
        let chunks = encode(&mut message.encoder, &message.batch);
        let bytes: usize = chunks.iter().map(Bytes::len).sum();
        let whole = {
            let header = FrameHeader::new(FrameKind::Batch, bytes as u64).encode();
            Bytes::from([header.as_slice(), message.payload.as_slice()].concat())
        };
        let name = format!("{rows} rows, in 64 KiB chunks");
        let mut frame = None;
        let counted = measure(|| frame = assemble(&whole));
        let places = Places::of(&[Buffer::from(whole.clone())]);
        let payload = frame.unwrap().payload;
        let copied = if places.hold(&payload) {
            0
        } else {
            payload.len()
        };
        report(&format!("frame {name}"), bytes, counted.count_total, copied);
        group.throughput(Throughput::Bytes(bytes as u64));
        group.bench_function(&name, |bencher| {
            bencher.iter(|| black_box(assemble(&whole)))
        });
    }
    group.bench_function("credit", |bencher| {
        bencher.iter(|| {
            let mut out = VecDeque::new();
            put_frame(
                &mut out,
                FrameKind::Credit,
                black_box(1 << 20),
                Bytes::new(),
            );
            let mut assembler = FrameAssembler::new(64);
            black_box(assembler.push(&mut out.pop_front().unwrap()).unwrap())
        });
    });
}

fn assemble(whole: &Bytes) -> Option<Frame> {
    let mut assembler = FrameAssembler::new(1 << 20).with_batches();
    let mut rest = whole.clone();
    while !rest.is_empty() {
        let mut chunk = rest.split_to(rest.len().min(64 << 10));
        if let Some(frame) = assembler.push(&mut chunk).unwrap() {
            return Some(frame);
        }
    }
    None
}

/// A message through two multiplexers, with a pipe in memory for a socket, all on one thread: frames, credit, wake-ups.
fn multiplexing(c: &mut Criterion) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let mut group = c.benchmark_group("multiplex");
    for bytes in [64, 16 << 10, 400 << 10] {
        let mut pipe = runtime.block_on(Pipe::connect());
        let message = Bytes::from(vec![7; bytes]);
        runtime.block_on(pipe.carry(message.clone()));
        let counted = measure(|| runtime.block_on(pipe.carry(message.clone())));
        println!(
            "multiplex {bytes} bytes: {} allocations",
            counted.count_total
        );
        group.throughput(Throughput::Bytes(bytes as u64));
        group.bench_function(format!("{bytes} bytes"), |bencher| {
            bencher.iter(|| runtime.block_on(pipe.carry(message.clone())));
        });
    }
    group.throughput(Throughput::Elements(1));
    group.bench_function("open, one byte each way, end", |bencher| {
        let pipe = runtime.block_on(Pipe::connect());
        bencher.iter_batched(
            || (),
            |()| runtime.block_on(pipe.call()),
            BatchSize::SmallInput,
        );
    });
}

criterion_group!(benches, encoding, decoding, framing, multiplexing);
criterion_main!(benches);
