//! [`Place`]: what a worker URL means to this transport.

use datafusion_transport_core::Target;
use datafusion_transport_core::error::{Delivery, ErrorKind, TransportError};
use std::path::PathBuf;
use url::Url;

/// Where to connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A host and a TCP port.
    Tcp(Target),
    /// A socket's path, and the URL that said so.
    Unix(PathBuf, String),
}

const SCHEMES: &[&str] = &["http", "https", "unix", "tcp"];

impl Place {
    /// Takes `http`, `https` and `tcp` URLs, whose path means nothing, and `unix` URLs, which are a path.
    ///
    /// # Errors
    /// Kind `Config`; names the URL.
    pub(crate) fn parse(url: &Url) -> Result<Self, TransportError> {
        if url.scheme() != "unix" {
            return Target::parse(url, SCHEMES).map(Self::Tcp);
        }
        let fail =
            |detail: &str| TransportError::new(ErrorKind::Config, "connect", url.as_str(), detail);
        if url.host_str().is_some_and(|host| !host.is_empty()) {
            return Err(fail("a unix URL has no host: unix:///path/to/socket"));
        }
        match url.to_file_path() {
            Ok(path) if path.parent().is_some() => Ok(Self::Unix(path, url.to_string())),
            _ => Err(fail("a unix URL needs a path: unix:///path/to/socket")),
        }
    }

    /// The URL as the caller wrote it, for messages.
    pub(crate) fn url(&self) -> &str {
        match self {
            Self::Tcp(target) => target.url(),
            Self::Unix(_, url) => url,
        }
    }

    /// A failure to connect here. Nothing of a request was sent.
    pub(crate) fn error(&self, kind: ErrorKind, detail: impl Into<String>) -> TransportError {
        TransportError::new(kind, "connect", self.url(), detail)
            .with_delivery(Delivery::NotDelivered)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_a_place() {
        let tcp = Place::parse(&"tcp://[::1]:8080/path".parse().unwrap()).unwrap();
        assert!(matches!(tcp, Place::Tcp(target) if target.authority() == "[::1]:8080"));
        let url = "unix:///run/a%20b.sock";
        let unix = Place::Unix("/run/a b.sock".into(), url.to_owned());
        assert_eq!(unix, Place::parse(&url.parse().unwrap()).unwrap());
    }

    #[test]
    fn other_urls_are_refused_by_name() {
        for (url, words) in [
            ("ftp://worker-1:8080", "scheme"),
            ("tcp://worker-1", "as in tcp://"),
            ("unix://host/path", "no host"),
            ("unix:///", "needs a path"),
        ] {
            let url: Url = url.parse().unwrap();
            let err = Place::parse(&url).unwrap_err();
            assert_eq!((ErrorKind::Config, url.as_str()), (err.kind(), err.peer()));
            assert!(err.detail().contains(words), "{err}");
        }
    }
}
