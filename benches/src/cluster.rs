//! [`Queries`]: small SQL queries over three workers, planned by the engine.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::rounds::{Runner, Stopwatch};
use crate::samples::Sample;
use async_trait::async_trait;
use datafusion::common::Result;
use datafusion::execution::SessionStateBuilder;
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use datafusion_distributed::{
    DefaultSessionBuilder, DistributedExt, SessionStateBuilderExt, WorkerResolver,
};
use datafusion_transport_core::{TransportExt, Transports};
use datafusion_transport_tests::{ChannelHarness, Served, Service};
use futures::future;
use std::path::Path;
use std::sync::Arc;
use url::Url;

const WORKERS: usize = 3;

/// A shuffle between two stages, and one to the coordinator.
const SQL: &str = "SELECT k % 10 AS g, count(*) AS n, sum(v) AS s FROM tiny GROUP BY g ORDER BY g";

/// A cluster and a client that has so many queries under way.
pub struct Queries {
    subject: String,
    session: SessionContext,
    at_once: usize,
    per_sample: usize,
    _transports: Transports,
    _workers: Vec<Box<dyn Served>>,
}

struct Workers(Vec<Url>);

impl WorkerResolver for Workers {
    fn get_urls(&self) -> Result<Vec<Url>> {
        Ok(self.0.clone())
    }
}

impl Queries {
    /// Starts the workers; `data` is from [`write_data`].
    pub async fn start(
        harness: Arc<dyn ChannelHarness>,
        data: &Path,
        at_once: usize,
        per_sample: usize,
    ) -> Self {
        let mut workers = vec![];
        for _ in 0..WORKERS {
            let service = Service::Worker(harness.transports().worker(DefaultSessionBuilder));
            workers.push(harness.serve(service, None, None).await.expect("a worker"));
        }
        let urls = workers.iter().map(|worker| worker.url().clone()).collect();
        let transports = harness.transports();
        let state = SessionStateBuilder::new()
            .with_default_features()
            .with_config(SessionConfig::new().with_target_partitions(2))
            .with_distributed_worker_resolver(Workers(urls))
            .with_distributed_planner()
            .with_distributed_file_scan_config_bytes_per_partition(16 << 10)
            .expect("a size")
            .with_distributed_transports(&transports)
            .build();
        let session = SessionContext::new_with_state(state);
        let path = data.to_str().expect("a path in UTF-8");
        let read = session.register_parquet("tiny", path, ParquetReadOptions::default());
        read.await.expect("the data");
        let queries = Self {
            subject: harness.name().to_owned(),
            session,
            at_once,
            per_sample,
            _transports: transports,
            _workers: workers,
        };
        queries.assert_remote().await;
        queries
    }

    async fn assert_remote(&self) {
        let explain = format!("EXPLAIN ANALYZE {SQL}");
        let plan = self
            .session
            .sql(&explain)
            .await
            .unwrap()
            .to_string()
            .await
            .unwrap();
        assert!(plan.contains("Network"), "it is not distributed:\n{plan}");
    }

    async fn query(&self) {
        let batches = self
            .session
            .sql(SQL)
            .await
            .unwrap()
            .collect()
            .await
            .unwrap();
        let rows: usize = batches.iter().map(|batch| batch.num_rows()).sum();
        assert_eq!(rows, 10);
    }
}

/// Writes the table: 40,000 rows in row groups of 4096, which are dealt out among the workers.
pub async fn write_data(dir: &Path) -> Result<()> {
    let sql = format!(
        "COPY (SELECT value AS k, value * 0.5 AS v FROM generate_series(0, 39999)) TO '{}' \
         STORED AS PARQUET OPTIONS ('format.max_row_group_size' '4096')",
        dir.join("tiny.parquet").display(),
    );
    SessionContext::new().sql(&sql).await?.collect().await?;
    Ok(())
}

#[async_trait]
impl Runner for Queries {
    fn subject(&self) -> &str {
        &self.subject
    }

    async fn run(&mut self) -> Sample {
        let each = self.per_sample / self.at_once;
        let stopwatch = Stopwatch::start();
        let lanes = (0..self.at_once).map(|_| async {
            for _ in 0..each {
                self.query().await;
            }
        });
        future::join_all(lanes).await;
        stopwatch.stop()
    }
}
