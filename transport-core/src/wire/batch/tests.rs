#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::expect_used
)]

use super::*;
use arrow_array::builder::{
    FixedSizeBinaryBuilder, Int32Builder, ListViewBuilder, MapBuilder, StringBuilder,
    StringDictionaryBuilder,
};
use arrow_array::types::{Int8Type, Int32Type, Int64Type};
use arrow_array::*;
use arrow_buffer::{IntervalDayTime, IntervalMonthDayNano, OffsetBuffer, ScalarBuffer, i256};
use arrow_schema::{DataType, Field, Fields, SchemaRef, UnionFields};
use proptest::prelude::*;
use std::collections::HashMap;

const ALL: [Compression; 3] = [Compression::None, Compression::Lz4, Compression::Zstd];

/// What arrives is the payload in an allocation of its own, 64-byte aligned.
fn payload_of(encoder: &mut BatchEncoder, batch: &RecordBatch) -> Buffer {
    let mut chunks = VecDeque::new();
    let total = encoder.encode(batch, &mut chunks).unwrap();
    let mut payload = MutableBuffer::new(total as usize);
    for chunk in &chunks {
        payload.extend_from_slice(chunk);
    }
    assert_eq!(payload.len() as u64, total);
    payload.into()
}

fn round_trip(batches: &[RecordBatch]) {
    for compression in ALL {
        let mut encoder = BatchEncoder::try_new(&batches[0].schema(), compression).unwrap();
        let mut decoder = BatchDecoder::new();
        for batch in batches {
            let got = decoder.decode(payload_of(&mut encoder, batch)).unwrap();
            assert_eq!(&got, batch, "{compression:?}");
            assert_eq!(got.schema(), batch.schema(), "{compression:?}");
        }
    }
}

/// The array whole, sliced, empty, and as a column beside others.
fn check(array: ArrayRef) {
    let batch =
        |array: ArrayRef| RecordBatch::try_from_iter_with_nullable([("a", array, true)]).unwrap();
    let half = array.len() / 2;
    round_trip(&[
        batch(Arc::clone(&array)),
        batch(array.slice(1, half)),
        batch(array.slice(half, 0)),
        batch(array),
    ]);
}

fn strings() -> StringArray {
    let long = "a value that is too long to be inlined in a view";
    StringArray::from(vec![
        Some("a"),
        None,
        Some(long),
        Some(""),
        Some("b"),
        Some(long),
    ])
}

fn dictionary() -> DictionaryArray<Int8Type> {
    let mut builder = StringDictionaryBuilder::<Int8Type>::new();
    for value in ["x", "y", "x", "z", "y", "x"] {
        builder.append_value(value);
    }
    builder.finish()
}

#[test]
fn null_and_booleans() {
    check(Arc::new(NullArray::new(6)));
    check(Arc::new(BooleanArray::from(vec![
        Some(true),
        None,
        Some(false),
        Some(true),
        None,
        Some(true),
    ])));
}

#[test]
fn numbers() {
    macro_rules! primitive {
        ($($array:ty),+) => { $(
            check(Arc::new((0..6).map(|i| (i % 3 != 1).then_some(i as _)).collect::<$array>()));
        )+ };
    }
    primitive!(
        Int8Array,
        Int16Array,
        Int32Array,
        Int64Array,
        UInt8Array,
        UInt16Array,
        UInt32Array
    );
    primitive!(UInt64Array, Float32Array, Float64Array);
    check(Arc::new(Float16Array::from(vec![
        half::f16::ONE,
        half::f16::NAN,
        half::f16::ZERO,
        half::f16::ONE,
    ])));
}

