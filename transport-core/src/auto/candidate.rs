//! [`Candidate`]: a registered kind that `auto` may choose, and how it is tried.

use crate::client::Pool;
use crate::error::{ErrorKind, TransportError};
use datafusion::common::{DataFusionError, Result};
use datafusion_distributed::{ChannelResolver, GetWorkerInfoRequest};
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use url::Url;

/// Why a kind can't be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It doesn't get through.
    Unusable(String),
    /// It got through, to somebody who didn't show the right certificate or didn't accept ours.
    Untrusted(String),
}

/// A kind in the order of preference.
pub(crate) struct Candidate {
    pub(crate) name: String,
    pub(crate) resolver: Arc<dyn ChannelResolver + Send + Sync>,
    /// Absent for a foreign resolver.
    pub(crate) pool: Option<Arc<Pool>>,
}

impl Candidate {
    /// Whether a connection lives, so that a call need not wait for one. A foreign resolver doesn't say: taken for yes.
    pub(super) fn is_connected(&self, url: &Url) -> bool {
        self.pool.as_ref().is_none_or(|pool| pool.is_connected(url))
    }

    /// Tries the kind: a connection with its handshake, which stays in the pool, or the harmless call for the worker's info.
    /// Dropping the future leaves a dial to its pool, which closes the connection when it was idle for long.
    ///
    /// # Errors
    /// Why it can't be used.
    pub(super) async fn reach(&self, url: &Url, limit: Duration) -> Result<(), Fault> {
        let Some(pool) = &self.pool else {
            let info = tokio::time::timeout(limit, self.worker_info(url)).await;
            return match info {
                Ok(Ok(())) => Ok(()),
                Ok(Err(err)) => Err(Fault::Unusable(err.to_string())),
                Err(_) => Err(Fault::Unusable(format!("no worker info within {limit:?}"))),
            };
        };
        let Err(err) = pool.acquire(url, limit).await else {
            return Ok(());
        };
        let reason = err.detail().to_owned();
        Err(match err.kind() {
            ErrorKind::Handshake if pool.authenticates() => Fault::Untrusted(reason),
            _ => Fault::Unusable(reason),
        })
    }

    async fn worker_info(&self, url: &Url) -> Result<()> {
        let mut channel = self.resolver.get_worker_client_for_url(url).await?;
        let info = channel.get_worker_info(GetWorkerInfoRequest {}).await;
        info.map(|_| ())
    }

    /// Whether a call's error says that the way to the worker doesn't work, rather than the query. An error that the worker
    /// passes on from elsewhere names another peer, or is text. A foreign resolver's errors from outside the engine count as such.
    pub(super) fn is_broken_by(&self, err: &DataFusionError, url: &Url) -> bool {
        let mut cause: Option<&(dyn Error + 'static)> = Some(err);
        while let Some(err) = cause {
            if let Some(DataFusionError::External(inner)) = err.downcast_ref() {
                return match inner.downcast_ref::<TransportError>() {
                    Some(err) => err.peer() == url.as_str() && is_connection_level(err.kind()),
                    None => self.pool.is_none(),
                };
            }
            cause = err.source();
        }
        false
    }
}

fn is_connection_level(kind: ErrorKind) -> bool {
    match kind {
        ErrorKind::Connect
        | ErrorKind::Handshake
        | ErrorKind::Timeout
        | ErrorKind::ConnectionLost => true,
        ErrorKind::Config
        | ErrorKind::Closed
        | ErrorKind::Aborted
        | ErrorKind::Protocol
        | ErrorKind::ShuttingDown => false,
    }
}

impl fmt::Debug for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Candidate").field(&self.name).finish()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::client::PoolOptions;
    use crate::memory::MemoryNetwork;
    use crate::resolver::TransportResolver;
    use crate::runtime::IoRuntime;
    use crate::transports::Transports;

    fn error(kind: ErrorKind, peer: &str) -> DataFusionError {
        TransportError::new(kind, "read partition from", peer, "by the test").into()
    }

    #[test]
    fn only_a_broken_way_to_this_worker_counts() {
        let url: Url = "http://a:1".parse().unwrap();
        let network = || Arc::new(MemoryNetwork::new());
        let io = IoRuntime::shared().unwrap();
        let foreign = Transports::builder().connector("a", network()).build();
        let resolver = Arc::new(TransportResolver::new(foreign.unwrap()));
        let options = PoolOptions::default();
        let pool = Pool::new("a".into(), network(), io, options, Arc::default());
        let candidate = |pool| Candidate {
            name: "a".into(),
            resolver: Arc::clone(&resolver) as _,
            pool,
        };
        let (pooled, foreign) = (candidate(Some(pool)), candidate(None));

        let lost = || error(ErrorKind::ConnectionLost, url.as_str());
        assert!(pooled.is_broken_by(&lost(), &url));
        let wrapped = DataFusionError::Shared(Arc::new(lost().context("by a plan")));
        assert!(pooled.is_broken_by(&wrapped, &url));
        assert!(foreign.is_broken_by(&wrapped, &url));
        let of_the_query = DataFusionError::Execution("overflow".into());
        assert!(!pooled.is_broken_by(&of_the_query, &url));
        assert!(!foreign.is_broken_by(&of_the_query, &url));
        let elsewhere = error(ErrorKind::ConnectionLost, "http://b:1/");
        assert!(!pooled.is_broken_by(&elsewhere, &url));
        let refused = error(ErrorKind::ShuttingDown, url.as_str());
        assert!(!pooled.is_broken_by(&refused, &url));
        let unknown = DataFusionError::External("unavailable".into());
        assert!(foreign.is_broken_by(&unknown, &url));
        assert!(!pooled.is_broken_by(&unknown, &url));
    }
}
