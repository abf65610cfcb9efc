//! [`Case`]: one demand of a contract, and how it is judged.

use futures::FutureExt;
use futures::future::BoxFuture;
use std::any::Any;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Who is under test, whatever the level.
pub trait Subject: Send + Sync {
    /// Its name: a column of the report.
    fn name(&self) -> &str;

    /// What its harness can't do, each with the reason. A case that needs it is reported as not applicable.
    fn lacks(&self) -> Vec<(Capability, &'static str)> {
        vec![]
    }

    /// Where it falls short of the contract, as far as known. These cases are run too, and must fail as stated.
    fn shortcomings(&self) -> Vec<Shortcoming> {
        vec![]
    }
}

/// What some cases need of a harness beyond the usual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// Serves any [`WorkerService`](datafusion_transport_core::WorkerService), not only the engine's worker.
    Service,
    /// Client and server count dials, connections, streams, calls and tasks.
    Counters,
    /// A worker can be asked to finish what it has and take nothing new.
    Drain,
    /// A worker can start at the URL of one that stopped.
    Rebind,
    /// A worker's I/O can be suspended while its connections stay open.
    Silence,
    /// Received arrays point into the message that carried them.
    ZeroCopy,
}

/// A case that a subject is known to fail.
#[derive(Clone, Copy, Debug)]
pub struct Shortcoming {
    /// The case, as `group::name`.
    pub case: &'static str,
    /// How it fails.
    pub symptom: Symptom,
    /// Why.
    pub reason: &'static str,
}

impl From<(&'static str, Symptom, &'static str)> for Shortcoming {
    fn from((case, symptom, reason): (&'static str, Symptom, &'static str)) -> Self {
        Self {
            case,
            symptom,
            reason,
        }
    }
}

