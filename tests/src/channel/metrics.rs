//! Metrics: of tasks, by the coordinator channel, and of the boundary itself.

use super::Kit;
use crate::probe::ProbeExec;
use crate::rig::{Task, sum};
use crate::rows::{counting, endless, schema};
use crate::wait::{SOON, within};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::{
    Count, CustomMetricValue, ExecutionPlanMetricsSet, Gauge, Label, Metric, MetricValue,
    MetricsSet, PruningMetrics, RatioMetrics, Time, Timestamp,
};
use datafusion::physical_plan::union::UnionExec;
use datafusion_distributed::{
    AvgLatencyMetric, BytesCounterMetric, FirstLatencyMetric, MaxGaugeMetric, MaxLatencyMetric,
    MinLatencyMetric, P50LatencyMetric, P75LatencyMetric, P95LatencyMetric, P99LatencyMetric,
    TaskMetrics, WorkerToCoordinatorMsg,
};
use futures::{FutureExt, StreamExt, stream};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Ends the query; gives its metrics, which must not let anybody wait.
async fn metrics(task: Task) -> TaskMetrics {
    within("the task's metrics", SOON, task.metrics()).await
}

/// They are final when the coordinator channel ends, and come then: after all partitions were read, but not because of that
/// (`impl_coordinator_channel.rs`).
pub async fn they_come_at_the_querys_end_and_once(t: Kit) {
    let rig = t.rig().await;
    let plan = ProbeExec::new(schema(), 2, |_| counting(3, 10));
    let mut task = rig.set_plan(plan.clone()).await;
    rig.execute(&task, 0..2)
        .await
        .read_all()
        .await
        .expect("clean ends");
    let first = task
        .from_worker
        .next()
        .await
        .expect("a message")
        .expect("a message");
    assert!(matches!(first, WorkerToCoordinatorMsg::LoadInfoEos));
    let early = tokio::time::timeout(Duration::from_millis(300), task.from_worker.next()).await;
    assert!(early.is_err(), "something came before the query's end");
    let metrics = metrics(task).await;
    assert_eq!(metrics.pre_order_plan_metrics.len(), 1);
    assert_eq!(metrics.pre_order_plan_metrics[0].output_rows(), Some(60));
}

/// They wait for no partition that somebody still holds, unread or never polled (dfd#412).
pub async fn they_do_not_wait_for_partitions(t: Kit) {
    let rig = t.rig().await;
    let plan = ProbeExec::new(schema(), 3, |p| match p {
        0 => endless(8192),
        _ => counting(3, 10),
    });
    let task = rig.set_plan(plan.clone()).await;
    let mut read = rig.call(task.key, 0..2).budget(1 << 20).send().await;
    let _never_polled = rig.execute(&task, 2..3).await;
    read.streams[0]
        .next()
        .await
        .expect("a batch")
        .expect("a batch");
    metrics(task).await;
}

/// A task that nobody came to before the query ended has metrics too: EXPLAIN ANALYZE waits for those of every task (dfd#341, #502).
pub async fn they_come_for_a_task_that_nobody_executed(t: Kit) {
    let rig = t.rig().await;
    let plan = ProbeExec::new(schema(), 2, |_| counting(3, 10));
    let task = rig.set_plan(plan.clone()).await;
    metrics(task).await;
}

/// So has one whose partitions were all dropped, polled or not (dfd#412).
pub async fn they_come_for_a_task_whose_partitions_were_dropped(t: Kit) {
    for polled in [true, false] {
        let rig = t.rig().await;
        let plan = ProbeExec::new(schema(), 2, |_| endless(1000));
        let task = rig.set_plan(plan.clone()).await;
        let mut run = rig.execute(&task, 0..2).await;
        if polled {
            run.streams[0]
                .next()
                .await
                .expect("a batch")
                .expect("a batch");
        }
        drop(run);
        metrics(task).await;
    }
}

