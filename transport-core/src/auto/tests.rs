#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod link;
mod worker;

use super::*;
use crate::error::Delivery;
use crate::memory::MemoryNetwork;
use crate::resolver::TransportResolver;
use crate::server::{Server, ServerHandle};
use crate::transports::{TransportExt, Transports};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion_distributed::{
    ChannelResolver, ExecuteTaskRequest, GetWorkerInfoRequest, MaybeEncoded, ProducerHead,
    SetPlanRequest, TaskKey, WorkerChannel,
};
use futures::future::join_all;
use futures::{FutureExt, StreamExt, stream};
use http::HeaderMap;
use link::{Link, Mode};
use std::sync::atomic::Ordering;
use tokio::runtime::Handle;
use tokio::time::timeout;
use uuid::Uuid;
use worker::StubWorker;

/// Nothing here takes this long unless it hangs.
const LIMIT: Duration = Duration::from_secs(20);

/// A worker that is reached as `quic`, as `tcp` and as `grpc`, the last by a foreign resolver.
struct Fixture {
    quic: Arc<Link>,
    tcp: Arc<Link>,
    grpc: Arc<Link>,
    worker: StubWorker,
    transports: Transports,
    url: Url,
    _server: ServerHandle,
}

impl Fixture {
    fn new() -> Self {
        // Short, so that attempts that never answer cost the tests little.
        Self::with(AutoOptions {
            head_start: Duration::from_millis(10),
            grace: Duration::from_millis(50),
            remember_for: Duration::from_secs(600),
            order: None,
        })
    }

    /// Without a head start that a busy machine could use up.
    fn patient() -> Self {
        Self::with(AutoOptions {
            head_start: LIMIT,
            ..AutoOptions::default()
        })
    }

    fn with(options: AutoOptions) -> Self {
        let url: Url = "http://worker:1".parse().unwrap();
        let io = IoRuntime::from_handle(Handle::current());
        let worker = StubWorker::default();
        let networks = [(); 3].map(|()| MemoryNetwork::new());
        let server = Server::builder(worker.clone()).io_runtime(io.clone());
        let server = networks.iter().fold(server, |server, network| {
            server.listener(Box::new(network.listen(&url)))
        });
        let [quic, tcp, grpc] = networks.map(Link::new);
        let foreign = Transports::builder().connector("grpc", Arc::clone(&grpc) as _);
        let foreign = foreign.io_runtime(io.clone()).build().unwrap();
        let transports = Transports::builder()
            .connector("tcp", Arc::clone(&tcp) as _)
            .connector("quic", Arc::clone(&quic) as _)
            .channel_resolver("grpc", Arc::new(TransportResolver::new(foreign)))
            .auto_options(options)
            .default_kind("auto")
            .io_runtime(io)
            .build()
            .unwrap();
        Self {
            quic,
            tcp,
            grpc,
            worker,
            transports,
            url,
            _server: server.start().unwrap(),
        }
    }

    async fn channel(&self) -> Box<dyn WorkerChannel> {
        let resolver = TransportResolver::new(self.transports.clone());
        resolver.get_worker_client_for_url(&self.url).await.unwrap()
    }

    async fn info(&self) -> datafusion::common::Result<()> {
        let mut channel = self.channel().await;
        let info = channel.get_worker_info(GetWorkerInfoRequest {});
        timeout(LIMIT, info).await.unwrap().map(|_| ())
    }

    /// The one worker's choice.
    fn choice(&self) -> AutoChoice {
        let choices = self.transports.auto_choices();
        assert_eq!(choices.len(), 1, "{choices:?}");
        choices.into_iter().next().unwrap()
    }

    /// A session whose transport has half a second to reach a worker.
    fn context(&self, kind: &str) -> Arc<TaskContext> {
        let mut config = SessionConfig::new().with_distributed_transports(&self.transports);
        let options = config.options_mut();
        options.set("transport.kind", kind).unwrap();
        options.set("transport.connect_timeout_ms", "500").unwrap();
        SessionContext::new_with_config(config).task_ctx()
    }

