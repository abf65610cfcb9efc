//! [`Link`]: what the streams of a connection, its tasks and its handle share.

use crate::mux::{Limits, Role, State, Wakes};
use datafusion_transport_core::connection::ConnectionStats;
use datafusion_transport_core::error::{ErrorKind, TransportError};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, watch};

/// The state machine behind its lock, and why the connection is closed.
#[derive(Debug)]
pub(crate) struct Link {
    state: Mutex<State>,
    /// One for each stream that may be opened.
    opens: Semaphore,
    closed: watch::Sender<Option<TransportError>>,
    peer: String,
    pub(crate) traffic: Traffic,
}

/// Counters that the tasks keep.
#[derive(Debug)]
pub(crate) struct Traffic {
    pub(crate) sent: AtomicU64,
    pub(crate) received: AtomicU64,
    /// The writer waits for the socket.
    pub(crate) writing: AtomicBool,
    round_trip_micros: AtomicU64,
    began: Instant,
}

impl Link {
    /// `peer` is the worker's URL on the client and the remote address on the server.
    pub(crate) fn new(role: Role, ours: Limits, theirs: Limits, peer: String) -> Self {
        let mut state = State::new(role, ours, theirs);
        Self {
            opens: Semaphore::new(state.take_permits()),
            state: Mutex::new(state),
            closed: watch::Sender::new(None),
            peer,
            traffic: Traffic {
                sent: AtomicU64::new(0),
                received: AtomicU64::new(0),
                writing: AtomicBool::new(false),
                round_trip_micros: AtomicU64::new(u64::MAX),
                began: Instant::now(),
            },
        }
    }

    /// Works on the state, then wakes whom that concerns, outside of the lock.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut State, &mut Wakes) -> T) -> T {
        let mut wakes = Wakes::default();
        let (result, permits) = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let result = work(&mut state, &mut wakes);
            (result, state.take_permits())
        };
        if permits > 0 {
            self.opens.add_permits(permits);
        }
        wakes.wake();
        result
    }

    /// Waits until a stream may be opened. False once closed. Cancel safe.
    pub(crate) async fn may_open(&self) -> bool {
        match self.opens.acquire().await {
            Ok(permit) => {
                permit.forget();
                true
            }
            Err(_) => false,
        }
    }

    /// Closes for the reason `err`, unless it is closed; `go_away` is what the peer is told, if it can still be told.
    pub(crate) fn shut(&self, err: TransportError, go_away: Option<&str>) {
        let first = self.closed.send_if_modified(|closed| {
            let first = closed.is_none();
            closed.get_or_insert(err);
            first
        });
        if first {
            self.with(|state, wakes| state.close(go_away, wakes));
            self.opens.close();
        }
    }

    /// [`shut`](Self::shut) for a fault that was found here.
    pub(crate) fn fail(&self, kind: ErrorKind, detail: impl Into<String>, go_away: Option<&str>) {
        let err = TransportError::new(kind, "use connection", self.peer.as_str(), detail);
        self.shut(err, go_away);
    }

    pub(crate) fn close_reason(&self) -> Option<TransportError> {
        self.closed.borrow().clone()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.borrow().is_some()
    }

    /// Why it is closed, as seen by an operation that failed of it.
    pub(crate) fn error(&self, operation: &'static str) -> TransportError {
        match self.close_reason() {
            Some(err) => err.during(operation, self.peer.as_str()),
            // Not reachable: the reason is set before the state is closed.
            None => {
                TransportError::new(ErrorKind::ConnectionLost, operation, &*self.peer, "closed")
            }
        }
    }

    /// Waits until it is closed. Cancel safe.
    pub(crate) async fn closed(&self) -> TransportError {
        let mut closed = self.closed.subscribe();
        match closed.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(err)) => err.clone(),
            _ => self.error("use connection"),
        }
    }

    pub(crate) fn peer(&self) -> &str {
        &self.peer
    }
}

impl Traffic {
    /// A nonce from which [`pong`](Self::pong) can tell the round trip.
    pub(crate) fn ping(&self) -> u64 {
        micros(self.began.elapsed())
    }

    pub(crate) fn pong(&self, nonce: u64) {
        let now = micros(self.began.elapsed());
        if let Some(round_trip) = now.checked_sub(nonce) {
            self.round_trip_micros.store(round_trip, Ordering::Relaxed);
        }
    }

    pub(crate) fn stats(&self) -> ConnectionStats {
        let round_trip = match self.round_trip_micros.load(Ordering::Relaxed) {
            u64::MAX => None,
            micros => Some(Duration::from_micros(micros)),
        };
        ConnectionStats {
            bytes_sent: self.sent.load(Ordering::Relaxed),
            bytes_received: self.received.load(Ordering::Relaxed),
            round_trip,
            ..ConnectionStats::default()
        }
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX - 1)
}

#[cfg(test)]
mod tests;
