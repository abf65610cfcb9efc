//! [`QuicConfig`]: every knob of this transport, checked when a connector or a listener is built.

use crate::congestion::ExemptCloseFactory;
use datafusion_transport_core::error::{ErrorKind, TransportError};
use quinn::congestion::{BbrConfig, ControllerFactory, CubicConfig, NewRenoConfig};
use quinn::{
    AckFrequencyConfig, EndpointConfig, IdleTimeout, MtuDiscoveryConfig, TransportConfig, VarInt,
};
use std::sync::Arc;
use std::time::Duration;

/// Tuning of the QUIC transport. The defaults suit workers in one data centre; both sides may differ.
#[derive(Clone, Debug, PartialEq)]
pub struct QuicConfig {
    /// An idle connection sends a packet this often, which keeps it alive and shows that the peer lives.
    /// Less than half of `idle_timeout`. Default 3 s.
    pub keep_alive_interval: Duration,
    /// A peer from which nothing has arrived for this long is lost. Between two sides the shorter value wins. Default 10 s.
    pub idle_timeout: Duration,
    /// Longest handshake, on both sides; on the client it bounds all addresses of a host together. Default 5 s.
    pub handshake_timeout: Duration,
    /// Handshakes in progress at a listener, each some 100 KiB and a signature. From a quarter of them on, a peer must first show
    /// that it receives at its address (RFC 9000, 8.1.2), which costs it a round trip. One more ends the oldest of the
    /// address that has most. Default 256, a large cluster that starts up.
    pub max_handshakes: usize,
    /// Those of one IPv4 address or one IPv6 network of 64 bits; those of all peers that have not shown that they receive at
    /// their addresses are counted together. One more is refused, and its peer told. At most `max_handshakes`. Default 64.
    pub max_handshakes_per_address: usize,
    /// Bytes that the peer may send on one stream before this side has read them; it must be larger than what one
    /// grant of the protocol above allows, or streams run below their grant. Default 4 MiB.
    pub stream_window_bytes: u64,
    /// Bytes of a connection that were written and not yet acknowledged; writers of all its streams wait beyond it.
    /// Too small and a long path is not filled; too large and the socket buffers fill, which delays every stream.
    /// At least bandwidth times round trip. Default 4 MiB.
    pub send_window_bytes: u64,
    /// Streams the peer may have open at first. Each costs a table entry from the moment a peer says hello,
    /// even before its certificate was checked. Default 1024.
    pub initial_streams: u32,
    /// Streams the peer may have open after the allowance grew with use; more wait. Default 262144.
    pub max_streams: u32,
    /// Send buffer of a UDP socket. A system limit that clamps it is logged with the remedy. Default 4 MiB.
    pub socket_send_buffer_bytes: usize,
    /// Receive buffer of a UDP socket; what overflows it is lost and sent again. Default 4 MiB.
    pub socket_recv_buffer_bytes: usize,
    /// Largest datagram sent over a network before discovery has found out more, in bytes of UDP payload. 1200 passes
    /// everywhere; more is lost on a path that can't take it. Loopback begins with the upper bound. Default 1200.
    pub initial_mtu_bytes: u16,
    /// Largest datagram that discovery tries, in bytes of UDP payload. Trying costs a few probes; probes that a path
    /// can't carry do no harm. But a send is at most 64 KiB, and so many datagrams of *this* size at most, whatever
    /// their real size: a value far above the network's costs system calls. Default 8952, which fits a 9000-byte
    /// network and does well on loopback.
    pub mtu_discovery_upper_bound_bytes: u16,
    /// How the sending rate reacts to loss. Default Bbr: with 1 % loss on a path of 20 ms Cubic falls to a hundredth of it, and
    /// without loss they are equal (`docs/decisions/0017-bbr.md`).
    pub congestion: CongestionControl,
    /// UDP sockets, each with its own driver task: on a listener they share one port (`SO_REUSEPORT`), on a
    /// connector the connections take them in turn. One driver keeps one core busy. Default 1.
    pub endpoints: usize,
    /// Asks the peer to acknowledge only every this many packets, where it supports that. `None` (default) leaves
    /// it at every second packet.
    pub ack_every_packets: Option<u32>,
}

/// How the sending rate reacts to loss and delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CongestionControl {
    /// RFC 9438, what most of TCP uses. Takes every loss for congestion.
    Cubic,
    /// Measures the path's rate and round trip, and sends by these (BBR, version 1). Loss that is not congestion costs little.
    Bbr,
    /// RFC 9002's simple controller.
    NewReno,
}

impl Default for QuicConfig {
    fn default() -> Self {
        Self {
            keep_alive_interval: Duration::from_secs(3),
            idle_timeout: Duration::from_secs(10),
            handshake_timeout: Duration::from_secs(5),
            max_handshakes: 256,
            max_handshakes_per_address: 64,
            stream_window_bytes: 4 << 20,
            send_window_bytes: 4 << 20,
            initial_streams: 1024,
            max_streams: 262_144,
            socket_send_buffer_bytes: 4 << 20,
            socket_recv_buffer_bytes: 4 << 20,
            initial_mtu_bytes: MIN_MTU_BYTES,
            mtu_discovery_upper_bound_bytes: 8952,
            congestion: CongestionControl::Bbr,
            endpoints: 1,
            ack_every_packets: None,
        }
    }
}