    async fn set_plan(
        &self,
        kind: &str,
        query: u128,
    ) -> datafusion::common::Result<worker::FromWorker> {
        let mut channel = self.channel().await;
        let plan = SetPlanRequest {
            task_key: key(query),
            task_count: 1,
            plan: MaybeEncoded::Encoded(vec![]),
            work_unit_feed_declarations: vec![],
            target_worker_url: self.url.clone(),
            query_start_time_ns: 0,
        };
        let (metrics, ctx) = (ExecutionPlanMetricsSet::new(), self.context(kind));
        let messages = stream::pending().boxed();
        let call = channel.coordinator_channel(HeaderMap::new(), plan, messages, metrics, &ctx);
        timeout(LIMIT, call).await.unwrap()
    }

    async fn execute(&self, kind: &str, query: u128, partitions: usize) -> Vec<worker::Batches> {
        let mut channel = self.channel().await;
        let request = ExecuteTaskRequest {
            task_key: key(query),
            target_partition_start: 0,
            target_partition_end: partitions,
            producer_head: ProducerHead::None,
        };
        let (metrics, ctx) = (ExecutionPlanMetricsSet::new(), self.context(kind));
        let call = channel.execute_task(HeaderMap::new(), request, metrics, &ctx);
        call.await.unwrap()
    }
}

fn key(query: u128) -> TaskKey {
    TaskKey {
        query_id: Uuid::from_u128(query),
        stage_id: 1,
        task_number: 0,
    }
}

/// Polls until the condition holds.
async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    assert!(timeout(LIMIT, waiting).await.is_ok(), "never: {what}");
}

#[tokio::test]
async fn the_best_kind_that_works_is_used_alone() {
    let fixture = Fixture::patient();
    fixture.info().await.unwrap();
    fixture.info().await.unwrap();
    let choice = fixture.choice();
    assert_eq!(choice.kind, "quic");
    let others: Vec<_> = choice.not_chosen.iter().map(|(kind, _)| &**kind).collect();
    assert_eq!(others, ["tcp", "grpc"]);
    assert_eq!((fixture.quic.dials(), fixture.tcp.dials()), (1, 0));
}

#[tokio::test]
async fn a_kind_that_never_answers_is_passed_over_and_the_choice_says_why() {
    let fixture = Fixture::new();
    fixture.quic.set(Mode::Silent);
    fixture.info().await.unwrap();
    let choice = fixture.choice();
    assert_eq!(choice.kind, "tcp");
    assert_eq!(choice.not_chosen[0].0, "quic");
    assert!(
        choice.not_chosen[0].1.contains("no answer within"),
        "{choice:?}"
    );
    // Remembered: the next call dials nobody.
    fixture.info().await.unwrap();
    assert_eq!((fixture.quic.dials(), fixture.tcp.dials()), (1, 1));
}

#[tokio::test]
async fn a_foreign_kind_is_the_last_resort_and_is_tried_by_asking_for_worker_info() {
    let fixture = Fixture::new();
    fixture.quic.set(Mode::Refuses);
    fixture.tcp.set(Mode::Refuses);
    fixture.info().await.unwrap();
    assert_eq!(fixture.choice().kind, "grpc");
    let infos = fixture.worker.infos.load(Ordering::Relaxed);
    assert_eq!(infos, 2, "one to try it, one that was asked for");
}

#[tokio::test]
async fn a_better_kind_that_is_slow_but_in_time_is_chosen() {
    let fixture = Fixture::with(AutoOptions {
        head_start: Duration::from_millis(1),
        grace: LIMIT,
        ..AutoOptions::default()
    });
    fixture.quic.set(Mode::Silent);
    let call = fixture.info();
    let answers = async {
        eventually("tcp is connected", async || {
            let stats = fixture.transports.stats();
            stats
                .iter()
                .any(|peer| peer.kind == "tcp" && peer.connections == 1)
        })
        .await;
        fixture.quic.set(Mode::Works);
    };
    let (outcome, ()) = tokio::join!(call, answers);
    outcome.unwrap();
    assert_eq!(fixture.choice().kind, "quic");
}

