//! A transport that is set up when it is first used.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use datafusion_transport_core::{
    TransportError,
    connection::{Connection, Connector},
};
use tokio::sync::OnceCell;
use url::Url;

/// Makes its connector at the first connect; a failure is not kept.
pub(crate) struct OnDemand<C, F> {
    make: F,
    made: OnceCell<C>,
}

impl<C, F> OnDemand<C, F>
where
    F: Fn() -> Result<C, TransportError>,
{
    pub(crate) fn new(make: F) -> Self {
        Self {
            make,
            made: OnceCell::new(),
        }
    }
}

#[async_trait]
impl<C, F> Connector for OnDemand<C, F>
where
    C: Connector,
    F: Fn() -> Result<C, TransportError> + Send + Sync,
{
    async fn connect(&self, url: &Url) -> Result<Arc<dyn Connection>, TransportError> {
        let make = || async { (self.make)() };
        self.made.get_or_try_init(make).await?.connect(url).await
    }

    fn authenticates(&self) -> bool {
        self.made.get().is_some_and(Connector::authenticates)
    }
}

impl<C: fmt::Debug, F> fmt::Debug for OnDemand<C, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OnDemand").field(&self.made).finish()
    }
}
