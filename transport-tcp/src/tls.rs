//! TLS as this protocol needs it: certificates are those of `datafusion-transport-core`, the protocol is this crate's.

/// The protocol and its version, as the TLS handshake carries it (ALPN; `docs/tcp.md`, T-20).
pub const ALPN: &[u8] = b"dfdt-tcp/1";

/// T-20: the protocol that the handshake settled on must be this one.
pub(crate) fn check_alpn(agreed: Option<&[u8]>) -> Result<(), String> {
    match agreed {
        Some(ALPN) => Ok(()),
        other => Err(format!(
            "the peer speaks {} over TLS and this side {}",
            other.map_or("no named protocol".into(), String::from_utf8_lossy),
            String::from_utf8_lossy(ALPN)
        )),
    }
}
