//! [`QueryTable`]: lets a query's partitions fail as soon as one of its coordinator channels does.
//!
//! The engine looks at what its coordinator channels report only after the result has been read to its end. A lost
//! worker would so show itself only when whoever waits for that worker's data gives up, which may be another worker that
//! computes for minutes. The process that coordinates a query knows sooner.

use datafusion::common::DataFusionError;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// The queries that have a stream on a pool now.
#[derive(Debug, Default)]
pub(crate) struct QueryTable(Mutex<HashMap<Uuid, Weak<Query>>>);

/// What the streams of one query share.
#[derive(Debug, Default)]
pub(crate) struct Query {
    failed: CancellationToken,
    cause: OnceLock<Arc<DataFusionError>>,
}

impl QueryTable {
    /// The query's entry, which lives as long as somebody holds it.
    pub(crate) fn query(&self, id: Uuid) -> Arc<Query> {
        let mut queries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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
}
