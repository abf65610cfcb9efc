//! [`TcpConfig`]: every knob of this transport, checked when a connector or a listener is built.

use crate::mux::Limits;
use datafusion_transport_core::error::{ErrorKind, TransportError};
use std::time::Duration;

/// Tuning of the TCP transport. The defaults suit workers in one data centre; both sides may differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpConfig {
    /// Bytes that the peer may send on one stream before this side has read them; half of it is granted again at a time.
    /// A stream runs at most at this much per round trip. Default 2 MiB.
    pub stream_window_bytes: u32,
    /// Longest payload of a frame, sent or taken. While one is sent, urgent data waits; a message that does not fit is
    /// copied once by its receiver. Default 512 KiB.
    pub max_frame_bytes: u32,
    /// Streams open at the same time, those of either side counted apart; more wait. Default 262144.
    pub max_streams: u32,
    /// Streams that may wait to be accepted; more wait to be opened. Default 1024.
    pub max_unaccepted_streams: u32,
    /// Bytes that the peer may send on a stream it opened before this side has read any; the first read of half of them
    /// raises the window to `stream_window_bytes`. A first message that fits costs no extra round trip. Default 64 KiB.
    pub early_window_bytes: u32,
    /// Such bytes that a peer can make this side hold in streams nobody has accepted, of all streams together; more
    /// wait to be sent. Default 1 MiB.
    pub max_early_bytes: u32,
    /// Bulk data of all streams that was taken from writers and not yet handed to the socket; writers wait beyond it.
    /// Default 4 MiB.
    pub send_buffer_bytes: usize,
    /// The peer is asked for a sign of life this often. Less than half of `idle_timeout`. Default 2 s.
    pub keep_alive_interval: Duration,
    /// A peer from which nothing has arrived, or which has taken nothing of a pending write, for this long is lost.
    /// Default 10 s.
    pub idle_timeout: Duration,
    /// Longest handshake, on both sides; on the client it bounds all addresses of a host together. Default 5 s.
    pub handshake_timeout: Duration,
    /// Handshakes in progress at a listener, HTTP/2 connections that nobody has taken yet included. One more ends the
    /// oldest of the address that has most. Default 256, a large cluster that starts up.
    pub max_handshakes: usize,
    /// Those of one IPv4 address, one IPv6 network of 64 bits, or all of a Unix socket. One more ends the oldest of them, and
    /// never another's. At most `max_handshakes`. Default 64.
    pub max_handshakes_per_address: usize,
    /// How long closing tries to send what streams had finished, and the reason. Default 1 s.
    pub close_timeout: Duration,
    /// Send buffer of a socket. `None` (default) lets the system adapt it.
    pub socket_send_buffer_bytes: Option<usize>,
    /// Receive buffer of a socket. `None` (default) lets the system adapt it.
    pub socket_recv_buffer_bytes: Option<usize>,
    /// Bytes that a socket takes and does not send yet (`TCP_NOTSENT_LOWAT`, Linux): urgent data waits for them. `None` sets no
    /// bound but the send buffer. Default 256 KiB.
    pub socket_unsent_bytes: Option<u32>,
    /// How the sending rate reacts to loss and delay. Default [`CongestionControl::Automatic`].
    pub congestion: CongestionControl,
}

/// How the sending rate of a socket reacts to loss and delay (`TCP_CONGESTION`, Linux).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CongestionControl {
    /// The system's choice, but `cubic` where both ends are on this host: one that paces would only delay there.
    Automatic,
    /// The system's choice.
    System,
    /// By name, such as `cubic` or `bbr`; must be available and allowed.
    Named(String),
}

impl Default for TcpConfig {
    fn default() -> Self {
        Self {
            stream_window_bytes: 2 << 20,
            max_frame_bytes: 512 << 10,
            max_streams: 262_144,
            max_unaccepted_streams: 1024,
            early_window_bytes: 64 << 10,
            max_early_bytes: 1 << 20,
            send_buffer_bytes: 4 << 20,
            keep_alive_interval: Duration::from_secs(2),
            idle_timeout: Duration::from_secs(10),
            handshake_timeout: Duration::from_secs(5),
            max_handshakes: 256,
            max_handshakes_per_address: 64,
            close_timeout: Duration::from_secs(1),
            socket_send_buffer_bytes: None,
            socket_recv_buffer_bytes: None,
            socket_unsent_bytes: Some(256 << 10),
            congestion: CongestionControl::Automatic,
        }
    }
}

/// Below this a stream stops and goes for every few messages.
const MIN_WINDOW_BYTES: u32 = 4 << 10;
/// Grants must fit their field with room to spare.
const MAX_WINDOW_BYTES: u32 = 1 << 30;
/// Below this headers cost more than a percent.
const MIN_FRAME_BYTES: u32 = 4 << 10;
/// A receiver allocates for a whole frame.
const MAX_FRAME_BYTES: u32 = 16 << 20;
/// Each has a socket; a process has no more of them than this by far.
const MAX_HANDSHAKES: usize = 1 << 16;
/// The kernel takes an `int` and doubles it.
const MAX_SOCKET_BUFFER_BYTES: usize = 1 << 30;
/// The kernel's timers count milliseconds in an `int`, and a longer silence is no use.
const MAX_IDLE_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

