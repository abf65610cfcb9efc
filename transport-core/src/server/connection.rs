//! One connection: accepts its calls and owns them.

use crate::connection::Connection;
use crate::server::ServerState;
use crate::server::call::serve_call;
use crate::server::link::Link;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::task::JoinSet;

/// Serves a connection until it is lost or the server closes. Calls that are left are aborted then.
pub(super) async fn serve_connection(connection: Arc<dyn Connection>, state: Arc<ServerState>) {
    state.connections.fetch_add(1, Ordering::Relaxed);
    let peer = connection.peer();
    let link = Arc::new(Link::default());
    let mut calls = JoinSet::new();
    let reason = loop {
        tokio::select! {
            () = state.closing.cancelled() => break None,
            Some(_) = calls.join_next() => {}
            accepted = connection.accept() => match accepted {
                Ok(stream) => {
                    let call = serve_call(stream, peer.clone(), Arc::clone(&link), Arc::clone(&state));
                    calls.spawn(state.calls.track_future(call));
                }
                Err(err) => break Some(err),
            }
        }
    };
    match &reason {
        Some(err) if !calls.is_empty() => {
            tracing::info!(%peer, calls = calls.len(), %err, "connection lost with calls in flight");
        }
        Some(err) => tracing::debug!(%peer, %err, "connection ended"),
        None => tracing::debug!(%peer, "closing connection"),
    }
    connection.close("worker shut down");
    state.connections.fetch_sub(1, Ordering::Relaxed);
}
