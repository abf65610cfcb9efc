//! [`QueryTable`]: lets a query's partitions fail as soon as one of its coordinator channels does.
//!
//! The engine looks at what its coordinator channels report only after the result has been read to its end. A lost
//! worker would so show itself only when whoever waits for that worker's data gives up, which may be another worker that
//! computes for minutes. The process that coordinates a query knows sooner.

use datafusion::common::DataFusionError;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// The queries that have a stream now.
#[derive(Debug, Default)]
pub(crate) struct QueryTable(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    queries: HashMap<Uuid, Weak<Query>>,
    /// Queries whose plan could not be set, kept for partitions that are asked for only now: they would wait for it in vain.
    failed: VecDeque<(Instant, Arc<Query>)>,
}

/// How long such a query is kept. Short: who executes the same physical plan again meets the old failure until then.
const FAILED_KEPT: Duration = Duration::from_secs(1);

/// The most of them.
const MAX_FAILED: usize = 256;

/// What the streams of one query share.
#[derive(Debug, Default)]
pub(crate) struct Query {
    failed: CancellationToken,
    cause: OnceLock<Arc<DataFusionError>>,
}

impl QueryTable {
    /// The query's entry, which lives as long as somebody holds it.
    pub(crate) fn query(&self, id: Uuid) -> Arc<Query> {
        let State { queries, failed } = &mut *self.lock();
        while failed
            .front()
            .is_some_and(|(at, _)| at.elapsed() > FAILED_KEPT)
        {
            failed.pop_front();
        }
        if let Some(query) = queries.get(&id).and_then(Weak::upgrade) {
            return query;
        }
        if queries.len() == queries.capacity() {
            queries.retain(|_, query| query.strong_count() > 0);
        }
        let query = Arc::new(Query::default());
        queries.insert(id, Arc::downgrade(&query));
        query
    }

    /// A plan of the query could not be set: fails its partitions in this process, those too that are asked for within a second.
    /// Returns the error to report.
    pub(crate) fn plan_failed(&self, query: Arc<Query>, err: DataFusionError) -> DataFusionError {
        let err = query.fail(err);
        let failed = &mut self.lock().failed;
        if failed.len() >= MAX_FAILED {
            failed.pop_front();
        }
        failed.push_back((Instant::now(), query));
        err
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Query {
    /// Fails the query's partitions in this process; the first cause stays. Returns the error to report.
    pub(crate) fn fail(&self, err: DataFusionError) -> DataFusionError {
        let err = Arc::new(err);
        let _ = self.cause.set(Arc::clone(&err));
        self.failed.cancel();
        DataFusionError::Shared(err)
    }

    /// Why the query failed, if it did.
    pub(crate) fn failure(&self) -> Option<DataFusionError> {
        let cause = self.cause.get()?;
        Some(DataFusionError::Shared(Arc::clone(cause)))
    }

    /// Resolves when the query fails.
    pub(crate) async fn failed(self: Arc<Self>) {
        self.failed.cancelled().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_query_is_one_entry_and_goes_with_its_last_holder() {
        let table = QueryTable::default();
        let id = Uuid::from_u128(1);
        let query = table.query(id);
        assert!(Arc::ptr_eq(&query, &table.query(id)));
        assert!(!Arc::ptr_eq(&query, &table.query(Uuid::from_u128(2))));
        query.fail(DataFusionError::Execution("first".into()));
        query.fail(DataFusionError::Execution("second".into()));
        let failure = query.failure().map(|err| err.to_string());
        assert!(failure.is_some_and(|text| text.contains("first")));
        drop(query);
        assert!(table.query(id).failure().is_none());
    }

    #[test]
    fn a_query_whose_plan_failed_is_known_for_a_moment_longer() {
        let table = QueryTable::default();
        let id = Uuid::from_u128(1);
        table.plan_failed(table.query(id), DataFusionError::Execution("no way".into()));
        assert!(table.query(id).failure().is_some());
    }
}
