//! TLS as QUIC needs it: certificates are those of `datafusion-transport-core`, the protocol is this crate's.

use datafusion_transport_core::error::{ErrorKind, TransportError};
use datafusion_transport_core::tls::{ClientTls, ServerTls};
use quinn::crypto::rustls::{NoInitialCipherSuite, QuicClientConfig, QuicServerConfig};
use std::sync::Arc;

/// The protocol and its version, as the TLS handshake carries it (ALPN, RFC 7301).
pub const ALPN: &[u8] = b"dfdt/1";

/// For quinn, as the files are now.
pub(crate) async fn client(tls: &ClientTls) -> Result<Arc<QuicClientConfig>, TransportError> {
    client_offering(tls, &[ALPN]).await
}

/// Like [`client`], offering other versions, to find out what a peer speaks.
pub(crate) async fn client_of_any_version(
    tls: &ClientTls,
) -> Result<Arc<QuicClientConfig>, TransportError> {
    // Few enough for the first packet, enough for the life of the project.
    let names: Vec<_> = (0..32).map(|version| format!("dfdt/{version}")).collect();
    let names: Vec<_> = names.iter().map(String::as_bytes).collect();
    client_offering(tls, &names).await
}

async fn client_offering(
    tls: &ClientTls,
    protocols: &[&[u8]],
) -> Result<Arc<QuicClientConfig>, TransportError> {
    let config = tls.current(protocols).await;
    Ok(Arc::new(QuicClientConfig::try_from(config).map_err(unfit)?))
}

/// For quinn, as the files are now.
pub(crate) async fn server(tls: &ServerTls) -> Result<Arc<QuicServerConfig>, TransportError> {
    let config = tls.current(&[ALPN]).await;
    Ok(Arc::new(QuicServerConfig::try_from(config).map_err(unfit)?))
}

/// Like [`server`], as the files were when they were last read.
pub(crate) fn server_as_last_read(
    tls: &ServerTls,
) -> Result<Arc<QuicServerConfig>, TransportError> {
    let config = tls.as_last_read(&[ALPN]);
    Ok(Arc::new(QuicServerConfig::try_from(config).map_err(unfit)?))
}

/// Not reachable: the cryptography that core chooses has all that QUIC needs.
fn unfit(err: NoInitialCipherSuite) -> TransportError {
    TransportError::new(ErrorKind::Config, "configure QUIC", "tls", err.to_string())
}
