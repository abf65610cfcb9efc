//! The engine's own gRPC, the reference: an example of a complete `ChannelResolver` with a server of its own.

use crate::case::{Capability, Shortcoming, Subject, Symptom};
use crate::harness::{ChannelHarness, Served, Service, address};
use crate::wait::{SOON, within};
use async_trait::async_trait;
use datafusion_transport_core::error::ErrorKind;
use datafusion_transport_core::{IoRuntime, TransportError, Transports};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio_util::task::AbortOnDropHandle;
use tonic::transport::server::TcpIncoming;
use url::Url;

/// gRPC on loopback.
#[derive(Default)]
pub struct Grpc;

impl Grpc {
    /// With the engine's defaults.
    pub fn new() -> Self {
        Self
    }
}

impl Subject for Grpc {
    fn name(&self) -> &str {
        "grpc"
    }

    fn lacks(&self) -> Vec<(Capability, &'static str)> {
        vec![
            (
                Capability::Service,
                "its server serves the engine's worker only",
            ),
            (
                Capability::Counters,
                "it counts no connections, streams or calls",
            ),
            (Capability::Drain, "its server has no graceful end"),
        ]
    }

    fn shortcomings(&self) -> Vec<Shortcoming> {
        SHORTCOMINGS
            .iter()
            .copied()
            .map(Shortcoming::from)
            .collect()
    }
}

#[async_trait]
impl ChannelHarness for Grpc {
    fn transports(&self) -> Transports {
        Transports::builder()
            .grpc()
            .build()
            .expect("a registry of one kind")
    }

    async fn serve(
        &self,
        service: Service,
        at: Option<&Url>,
        io: Option<&IoRuntime>,
    ) -> Result<Box<dyn Served>, TransportError> {
        let service = service.into_worker().worker().into_worker_server();
        let own = io.is_none().then(runtime);
        let runtime = match (&own, io) {
            (Some(own), _) => own.handle().clone(),
            (None, Some(io)) => io.handle(),
            (None, None) => Handle::current(),
        };
        let bound = runtime.spawn(TcpListener::bind(address(at))).await;
        let listener = bound
            .map_err(std::io::Error::from)
            .flatten()
            .map_err(|err| {
                TransportError::new(ErrorKind::Config, "bind", "local", err.to_string())
            })?;
        let url = format!("http://{}", listener.local_addr().expect("it is bound"));
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        let router = tonic::transport::Server::builder().add_service(service);
        let serving = runtime.spawn(async move {
            let _ = router.serve_with_incoming(incoming).await;
        });
        Ok(Box::new(Serving {
            url: url.parse().expect("a URL"),
            _task: AbortOnDropHandle::new(serving),
            runtime: own,
        }))
    }
}

/// A worker has threads of its own, because tonic's tasks for its connections end with nothing less.
fn runtime() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder
        .worker_threads(2)
        .thread_stack_size(16 << 20)
        .enable_all();
    builder.build().expect("threads")
}

struct Serving {
    url: Url,
    _task: AbortOnDropHandle<()>,
    runtime: Option<Runtime>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[async_trait]
impl Served for Serving {
    fn url(&self) -> &Url {
        &self.url
    }

