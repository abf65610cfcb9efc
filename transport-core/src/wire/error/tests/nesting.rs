//! Errors within errors: within other types, and deeper than the limit.

use super::*;

/// Enough to overflow the stack of a thread, were there a recursion over it.
const DEEP: usize = 5_000;

fn deep(
    levels: usize,
    wrap: impl Fn(usize, DataFusionError) -> DataFusionError,
) -> DataFusionError {
    (0..levels).fold(exhausted(), |err, level| wrap(level, err))
}

#[test]
fn an_engine_error_within_another_type_keeps_its_variant() {
    same(DataFusionError::External(Box::new(exhausted())));
    same(DataFusionError::External(Box::new(Arc::new(exhausted()))));
    same(DataFusionError::External(Foreign::boxed(
        "foreign",
        Some(Box::new(exhausted())),
    )));
    same(DataFusionError::IoError(io::Error::other(exhausted())));
    let arrow = ArrowError::ExternalError(Box::new(context("scan", exhausted())));
    let got = same(DataFusionError::ArrowError(Box::new(arrow), None));
    assert!(matches!(
        got.find_root(),
        DataFusionError::ResourcesExhausted(_)
    ));
}

#[test]
fn errors_of_known_types_within_external() {
    same(DataFusionError::External(Box::new(
        ArrowError::DivideByZero,
    )));
    same(DataFusionError::External(Box::new(
        object_store::Error::NotFound {
            path: "a".to_owned(),
            source: Box::new(io::Error::from(io::ErrorKind::NotFound)),
        },
    )));
    same(DataFusionError::External(Box::new(
        object_store::path::Error::EmptySegment {
            path: "a//b".to_owned(),
        },
    )));
    same(DataFusionError::External(Box::new(io::Error::other("io"))));
    #[cfg(feature = "parquet")]
    same(DataFusionError::External(Box::new(
        ::parquet::errors::ParquetError::NYI("text".to_owned()),
    )));
}

#[test]
fn as_many_levels_as_allowed_arrive_as_levels() {
    same(deep(MAX_DEPTH - 7, |level, err| {
        context(level.to_string(), err)
    }));
}

#[test]
fn contexts_beyond_the_limit_keep_the_text_and_the_innermost_variant() {
    let err = deep(MAX_DEPTH * 3, |level, err| context(level.to_string(), err));
    let got = trip(&err);
    assert_eq!(got.to_string(), err.to_string());
    assert!(matches!(
        got.find_root(),
        DataFusionError::ResourcesExhausted(_)
    ));
}

#[test]
fn mixed_levels_beyond_the_limit_keep_the_text() {
    let err = deep(MAX_DEPTH * 3, |level, err| match level % 6 {
        0 => context(level.to_string(), err),
        1 => DataFusionError::External(Box::new(err)),
        2 => DataFusionError::ArrowError(
            Box::new(ArrowError::ExternalError(Box::new(err))),
            Some(format!("\n\nbacktrace: {level}")),
        ),
        3 => DataFusionError::IoError(io::Error::other(err)),
        4 => DataFusionError::Shared(Arc::new(err)),
        _ => DataFusionError::Collection(vec![err, plan()]),
    });
    assert_eq!(trip(&err).to_string(), err.to_string());
}

#[test]
fn the_deepest_tail_stays_within_the_limit() {
    let tail = || {
        let source = object_store::path::Error::Canonicalize {
            path: "/a".into(),
            source: io::Error::other(exhausted()),
        };
        let err = object_store::Error::InvalidPath { source };
        context(
            "a",
            context("b", DataFusionError::ObjectStore(Box::new(err))),
        )
    };
    for levels in 0..MAX_DEPTH + 8 {
        let err = (0..levels).fold(tail(), |err, level| context(level.to_string(), err));
        let got = trip(&err);
        assert_eq!(got.to_string(), err.to_string(), "{levels} levels");
        assert!(shape(&got).contains("ObjectStore(InvalidPath(Canonicalize(Other("));
    }
}

#[test]
fn deep_nesting_does_not_overflow_the_stack() {
    let err = deep(DEEP, |level, err| context(level.to_string(), err));
    let got = trip(&err);
    assert!(matches!(
        got.find_root(),
        DataFusionError::ResourcesExhausted(_)
    ));
    let got = got.to_string();
    assert!(got.starts_with("4999\ncaused by\n4998\n"));
    assert!(got.ends_with("\n0\ncaused by\nResources exhausted: no memory left"));

    let err = deep(DEEP, |_, err| DataFusionError::External(Box::new(err)));
    let got = trip(&err).to_string();
    assert_eq!(got.matches("External error: ").count(), DEEP);
    assert!(got.ends_with("Resources exhausted: no memory left"));
}

#[test]
fn collections_that_share_their_members_stay_small() {
    let mut err = Arc::new(exhausted());
    for _ in 0..40 {
        err = Arc::new(DataFusionError::Collection(vec![
            DataFusionError::Shared(Arc::clone(&err)),
            DataFusionError::Shared(err),
        ]));
    }
    let err = DataFusionError::Shared(err);
    let msg = encode_error(&err);
    assert!(msg.nodes.len() < MAX_NODES + 2 * MAX_DEPTH);
    assert_eq!(trip(&err).to_string(), err.to_string());
}

#[test]
fn a_long_collection_says_how_many_are_missing() {
    let errors = (0..MAX_NODES + 10).map(|_| plan()).collect();
    let DataFusionError::Collection(got) = trip(&DataFusionError::Collection(errors)) else {
        panic!("another variant");
    };
    assert_eq!(got.len(), MAX_NODES);
    let last = got.last().unwrap().to_string();
    assert!(last.contains("11 further errors"), "{last}");
}

#[test]
fn a_mebibyte_arrives_whole() {
    let text = "ż".repeat(1 << 19);
    let err = context(text.clone(), DataFusionError::Execution(text.clone()));
    same(err);
    same(DataFusionError::External(Foreign::boxed(&text, None)));
    let field = Box::new(datafusion::common::Column::new_unqualified(text));
    let err = SchemaError::AmbiguousReference { field };
    same(DataFusionError::SchemaError(Box::new(err), Box::new(None)));
}
