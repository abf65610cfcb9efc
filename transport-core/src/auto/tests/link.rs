//! A way to the worker that can be blocked.

use crate::connection::{Connection, Connector};
use crate::error::{ErrorKind, TransportError};
use crate::memory::MemoryNetwork;
use async_trait::async_trait;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::watch;
use url::Url;

#[derive(Clone, Copy, Debug)]
pub(super) enum Mode {
    Works,
    /// Never answers, until that changes.
    Silent,
    Refuses,
}

#[derive(Debug)]
pub(super) struct Link {
    network: MemoryNetwork,
    mode: watch::Sender<Mode>,
    dials: AtomicUsize,
    made: Mutex<Vec<Arc<dyn Connection>>>,
}

impl Link {
    pub(super) fn new(network: MemoryNetwork) -> Arc<Self> {
        Arc::new(Self {
            network,
            mode: watch::Sender::new(Mode::Works),
            dials: AtomicUsize::new(0),
            made: Mutex::default(),
        })
    }

    pub(super) fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }

    pub(super) fn dials(&self) -> usize {
        self.dials.load(Ordering::Relaxed)
    }

    /// Breaks all connections made so far.
    pub(super) fn cut(&self) {
        for connection in self.made.lock().unwrap().drain(..) {
            connection.close("cut by the test");
        }
    }
}

#[async_trait]
impl Connector for Link {
    async fn connect(&self, url: &Url) -> Result<Arc<dyn Connection>, TransportError> {
        self.dials.fetch_add(1, Ordering::Relaxed);
        let mut mode = self.mode.subscribe();
        let answers = mode.wait_for(|mode| !matches!(mode, Mode::Silent)).await;
        if let Mode::Refuses = *answers.unwrap() {
            let detail = "refused by the test";
            return Err(TransportError::new(
                ErrorKind::Connect,
                "connect",
                url.as_str(),
                detail,
            ));
        }
        let connection = self.network.connect(url).await?;
        self.made.lock().unwrap().push(Arc::clone(&connection));
        Ok(connection)
    }
}