#[test]
fn decimals() {
    check(Arc::new(
        Decimal32Array::from(vec![Some(1), None, Some(-3), Some(4)])
            .with_precision_and_scale(9, 2)
            .unwrap(),
    ));
    check(Arc::new(
        Decimal64Array::from(vec![Some(1), None, Some(-3), Some(4)])
            .with_precision_and_scale(18, 2)
            .unwrap(),
    ));
    check(Arc::new(
        Decimal128Array::from(vec![Some(1), None, Some(i128::from(i64::MIN)), Some(4)])
            .with_precision_and_scale(38, 10)
            .unwrap(),
    ));
    check(Arc::new(Decimal256Array::from(vec![
        Some(i256::ONE),
        None,
        Some(i256::MINUS_ONE),
        Some(i256::ZERO),
    ])));
}

#[test]
fn times_and_intervals() {
    check(Arc::new(Date32Array::from(vec![
        Some(1),
        None,
        Some(3),
        Some(4),
    ])));
    check(Arc::new(Date64Array::from(vec![
        Some(1),
        None,
        Some(3),
        Some(4),
    ])));
    check(Arc::new(Time32SecondArray::from(vec![
        Some(1),
        None,
        Some(3),
        Some(4),
    ])));
    check(Arc::new(Time64NanosecondArray::from(vec![
        Some(1),
        None,
        Some(3),
        Some(4),
    ])));
    check(Arc::new(
        TimestampMicrosecondArray::from(vec![Some(1), None, Some(3), Some(4)])
            .with_timezone("Europe/Berlin"),
    ));
    check(Arc::new(DurationMillisecondArray::from(vec![
        Some(1),
        None,
        Some(3),
        Some(4),
    ])));
    check(Arc::new(IntervalYearMonthArray::from(vec![
        Some(1),
        None,
        Some(3),
        Some(4),
    ])));
    let days = IntervalDayTime::new(3, 7);
    check(Arc::new(IntervalDayTimeArray::from(vec![
        Some(days),
        None,
        Some(days),
        Some(days),
    ])));
    let months = IntervalMonthDayNano::new(1, 2, 3);
    check(Arc::new(IntervalMonthDayNanoArray::from(vec![
        Some(months),
        None,
        Some(months),
        Some(months),
    ])));
}

#[test]
fn strings_binaries_and_views() {
    let strings = strings();
    check(Arc::new(strings.clone()));
    check(Arc::new(strings.iter().collect::<LargeStringArray>()));
    check(Arc::new(strings.iter().collect::<StringViewArray>()));
    let bytes = || strings.iter().map(|s| s.map(str::as_bytes));
    check(Arc::new(bytes().collect::<BinaryArray>()));
    check(Arc::new(bytes().collect::<LargeBinaryArray>()));
    check(Arc::new(bytes().collect::<BinaryViewArray>()));
    let mut fixed = FixedSizeBinaryBuilder::new(3);
    for value in [b"abc", b"def", b"ghi", b"jkl"] {
        fixed.append_value(value).unwrap();
    }
    fixed.append_null();
    check(Arc::new(fixed.finish()));
}

#[test]
fn lists_structs_and_maps() {
    let values = || {
        vec![
            Some(vec![Some(1), None]),
            None,
            Some(vec![]),
            Some(vec![Some(4), Some(5)]),
        ]
    };
    check(Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(
        values(),
    )));
    check(Arc::new(LargeListArray::from_iter_primitive::<
        Int64Type,
        _,
        _,
    >(values().into_iter().map(|l| {
        l.map(|l| l.into_iter().map(|v| v.map(i64::from)).collect::<Vec<_>>())
    }))));
    let fixed = vec![
        Some(vec![Some(1), None]),
        None,
        Some(vec![Some(2), Some(3)]),
        Some(vec![Some(4), Some(5)]),
    ];
    check(Arc::new(FixedSizeListArray::from_iter_primitive::<
        Int32Type,
        _,
        _,
    >(fixed, 2)));

    let strings: ArrayRef = Arc::new(strings());
    let field = Arc::new(Field::new("s", DataType::Utf8, true));
    check(Arc::new(StructArray::from(vec![(field, strings)])));

    let mut map = MapBuilder::new(None, StringBuilder::new(), Int32Builder::new());
    for keys in [&["a", "b"][..], &[], &["c"], &["d"]] {
        for (i, key) in keys.iter().enumerate() {
            map.keys().append_value(key);
            map.values().append_value(i as i32);
        }
        map.append(true).unwrap();
    }
    check(Arc::new(map.finish()));
}

