//! Streams cut in mid-data, in every way there is, leave nothing behind on their connection.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{Pair, pair};
use datafusion_transport_core::testing::{Ends, cut_streams_cost_nothing};
use datafusion_transport_quic::QuicConfig;
use std::sync::Arc;

const MAX_STREAMS: u32 = 64;

/// A stream's window is a sixteenth of the data.
fn config() -> QuicConfig {
    QuicConfig {
        stream_window_bytes: 64 << 10,
        send_window_bytes: 256 << 10,
        initial_streams: MAX_STREAMS,
        max_streams: MAX_STREAMS,
        ..QuicConfig::default()
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
    // Quinn tells the peer of an eighth of the free places at a time, so that fewer may wait to be told of.
    let places = (MAX_STREAMS - MAX_STREAMS / 8) as usize;
    cut_streams_cost_nothing(&ends(&used), &ends(&fresh), places).await;
}
