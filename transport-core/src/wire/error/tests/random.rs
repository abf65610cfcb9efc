//! Errors at random.

use datafusion::common::{Column, Diagnostic, Location, Span, TableReference};
use proptest::prelude::*;

use super::*;

type AnyError = Box<dyn Error + Send + Sync>;

/// An error of any variant that arrives as itself, nested some levels.
pub(super) fn error() -> impl Strategy<Value = DataFusionError> {
    leaf().prop_recursive(24, 64, 3, |inner| {
        let many = proptest::collection::vec(inner.clone(), 1..4);
        let held = source(inner.clone().boxed());
        prop_oneof![
            (text(), inner.clone()).prop_map(|(text, err)| context(text, err)),
            inner
                .clone()
                .prop_map(|err| DataFusionError::Shared(Arc::new(err))),
            (text(), span(), inner).prop_map(|(text, span, err)| {
                err.with_diagnostic(Diagnostic::new_error(text.clone(), span).with_help(text, span))
            }),
            many.prop_map(DataFusionError::Collection),
            held.clone().prop_map(DataFusionError::External),
            (held.clone(), proptest::option::of(text())).prop_map(|(err, backtrace)| {
                DataFusionError::ArrowError(Box::new(ArrowError::ExternalError(err)), backtrace)
            }),
            (kind(), held.clone())
                .prop_map(|(kind, err)| DataFusionError::IoError(io::Error::new(kind, err))),
            (text(), held).prop_map(|(path, source)| {
                let err = object_store::Error::NotFound { path, source };
                DataFusionError::ObjectStore(Box::new(err))
            }),
        ]
        .boxed()
    })
}

/// An error of some type, most often holding one of `inner`.
fn source(inner: BoxedStrategy<DataFusionError>) -> BoxedStrategy<AnyError> {
    let boxed = inner.prop_map(|err| Box::new(err) as AnyError).boxed();
    prop_oneof![
        3 => boxed.clone(),
        1 => (text(), proptest::option::of(boxed.clone()))
            .prop_map(|(text, source)| Foreign::boxed(&text, source)),
        1 => boxed.prop_map(|err| Box::new(ArrowError::ExternalError(err)) as AnyError),
        1 => text().prop_map(AnyError::from),
    ]
    .boxed()
}

fn leaf() -> impl Strategy<Value = DataFusionError> {
    prop_oneof![
        text().prop_map(DataFusionError::NotImplemented),
        text().prop_map(DataFusionError::Internal),
        text().prop_map(DataFusionError::Plan),
        text().prop_map(DataFusionError::Configuration),
        text().prop_map(DataFusionError::Execution),
        text().prop_map(DataFusionError::ResourcesExhausted),
        text().prop_map(DataFusionError::Substrait),
        text().prop_map(DataFusionError::Ffi),
        kind().prop_map(|kind| DataFusionError::IoError(kind.into())),
        (column(), proptest::collection::vec(column(), 0..4)).prop_map(|(field, valid_fields)| {
            let field = Box::new(field);
            let err = SchemaError::FieldNotFound {
                field,
                valid_fields,
            };
            DataFusionError::SchemaError(Box::new(err), Box::new(None))
        }),
        arrow().prop_map(|err| DataFusionError::ArrowError(Box::new(err), None)),
    ]
}

fn arrow() -> impl Strategy<Value = ArrowError> {
    prop_oneof![
        text().prop_map(ArrowError::CastError),
        text().prop_map(ArrowError::IpcError),
        (text(), kind()).prop_map(|(text, kind)| ArrowError::IoError(text, kind.into())),
        any::<usize>().prop_map(ArrowError::OffsetOverflowError),
        (0_u8..1).prop_map(|_| ArrowError::DivideByZero),
    ]
}

fn column() -> impl Strategy<Value = Column> {
    let relation = prop_oneof![
        text().prop_map(TableReference::bare),
        (text(), text()).prop_map(|(schema, table)| TableReference::partial(schema, table)),
        (text(), text(), text())
            .prop_map(|(catalog, schema, table)| TableReference::full(catalog, schema, table)),
    ];
    (proptest::option::of(relation), text(), span()).prop_map(|(relation, name, span)| {
        let mut column = Column::new(relation, name);
        column.spans.0.extend(span);
        column
    })
}

fn span() -> impl Strategy<Value = Option<Span>> {
    let location = || any::<(u64, u64)>().prop_map(|(line, column)| Location { line, column });
    proptest::option::of((location(), location()).prop_map(|(start, end)| Span::new(start, end)))
}

fn kind() -> impl Strategy<Value = io::ErrorKind> {
    proptest::sample::select(super::super::io::kinds().collect::<Vec<_>>())
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![".{0,12}", "[a-z]{1,3}"]
}

proptest! {
    #[test]
    fn any_error_arrives_with_its_variants_and_text(err in error()) {
        let got = trip(&err);
        prop_assert_eq!(got.to_string(), err.to_string());
        prop_assert_eq!(shape(&got), shape(&err));
    }
}
