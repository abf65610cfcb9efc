//! [`Race`]: attempts in order of preference that overlap, as in RFC 8305. Knows no time but what it is told; [`race`] drives it.

use crate::auto::{AutoOptions, Fault};
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use std::time::{Duration, Instant};

/// What came of a race.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    /// The attempt that won, by its place in the order.
    pub(super) winner: Option<usize>,
    /// Why each other one did not; empty for the winner.
    pub(super) reasons: Vec<String>,
    /// Whether it has no winner because a peer could not be trusted.
    pub(super) untrusted: bool,
}

/// Each attempt starts after the head start of the one before, or as soon as that one failed. The first in order to succeed wins; one
/// that is still under way has some grace from the first success of a later one. One that met a peer it can't trust lets none behind it win.
#[derive(Debug)]
pub(super) struct Race {
    attempts: Vec<Attempt>,
    head_start: Duration,
    grace: Duration,
    next_start: Instant,
    grace_ends: Option<Instant>,
}

#[derive(Debug)]
enum Attempt {
    Untried,
    Running { since: Instant },
    Reached,
    Failed(Fault),
}

/// What is to be done next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Start this attempt.
    Start(usize),
    /// Wait for an attempt's end, or until then.
    Wait(Option<Instant>),
    /// It is over.
    Over(Outcome),
}

impl Race {
    pub(super) fn new(count: usize, options: &AutoOptions, now: Instant) -> Self {
        Self {
            attempts: (0..count).map(|_| Attempt::Untried).collect(),
            head_start: options.head_start,
            grace: options.grace,
            next_start: now,
            grace_ends: None,
        }
    }

    pub(super) fn step(&mut self, now: Instant) -> Step {
        if let Some(winner) = self.decided(now) {
            return Step::Over(self.outcome(winner, now));
        }
        if self.grace_ends.is_some() {
            // Those not started yet come after one that succeeded, and can't win any more.
            return Step::Wait(self.grace_ends);
        }
        let mut attempts = self.attempts.iter_mut().enumerate();
        let next = attempts
            .find(|(_, it)| matches!(it, Attempt::Untried | Attempt::Failed(Fault::Untrusted(_))));
        let Some((turn, next @ Attempt::Untried)) = next else {
            return Step::Wait(None);
        };
        if now < self.next_start {
            return Step::Wait(Some(self.next_start));
        }
        *next = Attempt::Running { since: now };
        self.next_start = now + self.head_start;
        Step::Start(turn)
    }

    pub(super) fn ended(&mut self, turn: usize, result: Result<(), Fault>, now: Instant) {
        let Some(attempt) = self.attempts.get_mut(turn) else {
            return;
        };
        match result {
            Ok(()) => {
                *attempt = Attempt::Reached;
                self.grace_ends.get_or_insert(now + self.grace);
            }
            Err(reason) => {
                *attempt = Attempt::Failed(reason);
                self.next_start = now;
            }
        }
    }

    /// The winner, `Some(None)` where all failed, `None` while it is open.
    fn decided(&self, now: Instant) -> Option<Option<usize>> {
        let grace_over = self.grace_ends.is_some_and(|end| now >= end);
        for (turn, attempt) in self.attempts.iter().enumerate() {
            match attempt {
                Attempt::Reached => return Some(Some(turn)),
                Attempt::Failed(Fault::Untrusted(_)) => return Some(None),
                Attempt::Failed(Fault::Unusable(_)) => {}
                Attempt::Running { .. } if grace_over => {}
                Attempt::Running { .. } | Attempt::Untried => return None,
            }
        }
        Some(None)
    }

    fn outcome(&self, winner: Option<usize>, now: Instant) -> Outcome {
        let reason = |(turn, attempt): (usize, &Attempt)| match attempt {
            Attempt::Reached if winner == Some(turn) => String::new(),
            Attempt::Reached => "works, but is not the first that does".to_string(),
            Attempt::Untried if winner.is_some() => "not tried: one before it works".to_string(),
            Attempt::Untried => "not tried: it may ask for no proof".to_string(),
            Attempt::Running { since } => format!("no answer within {:?}", now - *since),
            Attempt::Failed(Fault::Unusable(reason) | Fault::Untrusted(reason)) => reason.clone(),
        };
        let attempts = self.attempts.iter().enumerate();
        let mut faults = self.attempts.iter();
        Outcome {
            winner,
            reasons: attempts.map(reason).collect(),
            untrusted: winner.is_none()
                && faults.any(|it| matches!(it, Attempt::Failed(Fault::Untrusted(_)))),
        }
    }
}

/// Runs a race of `count` attempts, each made by `start`, which bounds it. Attempts that lost are dropped; dropping the future drops them all.
pub(super) async fn race(
    count: usize,
    options: &AutoOptions,
    start: impl Fn(usize) -> BoxFuture<'static, Result<(), Fault>>,
) -> Outcome {
    let mut race = Race::new(count, options, Instant::now());
    let mut running = FuturesUnordered::new();
    loop {
        let until = match race.step(Instant::now()) {
            Step::Over(outcome) => return outcome,
            Step::Start(turn) => {
                let attempt = start(turn);
                running.push(async move { (turn, attempt.await) });
                continue;
            }
            Step::Wait(until) => until,
        };
        tokio::select! {
            biased;
            Some((turn, result)) = running.next() => race.ended(turn, result, Instant::now()),
            () = sleep_until(until), if until.is_some() => {}
        }
    }
}

