//! [`Target`]: what a worker URL means to QUIC.

use datafusion_transport_core::error::{Delivery, ErrorKind, TransportError};
use std::net::{IpAddr, SocketAddr};
use tokio::net::lookup_host;
use url::{Host, Url};

/// A host and a UDP port, and the URL they came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// As the caller wrote it, for messages.
    pub(crate) url: String,
    /// A DNS name, or an IP address without brackets: also the name that the certificate must carry.
    pub(crate) host: String,
    port: u16,
}

impl Target {
    /// Takes `http`, `https` and `quic` URLs. The path means nothing.
    ///
    /// # Errors
    /// Kind `Config`; names the URL.
    pub(crate) fn parse(url: &Url) -> Result<Self, TransportError> {
        let fail =
            |detail: &str| TransportError::new(ErrorKind::Config, "connect", url.as_str(), detail);
        if !matches!(url.scheme(), "http" | "https" | "quic") {
            return Err(fail("the scheme must be http, https or quic"));
        }
        let host = match url.host() {
            None | Some(Host::Domain("")) => return Err(fail("the URL has no host")),
            Some(Host::Domain(name)) => name.to_owned(),
            Some(Host::Ipv4(ip)) => ip.to_string(),
            Some(Host::Ipv6(ip)) => ip.to_string(),
        };
        let port = url
            .port_or_known_default()
            .filter(|port| *port != 0)
            .ok_or_else(|| fail("the URL has no port, as in quic://worker-1:8080"))?;
        Ok(Self {
            url: url.to_string(),
            host,
            port,
        })
    }

    /// The addresses to try, in the resolver's order. Must run on a tokio runtime.
    ///
    /// # Errors
    /// Kind `Connect`.
    pub(crate) async fn resolve(&self) -> Result<Vec<SocketAddr>, TransportError> {
        if let Ok(ip) = self.host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(ip, self.port)]);
        }
        let found = lookup_host((self.host.as_str(), self.port)).await;
        found.map(Iterator::collect).map_err(|err| {
            let detail = format!("cannot look up the host name `{}`: {err}", self.host);
            self.error(ErrorKind::Connect, detail)
        })
    }

    /// `host:port`, for messages.
    pub(crate) fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// A failure to connect here. Nothing of a request was sent.
    pub(crate) fn error(&self, kind: ErrorKind, detail: String) -> TransportError {
        TransportError::new(kind, "connect", self.url.as_str(), detail)
            .with_delivery(Delivery::NotDelivered)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_a_host_and_a_udp_port() {
        for (url, authority) in [
            ("http://worker-1:8080", "worker-1:8080"),
            ("https://10.0.0.1:8080/path", "10.0.0.1:8080"),
            ("quic://10.0.0.1:8080", "10.0.0.1:8080"),
            ("quic://[::1]:8080", "[::1]:8080"),
            ("http://[::1]:80", "[::1]:80"),
            ("https://worker-1", "worker-1:443"),
        ] {
            let target = Target::parse(&url.parse().unwrap()).unwrap();
            assert_eq!(authority, target.authority());
        }
    }

    #[test]
    fn other_urls_are_refused_by_name() {
        for (url, words) in [
            ("ftp://worker-1:8080", "scheme"),
            ("quic://worker-1", "no port"),
            ("quic://worker-1:0", "no port"),
            ("quic:worker-1", "no host"),
            ("quic:///path", "no host"),
        ] {
            let url: Url = url.parse().unwrap();
            let err = Target::parse(&url).unwrap_err();
            assert_eq!((ErrorKind::Config, url.as_str()), (err.kind(), err.peer()));
            assert!(err.detail().contains(words), "{err}");
        }
    }
}
