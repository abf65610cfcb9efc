//! Call headers: an [`http::HeaderMap`] on the wire (`docs/protocol.md`, C-3). Order of the values of a name,
//! repetitions and bytes outside ASCII are kept.

use crate::wire::DecodeError;
use http::{HeaderMap, HeaderName, HeaderValue};

/// One header value.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HeaderMessage {
    /// The name, lower case.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The value: any bytes an HTTP field value may hold.
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
}

/// Headers as messages, the values of one name in their order.
pub fn encode_headers(headers: &HeaderMap) -> Vec<HeaderMessage> {
    let entries = headers.iter().map(|(name, value)| HeaderMessage {
        name: name.as_str().to_owned(),
        value: value.as_bytes().to_vec(),
    });
    entries.collect()
}

/// Messages as headers.
///
/// # Errors
/// A name or value that HTTP does not allow, named.
pub fn decode_headers(messages: Vec<HeaderMessage>) -> Result<HeaderMap, DecodeError> {
    let mut headers = HeaderMap::with_capacity(messages.len().min(1024));
    for message in messages {
        let name = HeaderName::from_bytes(message.name.as_bytes()).map_err(|_| {
            DecodeError::new(format!("header name {:?} is not valid", message.name))
        })?;
        let value = HeaderValue::from_maybe_shared(bytes::Bytes::from(message.value))
            .map_err(|_| DecodeError::new(format!("value of header {name} is not valid")))?;
        headers
            .try_append(name, value)
            .map_err(|_| DecodeError::new("too many headers"))?;
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn value() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![Just(b'\t'), 32u8..127, 128u8..=255];
        prop::collection::vec(byte, 0..100)
    }

    proptest! {
        #[test]
        fn headers_round_trip(entries in prop::collection::vec(("[a-z][a-z0-9-]{0,20}", value()), 0..20)) {
            let mut headers = HeaderMap::new();
            for (name, value) in &entries {
                let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
                headers.append(name, HeaderValue::from_bytes(value).unwrap());
            }
            prop_assert_eq!(decode_headers(encode_headers(&headers)).unwrap(), headers);
        }

        #[test]
        fn garbage_never_panics(entries in prop::collection::vec((any::<String>(), any::<Vec<u8>>()), 0..10)) {
            let messages = entries.into_iter().map(|(name, value)| HeaderMessage { name, value });
            let _ = decode_headers(messages.collect());
        }
    }

    /// The table of a header map has a limit of its own.
    #[test]
    fn too_many_names_are_refused() {
        let named = |count: usize| {
            let messages = (0..count).map(|number| HeaderMessage {
                name: format!("x-{number}"),
                value: vec![],
            });
            decode_headers(messages.collect()).map(|headers| headers.len())
        };
        assert_eq!(24_576, named(24_576).unwrap());
        let err = named(24_577).unwrap_err().to_string();
        assert!(err.contains("too many headers"), "{err}");
    }

    #[test]
    fn repeated_binary_and_large_values_arrive_identical() {
        let mut headers = HeaderMap::new();
        headers.append("x-a", HeaderValue::from_bytes(b"\xc3\xa9\xff").unwrap());
        headers.append("x-a", HeaderValue::from_bytes(b"second").unwrap());
        headers.append("x-b", HeaderValue::from_bytes(&[b'v'; 64 * 1024]).unwrap());
        assert_eq!(decode_headers(encode_headers(&headers)).unwrap(), headers);
    }
}
