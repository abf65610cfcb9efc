//! [`Auto`]: `transport.kind = 'auto'`, which uses, for each worker, the first of an ordered list of kinds that works.
//!
//! The choice is made before a call's first byte. From then on the call belongs to its kind: a failure is the call's error, and
//! nothing is ever sent a second time.

mod call;
mod candidate;
mod channel;
mod choices;
mod options;
mod race;
#[cfg(test)]
mod tests;

use candidate::Fault;

pub(crate) use candidate::Candidate;
pub(crate) use channel::AutoResolver;
pub use choices::AutoChoice;
pub use options::AutoOptions;

use crate::auto::choices::{Choices, Decision, Route, Use};
use crate::auto::race::{Outcome, race};
use crate::error::{Delivery, ErrorKind, TransportError};
use crate::runtime::IoRuntime;
use datafusion::common::DataFusionError;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use url::Url;

/// Decisions that one caller waits for: others', who may have had less time, and its own.
const MAX_DECISIONS: usize = 3;

/// The choices of a registry. Dropping it, as closing it, ends the attempts under way.
#[derive(Debug)]
pub(crate) struct Auto {
    candidates: Arc<[Candidate]>,
    options: AutoOptions,
    choices: Mutex<Choices>,
    io: IoRuntime,
    tasks: TaskTracker,
    closed: CancellationToken,
}

impl Auto {
    /// Chooses among `candidates`, best first.
    pub(crate) fn new(
        candidates: Vec<Candidate>,
        options: AutoOptions,
        io: IoRuntime,
    ) -> Arc<Self> {
        Arc::new(Self {
            candidates: candidates.into(),
            options,
            choices: Mutex::default(),
            io,
            tasks: TaskTracker::new(),
            closed: CancellationToken::new(),
        })
    }

    /// What was chosen for each worker called of late, in the order of their URLs.
    pub(crate) fn choices(&self) -> Vec<AutoChoice> {
        self.lock().list(&self.candidates)
    }

    /// Ends the attempts under way; later calls fail.
    pub(crate) async fn close(&self) {
        self.closed.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// The kind to call the worker by. Concurrent callers share one decision, which no caller's end cuts short.
    ///
    /// # Errors
    /// `Connect` where no kind reached the worker, `Timeout` where others' decision takes longer than `limit`; nothing was sent.
    async fn route(self: &Arc<Self>, url: &Url, limit: Duration) -> Result<Route, TransportError> {
        let mut last = None;
        for _ in 0..MAX_DECISIONS {
            let (decision, joined) = match self.route_or_decision(url, limit)? {
                Ok(route) => return Ok(route),
                Err(decision) => decision,
            };
            if !joined {
                return decision.outcome.await;
            }
            let Ok(outcome) = tokio::time::timeout(limit, decision.outcome).await else {
                break;
            };
            match outcome {
                // Made with less time than this caller has.
                Err(err) if decision.limit < limit => last = Some(err),
                outcome => return outcome,
            }
        }
        Err(last.unwrap_or_else(|| {
            let detail =
                format!("no transport chosen within {limit:?} (transport.connect_timeout_ms)");
            TransportError::new(ErrorKind::Timeout, "connect", url.as_str(), detail)
                .with_delivery(Delivery::NotDelivered)
        }))
    }

    /// A route, or the decision to wait for and whether another caller began it.
    fn route_or_decision(
        self: &Arc<Self>,
        url: &Url,
        limit: Duration,
    ) -> Result<Result<Route, (Decision, bool)>, TransportError> {
        if self.closed.is_cancelled() {
            return Err(shut_down(url));
        }
        let connected = |index: usize| {
            let candidate = self.candidates.get(index);
            candidate.is_some_and(|candidate| candidate.is_connected(url))
        };
        let mut choices = self.lock();
        let (found, order) = match choices.look_up(url, connected, Instant::now()) {
            Use::Route(route) => return Ok(Ok(route)),
            Use::Join(decision) => return Ok(Err((decision, true))),
            Use::RouteAndReconsider(route) => (Some(route), None),
            Use::Decide { first } => (None, first),
        };
        let decision = Decision {
            outcome: self.decide(url, order, limit),
            limit,
        };
        choices.deciding(url, decision.clone(), Instant::now());
        Ok(found.ok_or((decision, false)))
    }

    /// Races on the I/O runtime. `first` goes before the others.
    fn decide(
        self: &Arc<Self>,
        url: &Url,
        first: Option<usize>,
        limit: Duration,
    ) -> Shared<BoxFuture<'static, Result<Route, TransportError>>> {
        let others = (0..self.candidates.len()).filter(|other| Some(*other) != first);
        let order: Vec<_> = first.into_iter().chain(others).collect();
        let auto = Arc::downgrade(self);
        let candidates = Arc::clone(&self.candidates);
        let options = self.options.clone();
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let (to, ended) = (url.clone(), shut_down(url));
        self.spawn(async move {
            let deadline = Instant::now() + limit;
            let reach = |turn: usize| {
                let (candidates, url) = (Arc::clone(&candidates), to.clone());
                let candidate = order.get(turn).copied().unwrap_or(turn);
                let left = deadline.saturating_duration_since(Instant::now());
                async move {
                    match candidates.get(candidate) {
                        Some(candidate) => candidate.reach(&url, left).await,
                        None => Err(Fault::Unusable("not registered".into())),
                    }
                }
                .boxed()
            };
            let outcome = race(order.len(), &options, reach).await;
            if let Some(auto) = auto.upgrade() {
                let _ = sender.send(auto.decided(&to, &order, &outcome));
            }
        });
        async move { receiver.await.unwrap_or(Err(ended)) }
            .boxed()
            .shared()
    }