    async fn kill(self: Box<Self>) {
        let address = address(Some(&self.url));
        drop(self);
        // The runtime ends in the background, and the socket with it.
        let gone = async { while TcpStream::connect(address).await.is_ok() {} };
        within("the port is closed", SOON, gone).await;
    }
}

/// Of the engine's gRPC in 4.0.0, by case.
const SHORTCOMINGS: &[(&str, Symptom, &str)] = &[
    (
        "calls::large_headers_arrive",
        Symptom::Fails(PLAN_REFUSED),
        HTTP2_LIMIT,
    ),
    (
        "dropping::all_dropped_unpolled_are_released",
        Symptom::Sometimes(20, "all partitions are dropped"),
        ABORTED,
    ),
    (
        "dropping::one_dropped_before_its_first_batch_is_released",
        Symptom::Fails(STILL_PRODUCED),
        ONE_STREAM,
    ),
    (
        "dropping::one_dropped_between_batches_is_released",
        Symptom::Fails(STILL_PRODUCED),
        ONE_STREAM,
    ),
    (
        "dropping::one_dropped_while_its_siblings_are_unread_is_released",
        Symptom::Fails(STILL_PRODUCED),
        ONE_STREAM,
    ),
    (
        "dropping::a_dropped_partition_sends_no_more",
        Symptom::Fails(STILL_PRODUCED),
        ONE_STREAM,
    ),
    (
        "dropping::some_dropped_before_data_leave_the_rest_whole",
        Symptom::Hangs,
        ENDS_TOGETHER,
    ),
    (
        "dropping::some_dropped_during_data_leave_the_rest_whole",
        Symptom::Hangs,
        ENDS_TOGETHER,
    ),
    (
        "dropping::a_plan_is_let_go_after_its_query",
        Symptom::Fails("only the case holds the plan"),
        CACHE,
    ),
    (
        "repartition::unread_outputs_do_not_keep_it_going",
        Symptom::Fails("production stands still"),
        ONE_STREAM,
    ),
    (
        "repartition::all_outputs_dropped_unpolled_end_its_input",
        Symptom::Sometimes(20, "the repartition's input is dropped"),
        ABORTED,
    ),
    (
        "errors::a_panic_is_an_error",
        Symptom::Fails("a panic must not look like an end"),
        PANIC_ENDS,
    ),
    (
        "errors::a_panic_at_the_start_is_an_error",
        Symptom::Fails("the panic's message is lost"),
        PANIC_RESETS,
    ),
    (
        "independence::an_unread_partition_does_not_block_its_siblings",
        Symptom::Hangs,
        SHARED_BUDGET,
    ),
    (
        "independence::half_of_the_partitions_unread_do_not_block_the_others",
        Symptom::Hangs,
        SHARED_BUDGET,
    ),
    (
        "independence::large_partitions_finish_beside_an_unread_one",
        Symptom::Hangs,
        SHARED_BUDGET,
    ),
    (
        "independence::hundreds_of_partitions_are_read_one_after_the_other",
        Symptom::Hangs,
        SHARED_BUDGET,
    ),
    (
        "independence::a_stuck_producer_does_not_block_its_siblings",
        Symptom::Hangs,
        ENDS_TOGETHER,
    ),
    (
        "independence::a_failed_partition_leaves_its_siblings",
        Symptom::Fails("only this one"),
        FAILS_TOGETHER,
    ),
    (
        "losses::a_worker_that_ends_names_itself",
        Symptom::Fails("the worker is not named"),
        NO_NAME,
    ),
    (
        "losses::a_worker_that_came_back_is_reached",
        Symptom::Rarely(PLAN_REFUSED),
        STALE_CONNECTION,
    ),
    (
        "losses::a_silent_worker_is_an_error",
        Symptom::Fails("not within 15s: an error"),
        NO_KEEP_ALIVE,
    ),
    (
        "losses::a_lost_coordinator_fails_its_partitions",
        Symptom::Fails("must not end as if it were complete"),
        LOST_IS_OVER,
    ),
    (
        "memory::a_refused_reservation_is_an_error_soon",
        Symptom::Fails("there is no memory"),
        GROWS,
    ),
    (
        "metrics::they_come_for_a_task_that_nobody_executed",
        Symptom::Fails("task metrics must come once"),
        NOT_EXECUTED,
    ),
    (
        "metrics::they_come_for_a_task_whose_partitions_were_dropped",
        Symptom::Sometimes(20, "task metrics must come once"),
        ABORTED,
    ),
    (
        "explain::every_task_of_a_limit_query_reports",
        Symptom::Sometimes(5, "not within 20s: EXPLAIN ANALYZE"),
        METRICS_WAIT,
    ),
    (
        "types::lists",
        Symptom::Fails("Offset invariant failure"),
        FLIGHT_SLICES,
    ),
    (
        "types::unions",
        Symptom::Fails("the schema arrived otherwise"),
        FLIGHT_UNIONS,
    ),
];

/// What a released producer's failure says.
const STILL_PRODUCED: &str = "the partition's producer is dropped";

/// What the failure of a plan's call says before its cause, which depends on what the connection notices first.
const PLAN_REFUSED: &str = "the plan is accepted";

const HTTP2_LIMIT: &str = "HTTP/2 servers take 16 KiB of headers by default";
const ABORTED: &str = "the client's task that would start and cancel the call is aborted with its last stream; \
    whether it comes that far is a matter of luck";
const ONE_STREAM: &str =
    "all partitions of a call share one HTTP/2 stream, which nothing ends for one of them";
const ENDS_TOGETHER: &str =
    "a partition ends only when all partitions of its call have ended on the worker";
const CACHE: &str = "the worker's task cache keeps what was removed until a later call comes";
const PANIC_ENDS: &str =
    "a task of the worker that panics drops its sender, which looks like the partition's end";
const PANIC_RESETS: &str = "a panic resets the HTTP/2 stream, and its message is lost";
const SHARED_BUDGET: &str =
    "all partitions of a call share one buffer budget, which unread ones use up";
const FAILS_TOGETHER: &str =
    "an error ends the HTTP/2 stream that all partitions of the call share";
const NO_NAME: &str = "the error of a broken HTTP/2 stream names no worker";
const STALE_CONNECTION: &str =
    "a call made just after a connection broke can still be given to it, and fails";
const METRICS_WAIT: &str = "a task that was not executed when the query ended sends no metrics, for which EXPLAIN ANALYZE waits for ever";
const NO_KEEP_ALIVE: &str =
    "nothing is sent on an idle connection, so a silent peer is never noticed";
const LOST_IS_OVER: &str = "a coordinator channel that breaks is taken for the query's end";
const GROWS: &str = "memory is taken without asking the pool (`MemoryReservation::grow`)";
const NOT_EXECUTED: &str = "a task whose plan was not instantiated has no metrics, and sends none";
const FLIGHT_SLICES: &str =
    "a slice of a nested list arrives with wrong offsets, and is not decoded";
const FLIGHT_UNIONS: &str = "the schema of a union arrives changed";
