//! The report: every case of every contract, by transport.

use crate::case::{Case, Subject, Verdict};
use crate::harness::{ChannelHarness, ConnectionHarness};
use crate::{channel, cluster, connection};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

/// What is reported.
#[derive(Default)]
pub struct Report {
    transports: Vec<String>,
    levels: Vec<Level>,
}

/// One contract.
struct Level {
    name: &'static str,
    rows: Vec<Row>,
}

/// One case: the verdicts by transport.
struct Row {
    case: String,
    verdicts: BTreeMap<String, Verdict>,
}

/// Which cases are run.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Only these transports; all where it is empty.
    pub transports: Vec<String>,
    /// Only cases whose `level::group::name` contains this.
    pub filter: String,
}

impl Selection {
    fn has(&self, transport: &str) -> bool {
        self.transports.is_empty() || self.transports.iter().any(|name| name == transport)
    }
}

/// The transports that a report is about.
#[derive(Default)]
pub struct Subjects {
    /// By the lower seam; they are held to the channel contract too.
    pub connections: Vec<Arc<dyn ConnectionHarness>>,
    /// By the channel contract only, and those above once more.
    pub channels: Vec<Arc<dyn ChannelHarness>>,
}

macro_rules! subjects {
    (
        connections { $($name:ident: $harness:expr;)+ }
        channels { $($channel:ident: $channel_harness:expr;)+ }
    ) => {
        Subjects {
            connections: vec![$(Arc::new($harness)),+],
            channels: vec![$(Arc::new($harness)),+, $(Arc::new($channel_harness)),+],
        }
    };
}

impl Subjects {
    /// This project's transports and the reference.
    pub fn ours() -> Self {
        crate::our_transports!(subjects)
    }

    /// Their names, in the order of the report.
    pub fn names(&self) -> Vec<String> {
        self.channels
            .iter()
            .map(|it| it.name().to_owned())
            .collect()
    }

    /// Runs the contracts, one case after the other. `each` is told before a case is run.
    pub fn run(&self, selection: &Selection, mut each: impl FnMut(&str, &str)) -> Report {
        let names = self.names().into_iter();
        let mut report = Report {
            transports: names.filter(|name| selection.has(name)).collect(),
            levels: vec![],
        };
        let connection = run_level(
            "connection",
            connection::CASES,
            &self.connections,
            selection,
            &mut each,
        );
        let channel = run_level(
            "channel",
            channel::CASES,
            &self.channels,
            selection,
            &mut each,
        );
        let cluster = run_level(
            "cluster",
            cluster::CASES,
            &self.channels,
            selection,
            &mut each,
        );
        report.levels.extend([connection, channel, cluster]);
        report
    }
}

fn run_level<H: Subject + ?Sized>(
    name: &'static str,
    cases: &[Case<H>],
    subjects: &[Arc<H>],
    selection: &Selection,
    each: &mut impl FnMut(&str, &str),
) -> Level {
    let mut rows = vec![];
    for case in cases {
        let path = format!("{name}::{}", case.path());
        if !path.contains(&selection.filter) {
            continue;
        }
        let mut verdicts = BTreeMap::new();
        for subject in subjects.iter().filter(|it| selection.has(it.name())) {
            each(&path, subject.name());
            verdicts.insert(subject.name().to_owned(), case.judge(subject));
        }
        rows.push(Row {
            case: case.path(),
            verdicts,
        });
    }
    Level { name, rows }
}

fn symbol(verdict: Option<&Verdict>) -> &'static str {
    match verdict {
        Some(Verdict::Pass) => "pass",
        Some(Verdict::Fail(_)) => "**FAIL**",
        Some(Verdict::KnownShortcoming(_)) => "known shortcoming",
        Some(Verdict::NotApplicable(_)) => "not applicable",
        None => "–",
    }
}

impl Report {
    /// Cases that failed, with what went wrong: those of a known shortcoming that is none any more among them.
    pub fn failures(&self) -> Vec<String> {
        let of = |(level, row, transport, verdict): Entry<'_>| match verdict {
            Verdict::Fail(what) => Some(format!("{level}::{} on {transport}: {what}", row.case)),
            _ => None,
        };
        self.entries().filter_map(of).collect()
    }

    fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        let levels = self.levels.iter();
        let rows = levels.flat_map(|level| level.rows.iter().map(|row| (level.name, row)));
        rows.flat_map(|(level, row)| {
            let verdicts = row.verdicts.iter();
            verdicts.map(move |(transport, verdict)| (level, row, transport.as_str(), verdict))
        })
    }

    /// A table for each contract, then the reasons of what is not a pass.
    pub fn to_markdown(&self) -> String {
        let mut text = String::new();
        for level in self.levels.iter().filter(|level| !level.rows.is_empty()) {
            let columns: Vec<_> = self
                .transports
                .iter()
                .filter(|name| {
                    level
                        .rows
                        .iter()
                        .any(|row| row.verdicts.contains_key(*name))
                })
                .collect();
            let _ = write!(text, "### {}\n\n| case |", level.name);
            for name in &columns {
                let _ = write!(text, " {name} |");
            }
            let _ = write!(text, "\n|---|{}\n", "---|".repeat(columns.len()));
            for row in &level.rows {
                let _ = write!(text, "| `{}` |", row.case);
                for name in &columns {
                    let _ = write!(text, " {} |", symbol(row.verdicts.get(*name)));
                }
                text.push('\n');
            }
            text.push('\n');
        }
        text.push_str(&self.reasons());
        text
    }

    fn reasons(&self) -> String {
        let mut shortcomings = String::new();
        let mut inapplicable: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
        for (level, row, transport, verdict) in self.entries() {
            match verdict {
                Verdict::KnownShortcoming(reason) => {
                    let _ = writeln!(
                        shortcomings,
                        "- {transport}, `{level}::{}`: {reason}",
                        row.case
                    );
                }
                Verdict::NotApplicable(reason) => {
                    inapplicable
                        .entry((transport, reason))
                        .or_default()
                        .push(&row.case);
                }
                Verdict::Pass | Verdict::Fail(_) => {}
            }
        }
        let mut text = format!("### Known shortcomings\n\n{shortcomings}\n### Not applicable\n\n");
        for ((transport, reason), cases) in inapplicable {
            let _ = writeln!(text, "- {transport}: {reason} (`{}`)", cases.join("`, `"));
        }
        let failures = self.failures();
        if !failures.is_empty() {
            let _ = write!(text, "\n### Failures\n\n- {}\n", failures.join("\n- "));
        }
        text
    }

    /// An array with an object for each case and transport: `level`, `case`, `transport`, `verdict` (`pass`, `fail`, `known shortcoming`,
    /// `not applicable`), and `reason` for all but a pass.
    pub fn to_json(&self) -> Value {
        let object = |(level, row, transport, verdict): Entry<'_>| {
            let (verdict, reason) = match verdict {
                Verdict::Pass => ("pass", None),
                Verdict::Fail(what) => ("fail", Some(what.as_str())),
                Verdict::KnownShortcoming(why) => ("known shortcoming", Some(*why)),
                Verdict::NotApplicable(why) => ("not applicable", Some(*why)),
            };
            json!({
                "level": level, "case": row.case, "transport": transport,
                "verdict": verdict, "reason": reason,
            })
        };
        self.entries().map(object).collect()
    }
}

type Entry<'a> = (&'static str, &'a Row, &'a str, &'a Verdict);
