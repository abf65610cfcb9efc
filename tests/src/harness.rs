//! [`Harness`]: one worker and one client on a transport, in this process, over real sockets where the transport has any.

use crate::probe::ProbeCodec;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::Result;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryPool, UnboundedMemoryPool};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion_distributed::{
    ChannelResolver, DefaultSessionBuilder, DistributedExt, ExecuteTaskRequest,
    MappedWorkerSessionBuilderExt, MaybeEncoded, ProducerHead, SetPlanRequest, TaskKey,
    WorkerChannel, WorkerSessionBuilder, WorkerToCoordinatorMsg,
};
use datafusion_transport_core::connection::Listener;
use datafusion_transport_core::memory::MemoryNetwork;
use datafusion_transport_core::{
    IoRuntime, Server, ServerHandle, TransportExt, TransportResolver, Transports,
};
use datafusion_transport_quic::{DevelopmentIdentity, QuicConfig, QuicConnector, QuicListener};
use datafusion_transport_tcp::{TcpConfig, TcpConnector, TcpListener};
use futures::StreamExt;
use futures::stream::BoxStream;
use http::HeaderMap;
use std::ops::Range;
use std::sync::Arc;
use tokio::sync::oneshot;
use tokio_util::task::AbortOnDropHandle;
use url::Url;
use uuid::Uuid;

/// The transports under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The in-memory network: proves the tests themselves.
    Memory,
    /// QUIC on loopback.
    Quic,
    /// The multiplexer over TCP on loopback.
    Tcp,
    /// The multiplexer over a Unix socket.
    Unix,
    /// The engine's gRPC on loopback: the reference.
    Grpc,
}

/// A worker, and a client that reaches it.
pub struct Harness {
    /// Where the worker is.
    pub url: Url,
    /// The client's transports.
    pub transports: Transports,
    /// The worker's server; none for gRPC.
    pub server: Option<ServerHandle>,
    _grpc: Option<AbortOnDropHandle<()>>,
    _dir: Option<tempfile::TempDir>,
}

/// A task whose plan a worker holds. Dropping it ends the query.
pub struct Task {
    /// Its key.
    pub key: TaskKey,
    /// What the worker says to the coordinator.
    pub from_worker: BoxStream<'static, Result<WorkerToCoordinatorMsg>>,
    end: Option<oneshot::Sender<()>>,
}

impl Task {
    /// The query is over.
    pub fn end(&mut self) {
        self.end.take();
    }
}

impl Harness {
    /// Starts a worker on a transport.
    pub async fn start(kind: Kind) -> Self {
        match kind {
            Kind::Memory => Self::start_memory(),
            Kind::Quic => Self::start_quic(QuicConfig::default()),
            Kind::Tcp => Self::start_tcp(),
            Kind::Unix => Self::start_unix(),
            Kind::Grpc => Self::start_grpc().await,
        }
    }

    fn start_memory() -> Self {
        let network = MemoryNetwork::new();
        let url: Url = "memory://worker:1".parse().unwrap();
        let listener = network.listen(&url);
        let builder = Transports::builder().connector("memory", Arc::new(network));
        Self::serve(url, builder.build().unwrap(), Box::new(listener))
    }

    /// Starts a worker on QUIC with a configuration of its own; plans run on the current tokio runtime.
    pub fn start_quic(config: QuicConfig) -> Self {
        let io = IoRuntime::shared().unwrap();
        let identity_dir = tempfile::tempdir().unwrap();
        let identity = DevelopmentIdentity::load_or_create(identity_dir.path(), &[]).unwrap();
        let server_tls = identity.server_tls().unwrap();
        let any = "127.0.0.1:0".parse().unwrap();
        let listener = QuicListener::bind(any, config.clone(), server_tls, &io).unwrap();
        let url = format!("http://{}", listener.local_addr()).parse().unwrap();
        let client_tls = identity.client_tls().unwrap();
        let connector = QuicConnector::new(config, client_tls, &io).unwrap();
        let builder = Transports::builder().connector("quic", Arc::new(connector));
        Self {
            _dir: Some(identity_dir),
            ..Self::serve(url, builder.build().unwrap(), Box::new(listener))
        }
    }

    fn start_tcp() -> Self {
        let io = IoRuntime::shared().unwrap();
        let any = "127.0.0.1:0".parse().unwrap();
        let listener = TcpListener::bind(any, TcpConfig::default(), None, &io).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        Self::serve_tcp(&url, listener)
    }

    fn start_unix() -> Self {
        let io = IoRuntime::shared().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("worker");
        let listener = TcpListener::bind_unix(&path, TcpConfig::default(), &io).unwrap();
        Self {
            _dir: Some(dir),
            ..Self::serve_tcp(&format!("unix://{}", path.display()), listener)
        }
    }

    fn serve_tcp(url: &str, listener: TcpListener) -> Self {
        let io = IoRuntime::shared().unwrap();
        let connector = TcpConnector::new(TcpConfig::default(), None, &io).unwrap();
        let builder = Transports::builder().connector("tcp", Arc::new(connector));
        let transports = builder.build().unwrap();
        Self::serve(url.parse().unwrap(), transports, Box::new(listener))
    }

