//! What a handshake fails of, in plain words: whose fault it is and what to do.

use crate::tls::ALPN;
use datafusion_transport_core::tls::explain;
use std::io;

/// What the socket, or TLS on it, reports.
pub(crate) fn handshake_failure(err: &io::Error) -> String {
    let tls = err.get_ref().and_then(|err| err.downcast_ref());
    match (tls, err.kind()) {
        (Some(tls), _) => explain(tls, ALPN),
        (None, io::ErrorKind::UnexpectedEof) => {
            "the peer ended the connection during the handshake".to_owned()
        }
        (None, _) => format!("the connection failed during the handshake: {err}"),
    }
}
