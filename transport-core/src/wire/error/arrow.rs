//! `ArrowError`: every variant, with the error it holds as a child node.

use std::error::Error;
use std::io;

use datafusion::arrow::error::ArrowError;

use super::decode::Value;
use super::encode::Encoder;
use super::message::Kind;

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ArrowMessage {
    #[prost(enumeration = "Variant", tag = "1")]
    variant: i32,
    #[prost(string, tag = "2")]
    pub(super) text: String,
    #[prost(uint64, tag = "3")]
    offset: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
enum Variant {
    Unknown = 0,
    NotYetImplemented = 1,
    External = 2,
    Cast = 3,
    Memory = 4,
    Parse = 5,
    Schema = 6,
    Compute = 7,
    DivideByZero = 8,
    ArithmeticOverflow = 9,
    Csv = 10,
    Json = 11,
    Avro = 12,
    Io = 13,
    Ipc = 14,
    InvalidArgument = 15,
    Parquet = 16,
    CDataInterface = 17,
    DictionaryKeyOverflow = 18,
    RunEndIndexOverflow = 19,
    OffsetOverflow = 20,
}

pub(super) fn encode(encoder: &mut Encoder, err: &ArrowError, depth: usize) {
    let mut held: Option<&(dyn Error + 'static)> = None;
    let mut offset = 0;
    let (variant, text) = match err {
        ArrowError::NotYetImplemented(text) => (Variant::NotYetImplemented, text.as_str()),
        ArrowError::ExternalError(source) => {
            held = Some(source.as_ref());
            (Variant::External, "")
        }
        ArrowError::CastError(text) => (Variant::Cast, text.as_str()),
        ArrowError::MemoryError(text) => (Variant::Memory, text.as_str()),
        ArrowError::ParseError(text) => (Variant::Parse, text.as_str()),
        ArrowError::SchemaError(text) => (Variant::Schema, text.as_str()),
        ArrowError::ComputeError(text) => (Variant::Compute, text.as_str()),
        ArrowError::DivideByZero => (Variant::DivideByZero, ""),
        ArrowError::ArithmeticOverflow(text) => (Variant::ArithmeticOverflow, text.as_str()),
        ArrowError::CsvError(text) => (Variant::Csv, text.as_str()),
        ArrowError::JsonError(text) => (Variant::Json, text.as_str()),
        ArrowError::AvroError(text) => (Variant::Avro, text.as_str()),
        ArrowError::IoError(text, source) => {
            held = Some(source);
            (Variant::Io, text.as_str())
        }
        ArrowError::IpcError(text) => (Variant::Ipc, text.as_str()),
        ArrowError::InvalidArgumentError(text) => (Variant::InvalidArgument, text.as_str()),
        ArrowError::ParquetError(text) => (Variant::Parquet, text.as_str()),
        ArrowError::CDataInterface(text) => (Variant::CDataInterface, text.as_str()),
        ArrowError::DictionaryKeyOverflowError => (Variant::DictionaryKeyOverflow, ""),
        ArrowError::RunEndIndexOverflowError => (Variant::RunEndIndexOverflow, ""),
        ArrowError::OffsetOverflowError(value) => {
            offset = *value as u64;
            (Variant::OffsetOverflow, "")
        }
    };
    let msg = ArrowMessage {
        variant: variant.into(),
        text: text.to_owned(),
        offset,
    };
    encoder.push(Kind::ArrowValue(Box::new(msg)), usize::from(held.is_some()));
    match (err, held) {
        (ArrowError::IoError(_, source), _) => super::io::encode(encoder, source, depth + 1),
        (_, Some(source)) => encoder.source(source, depth + 1),
        (_, None) => {}
    }
}

pub(super) fn decode(msg: ArrowMessage, held: Option<Value>) -> Value {
    let variant = msg.variant();
    let text = msg.text;
    Value::Arrow(match variant {
        Variant::Unknown => return Value::unknown("arrow error", &text, held),
        Variant::NotYetImplemented => ArrowError::NotYetImplemented(text),
        Variant::External => ArrowError::ExternalError(Value::or_missing(held).into_boxed()),
        Variant::Cast => ArrowError::CastError(text),
        Variant::Memory => ArrowError::MemoryError(text),
        Variant::Parse => ArrowError::ParseError(text),
        Variant::Schema => ArrowError::SchemaError(text),
        Variant::Compute => ArrowError::ComputeError(text),
        Variant::DivideByZero => ArrowError::DivideByZero,
        Variant::ArithmeticOverflow => ArrowError::ArithmeticOverflow(text),
        Variant::Csv => ArrowError::CsvError(text),
        Variant::Json => ArrowError::JsonError(text),
        Variant::Avro => ArrowError::AvroError(text),
        Variant::Io => ArrowError::IoError(
            text,
            match Value::or_missing(held) {
                Value::Io(err) => err,
                other => io::Error::other(other.into_boxed()),
            },
        ),
        Variant::Ipc => ArrowError::IpcError(text),
        Variant::InvalidArgument => ArrowError::InvalidArgumentError(text),
        Variant::Parquet => ArrowError::ParquetError(text),
        Variant::CDataInterface => ArrowError::CDataInterface(text),
        Variant::DictionaryKeyOverflow => ArrowError::DictionaryKeyOverflowError,
        Variant::RunEndIndexOverflow => ArrowError::RunEndIndexOverflowError,
        Variant::OffsetOverflow => {
            ArrowError::OffsetOverflowError(usize::try_from(msg.offset).unwrap_or(usize::MAX))
        }
    })
}
