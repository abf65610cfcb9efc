//! Every type of Arrow, whole, sliced and empty.

use super::Kit;
use super::data::round_trip;
use arrow_array::builder::{
    BinaryViewBuilder, FixedSizeBinaryBuilder, Int32Builder, LargeListViewBuilder, ListViewBuilder,
    MapBuilder, StringBuilder, StringDictionaryBuilder, StringViewBuilder,
};
use arrow_array::types::{Int8Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type};
use arrow_array::*;
use arrow_buffer::{IntervalDayTime, IntervalMonthDayNano, OffsetBuffer, ScalarBuffer, i256};
use arrow_schema::{DataType, Field, Fields, UnionFields};
use std::sync::Arc;

type F16 = <types::Float16Type as ArrowPrimitiveType>::Native;

/// Each array as a column: whole, a slice, empty, whole again.
async fn carry(t: Kit, arrays: Vec<ArrayRef>) {
    let rows = arrays.iter().map(|array| array.len()).min().expect("some");
    let columns = arrays.iter().enumerate();
    let columns = columns.map(|(i, array)| (format!("c{i}"), array.slice(0, rows), true));
    let batch = RecordBatch::try_from_iter_with_nullable(columns).expect("columns of one length");
    let half = rows / 2;
    let batches = vec![
        batch.clone(),
        batch.slice(1, half),
        batch.slice(half, 0),
        batch.slice(half, rows - half),
        batch.clone(),
    ];
    round_trip(&t, batch.schema(), batches).await;
}

fn of<T: Array + 'static>(array: T) -> ArrayRef {
    Arc::new(array)
}

fn strings() -> StringArray {
    let long = "a value that is too long to be inlined in a view";
    StringArray::from(vec![
        Some("a"),
        None,
        Some(long),
        Some(""),
        Some("größe"),
        Some(long),
    ])
}

fn dictionary() -> DictionaryArray<Int8Type> {
    let mut builder = StringDictionaryBuilder::<Int8Type>::new();
    for value in [Some("x"), Some("y"), None, Some("z"), Some("y"), Some("x")] {
        builder.append_option(value);
    }
    builder.finish()
}

fn item(data_type: DataType) -> Arc<Field> {
    Arc::new(Field::new_list_field(data_type, true))
}

/// Nulls have no buffers, booleans are bits.
pub async fn null_and_boolean(t: Kit) {
    let bits = vec![Some(true), None, Some(false), Some(true), None, Some(true)];
    carry(t, vec![of(NullArray::new(6)), of(BooleanArray::from(bits))]).await;
}

/// All widths, signed, unsigned and floating, infinities and NaN among them.
pub async fn integers_and_floats(t: Kit) {
    macro_rules! numbers {
        ($($array:ty),+) => {
            vec![$(of((0..6).map(|i| (i % 3 != 1).then_some(i as _)).collect::<$array>())),+]
        };
    }
    let mut arrays = numbers!(
        Int8Array,
        Int16Array,
        Int32Array,
        Int64Array,
        UInt8Array,
        UInt16Array,
        UInt32Array,
        UInt64Array,
        Float32Array,
        Float64Array
    );
    let special = [
        0.0,
        -0.0,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::MIN,
        f64::MAX,
    ];
    arrays.push(of(Float64Array::from(special.to_vec())));
    let halves = special.map(F16::from_f64);
    arrays.push(of(Float16Array::from(halves.to_vec())));
    carry(t, arrays).await;
}

/// All four widths, with precision and scale.
pub async fn decimals(t: Kit) {
    let d32 = Decimal32Array::from(vec![Some(1), None, Some(-3), Some(4)]);
    let d64 = Decimal64Array::from(vec![Some(1), None, Some(-3), Some(4)]);
    let least = i128::from(i64::MIN);
    let d128 = Decimal128Array::from(vec![Some(1), None, Some(least), Some(4)]);
    let d256 = Decimal256Array::from(vec![Some(i256::ONE), None, Some(i256::MINUS_ONE), None]);
    let arrays = vec![
        of(d32.with_precision_and_scale(9, 2).expect("it fits")),
        of(d64.with_precision_and_scale(18, -2).expect("it fits")),
        of(d128.with_precision_and_scale(38, 10).expect("it fits")),
        of(d256.with_precision_and_scale(76, 5).expect("it fits")),
    ];
    carry(t, arrays).await;
}

