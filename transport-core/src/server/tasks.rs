//! [`TaskTable`]: the tasks whose coordinator channel is open on this server.

use datafusion_distributed::TaskKey;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Links a task's partitions to its coordinator: where the coordinator is lost, a work-unit feed ends as if it were
/// complete, and what the partitions produce from then on may be cut short. So they must fail.
#[derive(Default)]
pub(super) struct TaskTable {
    shared: Arc<Shared>,
}

/// How long a query is remembered after it ended: longer than any release that is still under way waits for its task.
const REMEMBERED: Duration = Duration::from_secs(30);

/// The most of them; each takes a few dozen bytes.
const MAX_REMEMBERED: usize = 4096;

#[derive(Default)]
struct Shared {
    tasks: Mutex<HashMap<TaskKey, CancellationToken>>,
    /// Queries of which a task ended here, and so all of them are over, oldest first.
    over: Mutex<VecDeque<(Uuid, Instant)>>,
    changed: Notify,
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
        self.shared.changed.notify_waiters();
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

    /// Waits until the task is here, or known to be over, which gives false; the caller sets the limit. Cancel safe.
    pub(super) async fn wait_for(&self, key: &TaskKey) -> bool {
        loop {
            let changed = self.shared.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.contains(key) {
                return true;
            }
            if self.shared.is_over(&key.query_id) {
                return false;
            }
            changed.await;
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
            self.shared.query_ended(self.key.query_id);
            self.shared.changed.notify_waiters();
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
    fn is_over(&self, query_id: &Uuid) -> bool {
        let over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
        over.iter().any(|(id, _)| id == query_id)
    }

    fn query_ended(&self, query_id: Uuid) {
        let mut over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
        while over.len() >= MAX_REMEMBERED
            || over
                .front()
                .is_some_and(|(_, at)| at.elapsed() > REMEMBERED)
        {
            over.pop_front();
        }
        if over.iter().all(|(id, _)| *id != query_id) {
            over.push_back((query_id, Instant::now()));
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TaskKey, CancellationToken>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);

    fn key(query: u128, stage_id: usize) -> TaskKey {
        TaskKey {
            query_id: Uuid::from_u128(query),
            stage_id,
            task_number: 0,
        }
    }

    /// A partition is often dropped because its query ended: to wait for its task then would hold the call, and its
    /// stream on the other side, for the whole limit.
    #[tokio::test]
    async fn nobody_waits_for_a_query_that_is_over() {
        let table = TaskTable::default();
        let (first, second) = (table.insert(key(1, 1)), table.insert(key(1, 2)));
        assert!(table.wait_for(&key(1, 2)).await);
        let later = [key(1, 3), key(1, 4)];
        let waiting = later.each_ref().map(|key| table.wait_for(key));
        let ends = async {
            tokio::task::yield_now().await;
            first.end();
        };
        let all = async { tokio::join!(futures::future::join_all(waiting), ends) };
        let (outcomes, ()) = tokio::time::timeout(LIMIT, all).await.unwrap();
        assert_eq!(outcomes, [false, false]);
        assert!(table.wait_for(&key(1, 2)).await, "this one is still here");
        drop(second);
        assert!(!table.wait_for(&key(1, 2)).await);
    }

    #[tokio::test]
    async fn a_task_that_comes_later_is_waited_for() {
        let table = TaskTable::default();
        drop(table.insert(key(1, 1)));
        let key = key(2, 1);
        let comes = async {
            tokio::task::yield_now().await;
            table.insert(key)
        };
        let both = async { tokio::join!(table.wait_for(&key), comes) };
        let (here, _entry) = tokio::time::timeout(LIMIT, both).await.unwrap();
        assert!(here);
    }
}