/// One set for each node, in pre-order: that is how they find their place in the coordinator's plan.
pub async fn they_come_node_by_node_in_order(t: Kit) {
    let rig = t.rig().await;
    let leaf = |rows| ProbeExec::new(schema(), 1, move |_| counting(1, rows));
    let leaves = [leaf(11), leaf(22), leaf(33)];
    let children: Vec<Arc<dyn ExecutionPlan>> =
        leaves.iter().map(|leaf| Arc::clone(leaf) as _).collect();
    let plan = UnionExec::try_new(children).expect("leaves of one schema");
    let task = rig.set_plan(plan).await;
    rig.execute(&task, 0..3)
        .await
        .read_all()
        .await
        .expect("clean ends");
    let metrics = metrics(task).await;
    let rows: Vec<_> = metrics
        .pre_order_plan_metrics
        .iter()
        .map(MetricsSet::output_rows)
        .collect();
    assert_eq!(rows, [Some(66), Some(11), Some(22), Some(33)]);
    let names: BTreeSet<_> = metrics
        .task_metrics
        .iter()
        .map(|m| m.value().name().to_owned())
        .collect();
    for name in ["plan_added_at", "plan_executed_at", "plan_finished_at"] {
        assert!(names.contains(name), "{names:?}");
    }
}

/// Sends a plan's metrics through a task.
async fn carry(t: &Kit, sent: Vec<Metric>) -> Vec<Arc<Metric>> {
    let rig = t.rig().await;
    let plan = ProbeExec::new(schema(), 1, |_| counting(1, 1));
    for metric in sent {
        plan.register_metric(metric);
    }
    let task = rig.set_plan(plan.clone()).await;
    rig.execute(&task, 0..1)
        .await
        .read_all()
        .await
        .expect("clean ends");
    let metrics = metrics(task).await;
    metrics.pre_order_plan_metrics[0].iter().cloned().collect()
}

fn count(n: usize) -> Count {
    let count = Count::new();
    count.add(n);
    count
}

fn gauge(n: usize) -> Gauge {
    let gauge = Gauge::new();
    gauge.set(n);
    gauge
}

fn time(nanos: u64) -> Time {
    let time = Time::new();
    time.add_duration(Duration::from_nanos(nanos));
    time
}

fn now() -> Timestamp {
    let timestamp = Timestamp::new();
    timestamp.record();
    timestamp
}

/// Every value as it was sent, and what it is shown as.
async fn arrive(t: &Kit, values: Vec<MetricValue>) {
    let sent = values
        .iter()
        .map(|value| Metric::new(value.clone(), Some(0)));
    let arrived = carry(t, sent.collect()).await;
    for value in &values {
        let same = |metric: &&Arc<Metric>| {
            metric.value() == value && metric.value().to_string() == value.to_string()
        };
        assert!(
            arrived.iter().any(|metric| same(&metric)),
            "{value:?} is not in {arrived:#?}"
        );
    }
}

/// Counters, gauges, times and timestamps, with fixed names and with given ones; pruning and ratios.
pub async fn every_kind_of_value_arrives(t: Kit) {
    let pruning = PruningMetrics::new();
    pruning.add_pruned(3);
    pruning.add_matched(4);
    let ratio = RatioMetrics::new();
    ratio.add_part(1);
    ratio.add_total(7);
    arrive(
        &t,
        vec![
            MetricValue::SpillCount(count(1)),
            MetricValue::SpilledBytes(count(1 << 40)),
            MetricValue::SpilledRows(count(3)),
            MetricValue::OutputBytes(count(4)),
            MetricValue::OutputBatches(count(5)),
            MetricValue::CurrentMemoryUsage(gauge(6)),
            MetricValue::Count {
                name: "größe".into(),
                count: count(7),
            },
            MetricValue::Gauge {
                name: "a gauge".into(),
                gauge: gauge(8),
            },
            MetricValue::ElapsedCompute(time(9)),
            MetricValue::Time {
                name: "a time".into(),
                time: time(u64::from(u32::MAX) * 1000),
            },
            MetricValue::StartTimestamp(now()),
            MetricValue::EndTimestamp(now()),
            MetricValue::PruningMetrics {
                name: "pruned".into(),
                pruning_metrics: pruning,
            },
            MetricValue::Ratio {
                name: "a ratio".into(),
                ratio_metrics: ratio,
            },
        ],
    )
    .await;
}

