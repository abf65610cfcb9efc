//! [`Paths`]: quinn's settings for a connection, by what lies between its ends.

use crate::config::QuicConfig;
use datafusion_transport_core::error::TransportError;
use quinn::TransportConfig;
use std::net::SocketAddr;
use std::sync::Arc;

/// The settings for connections over a network, and for those within this host.
///
/// A loopback device carries the largest datagram at once. There is nothing to discover, and discovering it costs both sides some milliseconds of
/// CPU time just when a call waits for its first row: quinn looks at every byte of padding in a probe.
pub(crate) struct Paths {
    network: Arc<TransportConfig>,
    loopback: Arc<TransportConfig>,
}

impl Paths {
    /// # Errors
    /// Kind `Config` for an invalid field, named.
    pub(crate) fn new(config: &QuicConfig) -> Result<Self, TransportError> {
        Ok(Self {
            network: config.transport(config.initial_mtu_bytes)?,
            loopback: config.transport(config.max_mtu_bytes())?,
        })
    }

    /// For a connection with this peer.
    pub(crate) fn to(&self, peer: SocketAddr) -> Arc<TransportConfig> {
        match peer.ip().to_canonical().is_loopback() {
            true => Arc::clone(&self.loopback),
            false => Arc::clone(&self.network),
        }
    }
}
