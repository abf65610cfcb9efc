//! TLS for transports (feature `tls`): who this side is and whom it trusts, one value for all transports of a process.
//!
//! A user makes a [`ClientTls`] and a [`ServerTls`] from PEM files and gives clones of them to connectors and listeners
//! of any kind. A transport asks for rustls's configuration with its own protocol names (ALPN, RFC 7301) before each
//! connection.
//!
//! TLS 1.3 only. A client verifies servers unless it was made by [`ClientTls::danger_without_verification`]; a server
//! verifies clients if it is given their CA. Sessions are not resumed and nothing is sent before the handshake is done:
//! every connection is verified in full against the certificates of now, and no request can be replayed.

mod authority;
mod client;
mod development;
mod failure;
mod names;
mod pem;
mod reloading;
mod server;
mod unverified;

pub use authority::{CertificateAuthority, IssuedCertificate};
pub use client::ClientTls;
pub use development::DevelopmentIdentity;
pub use failure::{EXPECTS_TLS, FoundBy, NOT_TLS, explain, explain_alert};
pub use server::ServerTls;

use rustls::crypto::CryptoProvider;
use std::sync::Arc;

/// Chosen here, never the process-wide default, which another library may have set or left unset.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn protocol_names(protocols: &[&[u8]]) -> Vec<Vec<u8>> {
    protocols.iter().map(|name| name.to_vec()).collect()
}