/// The engine's own: latencies, percentiles among them, which are sketches, and bytes.
pub async fn sketches_arrive(t: Kit) {
    fn custom(name: &'static str, value: impl CustomMetricValue + 'static) -> MetricValue {
        let value = Arc::new(value);
        MetricValue::Custom {
            name: name.into(),
            value,
        }
    }
    macro_rules! filled {
        ($kind:ident) => {{
            let metric = $kind::default();
            for millis in [1, 5, 9, 200, 3000] {
                metric.add_duration(Duration::from_millis(millis));
            }
            custom(stringify!($kind), metric)
        }};
    }
    let bytes = BytesCounterMetric::default();
    bytes.add_bytes(123_456);
    let most = MaxGaugeMetric::default();
    most.set_max(77);
    arrive(
        &t,
        vec![
            filled!(MinLatencyMetric),
            filled!(MaxLatencyMetric),
            filled!(AvgLatencyMetric),
            filled!(FirstLatencyMetric),
            filled!(P50LatencyMetric),
            filled!(P75LatencyMetric),
            filled!(P95LatencyMetric),
            filled!(P99LatencyMetric),
            custom("bytes", bytes),
            custom("most", most),
        ],
    )
    .await;
}

/// The partition that a metric is of, and its labels.
pub async fn labels_and_partitions_arrive(t: Kit) {
    let label = |name: &'static str, value: &'static str| Label::new(name, value);
    let value = |name: &'static str| MetricValue::Count {
        name: name.into(),
        count: count(1),
    };
    let labels = vec![label("file", "a.parquet"), label("größe", "")];
    let sent = vec![
        Metric::new_with_labels(value("labelled"), Some(12), labels.clone()),
        Metric::new(value("global"), None),
    ];
    let arrived = carry(&t, sent).await;
    let named = |name| {
        arrived
            .iter()
            .find(|m| m.value().name() == name)
            .expect(name)
    };
    assert_eq!(
        (named("labelled").partition(), named("labelled").labels()),
        (Some(12), &labels[..])
    );
    assert_eq!(
        (named("global").partition(), named("global").labels().len()),
        (None, 0)
    );
}

/// What a call reports, by the names that EXPLAIN ANALYZE and its readers know (`grpc/worker_client.rs`).
pub async fn the_boundary_reports_under_the_usual_names(t: Kit) {
    let rig = t.rig().await;
    let plan = ProbeExec::new(schema(), 2, |_| counting(3, 10));
    let task = rig.set_plan(plan.clone()).await;
    let run = rig.execute(&task, 0..2).await;
    let reported = run.metrics.clone();
    run.read_all().await.expect("clean ends");
    let reported = reported.clone_inner();
    let names: BTreeSet<_> = reported
        .iter()
        .map(|m| m.value().name().to_owned())
        .collect();
    for name in [
        "bytes_transferred",
        "msg_count",
        "max_mem_used",
        "elapsed_compute",
        "network_latency_min",
        "network_latency_max",
        "network_latency_p50",
        "network_latency_p95",
        "network_latency_first",
        "network_latency_sum",
        "network_latency_count",
    ] {
        assert!(names.contains(name), "{name} is not in {names:?}");
    }
}

/// And they count what they say: all bytes of the data, a message for each batch at least.
pub async fn the_boundary_counts_what_arrived(t: Kit) {
    let rig = t.rig().await;
    let plan = ProbeExec::new(schema(), 2, |_| counting(10, 8192));
    let task = rig.set_plan(plan.clone()).await;
    let run = rig.execute(&task, 0..2).await;
    let reported = run.metrics.clone();
    run.read_all().await.expect("clean ends");
    let sum = |name| sum(&reported, name);
    let data = 2 * 10 * 8192 * 8;
    assert!((data..data * 11 / 10).contains(&sum("bytes_transferred")));
    assert!(sum("msg_count") >= 20 && sum("msg_count") < 60);
    assert!(sum("max_mem_used") > 0);
    assert_eq!(sum("network_latency_count"), sum("msg_count"));
}

/// The coordinator learns how large its plan was on the wire.
pub async fn the_plans_size_is_reported(t: Kit) {
    let rig = t.rig().await;
    let reported = ExecutionPlanMetricsSet::new();
    let plan = ProbeExec::new(schema(), 1, |_| stream::empty().boxed());
    let call = rig.plan(plan.clone()).metrics(&reported).send();
    let mut task = call.await.expect("the plan is accepted");
    let _ = task.from_worker.next().now_or_never();
    assert!(sum(&reported, "plan_bytes_sent") > 0);
}
