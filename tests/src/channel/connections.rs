//! How many connections a client makes, and when.

use super::Kit;
use crate::probe::ProbeExec;
use crate::rows::{counting, schema};
use crate::wait::eventually;
use datafusion_distributed::GetWorkerInfoRequest;
use futures::{FutureExt, StreamExt, TryStreamExt};
use std::time::Duration;

/// A thousand partitions do not need a thousand connections (ballista#1943, presto#21367: ports ran out).
pub async fn a_thousand_partitions_share_a_connection(t: Kit) {
    let rig = t.rig().await;
    let plan = ProbeExec::new(schema(), 1000, |_| counting(1, 10));
    let task = rig.set_plan(plan.clone()).await;
    let mut run = rig.execute(&task, 0..1000).await;
    for stream in &mut run.streams {
        stream.next().await.expect("a batch").expect("a batch");
    }
    assert_eq!((rig.peer().connections, rig.peer().dials), (1, 1));
    assert!(rig.peer().streams_active >= 1000);
    run.read_all().await.expect("clean ends");
}

/// Concurrent first calls share one dial (ballista#1945).
pub async fn first_calls_share_a_dial(t: Kit) {
    let rig = t.rig().await;
    let ask = |_| async {
        let mut channel = rig.channel().await;
        let info = channel.get_worker_info(GetWorkerInfoRequest {}).await;
        info.expect("an answer");
    };
    futures::future::join_all((0..50).map(ask)).await;
    assert_eq!((rig.peer().connections, rig.peer().dials), (1, 1));
}

/// A dial that failed is tried again by the next call (ballista#1951).
pub async fn a_failed_dial_is_not_kept(t: Kit) {
    let mut rig = t.rig().await;
    rig.kill_worker().await;
    let ask = async |rig: &crate::Rig| {
        let mut channel = rig.channel().await;
        channel.get_worker_info(GetWorkerInfoRequest {}).await
    };
    ask(&rig)
        .await
        .map(|info| info.version)
        .expect_err("nobody is there");
    let failed = rig.peer();
    assert_eq!(failed.connections, 0);
    rig.restart_worker().await;
    ask(&rig).await.expect("it is back");
    assert_eq!(rig.peer().dials, failed.dials + 1);
}

/// A connection that was lost is replaced at the next call, and by one (ballista#1945).
pub async fn a_lost_connection_is_replaced(t: Kit) {
    let mut rig = t.rig().await;
    let plan = ProbeExec::new(schema(), 2, |_| counting(3, 10));
    rig.set_plan(plan.clone()).await.finish().await;
    rig.kill_worker().await;
    rig.restart_worker().await;
    eventually("the loss is noticed", Duration::from_secs(10), || {
        rig.peer().connections == 0
    })
    .await;
    let task = rig.set_plan(plan.clone()).await;
    rig.execute(&task, 0..2)
        .await
        .read_all()
        .await
        .expect("clean ends");
    task.finish().await;
    assert_eq!((rig.peer().connections, rig.peer().dials), (1, 2));
}

/// When all queries are over, by whichever way, no stream is open (ballista#1945).
pub async fn no_stream_stays_open(t: Kit) {
    let rig = t.rig().await;
    for round in 0..6 {
        let plan = ProbeExec::new(schema(), 4, |_| counting(10, 1000));
        let task = rig.set_plan(plan.clone()).await;
        let mut run = rig.execute(&task, 0..4).await;
        match round % 3 {
            0 => drop(run.read_all().await.expect("clean ends")),
            1 => drop(run.take(1).try_next().await.expect("a batch")),
            _ => drop(run.streams[0].next().now_or_never()),
        }
        task.finish().await;
    }
    rig.idle().await;
}
