//! The only file that knows which transports there are and how each is set up.

use std::{fmt, sync::Arc};

use clap::ValueEnum;
use datafusion_transport_core::{IoRuntime, TransportsBuilder};
use datafusion_transport_quic::{QuicConfig, QuicConnector};
use datafusion_transport_tcp::{TcpConfig, TcpConnector};

use crate::{grpc_client::GrpcChannels, on_demand::OnDemand, tls::Identity};

/// The transports that the programs can use, the preferred one first.
///
/// To add one: its variant here, its line in `traits`, how it is reached in `register` and how it is served in
/// `listening.rs`. Command lines, checks, help and comparisons follow.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// One QUIC stream per partition
    Quic,
    /// Streams over raw TCP, in the clear
    Tcp,
    /// Streams over TCP with TLS
    TcpTls,
    /// Streams over a Unix socket, on one host
    Unix,
    /// For each worker the first of quic, tcp and grpc that works; with certificates, of quic and tcp-tls
    Auto,
    /// The engine's own gRPC transport, as reference
    Grpc,
}

/// What a worker listens on. All that is in one place goes together in one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    /// A UDP and a TCP port of one number; the TCP port is in the clear.
    Port,
    /// Likewise, and the TCP port takes nothing but TLS.
    TlsPort,
    /// A Unix socket.
    Path,
}

/// What the programs must know of a transport beside its name.
struct Traits {
    /// The value of `transport.kind`, and of the command lines' options.
    name: &'static str,
    /// Where workers serve it.
    places: &'static [Place],
    /// Whether peers show each other certificates.
    certificates: bool,
}

impl Kind {
    /// All transports.
    pub fn all() -> &'static [Self] {
        Self::value_variants()
    }

    /// All names, for messages.
    pub fn names() -> String {
        let names: Vec<_> = Self::all().iter().map(|kind| kind.name()).collect();
        names.join(", ")
    }

    /// The value of `transport.kind`.
    pub fn name(self) -> &'static str {
        self.traits().name
    }

    /// Whether peers show each other certificates.
    pub fn has_certificates(self) -> bool {
        self.traits().certificates
    }

    /// Whether a worker serves it; `auto` is the client's choice among others.
    pub(crate) fn is_served_at(self, place: Place) -> bool {
        self != Self::Auto && self.traits().places.contains(&place)
    }

    /// Where a cluster for it listens.
    pub(crate) fn place(self) -> Place {
        self.traits().places.first().copied().unwrap_or(Place::Port)
    }

    /// What a worker serves at a place by default.
    pub(crate) fn all_at(place: Place) -> Vec<Self> {
        let served = |kind: &&Self| kind.is_served_at(place);
        Self::all().iter().filter(served).copied().collect()
    }

    fn traits(self) -> Traits {
        use Place::{Path, Port, TlsPort};
        let (name, places, certificates): (_, &'static [Place], _) = match self {
            Self::Quic => ("quic", &[Port, TlsPort], true),
            Self::Tcp => ("tcp", &[Port], false),
            Self::TcpTls => ("tcp-tls", &[TlsPort], true),
            Self::Unix => ("unix", &[Path], false),
            Self::Auto => ("auto", &[Port, TlsPort], true),
            Self::Grpc => ("grpc", &[Port], false),
        };
        Traits {
            name,
            places,
            certificates,
        }
    }

    /// Registers how peers are reached over it. Nothing is set up before its first use: a session that never uses
    /// certificates needs none.
    pub(crate) fn register(
        self,
        transports: TransportsBuilder,
        identity: &Arc<Identity>,
        io: &IoRuntime,
    ) -> TransportsBuilder {
        let (identity, io) = (Arc::clone(identity), io.clone());
        match self {
            Self::Quic => {
                let quic = OnDemand::new(move || {
                    QuicConnector::new(QuicConfig::default(), identity.client()?, &io)
                });
                transports.connector(self.name(), Arc::new(quic))
            }
            Self::Tcp | Self::Unix => {
                let tcp = OnDemand::new(move || TcpConnector::new(TcpConfig::default(), None, &io));
                transports.connector(self.name(), Arc::new(tcp))
            }
            Self::TcpTls => {
                let tcp = OnDemand::new(move || {
                    TcpConnector::new(TcpConfig::default(), Some(identity.client()?), &io)
                });
                transports.connector(self.name(), Arc::new(tcp))
            }
            Self::Auto => {
                // Who has certificates must not end up in the clear.
                let order = match identity.is_development() {
                    true => &[Self::Quic, Self::Tcp, Self::Grpc][..],
                    false => &[Self::Quic, Self::TcpTls],
                };
                transports.auto_order(order.iter().map(|kind| kind.name()))
            }
            Self::Grpc => {
                transports.channel_resolver(self.name(), Arc::new(GrpcChannels::default()))
            }
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_has_one_name() {
        for kind in Kind::all() {
            let option = kind.to_possible_value();
            assert!(option.is_some_and(|option| option.get_name() == kind.name()));
        }
    }

    #[test]
    fn places() {
        use Kind::{Grpc, Quic, Tcp, TcpTls, Unix};
        assert_eq!(Kind::all_at(Place::Port), [Quic, Tcp, Grpc]);
        assert_eq!(Kind::all_at(Place::TlsPort), [Quic, TcpTls]);
        assert_eq!(Kind::all_at(Place::Path), [Unix]);
    }
}
