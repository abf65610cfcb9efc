//! [`Script`]: a worker service that says what a case wants and tells what it heard.

use async_trait::async_trait;
use datafusion::common::{Result, exec_err};
use datafusion_distributed::{
    CoordinatorToWorkerMsg, ExecuteTaskRequest, GetWorkerInfoResponse, SetPlanRequest,
    WorkerToCoordinatorMsg,
};
use datafusion_transport_core::{TaskOutput, WorkerService};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt, TryStreamExt};
use http::HeaderMap;
use std::sync::{Arc, Mutex};
use tokio::sync::oneshot;

type Heard = Result<Vec<CoordinatorToWorkerMsg>>;

/// A coordinator channel of one task; it executes nothing.
pub(crate) struct Script {
    says: Mutex<Option<BoxStream<'static, Result<WorkerToCoordinatorMsg>>>>,
    hearing: Mutex<Option<oneshot::Sender<Heard>>>,
    heard: Mutex<Option<oneshot::Receiver<Heard>>>,
}

impl Script {
    /// Says this to the first coordinator.
    pub(crate) fn new(
        says: impl Stream<Item = Result<WorkerToCoordinatorMsg>> + Send + 'static,
    ) -> Arc<Self> {
        let (hearing, heard) = oneshot::channel();
        Arc::new(Self {
            says: Mutex::new(Some(says.boxed())),
            hearing: Mutex::new(Some(hearing)),
            heard: Mutex::new(Some(heard)),
        })
    }

    /// All that the coordinator said, once it has ended.
    pub(crate) async fn heard(&self) -> Heard {
        let heard = self.heard.lock().expect("no panic").take();
        heard
            .expect("asked once")
            .await
            .expect("somebody was heard")
    }
}

#[async_trait]
impl WorkerService for Script {
    async fn coordinator_channel(
        &self,
        _headers: HeaderMap,
        _plan: SetPlanRequest,
        from_coordinator: BoxStream<'static, Result<CoordinatorToWorkerMsg>>,
    ) -> Result<BoxStream<'static, Result<WorkerToCoordinatorMsg>>> {
        let says = self.says.lock().expect("no panic").take();
        let hearing = self.hearing.lock().expect("no panic").take();
        let (Some(says), Some(hearing)) = (says, hearing) else {
            return exec_err!("the script is for one task");
        };
        tokio::spawn(async move {
            let _ = hearing.send(from_coordinator.try_collect().await);
        });
        Ok(says)
    }

    async fn execute_task(
        &self,
        _headers: HeaderMap,
        _request: ExecuteTaskRequest,
    ) -> Result<TaskOutput> {
        exec_err!("the script executes nothing")
    }

    async fn worker_info(&self) -> Result<GetWorkerInfoResponse> {
        Ok(GetWorkerInfoResponse {
            version: "script".into(),
        })
    }
}
