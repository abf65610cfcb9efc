//! [`Target`]: what a worker URL means to TCP.

use datafusion_transport_core::error::{Delivery, ErrorKind, TransportError};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use tokio::net::lookup_host;
use url::{Host, Url};

/// Where to connect, and the URL that said so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// As the caller wrote it, for messages.
    pub(crate) url: String,
    pub(crate) place: Place,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A DNS name or an IP address without brackets, which is also the name that a certificate must carry; and a port.
    Tcp(String, u16),
    /// A socket's path.
    Unix(PathBuf),
}

impl Target {
    /// Takes `http`, `https` and `tcp` URLs, whose path means nothing, and `unix` URLs, which are a path.
    ///
    /// # Errors
    /// Kind `Config`; names the URL.
    pub(crate) fn parse(url: &Url) -> Result<Self, TransportError> {
        let fail =
            |detail: &str| TransportError::new(ErrorKind::Config, "connect", url.as_str(), detail);
        let place = match url.scheme() {
            "unix" => {
                if url.host_str().is_some_and(|host| !host.is_empty()) {
                    return Err(fail("a unix URL has no host: unix:///path/to/socket"));
                }
                match url.to_file_path() {
                    Ok(path) if path.parent().is_some() => Place::Unix(path),
                    _ => return Err(fail("a unix URL needs a path: unix:///path/to/socket")),
                }
            }
            "http" | "https" | "tcp" => {
                let host = match url.host() {
                    None | Some(Host::Domain("")) => return Err(fail("the URL has no host")),
                    Some(Host::Domain(name)) => name.to_owned(),
                    Some(Host::Ipv4(ip)) => ip.to_string(),
                    Some(Host::Ipv6(ip)) => ip.to_string(),
                };
                let port = url.port_or_known_default().filter(|port| *port != 0);
                let missing = "the URL has no port, as in tcp://worker-1:8080";
                Place::Tcp(host, port.ok_or_else(|| fail(missing))?)
            }
            _ => return Err(fail("the scheme must be http, https, tcp or unix")),
        };
        Ok(Self {
            url: url.to_string(),
            place,
        })
    }

    /// The addresses to try, in the resolver's order. Must run on a tokio runtime.
    ///
    /// # Errors
    /// Kind `Connect`.
    pub(crate) async fn resolve(
        &self,
        host: &str,
        port: u16,
    ) -> Result<Vec<SocketAddr>, TransportError> {
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(ip, port)]);
        }
        let found = lookup_host((host, port)).await;
        found.map(Iterator::collect).map_err(|err| {
            let detail = format!("cannot look up the host name `{host}`: {err}");
            self.error(ErrorKind::Connect, detail)
        })
    }

    /// A failure to connect here. Nothing of a request was sent.
    pub(crate) fn error(&self, kind: ErrorKind, detail: impl Into<String>) -> TransportError {
        TransportError::new(kind, "connect", self.url.as_str(), detail)
            .with_delivery(Delivery::NotDelivered)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_a_place() {
        let tcp = |host: &str, port| Place::Tcp(host.to_owned(), port);
        for (url, place) in [
            ("http://worker-1:8080", tcp("worker-1", 8080)),
            ("https://worker-1", tcp("worker-1", 443)),
            ("tcp://10.0.0.1:8080/path", tcp("10.0.0.1", 8080)),
            ("tcp://[::1]:8080", tcp("::1", 8080)),
            (
                "unix:///run/a%20b.sock",
                Place::Unix("/run/a b.sock".into()),
            ),
        ] {
            assert_eq!(place, Target::parse(&url.parse().unwrap()).unwrap().place);
        }
    }

    #[test]
    fn other_urls_are_refused_by_name() {
        for (url, words) in [
            ("ftp://worker-1:8080", "scheme"),
            ("tcp://worker-1", "no port"),
            ("tcp:worker-1", "no host"),
            ("unix://host/path", "no host"),
            ("unix:///", "needs a path"),
        ] {
            let url: Url = url.parse().unwrap();
            let err = Target::parse(&url).unwrap_err();
            assert_eq!((ErrorKind::Config, url.as_str()), (err.kind(), err.peer()));
            assert!(err.detail().contains(words), "{err}");
        }
    }
}
