//! `ParserError`: every variant. Without the feature `sql`, such an error arrives as its text.

use datafusion::error::DataFusionError;
#[cfg(feature = "sql")]
use datafusion::sql::sqlparser::parser::ParserError;

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct SqlMessage {
    #[prost(enumeration = "Variant", tag = "1")]
    variant: i32,
    #[prost(string, tag = "2")]
    pub(super) text: String,
    #[prost(string, optional, tag = "3")]
    backtrace: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
enum Variant {
    Unknown = 0,
    Tokenizer = 1,
    Parser = 2,
    RecursionLimitExceeded = 3,
}

#[cfg(feature = "sql")]
pub(super) fn encode(err: &ParserError, backtrace: Option<&String>) -> SqlMessage {
    let (variant, text) = match err {
        ParserError::TokenizerError(text) => (Variant::Tokenizer, text.clone()),
        ParserError::ParserError(text) => (Variant::Parser, text.clone()),
        ParserError::RecursionLimitExceeded => (Variant::RecursionLimitExceeded, String::new()),
    };
    SqlMessage {
        variant: variant.into(),
        text,
        backtrace: backtrace.cloned(),
    }
}

#[cfg(feature = "sql")]
pub(super) fn decode(msg: SqlMessage) -> DataFusionError {
    let variant = msg.variant();
    let SqlMessage {
        text, backtrace, ..
    } = msg;
    let err = match variant {
        Variant::Unknown => ParserError::ParserError(format!(
            "SQL error of a kind that this side does not know: {text}"
        )),
        Variant::Tokenizer => ParserError::TokenizerError(text),
        Variant::Parser => ParserError::ParserError(text),
        Variant::RecursionLimitExceeded => ParserError::RecursionLimitExceeded,
    };
    DataFusionError::SQL(Box::new(err), backtrace)
}

/// The text that the error would display, had this side its type.
#[cfg(not(feature = "sql"))]
pub(super) fn decode(msg: SqlMessage) -> DataFusionError {
    let text = &msg.text;
    let err = match msg.variant() {
        Variant::Unknown => format!("{text:?}, of a kind that this side does not know"),
        Variant::Tokenizer => format!("TokenizerError({text:?})"),
        Variant::Parser => format!("ParserError({text:?})"),
        Variant::RecursionLimitExceeded => "RecursionLimitExceeded".to_owned(),
    };
    let backtrace = msg.backtrace.as_deref().unwrap_or_default();
    let text = format!("SQL error: {err}{backtrace}");
    DataFusionError::External(Box::new(super::remote::RemoteError::new(text)))
}

#[cfg(all(test, not(feature = "sql")))]
mod tests {
    use super::*;

    #[test]
    fn without_the_feature_it_arrives_as_text() {
        let err = decode(SqlMessage {
            variant: Variant::Parser.into(),
            text: "expected: \"x\"".to_owned(),
            backtrace: Some("\n\nbacktrace: 0: main".to_owned()),
        });
        assert_eq!(
            err.to_string(),
            "External error: SQL error: ParserError(\"expected: \\\"x\\\"\")\n\nbacktrace: 0: main"
        );
    }
}
