//! How much memory a process takes for open partitions, and for bulk. It takes a process of its own to know: an allocator keeps what was freed.

#![allow(clippy::unwrap_used)]

use crate::samples::Sample;
use crate::scenario::{Scenario, Texts, batch};
use crate::subject;
use crate::transfer::{Transfer, drain, end};
use anyhow::{Context, Result, ensure};
use datafusion_transport_tests::{ChannelHarness, ProbeExec, Rig};
use futures::future::join_all;
use futures::{StreamExt, stream};
use std::fs;
use std::process::{Command, Stdio};
use std::sync::Arc;

/// Says in the environment of a child what it is to measure: `scenario/subject`.
const CHILD: &str = "BENCH_MEMORY";

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// This many partitions of one call are open: each has had a small batch, and has no more yet.
    Open(usize),
    /// 16 partitions of bulk data are read as fast as they come.
    Bulk,
}

impl Load {
    /// The scenario's name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Open(_) => "open partitions",
            Self::Bulk => "bulk memory",
        }
    }

    /// Partitions.
    pub fn streams(self) -> usize {
        match self {
            Self::Open(partitions) => partitions,
            Self::Bulk => 16,
        }
    }
}

/// Runs this program again, once, for a subject.
///
/// # Errors
/// Where the child fails.
pub fn in_a_child(load: Load, subject: &str) -> Result<Sample> {
    let partitions = load.streams();
    let asked = format!("{}/{partitions}/{subject}", load.name());
    let mut child = Command::new(std::env::current_exe()?);
    let output = child.env(CHILD, &asked).stderr(Stdio::inherit()).output();
    let output = output.context("running this program again")?;
    ensure!(output.status.success(), "{asked}: {}", output.status);
    let peak_bytes = String::from_utf8_lossy(&output.stdout).trim().parse();
    Ok(Sample {
        peak_bytes: peak_bytes.with_context(|| format!("{asked} printed no number"))?,
        ..Sample::default()
    })
}

/// In a child: measures, prints the bytes, and returns true.
///
/// # Errors
/// Where it was asked for something unknown.
pub fn is_child() -> Result<bool> {
    let Ok(asked) = std::env::var(CHILD) else {
        return Ok(false);
    };
    let mut parts = asked.splitn(3, '/');
    let mut part = || parts.next().context("scenario/partitions/subject");
    let (load, partitions, name) = (part()?, part()?.parse()?, part()?);
    let mut all = subject::all().into_iter();
    let harness = all.find(|harness| harness.name() == name);
    let harness = harness.with_context(|| format!("no subject {name}"))?;
    let runtime = tokio::runtime::Runtime::new()?;
    let bytes = match load {
        "bulk memory" => runtime.block_on(bulk(harness)),
        _ => runtime.block_on(open(harness, partitions)),
    };
    println!("{bytes}");
    Ok(true)
}

async fn open(harness: Arc<dyn ChannelHarness>, partitions: usize) -> u64 {
    let one = batch(8, Texts::Plain);
    let schema = one.schema();
    let plan = ProbeExec::new(schema, partitions, move |_| {
        let first = stream::iter([Ok(one.clone())]);
        first.chain(stream::pending()).boxed()
    });
    let rig = Rig::start(harness).await;
    // The connection, and what the process sets up once.
    let (warm, task) = (rig.set_plan(plan.clone()).await, rig.set_plan(plan).await);
    let mut streams = rig.execute(&warm, 0..1).await.streams;
    streams.first_mut().unwrap().next().await.unwrap().unwrap();
    drop((streams, warm));
    let before = resident("VmRSS");
    let streams = rig.execute(&task, 0..partitions).await.streams;
    let opened = streams.into_iter().map(|mut stream| async move {
        let rows = stream.next().await.unwrap().unwrap().num_rows();
        (rows, stream)
    });
    let opened = join_all(opened).await;
    assert!(opened.iter().all(|(rows, _)| *rows == 8));
    resident("VmHWM").saturating_sub(before)
}

async fn bulk(harness: Arc<dyn ChannelHarness>) -> u64 {
    let scenario = Scenario::of_bytes("bulk memory", 16, 8192, 512 << 20);
    let transfer = Transfer::start(harness, &scenario).await;
    let task = transfer.set_plan().await;
    let before = resident("VmRSS");
    let streams = transfer.client().execute(task.key, 0..16).await;
    assert_eq!(drain(streams).await, scenario.all_rows());
    end(task).await;
    resident("VmHWM").saturating_sub(before)
}

/// A line of `/proc/self/status`, in bytes; 0 where there is none.
fn resident(field: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(field));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    kib.and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) * 1024
}
