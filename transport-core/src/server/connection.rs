//! One connection: accepts its calls and owns them.

use crate::connection::Connection;
use crate::server::ServerState;
use crate::server::call::{Received, receive, run_call};
use crate::server::link::Link;
use futures::FutureExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

/// Serves a connection until it is lost or the server closes. Calls that are left are aborted then.
pub(super) async fn serve_connection(connection: Arc<dyn Connection>, state: Arc<ServerState>) {
    state.connections.fetch_add(1, Ordering::Relaxed);
    let peer: Arc<str> = connection.peer().into();
    let link = Arc::new(Link::default());
    let mut calls = JoinSet::new();
    let reason = loop {
        tokio::select! {
            () = state.closing.cancelled() => break None,
            Some(_) = calls.join_next() => {}
            accepted = connection.accept() => match accepted {
                Ok(stream) => begin(&mut calls, receive(stream, peer.clone(), Arc::clone(&state)), &link, &state),
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

/// A request that has arrived with its stream goes to the query runtime at once; for another one a task waits here.
fn begin(
    calls: &mut JoinSet<()>,
    request: impl Future<Output = Option<Received>> + Send + 'static,
    link: &Arc<Link>,
    state: &Arc<ServerState>,
) {
    let (link, state) = (Arc::clone(link), Arc::clone(state));
    let query = state.query.clone();
    let tracker = state.calls.clone();
    let mut request = Box::pin(request);
    match request.as_mut().now_or_never() {
        Some(None) => {}
        Some(Some(call)) => {
            let run = run_call(call, link, state);
            calls.spawn_on(tracker.track_future(run), &query);
        }
        None => {
            let wait = async move {
                if let Some(call) = request.await {
                    let run = query.spawn(run_call(call, link, state));
                    let _ = AbortOnDropHandle::new(run).await;
                }
            };
            calls.spawn(tracker.track_future(wait));
        }
    }
}
