//! The generic client: `WorkerChannel` over any connection.

mod channel;
mod coordinator;
mod credit;
mod execute;
mod metrics;
mod partition;
mod pool;
mod queries;

pub(crate) use channel::PooledResolver;
pub(crate) use pool::Pool;
pub use pool::{PeerStats, PoolOptions};
pub(crate) use queries::QueryTable;