#[test]
fn list_views() {
    let mut builder = ListViewBuilder::new(Int32Builder::new());
    builder.append_value([Some(1), None, Some(3)]);
    builder.append_null();
    builder.append_value([]);
    builder.append_value([Some(4)]);
    check(Arc::new(builder.finish()));
}

#[test]
fn unions() {
    let fields = UnionFields::try_new(
        [0, 1],
        [
            Field::new("i", DataType::Int32, false),
            Field::new("s", DataType::Utf8, true),
        ],
    )
    .unwrap();
    let ints: ArrayRef = Arc::new(Int32Array::from(vec![1, 2, 3, 4, 5, 6]));
    let ids: ScalarBuffer<i8> = vec![0, 1, 0, 1, 1, 0].into();
    let sparse = UnionArray::try_new(fields.clone(), ids, None, vec![ints, Arc::new(strings())]);
    round_trip(&[
        RecordBatch::try_from_iter([("u", Arc::new(sparse.unwrap()) as ArrayRef)]).unwrap(),
    ]);

    let ints: ArrayRef = Arc::new(Int32Array::from(vec![1, 2]));
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["a", "b"]));
    let ids: ScalarBuffer<i8> = vec![0, 1, 1, 0].into();
    let offsets: ScalarBuffer<i32> = vec![0, 0, 1, 1].into();
    let dense = UnionArray::try_new(fields, ids, Some(offsets), vec![ints, texts]);
    round_trip(&[
        RecordBatch::try_from_iter([("u", Arc::new(dense.unwrap()) as ArrayRef)]).unwrap(),
    ]);
}

#[test]
fn run_ends() {
    let array: RunArray<Int32Type> = [Some("a"), Some("a"), None, Some("b"), Some("b"), Some("b")]
        .into_iter()
        .collect();
    check(Arc::new(array));
}

#[test]
fn dictionaries_plain_and_nested() {
    check(Arc::new(dictionary()));

    let dictionary: ArrayRef = Arc::new(dictionary());
    let field = Arc::new(Field::new("d", dictionary.data_type().clone(), true));
    check(Arc::new(StructArray::from(vec![(
        Arc::clone(&field),
        Arc::clone(&dictionary),
    )])));

    let offsets = OffsetBuffer::new(vec![0, 2, 2, 5, 6].into());
    check(Arc::new(ListArray::new(
        Arc::clone(&field),
        offsets.clone(),
        Arc::clone(&dictionary),
        None,
    )));

    let keys: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "c", "d", "e", "f"]));
    let entries = StructArray::new(
        Fields::from(vec![
            Field::new("keys", DataType::Utf8, false),
            Field::new("values", dictionary.data_type().clone(), true),
        ]),
        vec![keys, dictionary],
        None,
    );
    let entry = Arc::new(Field::new("entries", entries.data_type().clone(), false));
    check(Arc::new(MapArray::new(
        entry, offsets, entries, None, false,
    )));
}

/// A dictionary that changes from batch to batch, grows, shrinks, and comes back. (arrow-rs#9555, #6644)
#[test]
fn a_dictionary_may_change_between_batches() {
    let batch = |values: &[&str]| {
        let mut builder = StringDictionaryBuilder::<Int32Type>::new();
        values.iter().for_each(|v| builder.append_value(v));
        RecordBatch::try_from_iter([("d", Arc::new(builder.finish()) as ArrayRef)]).unwrap()
    };
    round_trip(&[
        batch(&["a", "b", "a"]),
        batch(&["a", "b", "c", "d"]),
        batch(&["z"]),
        batch(&[]),
        batch(&["a", "b", "a"]),
    ]);
}