async fn sleep_until(until: Option<Instant>) {
    if let Some(until) = until {
        tokio::time::sleep_until(until.into()).await;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;

    /// What an attempt does: after so many milliseconds, whether it works. `None`: it never answers.
    type Script = Option<(u64, bool)>;

    /// Plays a race in made-up time. Returns also the milliseconds it took, and when each attempt started.
    fn run(scripts: &[Script]) -> (Outcome, u64, Vec<u64>) {
        run_with(scripts, None)
    }

    /// Likewise; where `untrusted` fails, it is for its certificate.
    fn run_with(scripts: &[Script], untrusted: Option<usize>) -> (Outcome, u64, Vec<u64>) {
        let begun = Instant::now();
        let at = |ms: u64| begun + Duration::from_millis(ms);
        let mut race = Race::new(scripts.len(), &AutoOptions::default(), begun);
        let (mut ms, mut starts, mut ends) = (0, vec![], vec![]);
        loop {
            match race.step(at(ms)) {
                Step::Over(outcome) => return (outcome, ms, starts),
                Step::Start(turn) => {
                    assert_eq!(turn, starts.len(), "started out of order");
                    starts.push(ms);
                    ends.extend(scripts[turn].map(|(after, works)| (ms + after, turn, works)));
                }
                Step::Wait(until) => {
                    ends.sort_unstable();
                    let until = until.map(|until| (until - begun).as_millis() as u64);
                    match ends.first().copied() {
                        Some((end, turn, works)) if until.is_none_or(|until| end <= until) => {
                            ends.remove(0);
                            ms = end;
                            let reason = format!("{turn} failed");
                            let fault = match untrusted == Some(turn) {
                                true => Fault::Untrusted(reason),
                                false => Fault::Unusable(reason),
                            };
                            let result = works.then_some(()).ok_or(fault);
                            race.ended(turn, result, at(ms));
                        }
                        _ => ms = until.unwrap(),
                    }
                }
            }
        }
    }

    #[test]
    fn the_first_that_works_soon_wins_alone() {
        let (outcome, took, starts) = run(&[Some((3, true)), Some((1, true))]);
        assert_eq!((outcome.winner, took), (Some(0), 3));
        assert_eq!(starts, [0]);
        assert!(outcome.reasons[1].contains("not tried"));
    }

    #[test]
    fn one_that_fails_at_once_costs_nothing() {
        let (outcome, took, starts) = run(&[Some((0, false)), Some((1, true))]);
        assert_eq!((outcome.winner, took), (Some(1), 1));
        assert_eq!(starts, [0, 0]);
        assert_eq!(outcome.reasons, ["0 failed", ""]);
    }

    #[test]
    fn one_that_never_answers_costs_head_start_and_grace() {
        let (outcome, took, starts) = run(&[None, Some((1, true)), Some((1, true))]);
        assert_eq!((outcome.winner, took), (Some(1), 751));
        assert_eq!(starts, [0, 250]);
        assert_eq!(outcome.reasons[0], "no answer within 751ms");
        assert!(outcome.reasons[2].contains("not tried"));
    }

    #[test]
    fn a_preferred_one_that_is_late_but_in_time_wins() {
        let (outcome, took, starts) = run(&[Some((600, true)), Some((1, true))]);
        assert_eq!((outcome.winner, took), (Some(0), 600));
        assert_eq!(starts, [0, 250]);
        assert!(outcome.reasons[1].contains("works, but"));
    }

    #[test]
    fn a_preferred_one_that_fails_late_ends_the_grace() {
        let (outcome, took, _) = run(&[Some((400, false)), Some((1, true))]);
        assert_eq!((outcome.winner, took), (Some(1), 400));
    }

    #[test]
    fn after_the_grace_the_best_of_those_that_work_wins() {
        let (outcome, took, starts) = run(&[None, Some((700, true)), Some((1, true))]);
        assert_eq!((outcome.winner, took), (Some(1), 1001));
        assert_eq!(starts, [0, 250, 500]);
        assert!(outcome.reasons[2].contains("works, but"));
    }

    #[test]
    fn a_late_success_after_early_failures_wins() {
        let (outcome, took, starts) =
            run(&[Some((0, false)), Some((3000, true)), Some((9, false))]);
        assert_eq!((outcome.winner, took), (Some(1), 3000));
        assert_eq!(starts, [0, 0, 250]);
    }

    #[test]
    fn nobody_wins_behind_one_that_could_not_be_trusted() {
        let (outcome, took, starts) = run_with(&[Some((3, false)), Some((1, true))], Some(0));
        assert_eq!((outcome.winner, took, outcome.untrusted), (None, 3, true));
        assert_eq!(starts, [0], "the other was not even tried");
        // Nor where the other one works already.
        let (outcome, took, _) = run_with(&[Some((400, false)), Some((1, true))], Some(0));
        assert_eq!((outcome.winner, took, outcome.untrusted), (None, 400, true));
        // One before it still may.
        let (outcome, ..) = run_with(&[Some((400, true)), Some((1, false))], Some(1));
        assert_eq!((outcome.winner, outcome.untrusted), (Some(0), false));
    }

    #[test]
    fn all_failing_is_no_winner_with_a_reason_each() {
        let (outcome, took, _) = run(&[Some((700, false)), Some((5, false))]);
        assert_eq!((outcome.winner, took), (None, 700));
        assert_eq!(outcome.reasons, ["0 failed", "1 failed"]);
    }
}