#[tokio::test]
async fn where_all_fail_one_error_names_each_and_what_to_do() {
    let fixture = Fixture::new();
    fixture.quic.set(Mode::Silent);
    fixture.tcp.set(Mode::Refuses);
    fixture.grpc.set(Mode::Refuses);
    let err = fixture.set_plan("auto", 1).await.map(|_| ()).unwrap_err();
    let datafusion::common::DataFusionError::External(inner) = err.find_root() else {
        panic!("{err:?}");
    };
    let inner = inner.downcast_ref::<TransportError>().unwrap();
    assert_eq!(inner.kind(), ErrorKind::Connect);
    assert_eq!(inner.delivery(), Delivery::NotDelivered);
    let text = err.to_string();
    let parts = [
        "http://worker:1",
        "quic: no connection within",
        "tcp: refused by",
        "grpc: ",
        "firewalls",
    ];
    for part in parts {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    assert!(fixture.transports.auto_choices().is_empty());
}

#[tokio::test]
async fn concurrent_first_callers_share_one_decision() {
    let fixture = Fixture::new();
    fixture.quic.set(Mode::Silent);
    let calls = join_all((0..50).map(|_| fixture.info())).await;
    assert!(calls.iter().all(Result::is_ok), "{calls:?}");
    assert_eq!((fixture.quic.dials(), fixture.tcp.dials()), (1, 1));
}

#[tokio::test]
async fn a_caller_that_goes_away_does_not_end_the_decision_for_others() {
    let fixture = Fixture::new();
    fixture.quic.set(Mode::Silent);
    let mut first = Box::pin(fixture.info());
    assert!(futures::poll!(&mut first).is_pending());
    let mut second = Box::pin(fixture.info());
    assert!(futures::poll!(&mut second).is_pending());
    drop(first);
    second.await.unwrap();
    assert_eq!(fixture.tcp.dials(), 1);
}

#[tokio::test]
async fn a_lost_connection_makes_the_next_call_choose_again() {
    let fixture = Fixture::new();
    fixture.info().await.unwrap();
    fixture.quic.set(Mode::Silent);
    fixture.quic.cut();
    fixture.info().await.unwrap();
    assert_eq!(fixture.choice().kind, "tcp");
}

#[tokio::test]
async fn a_choice_that_expired_gives_way_to_a_better_one_and_leaves_running_streams() {
    let fixture = Fixture::with(AutoOptions {
        head_start: Duration::from_millis(10),
        grace: Duration::from_millis(50),
        remember_for: Duration::ZERO,
        order: None,
    });
    fixture.quic.set(Mode::Silent);
    let _plan = fixture.set_plan("auto", 1).await.unwrap();
    let mut running = fixture.execute("auto", 1, 1).await.remove(0);
    assert!(
        timeout(LIMIT, running.next())
            .await
            .unwrap()
            .unwrap()
            .is_ok()
    );
    assert_eq!(fixture.choice().kind, "tcp");

    fixture.quic.set(Mode::Works);
    eventually("quic is chosen", async || {
        fixture.info().await.unwrap();
        fixture.choice().kind == "quic"
    })
    .await;
    fixture.worker.go_on();
    let rest: Vec<_> = timeout(LIMIT, running.collect()).await.unwrap();
    assert_eq!(rest.len(), 1, "{rest:?}");
    assert!(rest[0].is_ok());
}

#[tokio::test]
async fn a_plan_that_was_sent_is_not_sent_again_another_way() {
    let fixture = Fixture::patient();
    fixture.worker.hold_plans();
    let call = fixture.set_plan("auto", 1);
    let cuts = async {
        eventually("the plan arrives", async || fixture.worker.plans() == 1).await;
        fixture.quic.cut();
    };
    let (outcome, ()) = tokio::join!(call, cuts);
    let err = outcome.map(|_| ()).unwrap_err().to_string();
    assert!(err.contains("cut by the test"), "{err}");
    // Nothing is under way that could send it: the call is over, and nobody dialled.
    assert_eq!((fixture.worker.plans(), fixture.tcp.dials()), (1, 0));
}

#[tokio::test]
async fn nobody_is_called_before_a_partition_is_polled() {
    let fixture = Fixture::new();
    let _plan = fixture.set_plan("tcp", 1).await.unwrap();
    let streams = fixture.execute("auto", 1, 3).await;
    tokio::task::yield_now().await;
    assert_eq!(fixture.quic.dials(), 0);
    // Dropped unpolled, they are released on the worker.
    drop(streams);
    eventually("released", async || fixture.worker.executed() == [0, 1, 2]).await;
}

#[tokio::test]
async fn a_partition_dropped_before_the_call_is_released_with_it() {
    let fixture = Fixture::new();
    let _plan = fixture.set_plan("auto", 1).await.unwrap();
    let mut streams = fixture.execute("auto", 1, 3).await;
    drop(streams.remove(1));
    for stream in &mut streams {
        let first = timeout(LIMIT, stream.next()).await.unwrap();
        assert!(first.unwrap().is_ok());
    }
    // While its siblings run, because a join may wait for that: their streams and the coordinator's are left.
    eventually("released", async || {
        let stats = fixture.transports.stats();
        let streams: usize = stats.iter().map(|peer| peer.streams_active).sum();
        fixture.worker.executed() == [0, 1, 2] && streams == 3
    })
    .await;
    fixture.worker.go_on();
    let rest = join_all(streams.into_iter().map(StreamExt::collect::<Vec<_>>));
    let rest = timeout(LIMIT, rest).await.unwrap();
    assert_eq!(rest.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1]);
}

