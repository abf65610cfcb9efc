//! `ParquetError`: every variant. Without the feature `parquet`, such an error arrives as its text.

use super::decode::Value;

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ParquetMessage {
    #[prost(enumeration = "Variant", tag = "1")]
    variant: i32,
    #[prost(string, tag = "2")]
    pub(super) text: String,
    /// The index, the number of bytes needed, or the start of the range of bytes needed.
    #[prost(uint64, tag = "3")]
    first: u64,
    /// The bound of the index, or the end of the range.
    #[prost(uint64, tag = "4")]
    second: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
enum Variant {
    Unknown = 0,
    General = 1,
    Nyi = 2,
    Eof = 3,
    Arrow = 4,
    IndexOutOfBound = 5,
    External = 6,
    NeedMoreData = 7,
    NeedMoreDataRange = 8,
}

#[cfg(feature = "parquet")]
pub(super) fn encode(
    encoder: &mut super::encode::Encoder,
    err: &::parquet::errors::ParquetError,
    depth: usize,
) {
    use ::parquet::errors::ParquetError;

    let mut held = None;
    let (variant, text, first, second) = match err {
        ParquetError::General(text) => (Variant::General, text.clone(), 0, 0),
        ParquetError::NYI(text) => (Variant::Nyi, text.clone(), 0, 0),
        ParquetError::EOF(text) => (Variant::Eof, text.clone(), 0, 0),
        ParquetError::ArrowError(text) => (Variant::Arrow, text.clone(), 0, 0),
        ParquetError::IndexOutOfBound(index, bound) => {
            let (index, bound) = (*index as u64, *bound as u64);
            (Variant::IndexOutOfBound, String::new(), index, bound)
        }
        ParquetError::External(source) => {
            held = Some(source);
            (Variant::External, String::new(), 0, 0)
        }
        ParquetError::NeedMoreData(bytes) => {
            (Variant::NeedMoreData, String::new(), *bytes as u64, 0)
        }
        ParquetError::NeedMoreDataRange(range) => {
            let variant = Variant::NeedMoreDataRange;
            (variant, String::new(), range.start, range.end)
        }
        other => (Variant::Unknown, other.to_string(), 0, 0),
    };
    let msg = ParquetMessage {
        variant: variant.into(),
        text,
        first,
        second,
    };
    let kind = super::message::Kind::ParquetValue(Box::new(msg));
    encoder.push(kind, usize::from(held.is_some()));
    if let Some(held) = held {
        encoder.source(held.as_ref(), depth + 1);
    }
}

#[cfg(feature = "parquet")]
pub(super) fn decode(msg: ParquetMessage, held: Option<Value>) -> Value {
    use ::parquet::errors::ParquetError;

    let size = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
    let variant = msg.variant();
    let text = msg.text;
    Value::Parquet(match variant {
        Variant::Unknown => return Value::unknown("parquet error", &text, held),
        Variant::General => ParquetError::General(text),
        Variant::Nyi => ParquetError::NYI(text),
        Variant::Eof => ParquetError::EOF(text),
        Variant::Arrow => ParquetError::ArrowError(text),
        Variant::IndexOutOfBound => {
            ParquetError::IndexOutOfBound(size(msg.first), size(msg.second))
        }
        Variant::External => ParquetError::External(Value::or_missing(held).into_boxed()),
        Variant::NeedMoreData => ParquetError::NeedMoreData(size(msg.first)),
        Variant::NeedMoreDataRange => ParquetError::NeedMoreDataRange(msg.first..msg.second),
    })
}

/// The text that the error would display, had this side its type.
#[cfg(not(feature = "parquet"))]
pub(super) fn decode(msg: ParquetMessage, held: Option<Value>) -> Value {
    let variant = msg.variant();
    let ParquetMessage {
        text,
        first,
        second,
        ..
    } = msg;
    let text = match variant {
        Variant::Unknown => return Value::unknown("parquet error", &text, held),
        Variant::General => format!("Parquet error: {text}"),
        Variant::Nyi => format!("NYI: {text}"),
        Variant::Eof => format!("EOF: {text}"),
        Variant::Arrow => format!("Arrow: {text}"),
        Variant::IndexOutOfBound => format!("Index {first} out of bound: {second}"),
        Variant::External => return Value::or_missing(held).into_text("External: ", ""),
        Variant::NeedMoreData => format!("NeedMoreData: {first}"),
        Variant::NeedMoreDataRange => format!("NeedMoreDataRange: {first}..{second}"),
    };
    Value::Remote(super::remote::RemoteError::new(text))
}

#[cfg(all(test, not(feature = "parquet")))]
mod tests {
    use super::*;

    #[test]
    fn without_the_feature_it_arrives_as_text() {
        let msg = |variant: Variant, text: &str| ParquetMessage {
            variant: variant.into(),
            text: text.to_owned(),
            first: 3,
            second: 5,
        };
        let text = |msg, held| Value::into_boxed(decode(msg, held)).to_string();
        assert_eq!(text(msg(Variant::Eof, "short"), None), "EOF: short");
        let range = msg(Variant::NeedMoreDataRange, "");
        assert_eq!(text(range, None), "NeedMoreDataRange: 3..5");
        let held = Value::Remote(super::super::remote::RemoteError::new("held"));
        assert_eq!(
            text(msg(Variant::External, ""), Some(held)),
            "External: held"
        );
    }
}
