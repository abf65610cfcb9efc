//! [`Reloading`]: a value built from files, built again when one of them changes.

use crate::error::TransportError;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::Mutex as AsyncMutex;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// Certificates are renewed while a worker runs: connections made after a change use the new files, those that
/// exist go on. New files that can't be used are logged, and the old value stays. Clones share all of it.
pub(crate) struct Reloading<T>(Arc<Shared<T>>);

struct Shared<T> {
    files: Vec<PathBuf>,
    build: Build<T>,
    state: Mutex<State<T>>,
    /// Whose turn it is to look at the files.
    turn: Arc<AsyncMutex<()>>,
}

type Build<T> = Box<dyn Fn() -> Result<T, TransportError> + Send + Sync>;

struct State<T> {
    value: Arc<T>,
    /// Of the files that `value` was built from.
    stamps: Stamps,
    /// Of files that could not be used, so that each change is logged once.
    refused: Option<Stamps>,
    checked: Instant,
}

/// Time of change and length of each file, `None` for one that can't be looked at.
type Stamps = Vec<Option<(SystemTime, u64)>>;

/// Bounds how often the files are looked at, whatever the rate of new connections.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How long a connection waits for the files. Local ones take far less than a millisecond; a handshake has 5 s.
const PATIENCE: Duration = Duration::from_millis(500);

impl<T: Send + Sync + 'static> Reloading<T> {
    /// Builds the value for the first time.
    ///
    /// # Errors
    /// Those of `build`.
    pub(crate) fn new(
        files: Vec<PathBuf>,
        build: impl Fn() -> Result<T, TransportError> + Send + Sync + 'static,
    ) -> Result<Self, TransportError> {
        // Looked at before they are read: a change in between is seen as one later.
        let stamps = look(&files);
        let state = State {
            value: Arc::new(build()?),
            stamps,
            refused: None,
            checked: Instant::now(),
        };
        Ok(Self(Arc::new(Shared {
            files,
            build: Box::new(build),
            state: Mutex::new(state),
            turn: Arc::default(),
        })))
    }

    /// The value of the files as they are now, at most [`CHECK_INTERVAL`] late. Files that take longer than
    /// [`PATIENCE`] are as good as unchanged. They are read on a thread for that, one at a time, so that no driver of
    /// a connection waits for a disk.
    ///
    /// Must run on a tokio runtime. Cancel safe.
    pub(crate) async fn current(&self) -> Arc<T> {
        if self.0.lock().is_due() && timeout(PATIENCE, self.check()).await.is_err() {
            tracing::warn!(files = ?self.0.files, "certificate files can't be read now, what was read before stays in use");
        }
        self.as_last_read()
    }

    /// The value of the files when they were last read.
    pub(crate) fn as_last_read(&self) -> Arc<T> {
        Arc::clone(&self.0.lock().value)
    }

    async fn check(&self) {
        let turn = Arc::clone(&self.0.turn).lock_owned().await;
        if !self.0.lock().is_due() {
            return;
        }
        let shared = Arc::clone(&self.0);
        // Not detached: there is one at a time, which holds its turn to the end, and it does not wait but for the disk.
        let checked = spawn_blocking(move || {
            shared.refresh();
            drop(turn);
        });
        // Fails when the runtime goes down, and the connection with it.
        let _ = checked.await;
    }
}

impl<T> Shared<T> {
    fn refresh(&self) {
        let stamps = look(&self.files);
        if stamps == self.lock().stamps {
            self.lock().checked = Instant::now();
            return;
        }
        // Without the lock, which a driver may be waiting for.
        let built = (self.build)();
        let mut state = self.lock();
        state.checked = Instant::now();
        match built {
            Ok(value) => {
                tracing::info!(files = ?self.files, "certificates reloaded");
                state.value = Arc::new(value);
                state.stamps = stamps;
                state.refused = None;
            }
            // Half-written files, or a certificate whose key has not followed yet: tried again at the next check.
            Err(err) => {
                if state.refused.as_ref() != Some(&stamps) {
                    tracing::warn!(%err, "changed certificate files can't be used, the old ones stay in use");
                    state.refused = Some(stamps);
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // A panic elsewhere leaves the state as it was, which is usable.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> State<T> {
    fn is_due(&self) -> bool {
        self.checked.elapsed() >= CHECK_INTERVAL
    }
}

impl<T> Clone for Reloading<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> fmt::Debug for Reloading<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reloading")
            .field("files", &self.0.files)
            .finish_non_exhaustive()
    }
}

fn look(files: &[PathBuf]) -> Stamps {
    files
        .iter()
        .map(|file| {
            let meta = std::fs::metadata(file).ok()?;
            Some((meta.modified().ok()?, meta.len()))
        })
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use std::sync::mpsc;

    fn overdue<T>(value: &Reloading<T>) {
        value.0.lock().checked -= CHECK_INTERVAL;
    }

    #[tokio::test]
    async fn a_change_is_taken_and_a_bad_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("value");
        std::fs::write(&file, "1").unwrap();
        let path = file.clone();
        let value = Reloading::new(vec![file.clone()], move || {
            let text = std::fs::read_to_string(&path).unwrap();
            text.parse::<u32>().map_err(|err| {
                TransportError::new(ErrorKind::Config, "read", "value", err.to_string())
            })
        })
        .unwrap();
        let after_a_check = async || {
            overdue(&value);
            *value.current().await
        };
        assert_eq!(1, after_a_check().await);
        std::fs::write(&file, "not a number").unwrap();
        assert_eq!(1, after_a_check().await);
        std::fs::write(&file, "234").unwrap();
        assert_eq!(234, after_a_check().await);
        std::fs::remove_file(&file).unwrap();
        std::fs::write(&file, "56").unwrap();
        assert_eq!(56, after_a_check().await);
    }

    /// The runtime has one thread: were the files read there, nothing else would happen.
    #[tokio::test]
    async fn files_that_hang_delay_a_connection_by_little() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("value");
        std::fs::write(&file, "1").unwrap();
        let (let_go, held) = mpsc::channel::<()>();
        let held = Mutex::new(held);
        let first = Mutex::new(true);
        let value = Reloading::new(vec![file.clone()], move || {
            if std::mem::replace(&mut *first.lock().unwrap(), false) {
                return Ok(1);
            }
            let _ = held.lock().unwrap().recv();
            Ok(2)
        })
        .unwrap();
        std::fs::write(&file, "22").unwrap();
        overdue(&value);
        let began = Instant::now();
        let both = async { tokio::join!(value.current(), value.current()) };
        let (one, other) = timeout(20 * PATIENCE, both).await.unwrap();
        assert_eq!((1, 1), (*one, *other));
        assert!(began.elapsed() >= PATIENCE);
        let_go.send(()).unwrap();
        let reloaded = async {
            while *value.current().await != 2 {
                tokio::task::yield_now().await;
            }
        };
        timeout(20 * PATIENCE, reloaded).await.unwrap();
    }
}
