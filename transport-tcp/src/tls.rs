//! [`ClientTls`] and [`ServerTls`]: TLS as the caller configured it, and its failures in words.

use datafusion_transport_core::error::{ErrorKind, TransportError};
use rustls::{AlertDescription, ClientConfig, ServerConfig};
use std::fmt;
use std::io;
use std::sync::Arc;

/// The protocol and its version, as the TLS handshake carries it (ALPN; `docs/tcp.md`, T-20).
pub const ALPN: &[u8] = b"dfdt-tcp/1";

type Source<T> = Arc<dyn Fn() -> Result<Arc<T>, TransportError> + Send + Sync>;

/// TLS for a connector: whom it trusts and, for mutual TLS, who it is. Cheap to clone.
#[derive(Clone)]
pub struct ClientTls(Source<ClientConfig>);

/// TLS for a listener: who it is and, for mutual TLS, whom it trusts. Cheap to clone.
#[derive(Clone)]
pub struct ServerTls(Source<ServerConfig>);

impl ClientTls {
    /// Uses `config` for every connection. Its ALPN protocols are replaced by [`ALPN`]; build it for TLS 1.3.
    pub fn new(config: Arc<ClientConfig>) -> Self {
        Self::from_fn(move || Ok(Arc::clone(&config)))
    }

    /// Asks `current` before each connection, so that certificates can change meanwhile. It is called on the I/O
    /// runtime, and its error is the connection's.
    pub fn from_fn(
        current: impl Fn() -> Result<Arc<ClientConfig>, TransportError> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(current))
    }

    pub(crate) fn current(&self) -> Result<Arc<ClientConfig>, TransportError> {
        let mut config = self.0()?;
        if config.alpn_protocols != [ALPN] {
            Arc::make_mut(&mut config).alpn_protocols = vec![ALPN.to_vec()];
        }
        Ok(config)
    }
}

impl ServerTls {
    /// Uses `config` for every connection. [`ALPN`] is added to its ALPN protocols; build it for TLS 1.3.
    pub fn new(config: Arc<ServerConfig>) -> Self {
        Self::from_fn(move || Ok(Arc::clone(&config)))
    }

    /// Asks `current` before each connection, so that certificates can change meanwhile. It is called on the I/O
    /// runtime, and its error is logged.
    pub fn from_fn(
        current: impl Fn() -> Result<Arc<ServerConfig>, TransportError> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(current))
    }

    pub(crate) fn current(&self) -> Result<Arc<ServerConfig>, TransportError> {
        let mut config = self.0()?;
        if !config.alpn_protocols.iter().any(|name| name == ALPN) {
            Arc::make_mut(&mut config)
                .alpn_protocols
                .push(ALPN.to_vec());
        }
        Ok(config)
    }
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTls").finish_non_exhaustive()
    }
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls").finish_non_exhaustive()
    }
}

/// The protocol that the handshake settled on must be this one.
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

/// A failed TLS handshake, in words. `Connect` where the socket itself failed.
pub(crate) fn tls_failure(err: &io::Error) -> (ErrorKind, String) {
    let inner = err.get_ref().and_then(|err| err.downcast_ref());
    let Some(inner) = inner else {
        let detail = match err.kind() {
            io::ErrorKind::UnexpectedEof => {
                "the peer ended the connection during the TLS handshake".to_owned()
            }
            _ => format!("the connection failed during the TLS handshake: {err}"),
        };
        return (ErrorKind::Handshake, detail);
    };
    let words = match inner {
        rustls::Error::InvalidMessage(_) => {
            "the peer does not speak TLS: one side is configured for TLS and the other for plaintext"
        }
        rustls::Error::InvalidCertificate(_) => {
            "this side does not trust the peer's certificate; check the CA, the host name in the URL and the dates"
        }
        rustls::Error::NoCertificatesPresented => {
            "the peer presented no client certificate and this side requires one (mutual TLS)"
        }
        rustls::Error::NoApplicationProtocol => {
            "the peer does not speak this protocol version over TLS, which is dfdt-tcp/1"
        }
        rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol) => {
            "the peer does not speak this side's protocol version over TLS, which is dfdt-tcp/1"
        }
        rustls::Error::AlertReceived(AlertDescription::CertificateRequired) => {
            "the peer requires a client certificate (mutual TLS) and this side has none; configure one"
        }
        rustls::Error::AlertReceived(_) => "the peer refused the TLS handshake",
        _ => "the TLS handshake failed",
    };
    (ErrorKind::Handshake, format!("{words} ({inner})"))
}