/// The first poll of one partition starts them all, also where nobody polls it until the choice is made.
#[tokio::test]
async fn a_poll_starts_all_partitions_although_it_is_given_up_while_kinds_are_tried() {
    let fixture = Fixture::patient();
    let _plan = fixture.set_plan("tcp", 1).await.unwrap();
    let mut streams = fixture.execute("auto", 1, 3).await;
    fixture.quic.set(Mode::Silent);
    assert!(streams[0].next().now_or_never().is_none());
    eventually("dialled", async || fixture.quic.dials() == 1).await;
    drop(streams.remove(0));
    fixture.quic.set(Mode::Works);
    eventually("executed", async || fixture.worker.executed() == [0, 1, 2]).await;
    drop(streams);
}

/// A query's streams may go different ways: its coordinator channel was opened while another kind was the best.
#[tokio::test]
async fn a_coordinator_channel_that_fails_fails_partitions_of_another_kind() {
    let fixture = Fixture::new();
    let mut plan = fixture.set_plan("quic", 1).await.unwrap();
    let mut partition = fixture.execute("tcp", 1, 1).await.remove(0);
    assert!(
        timeout(LIMIT, partition.next())
            .await
            .unwrap()
            .unwrap()
            .is_ok()
    );
    fixture.quic.cut();
    assert!(timeout(LIMIT, plan.next()).await.unwrap().unwrap().is_err());
    let err = timeout(LIMIT, partition.next()).await.unwrap().unwrap();
    assert!(err.unwrap_err().to_string().contains("cut by the test"));
}

#[tokio::test]
async fn shut_down_transports_choose_nothing() {
    let fixture = Fixture::new();
    timeout(LIMIT, fixture.transports.shutdown()).await.unwrap();
    let err = fixture.info().await.unwrap_err().to_string();
    assert!(err.contains("shut down"), "{err}");
}
