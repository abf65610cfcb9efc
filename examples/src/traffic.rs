//! What the transports did, as each process reports it.

use std::time::Duration;

use comfy_table::{CellAlignment, Table, presets::ASCII_FULL_CONDENSED};
use serde_json::{Value, json};

use crate::units::{display_bytes, milliseconds};

/// One peer that a process opened connections to.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Peer {
    /// Who opened the connections: `coordinator`, or a worker's URL.
    pub from: String,
    /// The peer's URL.
    pub to: String,
    /// The transport.
    pub kind: String,
    /// Connections open now.
    pub connections: u64,
    /// Connections opened in all.
    pub dials: u64,
    /// Streams opened in all.
    pub streams: u64,
    /// Bytes sent, with all overhead of the transport.
    pub sent_bytes: u64,
    /// Bytes received, with all overhead of the transport.
    pub received_bytes: u64,
    /// Time to the peer and back.
    pub round_trip: Option<Duration>,
    /// Packets that had to be sent again.
    pub lost_packets: u64,
    /// Largest packet that the path takes, where there are packets.
    pub mtu_bytes: Option<u64>,
}

impl Peer {
    /// The peer as one JSON object.
    pub fn to_json(&self) -> Value {
        json!({
            "from": self.from,
            "to": self.to,
            "kind": self.kind,
            "connections": self.connections,
            "dials": self.dials,
            "streams": self.streams,
            "sent_bytes": self.sent_bytes,
            "received_bytes": self.received_bytes,
            "round_trip_us": self.round_trip.map(|time| time.as_micros() as u64),
            "lost_packets": self.lost_packets,
            "mtu_bytes": self.mtu_bytes,
        })
    }

    /// Reads what [`Peer::to_json`] wrote; what is missing counts as nothing.
    pub fn from_json(value: &Value) -> Self {
        let text = |key: &str| {
            value
                .get(key)
                .and_then(Value::as_str)
                .unwrap_or("?")
                .to_owned()
        };
        let number = |key: &str| value.get(key).and_then(Value::as_u64);
        Self {
            from: text("from"),
            to: text("to"),
            kind: text("kind"),
            connections: number("connections").unwrap_or(0),
            dials: number("dials").unwrap_or(0),
            streams: number("streams").unwrap_or(0),
            sent_bytes: number("sent_bytes").unwrap_or(0),
            received_bytes: number("received_bytes").unwrap_or(0),
            round_trip: number("round_trip_us").map(Duration::from_micros),
            lost_packets: number("lost_packets").unwrap_or(0),
            mtu_bytes: number("mtu_bytes"),
        }
    }
}

/// What the byte counts hold beside the queries' data.
const NOTE: &str = "\
Bytes are those on the network, the transport's own included: for QUIC also handshakes and the packets that
probe how large a packet the path takes, on the loopback address some 74 KiB each way per connection.";

/// A table of `peers` with a line of totals.
pub fn display(peers: &[Peer]) -> String {
    if peers.is_empty() {
        return "no connection was counted: either no worker was asked, or by the reference gRPC, which \
                keeps no counts (see bytes_transferred in --explain-analyze)"
            .to_owned();
    }
    let mut table = Table::new();
    table.load_preset(ASCII_FULL_CONDENSED).set_header([
        "from",
        "to",
        "transport",
        "connections",
        "streams",
        "sent",
        "received",
        "round trip",
        "lost",
    ]);
    for peer in peers {
        table.add_row(cells(peer));
    }
    let sum = |value: fn(&Peer) -> u64| peers.iter().map(value).sum();
    let total = Peer {
        from: "total".to_owned(),
        dials: sum(|peer| peer.dials),
        streams: sum(|peer| peer.streams),
        sent_bytes: sum(|peer| peer.sent_bytes),
        received_bytes: sum(|peer| peer.received_bytes),
        lost_packets: sum(|peer| peer.lost_packets),
        ..Peer::default()
    };
    table.add_row(cells(&total));
    for column in table.column_iter_mut().skip(3) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!("{table}\n{NOTE}")
}

fn cells(peer: &Peer) -> Vec<String> {
    vec![
        peer.from.clone(),
        peer.to.clone(),
        peer.kind.clone(),
        // Opened, not open: the other side may be gone when this is asked.
        peer.dials.to_string(),
        peer.streams.to_string(),
        display_bytes(peer.sent_bytes),
        display_bytes(peer.received_bytes),
        peer.round_trip.map_or_else(String::new, |time| {
            format!("{:.2} ms", time.as_secs_f64() * 1e3)
        }),
        peer.lost_packets.to_string(),
    ]
}

/// A duration as a table shows it.
pub fn display_ms(duration: Duration) -> String {
    format!("{:.1}", milliseconds(duration))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_round_trip() {
        let peer = Peer {
            from: "coordinator".to_owned(),
            to: "http://127.0.0.1:1/".to_owned(),
            kind: "quic".to_owned(),
            connections: 1,
            dials: 2,
            streams: 3,
            sent_bytes: 4,
            received_bytes: 5,
            round_trip: Some(Duration::from_micros(6)),
            lost_packets: 7,
            mtu_bytes: Some(8),
        };
        assert_eq!(Peer::from_json(&peer.to_json()), peer);
        assert_eq!(Peer::from_json(&json!([])).to, "?");
        assert!(display(&[peer]).contains("total"));
    }
}