/// No columns, some rows. (comet#4445)
#[test]
fn a_batch_without_columns_keeps_its_row_count() {
    let options = RecordBatchOptions::new().with_row_count(Some(17));
    let batch =
        RecordBatch::try_new_with_options(SchemaRef::new(Schema::empty()), vec![], &options)
            .unwrap();
    round_trip(&[batch.clone(), batch.slice(0, 0), batch]);
}

#[test]
fn metadata_of_schema_and_fields_arrives() {
    let metadata = |k: &str| HashMap::from([(k.to_string(), "v".to_string())]);
    let field = Field::new("a", DataType::Int32, false).with_metadata(metadata("field"));
    let schema = Arc::new(Schema::new_with_metadata(vec![field], metadata("schema")));
    let column: ArrayRef = Arc::new(Int32Array::from(vec![1]));
    round_trip(&[RecordBatch::try_new(schema, vec![column]).unwrap()]);
}

/// What a filter left behind is not sent.
#[test]
fn unused_values_are_dropped() {
    let texts: StringViewArray = (0..10_000)
        .map(|i| Some(format!("a long enough value, number {i}")))
        .collect();
    let views: ArrayRef = Arc::new(texts.slice(5, 2));
    let dictionary: DictionaryArray<Int32Type> = (0..10_000)
        .map(|i| format!("value {i}"))
        .collect::<Vec<_>>()
        .iter()
        .map(|s| Some(s.as_str()))
        .collect();
    let dictionary: ArrayRef = Arc::new(dictionary.slice(7, 2));
    let batch = RecordBatch::try_from_iter([("v", views), ("d", dictionary)]).unwrap();
    let mut encoder = BatchEncoder::try_new(&batch.schema(), Compression::None).unwrap();
    let payload = payload_of(&mut encoder, &batch);
    assert!(
        payload.len() < 3000,
        "{} bytes for four values",
        payload.len()
    );
    assert_eq!(BatchDecoder::new().decode(payload).unwrap(), batch);
}

/// The same dictionary is sent once.
#[test]
fn an_unchanged_dictionary_is_not_sent_again() {
    let values: ArrayRef = Arc::new(StringArray::from_iter_values(
        (0..1000).map(|i| format!("value number {i}")),
    ));
    let keys = Int32Array::from_iter_values((0..4000).map(|i| i % 1000));
    let array: ArrayRef = Arc::new(DictionaryArray::new(keys, values));
    let batch = RecordBatch::try_from_iter([("d", array)]).unwrap();
    let mut encoder = BatchEncoder::try_new(&batch.schema(), Compression::None).unwrap();
    let first = payload_of(&mut encoder, &batch).len();
    let second = payload_of(&mut encoder, &batch).len();
    assert!(second + 16_000 < first, "{first} then {second}");
}

/// Uncompressed arrays point into the payload, and large buffers are not copied on the way out. (arrow-rs#10206, #10273)
#[test]
fn nothing_is_copied() {
    let column = Int64Array::from_iter_values(0..100_000);
    let sent = column.values().as_ptr() as usize;
    let batch = RecordBatch::try_from_iter([("a", Arc::new(column) as ArrayRef)]).unwrap();
    let mut encoder = BatchEncoder::try_new(&batch.schema(), Compression::None).unwrap();
    let mut chunks = VecDeque::new();
    encoder.encode(&batch, &mut chunks).unwrap();
    assert!(chunks.iter().any(|chunk| chunk.as_ptr() as usize == sent));

    let mut encoder = BatchEncoder::try_new(&batch.schema(), Compression::None).unwrap();
    let payload = payload_of(&mut encoder, &batch);
    let range = payload.as_slice().as_ptr_range();
    let got = BatchDecoder::new().decode(payload.clone()).unwrap();
    let values = got
        .column(0)
        .as_primitive::<Int64Type>()
        .values()
        .inner()
        .as_ptr();
    assert!(range.contains(&values));
    assert_eq!(values.align_offset(64), 0);
}

