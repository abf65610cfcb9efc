//! Every variant of an object store's error arrives as itself, or as text where it cannot be built.

use std::path::PathBuf;

use object_store::path::{Error as PathError, Path};

use super::*;

#[test]
fn object_store_variants() {
    let path = || "a/b.parquet".to_owned();
    let source = || Foreign::boxed("403 with a long body", None);
    for err in [
        object_store::Error::Generic {
            store: "S3",
            source: source(),
        },
        object_store::Error::NotFound {
            path: path(),
            source: Box::new(io::Error::new(io::ErrorKind::NotFound, "gone")),
        },
        object_store::Error::NotSupported { source: source() },
        object_store::Error::AlreadyExists {
            path: path(),
            source: source(),
        },
        object_store::Error::Precondition {
            path: path(),
            source: source(),
        },
        object_store::Error::NotModified {
            path: path(),
            source: source(),
        },
        object_store::Error::NotImplemented {
            operation: "put_opts".to_owned(),
            implementer: "LocalFileSystem".to_owned(),
        },
        object_store::Error::PermissionDenied {
            path: path(),
            source: source(),
        },
        object_store::Error::Unauthenticated {
            path: path(),
            source: source(),
        },
        object_store::Error::UnknownConfigurationKey {
            store: "GCS",
            key: "regoin".to_owned(),
        },
    ] {
        same(DataFusionError::ObjectStore(Box::new(err)));
    }
}

#[test]
fn object_store_path_variants() {
    let utf8 = |bytes: &[u8]| PathError::NonUnicode {
        path: "a\u{fffd}".to_owned(),
        source: std::str::from_utf8(bytes).unwrap_err(),
    };
    for err in [
        PathError::EmptySegment {
            path: "a//b".to_owned(),
        },
        Path::parse("a/../b").unwrap_err(),
        Path::parse("a/tab\t/b").unwrap_err(),
        PathError::Canonicalize {
            path: PathBuf::from("/no/such"),
            source: io::ErrorKind::NotADirectory.into(),
        },
        PathError::InvalidPath {
            path: PathBuf::from("relative"),
        },
        utf8(b"abc\xff"),
        utf8(b"abc\xe2\x82 "),
        utf8(b"\xf0\x9f\x98 "),
        utf8(b"abc\xf0"),
        PathError::PrefixMismatch {
            path: "a/b".to_owned(),
            prefix: "c".to_owned(),
        },
    ] {
        let err = object_store::Error::InvalidPath { source: err };
        same(DataFusionError::ObjectStore(Box::new(err)));
    }
}

#[test]
fn object_store_long_store_name_arrives_as_text() {
    let store: &'static str = Box::leak("x".repeat(1000).into_boxed_str());
    let err = object_store::Error::Generic {
        store,
        source: Foreign::boxed("foreign", None),
    };
    let got = trip(&DataFusionError::ObjectStore(Box::new(err)));
    assert!(got.to_string().contains(store), "{got}");
    assert!(got.to_string().contains("foreign"), "{got}");
}

#[tokio::test]
async fn object_store_join_arrives_as_generic_text() {
    let source = cancelled().await;
    let text = source.to_string();
    let err = object_store::Error::JoinError { source };
    let got = trip(&DataFusionError::ObjectStore(Box::new(err)));
    assert!(got.to_string().contains(&text), "{got}");
    let DataFusionError::ObjectStore(got) = got else {
        panic!("another variant");
    };
    assert!(
        matches!(*got, object_store::Error::Generic { .. }),
        "{got:?}"
    );
}
