//! Where a worker listens, and on what.

use std::{net::SocketAddr, path::PathBuf, str::FromStr};

use anyhow::Result;
use datafusion_transport_core::{IoRuntime, connection::Listener};
use datafusion_transport_quic::{QuicConfig, QuicListener};
use datafusion_transport_tcp::{TcpConfig, TcpListener};
use url::Url;

use crate::{
    grpc_server::GrpcConnections,
    kind::{Kind, Place},
    program::{bad_option, usage},
    tls::{Clients, Identity},
};

/// How often another free port is tried when one is free on TCP but taken on UDP.
const PORT_ATTEMPTS: usize = 16;

/// An address to listen on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A port number, on UDP and TCP; 0 takes a free one.
    Port(SocketAddr),
    /// A Unix socket.
    Path(PathBuf),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("unix://") {
            Some(path) if path.starts_with('/') => Ok(Self::Path(path.into())),
            Some(_) => Err("expected an absolute path, such as unix:///run/worker".to_owned()),
            None => text.parse().map(Self::Port).map_err(|error| {
                format!("{error}: expected IP:PORT, such as 127.0.0.1:8080, or unix:///PATH")
            }),
        }
    }
}

impl Address {
    /// Whether only this host reaches it.
    pub(crate) fn is_local(&self) -> bool {
        match self {
            Self::Port(address) => address.ip().is_loopback(),
            Self::Path(_) => true,
        }
    }

    /// What to serve there: `chosen`, or what there is.
    ///
    /// # Errors
    /// When not all of it can be served together.
    pub(crate) fn kinds(&self, chosen: &[Kind]) -> Result<Vec<Kind>> {
        let place = match self {
            Self::Path(_) => Place::Path,
            Self::Port(_) if chosen.contains(&Kind::TcpTls) => Place::TlsPort,
            Self::Port(_) => Place::Port,
        };
        if let Some(other) = chosen.iter().find(|kind| !kind.is_served_at(place)) {
            return Err(usage(match (other, place) {
                (Kind::Auto, _) => {
                    "auto is a client's choice: serve those that it chooses from".to_owned()
                }
                (other, Place::TlsPort) => format!(
                    "tcp-tls leaves nothing in the clear on the TCP port: leave out {other}"
                ),
                (other, Place::Port) => format!("{other} needs --listen unix:///PATH"),
                (other, Place::Path) => format!("{other} needs --listen IP:PORT"),
            }));
        }
        let mut kinds = Kind::all_at(place);
        kinds.retain(|kind| chosen.is_empty() || chosen.contains(kind));
        Ok(kinds)
    }
}

/// What a worker is served on.
pub(crate) struct Bound {
    pub(crate) url: Url,
    pub(crate) listeners: Vec<Box<dyn Listener>>,
    pub(crate) grpc: Option<GrpcConnections>,
}

/// Binds listeners.
pub(crate) struct Binder<'a> {
    pub(crate) kinds: &'a [Kind],
    pub(crate) identity: &'a Identity,
    pub(crate) clients: &'a Clients,
    pub(crate) io: &'a IoRuntime,
}

impl Binder<'_> {
    /// Binds the same port number on TCP and UDP, as far as the kinds need them, or a Unix socket.
    ///
    /// # Errors
    /// When the address cannot be had, or the certificates cannot be used.
    pub(crate) async fn bind(&self, address: &Address) -> Result<Bound> {
        let address = match address {
            Address::Path(path) => {
                let socket = TcpListener::bind_unix(path, TcpConfig::default(), self.io);
                return Ok(Bound {
                    url: Url::parse(&format!("unix://{}", path.display()))?,
                    listeners: vec![Box::new(socket.map_err(bad_option)?)],
                    grpc: None,
                });
            }
            Address::Port(address) => *address,
        };
        let mut attempt = 1;
        loop {
            match self.bind_port(address).await {
                // A free port on TCP need not be free on UDP: try the next one.
                Err(_) if address.port() == 0 && attempt < PORT_ATTEMPTS => attempt += 1,
                bound => return bound,
            }
        }
    }

    async fn bind_port(&self, address: SocketAddr) -> Result<Bound> {
        let mut listeners: Vec<Box<dyn Listener>> = Vec::new();
        let (tcp, grpc) = self.bind_tcp(address).await?;
        let mut bound = grpc.as_ref().and_then(GrpcConnections::local_addr);
        if let Some(tcp) = tcp {
            bound = tcp.local_addr();
            listeners.push(Box::new(tcp));
        }
        if self.kinds.contains(&Kind::Quic) {
            let tls = self.identity.server(self.clients)?;
            let address = bound.unwrap_or(address);
            let quic = QuicListener::bind(address, QuicConfig::default(), tls, self.io);
            let quic = quic.map_err(bad_option)?;
            bound = Some(quic.local_addr());
            listeners.push(Box::new(quic));
        }
        Ok(Bound {
            url: Url::parse(&format!("http://{}", bound.unwrap_or(address)))?,
            listeners,
            grpc,
        })
    }

    /// The TCP port: our streams, gRPC, or both told apart by their first bytes.
    async fn bind_tcp(
        &self,
        address: SocketAddr,
    ) -> Result<(Option<TcpListener>, Option<GrpcConnections>)> {
        let config = TcpConfig::default();
        let has = |kind| self.kinds.contains(&kind);
        if has(Kind::TcpTls) {
            let tls = self.identity.server(self.clients)?;
            let tcp = TcpListener::bind(address, config, Some(tls), self.io);
            return Ok((Some(tcp.map_err(bad_option)?), None));
        }
        Ok(match (has(Kind::Tcp), has(Kind::Grpc)) {
            (true, true) => {
                let shared = TcpListener::bind_shared(address, config, None, self.io);
                let (tcp, http2) = shared.map_err(bad_option)?;
                (Some(tcp), Some(GrpcConnections::Shared(http2)))
            }
            (true, false) => {
                let tcp = TcpListener::bind(address, config, None, self.io);
                (Some(tcp.map_err(bad_option)?), None)
            }
            (false, true) => (None, Some(GrpcConnections::bind(address).await?)),
            (false, false) => (None, None),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let parse = str::parse::<Address>;
        assert_eq!(parse("unix:///x/y"), Ok(Address::Path("/x/y".into())));
        assert!(matches!(parse("[::1]:0"), Ok(Address::Port(_))));
        for bad in ["unix://x", "x", "1.2.3.4", "http://1.2.3.4:5"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_goes_together() -> Result<()> {
        use Kind::{Auto, Grpc, Quic, Tcp, TcpTls, Unix};
        let port = Address::Port(([127, 0, 0, 1], 0).into());
        let path = Address::Path("/x".into());
        assert_eq!(port.kinds(&[])?, [Quic, Tcp, Grpc]);
        assert_eq!(port.kinds(&[Grpc, Quic, Quic])?, [Quic, Grpc]);
        assert_eq!(port.kinds(&[TcpTls, Quic])?, [Quic, TcpTls]);
        assert_eq!(path.kinds(&[])?, [Unix]);
        for (address, bad) in [
            (&port, &[TcpTls, Tcp] as &[Kind]),
            (&port, &[TcpTls, Grpc]),
            (&port, &[Auto]),
            (&port, &[Unix]),
            (&path, &[Quic]),
        ] {
            assert!(address.kinds(bad).is_err(), "{bad:?}");
        }
        Ok(())
    }
}
