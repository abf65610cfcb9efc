//! EXPLAIN ANALYZE, which gathers what every task of every stage reports.

use super::{Kit, Session};

/// Each boundary shows what it carried, by the names that readers know, and the coordinator what it sent.
pub async fn explain_analyze_names_the_boundary_metrics(t: Kit) {
    let cluster = t.cluster().await;
    let session = cluster.session().await;
    let sql = "EXPLAIN ANALYZE SELECT g, count(*) FROM facts GROUP BY g ORDER BY g";
    let text = session.text(sql).await;
    let line = |node: &str| {
        let line = text.lines().find(|line| line.contains(node));
        line.unwrap_or_else(|| panic!("no {node} in\n{text}"))
    };
    assert!(
        line("DistributedExec").contains("plan_bytes_sent="),
        "{text}"
    );
    for node in ["NetworkShuffleExec", "NetworkCoalesceExec"] {
        for name in [
            "bytes_transferred",
            "elapsed_compute",
            "max_mem_used",
            "msg_count",
            "network_latency_count",
            "network_latency_first",
            "network_latency_max",
            "network_latency_min",
            "network_latency_p50",
            "network_latency_p95",
            "network_latency_sum",
        ] {
            assert!(
                line(node).contains(&format!("{name}=")),
                "{name} of {}",
                line(node)
            );
        }
    }
}

/// A query that ends early has the metrics of all its tasks: EXPLAIN ANALYZE waits for them, for ever where one is lost (dfd#412, #341, #502).
pub async fn every_task_of_a_limit_query_reports(t: Kit) {
    let cluster = t.cluster().await;
    let session = cluster.session().await;
    for sql in [
        "SELECT g, count(*) FROM facts GROUP BY g LIMIT 1",
        "SELECT * FROM facts WHERE v > 1 LIMIT 1",
    ] {
        // Whether a task was still to be executed when the query ended is a matter of luck.
        for _ in 0..10 {
            all_tasks_report(&session, sql).await;
        }
    }
}

async fn all_tasks_report(session: &Session, sql: &str) {
    let text = session
        .text(&format!("EXPLAIN ANALYZE VERBOSE {sql}"))
        .await;
    let (_, per_task) = text
        .split_once("Plan with Full Metrics")
        .expect("metrics by task");
    let mut stages = 0;
    for line in per_task.lines() {
        let Some((_, tasks)) = line.split_once("── tasks=") else {
            continue;
        };
        stages += 1;
        let tasks: usize = tasks
            .split(',')
            .next()
            .expect("a number")
            .parse()
            .expect("a number");
        let (_, ended) = line
            .split_once("plan_finished_at={")
            .expect("when its tasks ended");
        let (ended, _) = ended.split_once('}').expect("a list");
        for task in 0..tasks {
            assert!(
                ended.contains(&format!("{task}:")),
                "no task {task}: {line}"
            );
        }
    }
    assert!(stages > 0, "{text}");
}
