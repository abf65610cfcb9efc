//! The answer to a worker-info call (`docs/protocol.md`, C-8).

use crate::wire::DecodeError;
use prost::Message;

#[derive(Clone, PartialEq, Message)]
struct WorkerInfoReply {
    #[prost(string, tag = "1")]
    version: String,
}

/// Encodes the worker's version.
pub fn encode_worker_info(version: &str) -> Vec<u8> {
    let version = version.to_owned();
    WorkerInfoReply { version }.encode_to_vec()
}

/// Reads the worker's version.
///
/// # Errors
/// Bytes that are no such message.
pub fn decode_worker_info(bytes: &[u8]) -> Result<String, DecodeError> {
    Ok(WorkerInfoReply::decode(bytes)?.version)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_version_round_trips(version: String) {
            prop_assert_eq!(decode_worker_info(&encode_worker_info(&version)).unwrap(), version);
        }

        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = decode_worker_info(&bytes);
        }
    }
}
