//! [`Choices`]: what was chosen for each worker, until when, and why not another.

use crate::auto::candidate::Candidate;
use crate::auto::race::Outcome;
use crate::error::TransportError;
use futures::future::{BoxFuture, Shared};
use std::collections::HashMap;
use std::time::{Duration, Instant, SystemTime};
use url::Url;

/// A worker that nobody called for this long is forgotten: where workers come and go under new URLs, the table stays as small as
/// what is in use. Many times what a choice holds, so that a pause in the traffic costs no decision.
const FORGET_AFTER: Duration = Duration::from_secs(600);

/// The kind that `auto` uses for a worker now.
#[derive(Clone, Debug)]
pub struct AutoChoice {
    /// The worker.
    pub url: Url,
    /// The kind chosen.
    pub kind: String,
    /// Since when.
    pub since: SystemTime,
    /// The other kinds, best first, and why each was not chosen.
    pub not_chosen: Vec<(String, String)>,
}

/// A candidate to call a worker by, and the choice that named it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) candidate: usize,
    choice: u64,
}

/// A decision under way.
#[derive(Clone, Debug)]
pub(super) struct Decision {
    pub(super) outcome: Shared<BoxFuture<'static, Result<Route, TransportError>>>,
    /// How much time it has.
    pub(super) limit: Duration,
}

/// What a caller is to do.
#[derive(Debug)]
pub(super) enum Use {
    /// Call this way.
    Route(Route),
    /// Call this way, and see for the next ones whether a better one works now.
    RouteAndReconsider(Route),
    /// Wait for a decision under way.
    Join(Decision),
    /// Decide; a candidate named here goes before the others.
    Decide { first: Option<usize> },
}

/// Choices by worker.
#[derive(Debug, Default)]
pub(super) struct Choices {
    peers: HashMap<Url, Peer>,
    swept: Option<Instant>,
    made: u64,
}

#[derive(Debug)]
struct Peer {
    choice: Option<Choice>,
    deciding: Option<Decision>,
    /// The candidate that the log named last.
    logged: Option<usize>,
    last_used: Instant,
}

#[derive(Debug)]
struct Choice {
    route: Route,
    since: SystemTime,
    expires: Instant,
    /// By candidate.
    not_chosen: Vec<(usize, String)>,
}

impl Choices {
    /// What a call to the worker is to do. A choice without a live connection needs one anyway: the others then take part, and the
    /// choice, until it expires, goes first.
    pub(super) fn look_up(
        &mut self,
        url: &Url,
        is_connected: impl Fn(usize) -> bool,
        now: Instant,
    ) -> Use {
        let peer = self.peer(url, now);
        peer.last_used = now;
        let under_way = peer.deciding.as_ref();
        let under_way = under_way.filter(|decision| decision.outcome.peek().is_none());
        let expired = |choice: &Choice| choice.route.candidate > 0 && now >= choice.expires;
        match (&peer.choice, under_way) {
            (Some(choice), under_way) if is_connected(choice.route.candidate) => {
                match expired(choice) && under_way.is_none() {
                    true => Use::RouteAndReconsider(choice.route),
                    false => Use::Route(choice.route),
                }
            }
            (_, Some(decision)) => Use::Join(decision.clone()),
            (Some(choice), None) if !expired(choice) => Use::Decide {
                first: Some(choice.route.candidate),
            },
            _ => Use::Decide { first: None },
        }
    }

    /// A decision has begun.
    pub(super) fn deciding(&mut self, url: &Url, decision: Decision, now: Instant) {
        self.peer(url, now).deciding = Some(decision);
    }

    /// A decision is over; `order` names the candidates that took part, as they did. What it chose holds until `expires`. Returns the route,
    /// where there is one.
    pub(super) fn decided(
        &mut self,
        url: &Url,
        order: &[usize],
        outcome: &Outcome,
        expires: Instant,
        candidates: &[Candidate],
        now: Instant,
    ) -> Option<Route> {
        self.made += 1;
        let made = self.made;
        let peer = self.peer(url, now);
        peer.deciding = None;
        let previous = peer.choice.take();
        let candidate = *order.get(outcome.winner?)?;
        let same = previous.filter(|previous| previous.route.candidate == candidate);
        let best_first = order.is_sorted();
        let choice = match same {
            // Better ones had no chance: nothing new is known about them.
            Some(choice) if !best_first => choice,
            same => Choice {
                route: Route {
                    candidate,
                    choice: made,
                },
                since: same.map_or_else(SystemTime::now, |choice| choice.since),
                expires,
                not_chosen: reasons(order, outcome, candidate),
            },
        };
        let route = choice.route;
        if peer.logged.replace(candidate) != Some(candidate) {
            log(url, candidates, &choice);
        }
        peer.choice = Some(choice);
        Some(route)
    }

    /// Drops the choice that a route came from, if it still holds.
    pub(super) fn drop_choice(&mut self, url: &Url, route: Route) {
        if let Some(peer) = self.peers.get_mut(url) {
            peer.choice.take_if(|choice| choice.route == route);
        }
    }

