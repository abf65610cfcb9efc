//! [`Transfer`]: a worker that holds its batches in memory, and clients that drain every partition, over a real socket.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use crate::rounds::{Runner, Stopwatch};
use crate::samples::Sample;
use crate::scenario::{Scenario, array_bytes};
use crate::subject::SOCKET_COPY;
use arrow_array::RecordBatch;
use async_trait::async_trait;
use datafusion::common::Result;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryPool, UnboundedMemoryPool};
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion_distributed::{ChannelResolver, ExecuteTaskRequest, ProducerHead, TaskKey};
use datafusion_transport_core::TransportResolver;
use datafusion_transport_tests::{BUDGET, ChannelHarness, ProbeExec, Rig, Task, compression};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt, future};
use http::HeaderMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::sync::Arc;
use std::thread;

/// A process that reads from a worker.
pub struct Client {
    rig: Rig,
    resolver: TransportResolver,
    context: Arc<TaskContext>,
}

impl Client {
    fn new(rig: Rig) -> Self {
        let pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
        Self {
            resolver: TransportResolver::new(rig.transports.clone()),
            context: rig.context(BUDGET, &pool),
            rig,
        }
    }

    /// The streams of one call, as the engine would get them.
    pub async fn execute(
        &self,
        task_key: TaskKey,
        partitions: Range<usize>,
    ) -> Vec<BoxStream<'static, Result<RecordBatch>>> {
        let request = ExecuteTaskRequest {
            task_key,
            target_partition_start: partitions.start,
            target_partition_end: partitions.end,
            producer_head: ProducerHead::None,
        };
        let metrics = ExecutionPlanMetricsSet::new();
        let channel = self.resolver.get_worker_client_for_url(&self.rig.url).await;
        let mut channel = channel.unwrap();
        let call = channel.execute_task(HeaderMap::new(), request, metrics, &self.context);
        call.await.unwrap()
    }
}

/// A worker, its plan, and its clients.
pub struct Transfer {
    subject: String,
    scenario: Scenario,
    plan: Arc<ProbeExec>,
    /// The first sets the plans.
    clients: Vec<Client>,
}

impl Transfer {
    /// Starts a worker and clients.
    pub async fn start(harness: Arc<dyn ChannelHarness>, scenario: &Scenario) -> Self {
        let batch = scenario.batch();
        let schema = batch.schema();
        let batches = vec![batch; scenario.batches];
        let plan = ProbeExec::new(schema, scenario.all_partitions(), move |_| {
            stream::iter(batches.clone()).map(Ok).boxed()
        });
        let subject = harness.name().to_owned();
        let first = Client::new(Rig::start(harness).await);
        let others: Vec<_> = (1..scenario.consumers)
            .map(|_| Client::new(first.rig.client()))
            .collect();
        Self {
            subject,
            scenario: scenario.clone(),
            plan,
            clients: [first].into_iter().chain(others).collect(),
        }
    }

    /// Gives the worker the plan anew: a task is executed once.
    pub async fn set_plan(&self) -> Task {
        let headers = match self.scenario.compression {
            "auto" => {
                let mut headers = compression("lz4");
                let option = "x-datafusion-distributed-config-transport.compression";
                headers.insert(option, "auto".parse().unwrap());
                headers
            }
            named => compression(named),
        };
        let plan = self.clients[0].rig.plan(Arc::clone(&self.plan) as _);
        plan.headers(headers).send().await.unwrap()
    }

    /// The name of what is measured.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// Rows of so many partitions.
    pub fn rows_of(&self, partitions: usize) -> usize {
        partitions * self.scenario.batches * self.scenario.rows
    }

    /// The client that sets the plans.
    pub fn client(&self) -> &Client {
        &self.clients[0]
    }

    /// A client with no connection yet.
    pub fn new_client(&self) -> Client {
        Client::new(self.clients[0].rig.client())
    }
}

/// Ends a query and waits until the worker has let go of it.
pub async fn end(mut task: Task) {
    task.end();
    task.from_worker.by_ref().for_each(|_| async {}).await;
}

/// Drains streams, each in a task of its own. Returns the rows.
pub async fn drain(streams: Vec<BoxStream<'static, Result<RecordBatch>>>) -> usize {
    let count = |stream: BoxStream<'static, Result<RecordBatch>>| {
        tokio::spawn(stream.try_fold(0, |rows, batch| async move { Ok(rows + batch.num_rows()) }))
    };
    let counts = future::join_all(streams.into_iter().map(count).collect::<Vec<_>>()).await;
    counts.into_iter().map(|rows| rows.unwrap().unwrap()).sum()
}

#[async_trait]
impl Runner for Transfer {
    fn subject(&self) -> &str {
        &self.subject
    }

    async fn run(&mut self) -> Sample {
        let task = self.set_plan().await;
        let partitions = self.scenario.partitions;
        let stopwatch = Stopwatch::start();
        let calls = self
            .clients
            .iter()
            .enumerate()
            .map(|(number, client)| async move {
                let range = number * partitions..(number + 1) * partitions;
                drain(client.execute(task.key, range).await).await
            });
        let rows: usize = future::join_all(calls).await.into_iter().sum();
        let sample = stopwatch.stop();
        assert_eq!(rows, self.scenario.all_rows());
        end(task).await;
        sample
    }
}

/// What a bare socket carries: the same number of bytes, written and read by two threads.
pub struct SocketCopy {
    bytes: usize,
    writer: TcpStream,
    reader: TcpStream,
}

/// A size at which the calls no longer count.
const COPY_BYTES: usize = 256 << 10;

impl SocketCopy {
    /// A connection on loopback, with the congestion control that this project's TCP chooses.
    pub fn connect(scenario: &Scenario) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let writer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let _ = socket2::SockRef::from(&writer).set_tcp_congestion(b"cubic");
        let batch = scenario.batch();
        Self {
            bytes: scenario.all_batches() * array_bytes(&batch),
            writer,
            reader: listener.accept().unwrap().0,
        }
    }
}

#[async_trait]
impl Runner for SocketCopy {
    fn subject(&self) -> &str {
        SOCKET_COPY
    }

    async fn run(&mut self) -> Sample {
        let stopwatch = Stopwatch::start();
        thread::scope(|scope| {
            scope.spawn(|| {
                let data = vec![7; COPY_BYTES];
                let mut left = self.bytes;
                while left > 0 {
                    let some = left.min(COPY_BYTES);
                    self.writer.write_all(&data[..some]).unwrap();
                    left -= some;
                }
            });
            let mut data = vec![0; COPY_BYTES];
            let mut left = self.bytes;
            while left > 0 {
                left -= self.reader.read(&mut data).unwrap();
            }
        });
        stopwatch.stop()
    }
}