/// Dates, times and timestamps of all units, with and without zone.
pub async fn dates_and_times(t: Kit) {
    macro_rules! times {
        ($($array:ty),+) => {
            vec![$(of(<$array>::from(vec![Some(0), None, Some(86_399), Some(1)]))),+]
        };
    }
    let mut arrays = times!(
        Date32Array,
        Date64Array,
        Time32SecondArray,
        Time32MillisecondArray,
        Time64MicrosecondArray,
        Time64NanosecondArray,
        TimestampSecondArray,
        TimestampMillisecondArray,
        TimestampMicrosecondArray,
        TimestampNanosecondArray
    );
    let at = || TimestampMicrosecondArray::from(vec![Some(-1), None, Some(5), Some(i64::MAX)]);
    for zone in ["+00:00", "Europe/Berlin", "-08:00"] {
        arrays.push(of(at().with_timezone(zone)));
    }
    carry(t, arrays).await;
}

/// Durations of all units, intervals of all layouts.
pub async fn intervals_and_durations(t: Kit) {
    let (days, months) = (IntervalDayTime::new, IntervalMonthDayNano::new);
    carry(
        t,
        vec![
            of(DurationSecondArray::from(vec![Some(1), None, Some(-1)])),
            of(DurationMillisecondArray::from(vec![
                Some(1),
                None,
                Some(-1),
            ])),
            of(DurationMicrosecondArray::from(vec![
                Some(1),
                None,
                Some(-1),
            ])),
            of(DurationNanosecondArray::from(vec![
                Some(1),
                None,
                Some(i64::MIN),
            ])),
            of(IntervalYearMonthArray::from(vec![Some(1), None, Some(-13)])),
            of(IntervalDayTimeArray::from(vec![
                Some(days(1, -2)),
                None,
                Some(days(0, 3)),
            ])),
            of(IntervalMonthDayNanoArray::from(vec![
                Some(months(1, -2, 3)),
                None,
                Some(months(0, 0, -1)),
            ])),
        ],
    )
    .await;
}

/// With small and large offsets, and of fixed size.
pub async fn strings_and_binaries(t: Kit) {
    let bytes: Vec<Option<&[u8]>> =
        vec![Some(b"\0\xff"), None, Some(b""), Some(b"abc"), None, None];
    let mut fixed = FixedSizeBinaryBuilder::new(3);
    for i in 0..6_u8 {
        match i % 3 {
            1 => fixed.append_null(),
            _ => fixed.append_value([i; 3]).expect("three bytes"),
        }
    }
    let large: LargeStringArray = strings().iter().collect();
    carry(
        t,
        vec![
            of(strings()),
            of(large),
            of(BinaryArray::from(bytes.clone())),
            of(LargeBinaryArray::from(bytes)),
            of(fixed.finish()),
        ],
    )
    .await;
}

/// Views, inlined and not, over several buffers.
pub async fn string_and_binary_views(t: Kit) {
    let mut text = StringViewBuilder::new().with_fixed_block_size(64);
    let mut bytes = BinaryViewBuilder::new().with_fixed_block_size(64);
    for i in 0..200 {
        match i % 4 {
            0 => text.append_null(),
            1 => text.append_value(format!("{i}")),
            _ => text.append_value(format!("a value that is too long to be inlined: {i}")),
        }
        match i % 3 {
            0 => bytes.append_null(),
            _ => bytes.append_value(vec![i as u8; i % 40]),
        }
    }
    carry(t, vec![of(text.finish()), of(bytes.finish())]).await;
}

