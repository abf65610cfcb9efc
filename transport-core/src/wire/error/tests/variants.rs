//! Every variant arrives as itself.

use datafusion::common::diagnostic::DiagnosticKind;
use datafusion::common::{Column, Diagnostic, Location, Span, TableReference};

use super::*;
use crate::error::{ErrorKind as TransportErrorKind, TransportError};

fn span(line: u64) -> Span {
    Span::new(
        Location { line, column: 2 },
        Location {
            line: line + 1,
            column: u64::MAX,
        },
    )
}

#[test]
fn text_variants() {
    let text = || "zażółć\n\0 text".to_owned();
    for text in [text(), String::new()] {
        same(DataFusionError::NotImplemented(text.clone()));
        same(DataFusionError::Internal(text.clone()));
        same(DataFusionError::Plan(text.clone()));
        same(DataFusionError::Configuration(text.clone()));
        same(DataFusionError::Execution(text.clone()));
        same(DataFusionError::ResourcesExhausted(text.clone()));
        same(DataFusionError::Substrait(text.clone()));
        same(DataFusionError::Ffi(text));
    }
}

#[test]
fn arrow_variants() {
    let text = || "text".to_owned();
    let io = || io::Error::new(io::ErrorKind::TimedOut, "slow disk");
    for err in [
        ArrowError::NotYetImplemented(text()),
        ArrowError::ExternalError(Foreign::boxed("foreign", None)),
        ArrowError::ExternalError(Box::new(exhausted())),
        ArrowError::ExternalError(Box::new(ArrowError::DivideByZero)),
        ArrowError::CastError(text()),
        ArrowError::MemoryError(text()),
        ArrowError::ParseError(text()),
        ArrowError::SchemaError(text()),
        ArrowError::ComputeError(text()),
        ArrowError::DivideByZero,
        ArrowError::ArithmeticOverflow(text()),
        ArrowError::CsvError(text()),
        ArrowError::JsonError(text()),
        ArrowError::AvroError(text()),
        ArrowError::IoError("other text".to_owned(), io()),
        ArrowError::IpcError(text()),
        ArrowError::InvalidArgumentError(text()),
        ArrowError::ParquetError(text()),
        ArrowError::CDataInterface(text()),
        ArrowError::DictionaryKeyOverflowError,
        ArrowError::RunEndIndexOverflowError,
        ArrowError::OffsetOverflowError(usize::MAX),
    ] {
        same(DataFusionError::ArrowError(Box::new(err), None));
    }
}

#[test]
fn arrow_backtrace() {
    for backtrace in [
        None,
        Some(String::new()),
        Some("\n\nbacktrace: 0: main".to_owned()),
    ] {
        let err =
            DataFusionError::ArrowError(Box::new(ArrowError::DivideByZero), backtrace.clone());
        let DataFusionError::ArrowError(_, got) = same(err) else {
            panic!("another variant");
        };
        assert_eq!(got, backtrace);
    }
}

#[test]
fn arrow_io_keeps_the_kind_and_both_texts() {
    let io = io::Error::new(io::ErrorKind::BrokenPipe, "inner");
    let err = ArrowError::IoError("outer".to_owned(), io);
    let got = same(DataFusionError::ArrowError(Box::new(err), None));
    let DataFusionError::ArrowError(got, _) = got else {
        panic!("another variant");
    };
    let ArrowError::IoError(text, io) = *got else {
        panic!("another variant");
    };
    assert_eq!(text, "outer");
    assert_eq!(io.kind(), io::ErrorKind::BrokenPipe);
    assert_eq!(io.to_string(), "inner");
}

#[cfg(feature = "parquet")]
#[test]
fn parquet_variants() {
    use ::parquet::errors::ParquetError;
    let text = || "text".to_owned();
    for err in [
        ParquetError::General(text()),
        ParquetError::NYI(text()),
        ParquetError::EOF(text()),
        ParquetError::ArrowError(text()),
        ParquetError::IndexOutOfBound(3, usize::MAX),
        ParquetError::External(Foreign::boxed("foreign", None)),
        ParquetError::External(Box::new(ArrowError::DivideByZero)),
        ParquetError::External(Box::new(ParquetError::EOF(text()))),
        ParquetError::NeedMoreData(17),
        ParquetError::NeedMoreDataRange(5..u64::MAX),
    ] {
        same(DataFusionError::ParquetError(Box::new(err)));
    }
}

#[cfg(feature = "sql")]
#[test]
fn sql_variants() {
    use datafusion::sql::sqlparser::parser::ParserError;
    for err in [
        ParserError::TokenizerError("unterminated \"string\"".to_owned()),
        ParserError::ParserError("expected: expression".to_owned()),
        ParserError::RecursionLimitExceeded,
    ] {
        same(DataFusionError::SQL(Box::new(err.clone()), None));
        let backtrace = Some("\n\nbacktrace: 0: main".to_owned());
        same(DataFusionError::SQL(Box::new(err), backtrace));
    }
}

#[test]
fn io_kinds() {
    for kind in super::super::io::kinds() {
        same(DataFusionError::IoError(io::Error::new(kind, "text")));
        same(DataFusionError::IoError(kind.into()));
    }
    let os = std::fs::File::open("/no/such/file").unwrap_err();
    same(DataFusionError::IoError(os));
    let nested = io::Error::new(io::ErrorKind::StorageFull, exhausted());
    same(DataFusionError::IoError(nested));
}

