//! [`Sweeper`]: makes the engine let go of tasks that are over.
//!
//! The engine keeps its tasks in a cache that drops what was removed from it only at a later call, and 300 ms later at
//! the earliest. Until then, for ever on a worker that gets no further query, a task that is over keeps its plan: build
//! sides of joins, buffered batches, and the streams that the plan never took up, each with its window on this side and
//! a call on another worker.

use datafusion_distributed::{ExecuteTaskRequest, ProducerHead, TaskKey, Worker};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

/// More than the cache's own 300 ms.
const DELAY: Duration = Duration::from_millis(350);

/// The call that follows is over at once, or else waits for a plan that never comes.
const TOUCH_LIMIT: Duration = Duration::from_millis(10);

/// Sweeps a worker's cache after tasks ended. Dropping it ends the sweep.
#[derive(Default)]
pub(crate) struct Sweeper {
    pending: Mutex<Option<AbortOnDropHandle<()>>>,
}

impl Sweeper {
    /// A task was removed. Sweeps once no other was removed for a while: a sweep that was due earlier would come before the cache
    /// looks at this one. Where tasks end all the time, the cache is called all the time.
    pub(crate) fn task_ended(&self, worker: &Worker) {
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let worker = worker.clone();
        let sweep = runtime.spawn(async move {
            tokio::time::sleep(DELAY).await;
            let _ = tokio::time::timeout(TOUCH_LIMIT, worker.execute_task(nobodys_task())).await;
        });
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        *pending = Some(AbortOnDropHandle::new(sweep));
    }
}

/// Always the same, so that the cache gets one entry by it.
fn nobodys_task() -> ExecuteTaskRequest {
    ExecuteTaskRequest {
        task_key: TaskKey {
            query_id: Uuid::nil(),
            stage_id: 0,
            task_number: 0,
        },
        target_partition_start: 0,
        target_partition_end: 0,
        producer_head: ProducerHead::None,
    }
}