/// How a known shortcoming shows itself. Any other failure is a failure of the run, and so is a pass.
#[derive(Clone, Copy, Debug)]
pub enum Symptom {
    /// Nothing moves any more: no batch and no message arrives for [`STALL`], and the case is not over.
    Hangs,
    /// The case fails with a message that contains this.
    Fails(&'static str),
    /// A matter of luck: of this many runs, at least one fails with a message that contains this, and no run fails otherwise.
    Sometimes(u32, &'static str),
    /// A race too rare to wait for: the one run may pass, or fail with a message that contains this.
    Rarely(&'static str),
}

/// How long nothing may arrive before a case counts as hanging: far above any wait of a case that has one.
pub const STALL: Duration = Duration::from_secs(4);

/// What the consumers of a case have received so far: tells a hang from a slow run.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<AtomicU64>);

impl Progress {
    /// Something arrived.
    pub fn made(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// One run of a case against a harness.
pub struct Trial<H: ?Sized> {
    /// The harness.
    pub harness: Arc<H>,
    /// What has arrived.
    pub progress: Progress,
}

impl<H: ?Sized> Clone for Trial<H> {
    fn clone(&self) -> Self {
        Self {
            harness: Arc::clone(&self.harness),
            progress: self.progress.clone(),
        }
    }
}

/// One demand.
pub struct Case<H: ?Sized> {
    /// What it is about; the module of its function.
    pub group: &'static str,
    /// The function.
    pub name: &'static str,
    /// When it has failed.
    pub limit: Duration,
    /// What it needs of a harness.
    pub needs: &'static [Capability],
    /// Runs it; it panics where the demand is not met.
    pub run: fn(Trial<H>) -> BoxFuture<'static, ()>,
}

/// How a case ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// As demanded.
    Passed,
    /// It panicked with this message.
    Failed(String),
    /// Nothing moved for [`STALL`].
    Hung,
    /// It was still moving when its limit came.
    TooSlow,
}

/// How a subject's case is to be reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Kept.
    Pass,
    /// Not kept, as is known; the reason.
    KnownShortcoming(&'static str),
    /// The harness lacks what the case needs; the reason.
    NotApplicable(&'static str),
    /// Broken, or a known shortcoming that is none any more, or has another symptom.
    Fail(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => write!(f, "passed"),
            Self::Failed(message) => write!(f, "failed: {message}"),
            Self::Hung => write!(f, "hung: nothing arrived for {STALL:?}"),
            Self::TooSlow => write!(f, "was not done within its limit, although it moved"),
        }
    }
}

impl<H: Subject + ?Sized> Case<H> {
    /// `group::name`.
    pub fn path(&self) -> String {
        format!("{}::{}", self.group, self.name)
    }

    /// Runs the case and judges it by what is known about the subject.
    pub fn judge(&self, harness: &Arc<H>) -> Verdict {
        let lacks = harness.lacks().into_iter();
        let mut reasons = lacks.filter(|(lacking, _)| self.needs.contains(lacking));
        if let Some((_, reason)) = reasons.next() {
            return Verdict::NotApplicable(reason);
        }
        let path = self.path();
        let known = harness.shortcomings().into_iter();
        match known.into_iter().find(|known| known.case == path) {
            Some(known) => self.confirm(harness, &known),
            None => match self.run_once(harness, self.limit) {
                Outcome::Passed => Verdict::Pass,
                outcome => Verdict::Fail(outcome.to_string()),
            },
        }
    }

    fn confirm(&self, harness: &Arc<H>, known: &Shortcoming) -> Verdict {
        let (runs, stall) = match known.symptom {
            Symptom::Sometimes(runs, _) => (runs, self.limit),
            Symptom::Fails(_) | Symptom::Rarely(_) => (1, self.limit),
            Symptom::Hangs => (1, STALL),
        };
        for _ in 0..runs {
            let outcome = self.run_once(harness, stall);
            match (&outcome, known.symptom) {
                (Outcome::Hung, Symptom::Hangs) => {}
                (
                    Outcome::Failed(message),
                    Symptom::Fails(text) | Symptom::Sometimes(_, text) | Symptom::Rarely(text),
                ) if message.contains(text) => {}
                (Outcome::Passed, Symptom::Rarely(_)) => {}
                (Outcome::Passed, Symptom::Sometimes(..)) => continue,
                (Outcome::Passed, _) => break,
                _ => {
                    let expected = known.symptom;
                    return Verdict::Fail(format!("expected {expected:?}, but it {outcome}"));
                }
            }
            return Verdict::KnownShortcoming(known.reason);
        }
        let reason = known.reason;
        Verdict::Fail(format!(
            "no shortcoming any more, take it off the list: {reason}"
        ))
    }

    /// Runs the case on a runtime of its own. It hangs once nothing moved for `stall`.
    pub fn run_once(&self, harness: &Arc<H>, stall: Duration) -> Outcome {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            // Unoptimised builds plan with deep recursion and large frames.
            .thread_stack_size(16 << 20)
            .enable_all()
            .build()
            .expect("threads for a case");
        let progress = Progress::default();
        let trial = Trial {
            harness: Arc::clone(harness),
            progress: progress.clone(),
        };
        let case = runtime.spawn(AssertUnwindSafe((self.run)(trial)).catch_unwind());
        let limit = self.limit;
        let outcome = runtime.block_on(async move {
            tokio::select! {
                ended = case => match ended {
                    Ok(Ok(())) => Outcome::Passed,
                    Ok(Err(panic)) => Outcome::Failed(message(panic.as_ref())),
                    Err(err) => Outcome::Failed(err.to_string()),
                },
                () = stalled(&progress, stall) => Outcome::Hung,
                () = tokio::time::sleep(limit) => Outcome::TooSlow,
            }
        });
        runtime.shutdown_background();
        outcome
    }
}

/// Resolves when nothing has arrived for `stall`.
async fn stalled(progress: &Progress, stall: Duration) {
    let (mut count, mut since) = (progress.count(), Instant::now());
    while since.elapsed() < stall {
        tokio::time::sleep(Duration::from_millis(50)).await;
        if progress.count() != count {
            (count, since) = (progress.count(), Instant::now());
        }
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without message").to_owned()
}

/// Runs a case for a test.
///
/// # Panics
/// Where the verdict is a failure, or there is no such case.
pub fn check<H: Subject + ?Sized>(cases: &[Case<H>], group: &str, name: &str, harness: &Arc<H>) {
    let mut cases = cases.iter();
    let case = cases.find(|case| case.group == group && case.name == name);
    let case = case.unwrap_or_else(|| panic!("no case {group}::{name}"));
    match case.judge(harness) {
        Verdict::Pass => {}
        Verdict::KnownShortcoming(reason) => println!("known shortcoming: {reason}"),
        Verdict::NotApplicable(reason) => println!("not applicable: {reason}"),
        Verdict::Fail(what) => panic!("{} on {}: {what}", case.path(), harness.name()),
    }
}

/// Expands to the cases of a list, as values.
#[doc(hidden)]
#[macro_export]
macro_rules! __case_values {
    ($($group:ident { $($name:ident $(($seconds:literal s))? $([$($need:ident),+])? ;)+ })+) => {
        &[$($(
            $crate::Case {
                group: stringify!($group),
                name: stringify!($name),
                limit: $crate::__case_limit!($($seconds)?),
                needs: &[$($($crate::Capability::$need),+)?],
                run: |trial| ::std::boxed::Box::pin($group::$name(trial)),
            },
        )+)+]
    };
}

/// Expands to a test for each case of a list. `judge` must be in scope where it is used.
#[doc(hidden)]
#[macro_export]
macro_rules! __case_tests {
    ($($group:ident { $($name:ident $(($seconds:literal s))? $([$($need:ident),+])? ;)+ })+) => {
        $(mod $group {
            $(#[test] fn $name() { super::judge(stringify!($group), stringify!($name)); })+
        })+
    };
}

/// Half a minute, unless a case says otherwise: cases take moments, and only a hang reaches it.
#[doc(hidden)]
#[macro_export]
macro_rules! __case_limit {
    () => {
        ::std::time::Duration::from_secs(30)
    };
    ($seconds:literal) => {
        ::std::time::Duration::from_secs($seconds)
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nobody(Vec<Shortcoming>, Vec<(Capability, &'static str)>);

    impl Subject for Nobody {
        fn name(&self) -> &str {
            "nobody"
        }

        fn lacks(&self) -> Vec<(Capability, &'static str)> {
            self.1.clone()
        }

        fn shortcomings(&self) -> Vec<Shortcoming> {
            self.0.clone()
        }
    }

    fn verdict(run: fn(Trial<Nobody>) -> BoxFuture<'static, ()>, symptom: Symptom) -> Verdict {
        let known = Shortcoming {
            case: "group::name",
            symptom,
            reason: "reason",
        };
        case(run).judge(&Arc::new(Nobody(vec![known], vec![])))
    }

    fn case(run: fn(Trial<Nobody>) -> BoxFuture<'static, ()>) -> Case<Nobody> {
        Case {
            group: "group",
            name: "name",
            limit: Duration::from_secs(6),
            needs: &[Capability::Drain],
            run,
        }
    }

    #[test]
    fn a_shortcoming_must_show_its_symptom() {
        let known = Verdict::KnownShortcoming("reason");
        let hangs = Symptom::Hangs;
        assert_eq!(
            verdict(|_| futures::future::pending().boxed(), hangs),
            known
        );
        let wrong = |_| async { panic!("three rows") }.boxed();
        assert_eq!(verdict(wrong, Symptom::Fails("three")), known);
        assert_eq!(verdict(wrong, Symptom::Sometimes(2, "three")), known);
        assert_eq!(verdict(wrong, Symptom::Rarely("three")), known);
        let is_failure = |verdict, text| match verdict {
            Verdict::Fail(message) => assert!(message.contains(text), "{message}"),
            other => panic!("{other:?}"),
        };
        is_failure(verdict(wrong, Symptom::Fails("four")), "three rows");
        is_failure(verdict(wrong, hangs), "three rows");
        is_failure(verdict(wrong, Symptom::Rarely("four")), "three rows");
        let fine = |_| async {}.boxed();
        assert_eq!(verdict(fine, Symptom::Rarely("three")), known);
        is_failure(verdict(fine, hangs), "no shortcoming any more");
        is_failure(verdict(fine, Symptom::Sometimes(3, "x")), "no shortcoming");
    }

    /// A run that is slow, because the machine is, is none that hangs.
    #[test]
    fn what_moves_does_not_hang() {
        let slow = |trial: Trial<Nobody>| {
            async move {
                loop {
                    trial.progress.made();
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
            .boxed()
        };
        match verdict(slow, Symptom::Hangs) {
            Verdict::Fail(message) => assert!(message.contains("although it moved"), "{message}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_a_harness_lacks_is_told_with_the_reason() {
        let nobody = Arc::new(Nobody(vec![], vec![(Capability::Drain, "it never ends")]));
        let verdict = case(|_| async { panic!("was run") }.boxed()).judge(&nobody);
        assert_eq!(verdict, Verdict::NotApplicable("it never ends"));
    }
}