    fn decided(
        &self,
        url: &Url,
        order: &[usize],
        outcome: &Outcome,
    ) -> Result<Route, TransportError> {
        let now = Instant::now();
        let expires = now + self.options.remember_for;
        let route = self
            .lock()
            .decided(url, order, outcome, expires, &self.candidates, now);
        route.ok_or_else(|| {
            let name = |candidate: &usize| self.candidates.get(*candidate).map_or("", |kind| &kind.name);
            let tried = order.iter().zip(&outcome.reasons);
            let tried: Vec<_> = tried.map(|(kind, why)| format!("{}: {why}", name(kind))).collect();
            let tried = tried.join("; ");
            let (kind, detail) = match outcome.untrusted {
                false => (
                    ErrorKind::Connect,
                    format!(
                        "none of the kinds that 'auto' tried works [{tried}]; see that the worker runs and that firewalls let its port through \
                         on UDP or TCP, or set transport.kind to the one that should work"
                    ),
                ),
                true => (
                    ErrorKind::Handshake,
                    format!("'auto' does not go on past a failed authentication [{tried}]; mend the certificates, or set transport.kind"),
                ),
            };
            TransportError::new(kind, "connect", url.as_str(), detail)
        })
    }

    /// A call by this route failed: where the way to the worker is broken, the next call decides anew.
    fn call_failed(&self, url: &Url, route: Route, err: &DataFusionError) {
        let candidate = self.candidates.get(route.candidate);
        if candidate.is_some_and(|candidate| candidate.is_broken_by(err, url)) {
            self.lock().drop_choice(url, route);
        }
    }

    /// Runs a task on the I/O runtime until it ends or the choices are closed.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let closed = self.closed.clone();
        let task = async move {
            tokio::select! {
                () = closed.cancelled() => {}
                () = task => {}
            }
        };
        self.tasks.spawn_on(task, &self.io.handle());
    }

    fn lock(&self) -> MutexGuard<'_, Choices> {
        self.choices.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Auto {
    fn drop(&mut self) {
        self.closed.cancel();
    }
}

fn shut_down(url: &Url) -> TransportError {
    let detail = "the transports of this process were shut down";
    TransportError::new(ErrorKind::Config, "connect", url.as_str(), detail)
}