    pub(super) fn list(&self, candidates: &[Candidate]) -> Vec<AutoChoice> {
        let choice = |(url, peer): (&Url, &Peer)| {
            let choice = peer.choice.as_ref()?;
            let others = choice.not_chosen.iter();
            Some(AutoChoice {
                url: url.clone(),
                kind: name(candidates, choice.route.candidate).to_owned(),
                since: choice.since,
                not_chosen: others
                    .map(|(other, why)| (name(candidates, *other).to_owned(), why.clone()))
                    .collect(),
            })
        };
        let mut list: Vec<_> = self.peers.iter().filter_map(choice).collect();
        list.sort_by(|a, b| a.url.cmp(&b.url));
        list
    }

    fn peer(&mut self, url: &Url, now: Instant) -> &mut Peer {
        self.forget_unused(now);
        self.peers.entry(url.clone()).or_insert_with(|| Peer {
            choice: None,
            deciding: None,
            logged: None,
            last_used: now,
        })
    }

    fn forget_unused(&mut self, now: Instant) {
        let swept = self.swept.get_or_insert(now);
        if now - *swept < FORGET_AFTER / 10 {
            return;
        }
        *swept = now;
        self.peers
            .retain(|_, peer| peer.deciding.is_some() || now - peer.last_used < FORGET_AFTER);
    }
}

fn reasons(order: &[usize], outcome: &Outcome, winner: usize) -> Vec<(usize, String)> {
    let reasons = order.iter().copied().zip(outcome.reasons.iter().cloned());
    let mut reasons: Vec<_> = reasons.filter(|(other, _)| *other != winner).collect();
    reasons.sort_by_key(|(other, _)| *other);
    reasons
}

fn log(url: &Url, candidates: &[Candidate], choice: &Choice) {
    let kind = name(candidates, choice.route.candidate);
    let better = choice.not_chosen.iter();
    let better = better.filter(|(other, _)| *other < choice.route.candidate);
    let better: Vec<_> = better
        .map(|(other, why)| format!("{}: {why}", name(candidates, *other)))
        .collect();
    if better.is_empty() {
        tracing::info!(%url, kind, "transport chosen");
    } else {
        tracing::warn!(%url, kind, ?better, "transport chosen although others are better: they do not get through");
    }
}

fn name(candidates: &[Candidate], candidate: usize) -> &str {
    candidates.get(candidate).map_or("", |kind| &kind.name)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn url(name: &str) -> Url {
        format!("http://{name}:1").parse().unwrap()
    }

    /// What is found after so many seconds.
    fn look_up(choices: &mut Choices, begun: Instant, seconds: u64, connected: bool) -> Use {
        let now = begun + Duration::from_secs(seconds);
        choices.look_up(&url("a"), |_| connected, now)
    }

    fn decide(choices: &mut Choices, begun: Instant, order: &[usize], winner: usize) -> Route {
        let outcome = Outcome {
            untrusted: false,
            winner: order.iter().position(|candidate| *candidate == winner),
            reasons: order.iter().map(ToString::to_string).collect(),
        };
        let expires = begun + Duration::from_secs(60);
        let now = begun;
        choices
            .decided(&url("a"), order, &outcome, expires, &[], now)
            .unwrap()
    }

    #[test]
    fn a_choice_without_connection_goes_first_until_it_expires() {
        let (mut choices, begun) = (Choices::default(), Instant::now());
        let found = look_up(&mut choices, begun, 0, true);
        assert!(matches!(found, Use::Decide { first: None }), "{found:?}");
        let route = decide(&mut choices, begun, &[0, 1, 2], 1);
        let found = look_up(&mut choices, begun, 50, false);
        assert!(matches!(found, Use::Decide { first: Some(1) }), "{found:?}");
        // It wins again, with a head start: that says nothing new of the better one.
        let later = begun + Duration::from_secs(50);
        assert_eq!(decide(&mut choices, later, &[1, 0, 2], 1), route);
        let found = look_up(&mut choices, begun, 60, false);
        assert!(matches!(found, Use::Decide { first: None }), "{found:?}");
        let found = look_up(&mut choices, begun, 60, true);
        assert!(matches!(found, Use::RouteAndReconsider(found) if found == route));
    }

    #[test]
    fn the_best_one_never_expires() {
        let (mut choices, begun) = (Choices::default(), Instant::now());
        let route = decide(&mut choices, begun, &[0, 1], 0);
        let found = look_up(&mut choices, begun, 500, true);
        assert!(matches!(found, Use::Route(found) if found == route));
    }

    #[test]
    fn an_old_failure_leaves_a_newer_choice() {
        let (mut choices, begun) = (Choices::default(), Instant::now());
        let old = decide(&mut choices, begun, &[0, 1], 0);
        choices.drop_choice(&url("a"), old);
        let new = decide(&mut choices, begun, &[0, 1], 0);
        choices.drop_choice(&url("a"), old);
        let found = look_up(&mut choices, begun, 0, true);
        assert!(matches!(found, Use::Route(found) if found == new));
        choices.drop_choice(&url("a"), new);
        let found = look_up(&mut choices, begun, 0, true);
        assert!(matches!(found, Use::Decide { first: None }));
    }

    #[test]
    fn workers_not_called_for_long_are_forgotten() {
        let (mut choices, begun) = (Choices::default(), Instant::now());
        for minute in 0..50 {
            let now = begun + Duration::from_secs(60 * minute);
            let _ = choices.look_up(&url(&format!("worker-{minute}")), |_| true, now);
        }
        assert!(choices.peers.len() <= 12, "{}", choices.peers.len());
    }
}
