//! [`TaskTable`]: the tasks whose coordinator channel is open on this server.

use datafusion_distributed::TaskKey;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};
use uuid::Uuid;

/// Links a task's partitions to its coordinator. Where the query is over, partitions that are left have no reader. Where
/// the coordinator is lost, a work-unit feed ends as if it were complete, and what the partitions produce from then on may
/// be cut short: so they must fail.
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
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    tasks: HashMap<TaskKey, TaskWatch>,
    /// Queries of which a task ended here, and so all of them are over.
    over: HashMap<Uuid, Instant>,
}

/// How a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TaskEnd {
    /// Its coordinator said that the query is over.
    InOrder,
    /// Its coordinator was lost.
    CoordinatorLost,
}

/// A task as its partitions see it.
#[derive(Clone)]
pub(super) struct TaskWatch(watch::Receiver<Option<TaskEnd>>);

/// What the table knows of a task.
pub(super) enum Lookup {
    /// Its coordinator channel is open.
    Here(TaskWatch),
    /// It ended a short time ago.
    Over,
    /// It came another way, by gRPC for one, or not yet.
    Unknown,
}

/// A task's entry, from plan to the end of its coordinator channel. Dropped before [`end`](Self::end), the
/// coordinator counts as lost.
pub(super) struct TaskEntry {
    shared: Arc<Shared>,
    key: TaskKey,
    end: watch::Sender<Option<TaskEnd>>,
    /// A second plan for a task is the worker's to refuse; it doesn't touch the first one's entry.
    owner: bool,
}

impl TaskTable {
    pub(super) fn insert(&self, key: TaskKey) -> TaskEntry {
        let (end, watch) = watch::channel(None);
        let mut state = self.shared.lock();
        // The same physical plan, executed again, is the same query.
        state.over.remove(&key.query_id);
        let owner = match state.tasks.entry(key) {
            Entry::Vacant(entry) => {
                entry.insert(TaskWatch(watch));
                true
            }
            Entry::Occupied(_) => false,
        };
        drop(state);
        self.shared.changed.notify_waiters();
        TaskEntry {
            shared: Arc::clone(&self.shared),
            key,
            end,
            owner,
        }
    }

    pub(super) fn find(&self, key: &TaskKey) -> Lookup {
        self.shared.lock().find(key)
    }

    /// Waits until the task is here, or known to be over, which gives false; the caller sets the limit. Cancel safe.
    pub(super) async fn wait_for(&self, key: &TaskKey) -> bool {
        loop {
            let changed = self.shared.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            match self.find(key) {
                Lookup::Here(_) => return true,
                Lookup::Over => return false,
                Lookup::Unknown => changed.await,
            }
        }
    }

    /// Whether any task of the query is here.
    pub(super) fn contains_query(&self, query_id: &Uuid) -> bool {
        let state = self.shared.lock();
        state.tasks.keys().any(|key| key.query_id == *query_id)
    }

    pub(super) fn len(&self) -> usize {
        self.shared.lock().tasks.len()
    }
}

impl TaskWatch {
    /// Resolves when the task ended. Cancel safe.
    pub(super) async fn ended(&mut self) -> TaskEnd {
        let end = self.0.wait_for(Option::is_some).await;
        end.ok()
            .and_then(|end| *end)
            .unwrap_or(TaskEnd::CoordinatorLost)
    }

    /// Whether the coordinator was lost by now.
    pub(super) fn is_coordinator_lost(&self) -> bool {
        *self.0.borrow() == Some(TaskEnd::CoordinatorLost)
    }
}

impl TaskEntry {
    /// The coordinator ended the query in order.
    pub(super) fn end(self) {
        self.remove(TaskEnd::InOrder);
    }

    fn remove(&self, end: TaskEnd) {
        if self.owner && self.end.send_if_modified(|known| set(known, end)) {
            let mut state = self.shared.lock();
            state.tasks.remove(&self.key);
            state.query_ended(self.key.query_id);
            drop(state);
            self.shared.changed.notify_waiters();
        }
    }
}

fn set(known: &mut Option<TaskEnd>, end: TaskEnd) -> bool {
    let first = known.is_none();
    known.get_or_insert(end);
    first
}

impl Drop for TaskEntry {
    fn drop(&mut self) {
        self.remove(TaskEnd::CoordinatorLost);
    }
}

impl State {
    fn find(&self, key: &TaskKey) -> Lookup {
        if let Some(watch) = self.tasks.get(key) {
            return Lookup::Here(watch.clone());
        }
        match self.over.get(&key.query_id) {
            Some(at) if at.elapsed() < REMEMBERED => Lookup::Over,
            _ => Lookup::Unknown,
        }
    }

    fn query_ended(&mut self, query_id: Uuid) {
        if self.over.len() >= MAX_REMEMBERED {
            self.over.retain(|_, at| at.elapsed() < REMEMBERED);
        }
        // So many at once: a release may then wait for its limit.
        if self.over.len() >= MAX_REMEMBERED {
            self.over.clear();
        }
        self.over.insert(query_id, Instant::now());
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
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

    /// An engine executes a physical plan twice under one query id.
    #[tokio::test]
    async fn a_query_that_runs_again_is_not_over() {
        let table = TaskTable::default();
        table.insert(key(1, 1)).end();
        assert!(matches!(table.find(&key(1, 2)), Lookup::Over));
        let _again = table.insert(key(1, 1));
        assert!(matches!(table.find(&key(1, 2)), Lookup::Unknown));
    }

    #[test]
    fn queries_that_are_over_take_bounded_memory() {
        let table = TaskTable::default();
        for query in 0..3 * MAX_REMEMBERED as u128 {
            table.insert(key(query, 1)).end();
        }
        assert!((1..=MAX_REMEMBERED).contains(&table.shared.lock().over.len()));
        assert_eq!(0, table.len());
    }

    #[tokio::test]
    async fn partitions_learn_how_their_task_ended() {
        let table = TaskTable::default();
        let watch = |key| match table.find(&key) {
            Lookup::Here(watch) => watch,
            _ => panic!("the task is here"),
        };
        let (first, second) = (table.insert(key(1, 1)), table.insert(key(1, 2)));
        let (mut first_watch, mut second_watch) = (watch(key(1, 1)), watch(key(1, 2)));
        first.end();
        assert_eq!(first_watch.ended().await, TaskEnd::InOrder);
        assert!(!first_watch.is_coordinator_lost());
        drop(second);
        assert_eq!(second_watch.ended().await, TaskEnd::CoordinatorLost);
        assert!(second_watch.is_coordinator_lost());
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
