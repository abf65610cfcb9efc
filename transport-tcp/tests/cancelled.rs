//! Streams cut in mid-data, in every way there is, leave nothing behind on their connection.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{Pair, pair};
use datafusion_transport_core::testing::{Ends, cut_streams_cost_nothing};
use datafusion_transport_tcp::TcpConfig;
use std::sync::Arc;

const MAX_STREAMS: u32 = 64;

/// A stream's window is a sixteenth of the data.
fn config() -> TcpConfig {
    TcpConfig {
        stream_window_bytes: 64 << 10,
        send_buffer_bytes: 256 << 10,
        max_unaccepted_streams: 16,
        max_early_bytes: 64 << 10,
        max_streams: MAX_STREAMS,
        ..TcpConfig::default()
    }
}

fn ends(pair: &Pair) -> Ends {
    Ends {
        client: Arc::clone(&pair.client),
        server: Arc::clone(&pair.server),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_cut_streams_cost_no_credit() {
    let (used, fresh) = (pair(config()).await, pair(config()).await);
    let places = MAX_STREAMS as usize;
    cut_streams_cost_nothing(&ends(&used), &ends(&fresh), places).await;
}