#[test]
fn what_is_no_single_batch_is_refused() {
    let batch = RecordBatch::try_from_iter([("a", Arc::new(strings()) as ArrayRef)]).unwrap();
    let mut encoder = BatchEncoder::try_new(&batch.schema(), Compression::None).unwrap();
    let first = payload_of(&mut encoder, &batch);
    let second = payload_of(&mut encoder, &batch);
    let both = [first.as_slice(), second.as_slice()].concat();
    let refused = |payload: &[u8]| {
        BatchDecoder::new()
            .decode(Buffer::from(payload))
            .unwrap_err()
            .to_string()
    };
    assert!(refused(&both).contains("B-2"));
    assert!(refused(&[]).contains("B-2"));
    assert!(refused(&[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]).contains("B-2"));
    refused(&first[..first.len() - 1]);
    refused(&second); // A batch before its schema.
}

/// Decoders descend by recursion: a peer must not choose how deep.
#[test]
fn deep_nesting_is_refused_by_its_reader() {
    let nested = |depth: usize| {
        let list = |inner| DataType::List(Arc::new(Field::new("item", inner, true)));
        let data_type = (0..depth).fold(DataType::Int32, |inner, _| list(inner));
        let batch = RecordBatch::try_from_iter([("a", new_empty_array(&data_type))]).unwrap();
        let mut encoder = BatchEncoder::try_new(&batch.schema(), Compression::None).unwrap();
        let payload = payload_of(&mut encoder, &batch);
        BatchDecoder::new().decode(payload).map(drop)
    };
    nested(60).unwrap();
    let err = nested(61).unwrap_err().to_string();
    assert!(err.contains("depth"), "{err}");
}

/// A few bytes that claim to be many. (arrow-rs#10521)
#[test]
fn an_impossible_uncompressed_size_is_refused_before_it_is_allocated() {
    let column: ArrayRef = Arc::new(Int64Array::from(vec![7; 1000]));
    let batch = RecordBatch::try_from_iter([("a", column)]).unwrap();
    let mut encoder = BatchEncoder::try_new(&batch.schema(), Compression::Lz4).unwrap();
    let mut bytes = payload_of(&mut encoder, &batch).to_vec();
    let stated = 8000i64.to_le_bytes();
    let at = bytes.windows(8).rposition(|w| w == stated).unwrap();
    bytes[at..at + 8].copy_from_slice(&(1i64 << 60).to_le_bytes());
    let err = BatchDecoder::new().decode(Buffer::from(bytes)).unwrap_err();
    assert!(err.to_string().contains("B-5"), "{err}");
}

proptest! {
    #[test]
    fn damaged_bytes_never_panic(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
        cut in any::<prop::sample::Index>(),
        compression in prop::sample::select(ALL.to_vec()),
    ) {
        let dictionary: ArrayRef = Arc::new(dictionary());
        let batch = RecordBatch::try_from_iter_with_nullable([
            ("s", Arc::new(strings()) as ArrayRef, true),
            ("v", Arc::new(strings().iter().collect::<StringViewArray>()) as ArrayRef, true),
            ("d", dictionary, true),
        ]).unwrap();
        let mut encoder = BatchEncoder::try_new(&batch.schema(), compression).unwrap();
        let mut bytes = payload_of(&mut encoder, &batch).to_vec();
        for (index, value) in damage {
            let at = index.index(bytes.len());
            bytes[at] = value;
        }
        let _ = BatchDecoder::new().decode(Buffer::from(bytes.as_slice()));
        bytes.truncate(cut.index(bytes.len()));
        let _ = BatchDecoder::new().decode(Buffer::from(bytes));
    }

    #[test]
    fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = BatchDecoder::new().decode(Buffer::from(bytes));
    }
}

