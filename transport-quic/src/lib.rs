//! QUIC for distributed DataFusion: [`QuicConnector`] and [`QuicListener`], an implementation of the connection seam of
//! `datafusion-transport-core` over quinn, with TLS 1.3 by rustls.
//!
//! There is no protocol in this crate: no plan, no batch, no query error. It moves the bytes of independent streams
//! between two authenticated peers, and QUIC gives each stream a flow control of its own.
//!
//! # The path of the bytes
//!
//! ```text
//!   caller's task                      I/O runtime                        I/O runtime         caller's task
//!  ┌───────────────┐ Bytes, uncopied  ┌────────────┐  UDP, up to 64 KiB  ┌────────────┐      ┌───────────────┐
//!  │QuicSendStream │─────────────────▶│ connection │────────────────────▶│  endpoint  │      │QuicRecvStream │
//!  │ poll_write    │  send window     │   driver   │  per system call    │   driver   │      │ poll_read     │
//!  └───────────────┘                  └────────────┘                     └─────┬──────┘      └───────▲───────┘
//!   waits while the peer's             frames, encryption,                     │ decrypts,           │
//!   stream window or this              congestion control                      ▼ sorts by stream     │ Bytes,
//!   side's send window is full                                           ┌────────────┐              │ uncopied
//!                                                                        │ connection │──────────────┘
//!                                                                        │   driver   │  stream window
//!                                                                        └────────────┘
//! ```
//!
//! A byte is copied into the packet that is encrypted, by the kernel, and out of the receive buffer. A reader that does
//! not read fills its stream's window at this side; then its writer waits, and nobody else: a connection as a whole has
//! no receive window, and what waits for a reader was acknowledged and so holds none of the send window.
//!
//! # One noun per file
//!
//! | file | |
//! |---|---|
//! | `config` | every knob, checked when something is built from it |
//! | `tls` | the protocol's name; certificates are `datafusion_transport_core::tls` |
//! | `connector` | URL → address → connection |
//! | `listener` | UDP port → connections; bounded handshakes |
//! | `connection`, `stream_allowance` | opens and accepts streams, closes |
//! | `send_stream`, `recv_stream` | bytes in, bytes out |
//! | `congestion` | lets the last packet out when the window is full |
//! | `paths` | what quinn is told about a path: within this host or over a network |
//! | `endpoint`, `runtime` | UDP sockets, and the runtime that drives them |
//! | `error` | what QUIC and TLS report, in words |
//!
//! # Who drives
//!
//! Quinn's drivers and all timers run on the tokio runtime that is given to the connector or listener, never on the
//! caller's: operators compute for long stretches, and a driver that is not polled acknowledges nothing and loses its
//! connections. Streams may be polled from any thread. The runtime must outlive the connections: when it is shut down
//! first, calls that wait on a connection may wait for ever.
//!
//! # Datagram size
//!
//! The cost of QUIC is per packet, so its speed is the size of its datagrams. Connections over a network begin at 1200 bytes
//! and search up to [`QuicConfig::mtu_discovery_upper_bound_bytes`] once they are in use: on 9000-byte networks that ends at
//! 8952. Connections within a host begin there. A datagram that is too large for a path is not cut up but
//! dropped, and a dropped probe counts neither as loss nor against the sending rate.
#![forbid(unsafe_code)]

mod config;
mod congestion;
mod connection;
mod connector;
mod endpoint;
mod error;
mod listener;
mod paths;
mod recv_stream;
mod runtime;
mod send_stream;
mod stream_allowance;
mod tls;

pub use config::{CongestionControl, QuicConfig};
pub use connector::QuicConnector;
pub use datafusion_transport_core::tls::{ClientTls, DevelopmentIdentity, ServerTls};
pub use listener::QuicListener;
pub use tls::ALPN;