    fn serve(url: Url, transports: Transports, listener: Box<dyn Listener>) -> Self {
        let worker = transports.worker(session_builder());
        let server = Server::builder(worker).listener(listener);
        Self {
            url,
            server: Some(server.start().unwrap()),
            transports,
            _grpc: None,
            _dir: None,
        }
    }

    async fn start_grpc() -> Self {
        let transports = Transports::builder().grpc().build().unwrap();
        let worker = transports.worker(session_builder());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let service = worker.worker().into_worker_server();
        let incoming =
            tonic::transport::server::TcpIncoming::from(listener).with_nodelay(Some(true));
        let serve = async move {
            let router = tonic::transport::Server::builder().add_service(service);
            router.serve_with_incoming(incoming).await.unwrap();
        };
        Self {
            url: url.parse().unwrap(),
            transports,
            server: None,
            _grpc: Some(AbortOnDropHandle::new(tokio::spawn(serve))),
            _dir: None,
        }
    }

    /// A channel to the worker, as the engine would get it.
    pub async fn channel(&self) -> Box<dyn WorkerChannel> {
        let resolver = TransportResolver::new(self.transports.clone());
        resolver.get_worker_client_for_url(&self.url).await.unwrap()
    }

    /// Gives the worker a plan by a coordinator channel; a [`ProbeExec`](crate::ProbeExec) arrives as the same object.
    pub async fn set_plan(&self, plan: Arc<dyn ExecutionPlan>) -> Task {
        self.try_set_plan(plan).await.unwrap()
    }

    /// Likewise, where the worker may refuse.
    pub async fn try_set_plan(&self, plan: Arc<dyn ExecutionPlan>) -> Result<Task> {
        let key = TaskKey {
            query_id: Uuid::new_v4(),
            stage_id: 1,
            task_number: 0,
        };
        let request = SetPlanRequest {
            task_key: key,
            task_count: 1,
            plan: MaybeEncoded::Decoded(plan),
            work_unit_feed_declarations: vec![],
            target_worker_url: self.url.clone(),
            query_start_time_ns: 0,
        };
        let (end, ended) = oneshot::channel::<()>();
        let until_end = futures::stream::once(ended).filter_map(|_| async { None });
        let mut headers = HeaderMap::new();
        let option = "x-datafusion-distributed-config-distributed.compression";
        headers.insert(option, "none".parse().unwrap());
        let pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
        let (metrics, ctx) = (ExecutionPlanMetricsSet::new(), self.context(1, &pool));
        let mut channel = self.channel().await;
        let from_worker = channel
            .coordinator_channel(headers, request, until_end.boxed(), metrics, &ctx)
            .await?;
        Ok(Task {
            key,
            from_worker,
            end: Some(end),
        })
    }

    /// Asks for partitions of a task, in a session with a memory pool of its own and this buffer budget.
    pub async fn execute(
        &self,
        key: TaskKey,
        partitions: Range<usize>,
        budget_bytes: usize,
    ) -> Execution {
        let pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
        self.execute_in(key, partitions, ProducerHead::None, budget_bytes, pool)
            .await
    }

    /// Likewise, with a producer head and a memory pool.
    pub async fn execute_in(
        &self,
        key: TaskKey,
        partitions: Range<usize>,
        producer_head: ProducerHead,
        budget_bytes: usize,
        pool: Arc<dyn MemoryPool>,
    ) -> Execution {
        let ctx = self.context(budget_bytes, &pool);
        let request = ExecuteTaskRequest {
            task_key: key,
            target_partition_start: partitions.start,
            target_partition_end: partitions.end,
            producer_head,
        };
        let metrics = ExecutionPlanMetricsSet::new();
        let mut channel = self.channel().await;
        let streams = channel
            .execute_task(HeaderMap::new(), request, metrics.clone(), &ctx)
            .await
            .unwrap();
        Execution {
            streams,
            metrics,
            pool,
        }
    }

    /// A wired session's context.
    pub fn context(&self, budget_bytes: usize, pool: &Arc<dyn MemoryPool>) -> Arc<TaskContext> {
        let runtime = RuntimeEnvBuilder::new().with_memory_pool(Arc::clone(pool));
        let config = SessionConfig::new()
            .with_distributed_transports(&self.transports)
            .with_distributed_user_codec(ProbeCodec)
            .with_distributed_worker_connection_buffer_budget_bytes(budget_bytes)
            .unwrap();
        let runtime = runtime.build_arc().unwrap();
        SessionContext::new_with_config_rt(config, runtime).task_ctx()
    }
}

/// Sessions that can decode a probe.
fn session_builder() -> impl WorkerSessionBuilder + Send + Sync + 'static {
    DefaultSessionBuilder.map(|builder| Ok(builder.with_distributed_user_codec(ProbeCodec).build()))
}

/// The streams of a call, and what the session sees of them.
pub struct Execution {
    /// One per partition, in order.
    pub streams: Vec<BoxStream<'static, Result<RecordBatch>>>,
    /// The boundary's metrics.
    pub metrics: ExecutionPlanMetricsSet,
    /// The session's memory pool.
    pub pool: Arc<dyn MemoryPool>,
}