impl QuicConfig {
    /// Checks every field and the combinations. Connector and listener do it too.
    ///
    /// # Errors
    /// Kind `Config`; names the field.
    pub fn validate(&self) -> Result<(), TransportError> {
        self.validate_times()?;
        self.validate_windows()?;
        let (all, share) = (self.max_handshakes, self.max_handshakes_per_address);
        check(
            (1..=MAX_HANDSHAKES).contains(&all),
            "max_handshakes",
            || format!("{all} is outside 1 to {MAX_HANDSHAKES}"),
        )?;
        check(
            (1..=all).contains(&share),
            "max_handshakes_per_address",
            || format!("{share} is outside 1 to max_handshakes ({all})"),
        )?;
        let (initial, upper) = (self.initial_mtu_bytes, self.mtu_discovery_upper_bound_bytes);
        check(
            (MIN_MTU_BYTES..=MAX_MTU_BYTES).contains(&initial),
            "initial_mtu_bytes",
            || format!("{initial} is outside {MIN_MTU_BYTES} to {MAX_MTU_BYTES}"),
        )?;
        check(
            (initial..=MAX_MTU_BYTES).contains(&upper),
            "mtu_discovery_upper_bound_bytes",
            || format!("{upper} is outside initial_mtu_bytes ({initial}) to {MAX_MTU_BYTES}"),
        )?;
        check(
            (1..=MAX_ENDPOINTS).contains(&self.endpoints),
            "endpoints",
            || format!("{} is outside 1 to {MAX_ENDPOINTS}", self.endpoints),
        )?;
        check(
            self.ack_every_packets != Some(0),
            "ack_every_packets",
            || "0 packets; use None for the default".into(),
        )
    }

    fn validate_times(&self) -> Result<(), TransportError> {
        let (keep_alive, idle) = (self.keep_alive_interval, self.idle_timeout);
        check(!keep_alive.is_zero(), "keep_alive_interval", || {
            "must not be zero".into()
        })?;
        check(
            keep_alive.saturating_mul(2) < idle,
            "keep_alive_interval",
            || format!("{keep_alive:?} is not less than half of idle_timeout ({idle:?})"),
        )?;
        check(IdleTimeout::try_from(idle).is_ok(), "idle_timeout", || {
            format!("{idle:?} is more than QUIC can express")
        })?;
        check(
            !self.handshake_timeout.is_zero(),
            "handshake_timeout",
            || "must not be zero".into(),
        )
    }

    fn validate_windows(&self) -> Result<(), TransportError> {
        let window = self.stream_window_bytes;
        check(
            window >= MIN_STREAM_WINDOW_BYTES && VarInt::from_u64(window).is_ok(),
            "stream_window_bytes",
            || {
                format!(
                    "{window} is outside {MIN_STREAM_WINDOW_BYTES} to {}",
                    VarInt::MAX
                )
            },
        )?;
        check(self.send_window_bytes > 0, "send_window_bytes", || {
            "must not be zero".into()
        })?;
        check(self.initial_streams > 0, "initial_streams", || {
            "must not be zero".into()
        })?;
        let (initial, max) = (self.initial_streams, self.max_streams);
        check(max >= initial, "max_streams", || {
            format!("{max} is less than initial_streams ({initial})")
        })?;
        for (bytes, field) in [
            (self.socket_send_buffer_bytes, "socket_send_buffer_bytes"),
            (self.socket_recv_buffer_bytes, "socket_recv_buffer_bytes"),
        ] {
            check(
                (1..=MAX_SOCKET_BUFFER_BYTES).contains(&bytes),
                field,
                || format!("{bytes} is outside 1 to {MAX_SOCKET_BUFFER_BYTES}"),
            )?;
        }
        Ok(())
    }

    /// Quinn's per-connection settings, for a path that takes datagrams of `initial_mtu` bytes.
    pub(crate) fn transport(
        &self,
        initial_mtu: u16,
    ) -> Result<Arc<TransportConfig>, TransportError> {
        self.validate()?;
        let idle = IdleTimeout::try_from(self.quic_idle_timeout())
            .map_err(|err| error("idle_timeout", err.to_string()))?;
        let mut mtu = MtuDiscoveryConfig::default();
        mtu.upper_bound(self.mtu_discovery_upper_bound_bytes);
        let mut transport = TransportConfig::default();
        transport
            .keep_alive_interval(Some(self.keep_alive_interval))
            .max_idle_timeout(Some(idle))
            .max_concurrent_bidi_streams(self.initial_streams.into())
            .max_concurrent_uni_streams(0u32.into())
            .stream_receive_window(varint(self.stream_window_bytes))
            // The connection as a whole has no window that unread streams can use up: each stream has its own.
            .receive_window(VarInt::MAX)
            .send_window(self.send_window_bytes)
            .datagram_receive_buffer_size(None)
            .initial_mtu(initial_mtu)
            .mtu_discovery_config(Some(mtu))
            .congestion_controller_factory(Arc::new(ExemptCloseFactory(self.congestion.factory())));
        if let Some(packets) = self.ack_every_packets {
            let mut ack = AckFrequencyConfig::default();
            ack.ack_eliciting_threshold(packets.saturating_sub(1).into());
            transport.ack_frequency_config(Some(ack));
        }
        Ok(Arc::new(transport))
    }