#[test]
fn schema_variants() {
    let mut field = Column::new(Some(TableReference::full("Cat", "sch", "tab.le")), "id");
    field.spans.add_span(span(1));
    field.spans.add_span(span(7));
    let valid_fields = vec![
        Column::new(Some(TableReference::partial("sch", "table")), "Id"),
        Column::new(Some(TableReference::bare("t")), "ids"),
        Column::new_unqualified("ID"),
    ];
    for err in [
        SchemaError::AmbiguousReference {
            field: Box::new(field.clone()),
        },
        SchemaError::AmbiguousReference {
            field: Box::new(Column::new_unqualified("id")),
        },
        SchemaError::DuplicateQualifiedField {
            qualifier: Box::new(TableReference::partial("sch", "t")),
            name: "Na me".to_owned(),
        },
        SchemaError::DuplicateUnqualifiedField {
            name: "name".to_owned(),
        },
        SchemaError::FieldNotFound {
            field: Box::new(field.clone()),
            valid_fields,
        },
        SchemaError::FieldNotFound {
            field: Box::new(field),
            valid_fields: Vec::new(),
        },
    ] {
        let before = format!("{err:?}");
        let backtrace = Some("\n\nbacktrace: 0: main".to_owned());
        let err = DataFusionError::SchemaError(Box::new(err), Box::new(backtrace.clone()));
        let spans = spans_of(&err);
        let got = same(err);
        assert_eq!(spans_of(&got), spans);
        let DataFusionError::SchemaError(got, got_backtrace) = got else {
            panic!("another variant");
        };
        assert_eq!(format!("{got:?}"), before);
        assert_eq!(*got_backtrace, backtrace);
    }
}

fn spans_of(err: &DataFusionError) -> Vec<Span> {
    match err {
        DataFusionError::SchemaError(err, _) => match err.as_ref() {
            SchemaError::AmbiguousReference { field }
            | SchemaError::FieldNotFound { field, .. } => field.spans.0.clone(),
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}

#[tokio::test]
async fn execution_join_arrives_as_external_with_the_panic_message() {
    let panicked = tokio::spawn(async { std::panic::resume_unwind(Box::new("tripped")) });
    let err: tokio::task::JoinError = match panicked.await {
        Ok(()) => unreachable!("it panics"),
        Err(err) => err,
    };
    for err in [err, cancelled().await] {
        let err = DataFusionError::ExecutionJoin(Box::new(err));
        let got = trip(&err);
        assert!(matches!(got, DataFusionError::External(_)), "{got:?}");
        assert!(got.to_string().contains(&err.to_string()), "{got}");
    }
}

#[test]
fn external_of_another_type_keeps_text_and_sources() {
    let inner = Foreign::boxed("disk 3 is on fire", None);
    let outer = Foreign::boxed("cannot read", Some(inner));
    let DataFusionError::External(got) = same(DataFusionError::External(outer)) else {
        panic!("another variant");
    };
    let got = got.downcast_ref::<RemoteError>().unwrap();
    assert_eq!(got.text(), "cannot read");
    assert_eq!(got.source().unwrap().to_string(), "disk 3 is on fire");
    assert!(got.source().unwrap().source().is_none());
}

#[test]
fn external_survives_a_second_hop() {
    let inner = Foreign::boxed("inner", Some(Box::new(exhausted())));
    let err = DataFusionError::External(Foreign::boxed("outer", Some(inner)));
    same(same(err));
}

#[test]
fn external_transport_error_arrives_as_text() {
    let err = TransportError::new(
        TransportErrorKind::ConnectionLost,
        "read partition",
        "quic://worker-3:9000",
        "reset by peer",
    );
    let DataFusionError::External(got) = same(DataFusionError::External(Box::new(err))) else {
        panic!("another variant");
    };
    assert!(got.is::<RemoteError>());
}

#[test]
fn diagnostic() {
    let diagnostic = Diagnostic::new_warning("careful", Some(span(3)))
        .with_note("see here", Some(span(4)))
        .with_note("and there", None)
        .with_help("remove it", Some(span(5)));
    let err = plan().with_diagnostic(diagnostic.clone());
    let DataFusionError::Diagnostic(got, _) = same(err) else {
        panic!("another variant");
    };
    assert_eq!(format!("{got:?}"), format!("{diagnostic:?}"));
    assert_eq!(got.kind, DiagnosticKind::Warning);

    let err = plan().with_diagnostic(Diagnostic::new_error("wrong", None));
    let DataFusionError::Diagnostic(got, _) = same(err) else {
        panic!("another variant");
    };
    assert_eq!(got.kind, DiagnosticKind::Error);
    assert_eq!(got.span, None);
}

#[test]
fn context_shared_and_collection() {
    same(context("while planning", context("while parsing", plan())));
    same(DataFusionError::Shared(Arc::new(exhausted())));
    same(DataFusionError::Collection(vec![plan()]));
    same(DataFusionError::Collection(vec![
        context("first", plan()),
        DataFusionError::Collection(vec![exhausted(), plan()]),
        DataFusionError::Shared(Arc::new(exhausted())),
    ]));
}
