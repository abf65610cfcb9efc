//! [`Target`]: what a worker URL means to a transport over IP, and how its host is reached.

use crate::error::{Delivery, ErrorKind, TransportError};
use crate::race::race;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use tokio::net::lookup_host;
use url::{Host, Url};

/// A host and a port, and the URL they came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    url: String,
    host: String,
    port: u16,
}

impl Target {
    /// Takes URLs of `schemes`, of which the last is the transport's own. The path means nothing.
    ///
    /// # Errors
    /// Kind `Config`; names the URL.
    pub fn parse(url: &Url, schemes: &[&str]) -> Result<Self, TransportError> {
        let fail = |detail: String| {
            TransportError::new(ErrorKind::Config, "connect", url.as_str(), detail)
        };
        if !schemes.contains(&url.scheme()) {
            return Err(fail(format!("the scheme must be {}", schemes.join(" or "))));
        }
        let host = match url.host() {
            None | Some(Host::Domain("")) => return Err(fail("the URL has no host".into())),
            Some(Host::Domain(name)) => name.to_owned(),
            Some(Host::Ipv4(ip)) => ip.to_string(),
            Some(Host::Ipv6(ip)) => ip.to_string(),
        };
        let port = url.port_or_known_default().filter(|port| *port != 0);
        let port = port.ok_or_else(|| {
            let scheme = schemes.last().unwrap_or(&"http");
            fail(format!(
                "the URL has no port, as in {scheme}://worker-1:8080"
            ))
        })?;
        Ok(Self {
            url: url.to_string(),
            host,
            port,
        })
    }

    /// The URL as the caller wrote it, for messages.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A DNS name, or an IP address without brackets: also the name that a certificate must carry.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// `host:port`, for messages.
    pub fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// Makes `attempt`s at the host's addresses, one after the other, each as soon as the one before failed or has been
    /// silent for a while (RFC 8305). The first that succeeds wins, the others are dropped.
    ///
    /// Must run on a tokio runtime, where the attempts run too, and within a timeout of the caller's. Cancel safe: the
    /// attempts end with it.
    ///
    /// # Errors
    /// Kind `Connect` when the host is unknown or has no address, else the most telling error of an attempt.
    pub async fn reach<T, A>(&self, attempt: impl Fn(SocketAddr) -> A) -> Result<T, TransportError>
    where
        T: Send + 'static,
        A: Future<Output = Result<T, TransportError>> + Send + 'static,
    {
        let addresses = self.resolve().await?;
        let unreached = "the host name has no address";
        let lost = || self.error(ErrorKind::Connect, unreached);
        race(addresses, attempt)
            .await
            .map_err(|err| err.unwrap_or_else(lost))
    }

    /// The addresses to try, in the resolver's order.
    async fn resolve(&self) -> Result<Vec<SocketAddr>, TransportError> {
        if let Ok(ip) = self.host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(ip, self.port)]);
        }
        let found = lookup_host((self.host.as_str(), self.port)).await;
        found.map(Iterator::collect).map_err(|err| {
            let detail = format!("cannot look up the host name `{}`: {err}", self.host);
            self.error(ErrorKind::Connect, detail)
        })
    }

    /// A failure to connect here. Nothing of a request was sent.
    pub fn error(&self, kind: ErrorKind, detail: impl Into<String>) -> TransportError {
        TransportError::new(kind, "connect", self.url.as_str(), detail)
            .with_delivery(Delivery::NotDelivered)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const SCHEMES: &[&str] = &["http", "https", "quic"];

    #[test]
    fn urls_name_a_host_and_a_port() {
        for (url, authority) in [
            ("http://worker-1:8080", "worker-1:8080"),
            ("https://10.0.0.1:8080/path", "10.0.0.1:8080"),
            ("quic://10.0.0.1:8080", "10.0.0.1:8080"),
            ("quic://[::1]:8080", "[::1]:8080"),
            ("http://[::1]:80", "[::1]:80"),
            ("https://worker-1", "worker-1:443"),
        ] {
            let target = Target::parse(&url.parse().unwrap(), SCHEMES).unwrap();
            assert_eq!(authority, target.authority());
        }
    }

    #[test]
    fn other_urls_are_refused_by_name() {
        for (url, words) in [
            ("ftp://worker-1:8080", "http or https or quic"),
            ("tcp://worker-1:8080", "scheme"),
            ("quic://worker-1", "no port, as in quic://"),
            ("quic://worker-1:0", "no port"),
            ("quic:worker-1", "no host"),
            ("quic:///path", "no host"),
        ] {
            let url: Url = url.parse().unwrap();
            let err = Target::parse(&url, SCHEMES).unwrap_err();
            assert_eq!((ErrorKind::Config, url.as_str()), (err.kind(), err.peer()));
            assert!(err.detail().contains(words), "{err}");
        }
    }
}