    /// Quinn's per-socket settings: the largest datagram this side takes.
    pub(crate) fn endpoint(&self) -> Result<EndpointConfig, TransportError> {
        let mut endpoint = EndpointConfig::default();
        endpoint
            .max_udp_payload_size(self.max_mtu_bytes())
            .map_err(|err| error("mtu_discovery_upper_bound_bytes", err.to_string()))?;
        Ok(endpoint)
    }

    /// The largest datagram that either side may send.
    pub(crate) fn max_mtu_bytes(&self) -> u16 {
        self.mtu_discovery_upper_bound_bytes
            .max(self.initial_mtu_bytes)
    }

    /// QUIC restarts its clock once more at the first packet *sent* after the last one received, which on an idle
    /// connection is the keep-alive: a silent peer is noticed after both together.
    fn quic_idle_timeout(&self) -> Duration {
        self.idle_timeout.saturating_sub(self.keep_alive_interval)
    }
}

impl CongestionControl {
    fn factory(self) -> Arc<dyn ControllerFactory + Send + Sync> {
        match self {
            Self::Cubic => Arc::new(CubicConfig::default()),
            Self::Bbr => Arc::new(BbrConfig::default()),
            Self::NewReno => Arc::new(NewRenoConfig::default()),
        }
    }
}

/// The least grant of the protocol above: a smaller window would hold every stream below it.
const MIN_STREAM_WINDOW_BYTES: u64 = 64 << 10;
/// QUIC's own lower limit (RFC 9000, 14).
const MIN_MTU_BYTES: u16 = 1200;
/// One such datagram still fits a GSO send, which fails above 64 KiB.
const MAX_MTU_BYTES: u16 = 65_000;
/// A few GiB.
const MAX_HANDSHAKES: usize = 1 << 16;
/// Each is a socket, a task and a receive buffer; more than a large machine has cores is a mistake.
const MAX_ENDPOINTS: usize = 256;
/// The kernel takes an `int` and doubles it.
const MAX_SOCKET_BUFFER_BYTES: usize = 1 << 30;

fn check(holds: bool, field: &str, detail: impl FnOnce() -> String) -> Result<(), TransportError> {
    if holds {
        Ok(())
    } else {
        Err(error(field, detail()))
    }
}

fn error(field: &str, detail: String) -> TransportError {
    TransportError::new(ErrorKind::Config, "configure QUIC", field, detail)
}

fn varint(value: u64) -> VarInt {
    VarInt::from_u64(value).unwrap_or(VarInt::MAX)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid() {
        let config = QuicConfig::default();
        config.transport(config.initial_mtu_bytes).unwrap();
        config.endpoint().unwrap();
    }

    #[test]
    fn an_invalid_field_is_named() {
        type Breakage = fn(&mut QuicConfig);
        let cases: [(&str, Breakage); 16] = [
            ("keep_alive_interval", |c| {
                c.keep_alive_interval = c.idle_timeout
            }),
            ("keep_alive_interval", |c| {
                c.keep_alive_interval = Duration::ZERO
            }),
            ("idle_timeout", |c| c.idle_timeout = Duration::MAX),
            ("handshake_timeout", |c| {
                c.handshake_timeout = Duration::ZERO
            }),
            ("stream_window_bytes", |c| c.stream_window_bytes = 0),
            ("stream_window_bytes", |c| c.stream_window_bytes = u64::MAX),
            ("send_window_bytes", |c| c.send_window_bytes = 0),
            ("initial_streams", |c| c.initial_streams = 0),
            ("max_streams", |c| c.max_streams = 1),
            ("socket_recv_buffer_bytes", |c| {
                c.socket_recv_buffer_bytes = 0
            }),
            ("initial_mtu_bytes", |c| c.initial_mtu_bytes = 1199),
            ("mtu_discovery_upper_bound_bytes", |c| {
                c.mtu_discovery_upper_bound_bytes = 1199
            }),
            ("max_handshakes", |c| c.max_handshakes = 0),
            ("max_handshakes_per_address", |c| {
                c.max_handshakes_per_address = 0
            }),
            ("max_handshakes_per_address", |c| {
                c.max_handshakes_per_address = c.max_handshakes + 1
            }),
            ("endpoints", |c| c.endpoints = 0),
        ];
        for (field, break_it) in cases {
            let mut config = QuicConfig::default();
            break_it(&mut config);
            let err = config.validate().unwrap_err();
            assert_eq!((err.kind(), err.peer()), (ErrorKind::Config, field));
        }
    }

    #[test]
    fn a_silent_peer_is_noticed_within_the_idle_timeout() {
        let config = QuicConfig::default();
        let worst = config.keep_alive_interval + config.quic_idle_timeout();
        assert_eq!(worst, config.idle_timeout);
    }
}
