//! Raw TCP for distributed DataFusion: [`TcpConnector`] and [`TcpListener`], an implementation of the connection seam of
//! `datafusion-transport-core` over one socket per connection, with TLS 1.3 by rustls or without, and over Unix sockets.
//!
//! There is no protocol of queries in this crate: no plan, no batch, no query error. It moves the bytes of independent
//! streams between two peers. TCP has one flow control for all; a multiplexer gives each stream its own.
//!
//! # The path of the bytes
//!
//! ```text
//!   caller's task                    I/O runtime                         I/O runtime           caller's task
//!  ┌──────────────┐ Bytes, uncopied ┌───────────┐  vectored writes, TCP ┌───────────┐ Bytes,  ┌──────────────┐
//!  │TcpSendStream │───────────────▶ │  writer   │──────────────────────▶│  reader   │────────▶│TcpRecvStream │
//!  │ poll_write   │  stream credit, │   task    │                       │   task    │uncopied │ poll_read    │
//!  └──────────────┘  send buffer    └───────────┘                       └───────────┘ window  └──────────────┘
//!                                        ▲          grants, as streams are read    │
//!                                        └─────────────────────────────────────────┘
//! ```
//!
//! A byte is copied by the kernel, in and out. The reader waits for the socket and nothing else: what arrives for a
//! stream that nobody reads waits in that stream's window, and a peer that sends beyond it breaks the protocol. What
//! a writer gave away is covered by its stream's window, so the send buffer that all streams share always drains.
//!
//! # One noun per file
//!
//! | file | |
//! |---|---|
//! | `config` | every knob, checked when something is built from it |
//! | `mux` | frames, windows, queues: the state machine, without I/O |
//! | `tls` | the protocol's name; certificates are `datafusion_transport_core::tls` |
//! | `connector`, `target` | URL → address → connection |
//! | `listener`, `admission` | port or Unix socket → connections; bounded handshakes |
//! | `arrival`, `http2` | what a connection turns out to be: this protocol, or gRPC on a shared port |
//! | `multiplexer` | connections over byte streams of any other kind |
//! | `handshake`, `error` | TLS and the preambles, and what they fail of in words |
//! | `connection`, `link` | opens and accepts streams, closes; what its parts share |
//! | `send_stream`, `recv_stream` | bytes in, bytes out |
//! | `driver`, `reader`, `writer`, `liveness` | the tasks of a connection |
//! | `socket` | options, and errors in words |
//!
//! The wire format is specified in `docs/tcp.md`, whose numbered rules the code cites.
//!
//! # Who drives
//!
//! All tasks and timers run on the runtime that is given to the connector or listener, never on the caller's. Streams may
//! be polled from any thread. A connection's tasks end with it: at once when it is lost, within
//! [`TcpConfig::close_timeout`] when it is closed.
#![forbid(unsafe_code)]

mod admission;
mod arrival;
mod config;
mod connection;
mod connector;
mod driver;
mod error;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::mux::fuzzing::hostile_peer;
}
mod handshake;
mod http2;
mod link;
mod listener;
mod liveness;
mod multiplexer;
mod mux;
mod reader;
mod recv_stream;
mod send_stream;
mod socket;
mod target;
mod tls;
mod writer;

pub use config::{CongestionControl, TcpConfig};
pub use connector::TcpConnector;
pub use datafusion_transport_core::tls::{ClientTls, DevelopmentIdentity, ServerTls};
pub use http2::{Http2Connections, Http2Stream};
pub use listener::TcpListener;
pub use multiplexer::Multiplexer;
pub use tls::ALPN;
