//! What quinn and TLS report, in plain words: whose fault it is and what to do.

use crate::tls::ALPN;
use datafusion_transport_core::error::{Delivery, ErrorKind, TransportError};
use datafusion_transport_core::tls::{FoundBy, explain_alert};
use quinn::{ConnectionError, TransportErrorCode};
use std::time::Duration;

/// The failure of an established connection. `idle_timeout` and `local_reason` are this side's own.
pub(crate) fn connection_error(
    err: &ConnectionError,
    operation: &'static str,
    peer: &str,
    idle_timeout: Duration,
    local_reason: Option<&str>,
) -> TransportError {
    let (kind, detail) = match err {
        ConnectionError::ApplicationClosed(close) => {
            let reason = String::from_utf8_lossy(&close.reason);
            let reason = match reason.as_ref() {
                "" => "no reason given",
                reason => reason,
            };
            (ErrorKind::Closed, reason.to_owned())
        }
        ConnectionError::TimedOut => (
            ErrorKind::ConnectionLost,
            format!("no packet for {idle_timeout:?}: the peer is silent or unreachable"),
        ),
        ConnectionError::Reset => (
            ErrorKind::ConnectionLost,
            "the peer does not know this connection any more: it was probably restarted".into(),
        ),
        ConnectionError::LocallyClosed => (
            ErrorKind::ConnectionLost,
            format!(
                "closed by this side: {}",
                local_reason.unwrap_or("its endpoint was closed")
            ),
        ),
        err => tls_failure(err).unwrap_or_else(|| other(err)),
    };
    TransportError::new(kind, operation, peer, detail)
}

/// The failure of a handshake with `peer`; `waited` is how long this side would wait for it. No request was sent.
pub(crate) fn handshake_error(
    err: &ConnectionError,
    operation: &'static str,
    peer: &str,
    waited: Duration,
) -> TransportError {
    let (kind, detail) = match err {
        ConnectionError::TimedOut => (ErrorKind::Timeout, format!("no answer within {waited:?}")),
        ConnectionError::ConnectionClosed(close)
            if close.error_code == TransportErrorCode::CONNECTION_REFUSED =>
        {
            let detail = "the worker takes no new connections now: it is shutting down, or too many handshakes are in progress";
            (ErrorKind::Connect, detail.into())
        }
        ConnectionError::VersionMismatch => (
            ErrorKind::Handshake,
            "the peer does not speak QUIC version 1".into(),
        ),
        ConnectionError::TransportError(_) | ConnectionError::ConnectionClosed(_) => {
            tls_failure(err).unwrap_or_else(|| (ErrorKind::Handshake, err.to_string()))
        }
        err => {
            return connection_error(err, operation, peer, waited, None)
                .with_delivery(Delivery::NotDelivered);
        }
    };
    TransportError::new(kind, operation, peer, detail).with_delivery(Delivery::NotDelivered)
}

/// Whether the peer speaks QUIC and TLS, but not this protocol.
pub(crate) fn is_alpn_mismatch(err: &ConnectionError) -> bool {
    matches!(failed_alert(err), Some((NO_APPLICATION_PROTOCOL, _, _)))
}

/// RFC 8446, 6.
const NO_APPLICATION_PROTOCOL: u8 = 120;

/// This protocol's name and version, for messages.
pub(crate) fn alpn_name(protocol: &[u8]) -> String {
    String::from_utf8_lossy(protocol).into_owned()
}

fn other(err: &ConnectionError) -> (ErrorKind, String) {
    match err {
        // Quinn reports its own failures so, above all that the runtime of its drivers is gone.
        ConnectionError::TransportError(err) if err.code == TransportErrorCode::INTERNAL_ERROR => (
            ErrorKind::ConnectionLost,
            format!("this side's I/O failed: {}", err.reason),
        ),
        ConnectionError::TransportError(err) => (
            ErrorKind::Protocol,
            format!("the peer broke the QUIC protocol: {err}"),
        ),
        ConnectionError::ConnectionClosed(close) => (
            ErrorKind::ConnectionLost,
            format!("the peer's QUIC stack ended the connection: {close}"),
        ),
        err => (ErrorKind::ConnectionLost, err.to_string()),
    }
}

/// The alert (QUIC carries it as error code 0x100 + alert: RFC 9001, 4.8), who raised it, and the text that came with it.
fn failed_alert(err: &ConnectionError) -> Option<(u8, FoundBy, String)> {
    let (code, found_by, reason) = match err {
        ConnectionError::TransportError(err) => (err.code, FoundBy::ThisSide, err.reason.clone()),
        ConnectionError::ConnectionClosed(close) => (
            close.error_code,
            FoundBy::Peer,
            String::from_utf8_lossy(&close.reason).into_owned(),
        ),
        _ => return None,
    };
    let alert = u64::from(code).checked_sub(0x100)?;
    Some((u8::try_from(alert).ok()?, found_by, reason))
}

fn tls_failure(err: &ConnectionError) -> Option<(ErrorKind, String)> {
    let (alert, found_by, reason) = failed_alert(err)?;
    let words = explain_alert(alert, found_by, ALPN);
    let detail = match reason.as_str() {
        "" => format!("{words} (TLS alert {alert})"),
        reason => format!("{words} (TLS alert {alert}: {reason})"),
    };
    Some((ErrorKind::Handshake, detail))
}