/// Lists of small and large offsets and of fixed size, of numbers, strings and lists.
pub async fn lists(t: Kit) {
    let values = || {
        vec![
            Some(vec![Some(1), None]),
            None,
            Some(vec![]),
            Some(vec![Some(4), Some(5), Some(6)]),
        ]
    };
    let lists = ListArray::from_iter_primitive::<Int32Type, _, _>(values());
    let large =
        LargeListArray::from_iter_primitive::<Int64Type, _, _>(values().into_iter().map(|list| {
            list.map(|list| {
                list.into_iter()
                    .map(|v| v.map(i64::from))
                    .collect::<Vec<_>>()
            })
        }));
    let fixed = FixedSizeListArray::from_iter_primitive::<Int32Type, _, _>(
        vec![
            Some(vec![Some(1), None]),
            None,
            Some(vec![Some(3), Some(4)]),
            None,
        ],
        2,
    );
    let offsets = OffsetBuffer::new(ScalarBuffer::from(vec![0, 2, 2, 5, 6]));
    let of_strings = ListArray::new(item(DataType::Utf8), offsets, of(strings()), None);
    let offsets = OffsetBuffer::new(ScalarBuffer::from(vec![0, 1, 1, 3, 4]));
    let of_lists = ListArray::new(
        item(lists.data_type().clone()),
        offsets,
        of(lists.clone()),
        None,
    );
    carry(
        t,
        vec![
            of(lists),
            of(large),
            of(fixed),
            of(of_strings),
            of(of_lists),
        ],
    )
    .await;
}

/// List views, whose elements may lie in any order.
pub async fn list_views(t: Kit) {
    let mut small = ListViewBuilder::new(Int32Builder::new());
    let mut large = LargeListViewBuilder::new(StringBuilder::new());
    for i in 0..6 {
        for value in 0..i {
            small.values().append_value(value);
            large.values().append_value(format!("value {value}"));
        }
        small.append(i % 4 != 1);
        large.append(i % 4 != 2);
    }
    carry(t, vec![of(small.finish()), of(large.finish())]).await;
}

/// Structs with nulls of their own, maps.
pub async fn structs_and_maps(t: Kit) {
    let fields: Fields = vec![
        Field::new("s", DataType::Utf8, true),
        Field::new("n", DataType::Int32, false),
    ]
    .into();
    let columns: Vec<ArrayRef> = vec![of(strings()), of(Int32Array::from_iter_values(0..6))];
    let nulls = vec![true, false, true, true, false, true];
    let structs = StructArray::new(fields, columns, Some(nulls.into()));
    let mut maps = MapBuilder::new(None, StringBuilder::new(), Int32Builder::new());
    for i in 0..6 {
        for key in 0..i % 4 {
            maps.keys().append_value(format!("key {key}"));
            maps.values().append_option((key != 1).then_some(i));
        }
        maps.append(i != 2).expect("keys and values");
    }
    carry(t, vec![of(structs), of(maps.finish())]).await;
}

/// Dense and sparse.
pub async fn unions(t: Kit) {
    let fields = || {
        let fields = [
            Field::new("n", DataType::Int32, true),
            Field::new("s", DataType::Utf8, true),
        ];
        UnionFields::try_new([3, 7], fields).expect("two fields")
    };
    let ids = || ScalarBuffer::from(vec![3_i8, 7, 3, 7, 7, 3]);
    let numbers = Int32Array::from(vec![Some(1), None, Some(3), Some(4), Some(5), Some(6)]);
    let sparse = UnionArray::try_new(
        fields(),
        ids(),
        None,
        vec![of(numbers.clone()), of(strings())],
    );
    let offsets = ScalarBuffer::from(vec![0, 0, 1, 1, 2, 2]);
    let dense = UnionArray::try_new(
        fields(),
        ids(),
        Some(offsets),
        vec![of(numbers), of(strings())],
    );
    carry(
        t,
        vec![of(sparse.expect("a union")), of(dense.expect("a union"))],
    )
    .await;
}

/// Runs of numbers and of strings.
pub async fn run_end_encoded(t: Kit) {
    let ends = Int32Array::from(vec![2, 3, 6]);
    let strings = RunArray::try_new(&ends, &StringArray::from(vec![Some("a"), None, Some("b")]));
    let ends = Int16Array::from(vec![1, 4, 6]);
    let numbers = RunArray::try_new(&ends, &Int64Array::from(vec![1, 2, 3]));
    carry(
        t,
        vec![of(strings.expect("runs")), of(numbers.expect("runs"))],
    )
    .await;
}

