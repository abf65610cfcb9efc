//! Messages that no encoder of ours produces.

use proptest::prelude::*;

use super::super::message::{Kind, Node};
use super::*;

fn node(kind: Kind, children: u32) -> Node {
    Node {
        children,
        kind: Some(kind),
    }
}

fn decode_nodes(nodes: Vec<Node>) -> DataFusionError {
    let bytes = ErrorMessage { nodes }.encode_to_vec();
    decode_error(ErrorMessage::decode(bytes.as_slice()).unwrap())
}

#[test]
fn an_empty_message_says_so() {
    let got = decode_nodes(Vec::new());
    assert!(matches!(got, DataFusionError::External(_)));
    assert!(got.to_string().contains("lacks this error"), "{got}");
}

#[test]
fn an_unknown_variant_says_so_and_keeps_the_texts() {
    let unknown = Node {
        children: 1,
        kind: None,
    };
    let got = decode_nodes(vec![unknown, node(Kind::Plan("held".to_owned()), 0)]);
    assert!(matches!(got, DataFusionError::External(_)));
    let got = got.to_string();
    assert!(got.contains("does not know"), "{got}");
    assert!(got.contains("held"), "{got}");

    let value = node(Kind::ArrowValue(Box::default()), 0);
    let arrow = Kind::Arrow(super::super::message::Backtrace::default());
    let got = decode_nodes(vec![node(arrow, 1), value]).to_string();
    assert!(got.contains("arrow error of a kind that this side does not know"));
}

#[test]
fn missing_children_say_so() {
    for kind in [
        Kind::External(()),
        Kind::Shared(()),
        Kind::Context("ctx".to_owned()),
        Kind::Io(()),
        Kind::ObjectStore(()),
        Kind::Parquet(()),
        Kind::Diagnostic(Box::default()),
    ] {
        let got = decode_nodes(vec![node(kind.clone(), u32::MAX)]).to_string();
        assert!(got.contains("lacks this error"), "{kind:?}: {got}");
    }
    let got = decode_nodes(vec![node(Kind::Collection(()), 0)]).to_string();
    assert!(got.contains("collection of no errors"), "{got}");
}

#[test]
fn a_child_of_the_wrong_type_becomes_text() {
    let nodes = vec![
        node(Kind::Io(()), 1),
        node(Kind::Plan("held".to_owned()), 0),
    ];
    let got = decode_nodes(nodes).to_string();
    assert!(
        got.contains("IO error: Error during planning: held"),
        "{got}"
    );
}

#[test]
fn nesting_beyond_the_limit_becomes_text() {
    let mut nodes: Vec<_> = (0..100_000)
        .map(|level| node(Kind::Context(level.to_string()), 1))
        .collect();
    nodes.push(node(Kind::Plan("innermost".to_owned()), 0));
    let got = decode_nodes(nodes).to_string();
    assert!(got.contains("nested more than 64 levels"), "{got}");
    assert!(got.ends_with("\n99999\ninnermost"));
}

#[test]
fn wrapping_many_times_does_not_multiply_the_text() {
    let backtrace = super::super::message::Backtrace::default();
    let mut nodes = vec![node(Kind::Arrow(backtrace), 1); MAX_DEPTH - 1];
    nodes.push(node(Kind::RemoteValue("x".repeat(1 << 20)), 0));
    let DataFusionError::External(got) = decode_nodes(nodes) else {
        panic!("another variant");
    };
    assert!(got.source().is_none());
}

#[test]
fn long_names_are_not_compared_for_minutes() {
    use datafusion::common::Column;
    let err = SchemaError::FieldNotFound {
        field: Box::new(Column::new_unqualified("a".repeat(1 << 19))),
        valid_fields: vec![Column::new_unqualified("b".repeat(1 << 19))],
    };
    let err = DataFusionError::SchemaError(Box::new(err), Box::new(None));
    let got = trip(&err);
    assert!(matches!(got, DataFusionError::SchemaError(..)));
    assert!(
        got.to_string()
            .starts_with("Schema error: No field named a")
    );
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
        if let Ok(msg) = ErrorMessage::decode(bytes.as_slice()) {
            let _ = decode_error(msg).to_string();
        }
    }

    #[test]
    fn random_nodes_never_panic(
        fields in proptest::collection::vec(
            (1_u32..40, 0_u32..5, proptest::collection::vec(0_u8..24, 0..12)),
            0..200,
        ),
    ) {
        // Well-formed nodes with a variant and children at random, and a payload of small numbers.
        let mut bytes = Vec::new();
        for (tag, children, payload) in fields {
            let mut node = Vec::new();
            prost::encoding::uint32::encode(1, &children, &mut node);
            prost::encoding::bytes::encode(tag.max(2), &payload, &mut node);
            prost::encoding::bytes::encode(1, &node, &mut bytes);
        }
        if let Ok(msg) = ErrorMessage::decode(bytes.as_slice()) {
            let _ = decode_error(msg).to_string();
        }
    }

    #[test]
    fn changed_bytes_never_panic(
        err in super::random::error(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = encode_error(&err).encode_to_vec();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Ok(msg) = ErrorMessage::decode(bytes.as_slice()) {
            let _ = decode_error(msg).to_string();
        }
    }
}
