//! Two small tables of several row groups, made once for the process.

use datafusion::prelude::{ParquetReadOptions, SessionContext};
use std::path::Path;
use tempfile::TempDir;
use tokio::sync::OnceCell;

/// The directory stays as long as the process: what is in it takes little.
static TABLES: OnceCell<TempDir> = OnceCell::const_new();

/// `facts (k, g, v, name)` has 40,000 rows, `dims (g, label)` has 100; some `g` of either are in the other.
pub(super) async fn register(session: &SessionContext) {
    let dir = TABLES.get_or_init(make).await.path();
    for table in ["facts", "dims"] {
        let path = dir.join(format!("{table}.parquet"));
        let path = path.to_str().expect("UTF-8");
        let options = ParquetReadOptions::default();
        let registered = session.register_parquet(table, path, options).await;
        registered.expect("the file is there");
    }
}

async fn make() -> TempDir {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let facts = "SELECT value AS k, value * 7 % 120 AS g, value * 0.5 AS v, concat('row ', value) AS name \
         FROM generate_series(0, 39999)";
    copy(facts, &dir.path().join("facts.parquet")).await;
    let dims =
        "SELECT value AS g, concat('label ', value % 9) AS label FROM generate_series(10, 109)";
    copy(dims, &dir.path().join("dims.parquet")).await;
    dir
}

async fn copy(sql: &str, path: &Path) {
    let session = SessionContext::new();
    let sql = format!(
        "COPY ({sql}) TO '{}' STORED AS PARQUET OPTIONS ('format.max_row_group_size' '4096')",
        path.display()
    );
    let copied = session.sql(&sql).await.expect("valid SQL").collect().await;
    copied.expect("a file");
}
