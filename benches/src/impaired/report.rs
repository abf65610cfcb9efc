//! [`Row`]: what one transport did over one link.

use super::link::Profile;
use super::{bulk, independence, latency};
use crate::subject::GRPC;
use datafusion_transport_tests::{ChannelHarness, Rig};
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

/// Figures of one transport.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The transport.
    pub transport: String,
    /// Bulk, in 10^6 bytes of array data per second.
    pub mb_per_s: f64,
    /// One small call, in milliseconds.
    pub call_p50_ms: f64,
    /// As above.
    pub call_p99_ms: f64,
    /// A message of a partition that lost nothing, in milliseconds.
    pub delay_p50_ms: f64,
    /// As above.
    pub delay_p99_ms: f64,
}

/// All transports over one link.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Table {
    /// The link.
    pub link: Profile,
    /// The kernel's congestion control, which all but QUIC use.
    pub congestion_control: String,
    /// By transport.
    pub rows: Vec<Row>,
}

/// Measures one transport, for `span` each.
pub async fn measure(harness: Arc<dyn ChannelHarness>, span: Duration) -> Row {
    let transport = harness.name().to_owned();
    let rig = Rig::start(harness).await;
    let (call_p50_ms, call_p99_ms) = latency::measure(&rig, span).await;
    let (delay_p50_ms, delay_p99_ms) = independence::measure(&rig, span).await;
    let mb_per_s = bulk::measure(&rig, span).await;
    Row {
        transport,
        mb_per_s,
        call_p50_ms,
        call_p99_ms,
        delay_p50_ms,
        delay_p99_ms,
    }
}

impl Table {
    /// For people.
    pub fn markdown(&self) -> String {
        let (link, control) = (&self.link, &self.congestion_control);
        let mut out = format!("**{}**: {}; TCP: {control}\n\n", link.name, link.describe());
        out.push_str(
            "| transport | bulk, MB/s | : gRPC | small call, ms | p99 | message of a partition that lost nothing, ms | p99 | gRPC : |\n\
             |---|---|---|---|---|---|---|---|\n",
        );
        let grpc = self.rows.iter().find(|row| row.transport == GRPC);
        let ratio = |of: fn(&Row) -> f64, row: &Row| grpc.map(|grpc| (of(row), of(grpc)));
        let shown = |over: f64, under: f64| match under > 0.0 {
            true => format!("{:.2}", over / under),
            false => String::new(),
        };
        for row in &self.rows {
            let bulk = ratio(|row| row.mb_per_s, row);
            let bulk = bulk.map_or(String::new(), |(ours, grpc)| shown(ours, grpc));
            let delay = ratio(|row| row.delay_p99_ms, row);
            let delay = delay.map_or(String::new(), |(ours, grpc)| shown(grpc, ours));
            let _ = writeln!(
                out,
                "| {} | {:.1} | {bulk} | {:.1} | {:.1} | {:.1} | {:.1} | {delay} |",
                row.transport,
                row.mb_per_s,
                row.call_p50_ms,
                row.call_p99_ms,
                row.delay_p50_ms,
                row.delay_p99_ms,
            );
        }
        out
    }
}