/// Batches whose dictionaries stay, change, and are nested, each twice, and a view column.
fn batches_with_dictionaries() -> Vec<RecordBatch> {
    let dictionary = |values: [&'static str; 3]| -> ArrayRef {
        let keys = Int8Array::from(vec![Some(0), None, Some(2), Some(1)]);
        let values = Arc::new(StringArray::from(values.to_vec()));
        Arc::new(DictionaryArray::new(keys, values))
    };
    let kept = dictionary(["k", "e", "p"]);
    let batch = |changing: ArrayRef| {
        let field = Field::new("d", changing.data_type().clone(), true);
        let nested = StructArray::from(vec![(Arc::new(field), Arc::clone(&changing))]);
        let views = StringViewArray::from(vec![
            Some("short"),
            None,
            Some("longer than twelve bytes"),
            Some(""),
        ]);
        RecordBatch::try_from_iter_with_nullable([
            ("kept", Arc::clone(&kept), true),
            ("changing", changing, true),
            ("nested", Arc::new(nested) as ArrayRef, true),
            ("views", Arc::new(views) as ArrayRef, true),
        ])
        .unwrap()
    };
    let (one, other) = (dictionary(["a", "b", "c"]), dictionary(["x", "y", "z"]));
    [&one, &one, &other, &other, &one]
        .map(|it| batch(Arc::clone(it)))
        .to_vec()
}

/// B-7: whichever way the compression changes, and wherever in the stream, dictionaries included.
#[test]
fn compression_may_change_between_any_two_batches() {
    let batches = batches_with_dictionaries();
    for pattern in 0..3_usize.pow(5) {
        let choice = |turn: u32| ALL[pattern / 3_usize.pow(turn) % 3];
        let mut encoder = BatchEncoder::try_new(&batches[0].schema(), choice(0)).unwrap();
        let mut decoder = BatchDecoder::new();
        for (turn, batch) in batches.iter().enumerate() {
            encoder.set_compression(choice(turn as u32)).unwrap();
            let got = decoder.decode(payload_of(&mut encoder, batch)).unwrap();
            assert_eq!(&got, batch, "pattern {pattern}, batch {turn}");
            let compressed = choice(turn as u32) != Compression::None;
            assert_eq!(decoder.was_compressed(), compressed);
        }
    }
}

#[test]
fn a_change_of_compression_repeats_dictionaries_but_no_schema() {
    let batches = batches_with_dictionaries();
    let batch = &batches[0];
    let mut encoder = BatchEncoder::try_new(&batch.schema(), Compression::None).unwrap();
    let kinds = |payload: Buffer| {
        let mut rest = payload.as_slice().to_vec();
        let mut kinds = vec![];
        while !rest.is_empty() {
            let (metadata, after) = split_metadata(&rest).unwrap();
            let message = arrow_ipc::root_as_message(metadata).unwrap();
            kinds.push(message.header_type());
            rest = after[message.bodyLength() as usize..].to_vec();
        }
        kinds
    };
    let (dictionary, record) = (MessageHeader::DictionaryBatch, MessageHeader::RecordBatch);
    let first = [
        MessageHeader::Schema,
        dictionary,
        dictionary,
        dictionary,
        record,
    ];
    assert_eq!(kinds(payload_of(&mut encoder, batch)), first);
    assert_eq!(kinds(payload_of(&mut encoder, batch)), [record]);
    encoder.set_compression(Compression::Lz4).unwrap();
    assert_eq!(kinds(payload_of(&mut encoder, batch)), first[1..]);
    encoder.set_compression(Compression::Lz4).unwrap();
    assert_eq!(kinds(payload_of(&mut encoder, batch)), [record]);
}

#[test]
fn a_change_before_the_first_batch_keeps_the_schema() {
    let batches = batches_with_dictionaries();
    let mut encoder = BatchEncoder::try_new(&batches[0].schema(), Compression::None).unwrap();
    encoder.set_compression(Compression::Lz4).unwrap();
    let mut decoder = BatchDecoder::new();
    let got = decoder
        .decode(payload_of(&mut encoder, &batches[0]))
        .unwrap();
    assert_eq!(got, batches[0]);
}
