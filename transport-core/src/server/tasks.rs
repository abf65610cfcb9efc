//! [`TaskTable`]: the tasks whose coordinator channel is open on this server.

use datafusion_distributed::TaskKey;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Links a task's partitions to its coordinator: where the coordinator is lost, a work-unit feed ends as if it were
/// complete, and what the partitions produce from then on may be cut short. So they must fail.
#[derive(Default)]
pub(super) struct TaskTable {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    tasks: Mutex<HashMap<TaskKey, CancellationToken>>,
    added: Notify,
}

/// A task's entry, from plan to the end of its coordinator channel. Dropped before [`end`](Self::end), the
/// coordinator counts as lost.
pub(super) struct TaskEntry {
    shared: Arc<Shared>,
    key: TaskKey,
    lost: CancellationToken,
    /// A second plan for a task is the worker's to refuse; it doesn't touch the first one's entry.
    owner: bool,
    ended: bool,
}

impl TaskTable {
    pub(super) fn insert(&self, key: TaskKey) -> TaskEntry {
        let lost = CancellationToken::new();
        let owner = match self.shared.lock().entry(key) {
            Entry::Vacant(entry) => {
                entry.insert(lost.clone());
                true
            }
            Entry::Occupied(_) => false,
        };
        self.shared.added.notify_waiters();
        TaskEntry {
            shared: Arc::clone(&self.shared),
            key,
            lost,
            owner,
            ended: false,
        }
    }

    /// Fires when the task's coordinator is lost. `None` for a task that is not here: it came another way, by gRPC for one, or not yet.
    pub(super) fn coordinator_lost(&self, key: &TaskKey) -> Option<CancellationToken> {
        self.shared.lock().get(key).cloned()
    }

    /// Waits until the task is here; the caller sets the limit. Cancel safe.
    pub(super) async fn wait_for(&self, key: &TaskKey) {
        loop {
            let added = self.shared.added.notified();
            tokio::pin!(added);
            added.as_mut().enable();
            if self.contains(key) {
                return;
            }
            added.await;
        }
    }

    pub(super) fn contains(&self, key: &TaskKey) -> bool {
        self.shared.lock().contains_key(key)
    }

    /// Whether any task of the query is here.
    pub(super) fn contains_query(&self, query_id: &Uuid) -> bool {
        let tasks = self.shared.lock();
        tasks.keys().any(|key| key.query_id == *query_id)
    }

    pub(super) fn len(&self) -> usize {
        self.shared.lock().len()
    }
}

impl TaskEntry {
    /// The coordinator ended the query in order.
    pub(super) fn end(mut self) {
        self.remove();
        self.ended = true;
    }

    fn remove(&self) {
        if self.owner {
            self.shared.lock().remove(&self.key);
        }
    }
}

impl Drop for TaskEntry {
    fn drop(&mut self) {
        if !self.ended {
            self.remove();
            self.lost.cancel();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, HashMap<TaskKey, CancellationToken>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