impl TcpConfig {
    /// Checks every field and the combinations. Connector and listener do it too.
    ///
    /// # Errors
    /// Kind `Config`; names the field.
    pub fn validate(&self) -> Result<(), TransportError> {
        let (window, frame) = (self.stream_window_bytes, self.max_frame_bytes);
        within(
            "stream_window_bytes",
            window,
            MIN_WINDOW_BYTES,
            MAX_WINDOW_BYTES,
        )?;
        within("max_frame_bytes", frame, MIN_FRAME_BYTES, MAX_FRAME_BYTES)?;
        within("max_streams", self.max_streams, 1, u32::MAX)?;
        within(
            "max_unaccepted_streams",
            self.max_unaccepted_streams,
            1,
            u32::MAX,
        )?;
        within(
            "early_window_bytes",
            self.early_window_bytes,
            MIN_WINDOW_BYTES,
            MAX_WINDOW_BYTES,
        )?;
        within(
            "max_early_bytes",
            self.max_early_bytes,
            self.early_window_bytes,
            MAX_WINDOW_BYTES,
        )?;
        within(
            "send_buffer_bytes",
            self.send_buffer_bytes,
            MIN_FRAME_BYTES as usize,
            usize::MAX,
        )?;
        for (bytes, field) in [
            (self.socket_send_buffer_bytes, "socket_send_buffer_bytes"),
            (self.socket_recv_buffer_bytes, "socket_recv_buffer_bytes"),
        ] {
            within(field, bytes.unwrap_or(1), 1, MAX_SOCKET_BUFFER_BYTES)?;
        }
        within(
            "socket_unsent_bytes",
            self.socket_unsent_bytes.unwrap_or(MIN_WINDOW_BYTES),
            MIN_WINDOW_BYTES,
            MAX_WINDOW_BYTES,
        )?;
        let (all, share) = (self.max_handshakes, self.max_handshakes_per_address);
        within("max_handshakes", all, 1, MAX_HANDSHAKES)?;
        within("max_handshakes_per_address", share, 1, all)?;
        let (keep_alive, idle) = (self.keep_alive_interval, self.idle_timeout);
        let millisecond = Duration::from_millis(1);
        within_time("keep_alive_interval", keep_alive, millisecond, idle / 2)?;
        within_time("idle_timeout", idle, 10 * millisecond, MAX_IDLE_TIMEOUT)?;
        within_time(
            "handshake_timeout",
            self.handshake_timeout,
            millisecond,
            Duration::MAX,
        )?;
        within_time(
            "close_timeout",
            self.close_timeout,
            millisecond,
            Duration::MAX,
        )
    }

    /// What the multiplexer needs to know.
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            stream_window_bytes: self.stream_window_bytes,
            max_frame_bytes: self.max_frame_bytes,
            max_streams: self.max_streams,
            max_unaccepted_streams: self.max_unaccepted_streams,
            early_window_bytes: self.early_window_bytes,
            early_limit_bytes: self.max_early_bytes,
            send_buffer_bytes: self.send_buffer_bytes,
        }
    }
}

fn within<T: PartialOrd + std::fmt::Display>(
    field: &str,
    value: T,
    least: T,
    most: T,
) -> Result<(), TransportError> {
    if (&least..=&most).contains(&&value) {
        return Ok(());
    }
    Err(error(
        field,
        format!("{value} is outside {least} to {most}"),
    ))
}

fn within_time(
    field: &str,
    value: Duration,
    least: Duration,
    most: Duration,
) -> Result<(), TransportError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(error(
        field,
        format!("{value:?} is outside {least:?} to {most:?}"),
    ))
}

fn error(field: &str, detail: String) -> TransportError {
    TransportError::new(ErrorKind::Config, "configure TCP", field, detail)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid() {
        TcpConfig::default().validate().unwrap();
    }

    #[test]
    fn an_invalid_field_is_named() {
        type Breakage = fn(&mut TcpConfig);
        let cases: [(&str, Breakage); 15] = [
            ("stream_window_bytes", |c| c.stream_window_bytes = 0),
            ("max_frame_bytes", |c| c.max_frame_bytes = 17 << 20),
            ("max_streams", |c| c.max_streams = 0),
            ("max_unaccepted_streams", |c| c.max_unaccepted_streams = 0),
            ("early_window_bytes", |c| c.early_window_bytes = 0),
            ("max_early_bytes", |c| c.max_early_bytes = 4096),
            ("send_buffer_bytes", |c| c.send_buffer_bytes = 0),
            ("socket_send_buffer_bytes", |c| {
                c.socket_send_buffer_bytes = Some(0)
            }),
            ("socket_unsent_bytes", |c| c.socket_unsent_bytes = Some(0)),
            ("keep_alive_interval", |c| {
                c.keep_alive_interval = c.idle_timeout
            }),
            ("idle_timeout", |c| c.idle_timeout = Duration::MAX),
            ("max_handshakes", |c| c.max_handshakes = 0),
            ("max_handshakes_per_address", |c| {
                c.max_handshakes_per_address = 0
            }),
            ("max_handshakes_per_address", |c| {
                c.max_handshakes_per_address = c.max_handshakes + 1
            }),
            ("close_timeout", |c| c.close_timeout = Duration::ZERO),
        ];
        for (field, break_it) in cases {
            let mut config = TcpConfig::default();
            break_it(&mut config);
            let err = config.validate().unwrap_err();
            assert_eq!((err.kind(), err.peer()), (ErrorKind::Config, field));
        }
    }
}
