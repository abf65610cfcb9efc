//! [`TransportOptions`]: what a session may set, as `SET transport.<option> = ...`.

use crate::wire::batch::{Compression, CompressionPolicy};
use datafusion::common::{Result, config_err, extensions_options};
use datafusion::config::{ConfigExtension, ConfigOptions};
use datafusion::prelude::SessionConfig;
use std::time::Duration;

extensions_options! {
    /// Options of the transport between the workers of a query. They travel with the query, so that traffic among workers obeys them too.
    pub struct TransportOptions {
        /// Which registered transport carries the query: `quic`, `tcp`, `grpc`, or any other kind that was registered;
        /// `auto`, where it is, is for each worker the first of them that works.
        /// `default` is the one the process was configured with.
        pub kind: String, default = "default".to_string()
        /// Milliseconds to reach a worker, handshake included, before the query fails.
        pub connect_timeout_ms: usize, default = 5_000
        /// Bytes each partition may have under way and unread. 0 gives each an equal share of
        /// `distributed.worker_connection_buffer_budget_bytes`; never under 64 KiB.
        pub partition_buffer_bytes: usize, default = 0
        /// Compression of batches: `inherit` (the engine's `distributed.compression`), `none`, `lz4`,
        /// `zstd`, or `auto`, which is `lz4` while the connection is slower than that and `none` otherwise.
        pub compression: String, default = "inherit".to_string()
    }
}

impl ConfigExtension for TransportOptions {
    const PREFIX: &'static str = "transport";
}

/// The value of `transport.kind` that stands for the registry's own default.
pub(crate) const DEFAULT_KIND: &str = "default";

impl TransportOptions {
    /// The session's options, or the defaults where the session was not wired.
    pub fn from_session(config: &SessionConfig) -> Self {
        Self::from_options(config.options())
            .cloned()
            .unwrap_or_default()
    }

    /// The options, if the extension is registered.
    pub fn from_options(options: &ConfigOptions) -> Option<&Self> {
        options.extensions.get::<Self>()
    }

    /// Time to reach a worker.
    ///
    /// # Errors
    /// `Configuration` for zero.
    pub fn connect_timeout(&self) -> Result<Duration> {
        if self.connect_timeout_ms == 0 {
            return config_err!("transport.connect_timeout_ms is 0, expected at least 1");
        }
        Ok(Duration::from_millis(self.connect_timeout_ms as u64))
    }

    /// The compression to use where the engine's setting is `inherited`.
    ///
    /// # Errors
    /// `Configuration` for an unknown value of whichever setting counts.
    pub fn compression(&self, inherited: &str) -> Result<CompressionPolicy> {
        let compression = match self.compression.as_str() {
            "auto" => return Ok(CompressionPolicy::Auto),
            "inherit" => Compression::from_config("distributed.compression", inherited),
            "none" | "lz4" | "zstd" => {
                Compression::from_config("transport.compression", &self.compression)
            }
            other => config_err!(
                "transport.compression is '{other}', expected one of inherit, none, lz4, zstd, auto"
            ),
        };
        compression.map(CompressionPolicy::Always)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn compression_inherits_or_overrides() {
        let mut options = TransportOptions::default();
        assert_eq!(
            options.compression("zstd").unwrap(),
            CompressionPolicy::Always(Compression::Zstd)
        );
        let err = options.compression("snappy").unwrap_err().to_string();
        assert!(err.contains("distributed.compression is 'snappy'"), "{err}");
        options.compression = "none".into();
        assert_eq!(
            options.compression("snappy").unwrap(),
            CompressionPolicy::Always(Compression::None)
        );
        options.compression = "auto".into();
        assert_eq!(
            options.compression("snappy").unwrap(),
            CompressionPolicy::Auto
        );
        options.compression = "best".into();
        let err = options.compression("lz4").unwrap_err().to_string();
        assert!(err.contains("transport.compression is 'best'"), "{err}");
    }

    #[test]
    fn a_zero_connect_timeout_is_an_error() {
        let options = TransportOptions {
            connect_timeout_ms: 0,
            ..Default::default()
        };
        assert!(options.connect_timeout().is_err());
    }
}