/// Keys of several widths, values of several types.
pub async fn dictionaries(t: Kit) {
    fn numbers<K: types::ArrowDictionaryKeyType>(keys: PrimitiveArray<K>) -> ArrayRef {
        let values = Arc::new(Int64Array::from(vec![Some(10), None, Some(30)]));
        of(DictionaryArray::try_new(keys, values).expect("keys of values"))
    }
    let keys = [Some(0_u8), Some(2), None, Some(1), Some(2), Some(0)];
    carry(
        t,
        vec![
            of(dictionary()),
            numbers(keys.into_iter().collect::<PrimitiveArray<UInt8Type>>()),
            numbers(
                keys.map(|k| k.map(u16::from))
                    .into_iter()
                    .collect::<PrimitiveArray<UInt16Type>>(),
            ),
            numbers(
                keys.map(|k| k.map(u32::from))
                    .into_iter()
                    .collect::<PrimitiveArray<UInt32Type>>(),
            ),
            numbers(
                keys.map(|k| k.map(i64::from))
                    .into_iter()
                    .collect::<PrimitiveArray<Int64Type>>(),
            ),
        ],
    )
    .await;
}

/// In a struct, a list, a map's values, a list view, runs, and in another dictionary (arrow-rs#9555, #6644).
pub async fn dictionaries_inside_others(t: Kit) {
    let inner = || of(dictionary());
    let field = |name: &str| Arc::new(Field::new(name, inner().data_type().clone(), true));
    let structs = StructArray::from(vec![(field("d"), inner())]);
    let offsets = OffsetBuffer::new(ScalarBuffer::from(vec![0, 1, 3, 3, 5, 6, 6]));
    let lists = ListArray::new(item(inner().data_type().clone()), offsets, inner(), None);
    let offsets = ScalarBuffer::from(vec![4, 0, 2, 1, 0, 3]);
    let sizes = ScalarBuffer::from(vec![2, 1, 0, 3, 1, 2]);
    let views = ListViewArray::new(
        item(inner().data_type().clone()),
        offsets,
        sizes,
        inner(),
        None,
    );
    let keys = StringArray::from_iter_values((0..6).map(|i| format!("key {i}")));
    let entry = vec![
        (
            Arc::new(Field::new("keys", DataType::Utf8, false)),
            of(keys),
        ),
        (field("values"), inner()),
    ];
    let entries = StructArray::from(entry);
    let offsets = OffsetBuffer::new(ScalarBuffer::from(vec![0, 1, 3, 3, 5, 6, 6]));
    let entries_field = Arc::new(Field::new("entries", entries.data_type().clone(), false));
    let maps = MapArray::new(entries_field, offsets, entries, None, false);
    let ends = Int32Array::from(vec![1, 2, 3, 4, 5, 6]);
    let runs = RunArray::try_new(&ends, &dictionary()).expect("runs");
    carry(
        t,
        vec![of(structs), of(lists), of(views), of(maps), of(runs)],
    )
    .await;
}

/// A dictionary may be another one in every batch, grow, shrink, and come back (arrow-rs#9555).
pub async fn dictionaries_that_change(t: Kit) {
    let batch = |values: &[&str], keys: Vec<i32>| {
        let values = Arc::new(StringArray::from(values.to_vec()));
        let array = DictionaryArray::try_new(Int32Array::from(keys), values).expect("keys");
        RecordBatch::try_from_iter_with_nullable([("d", of(array), true)]).expect("a column")
    };
    let batches = vec![
        batch(&["a", "b"], vec![0, 1, 0]),
        batch(&["a", "b", "c"], vec![2, 1, 0]),
        batch(&["z"], vec![0, 0]),
        batch(&["z"], vec![0]),
        batch(&["b", "a"], vec![0, 1, 0]),
        batch(&["a", "b"], vec![0, 1, 0]),
    ];
    round_trip(&t, batches[0].schema(), batches).await;
}
