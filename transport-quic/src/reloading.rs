//! [`Reloading`]: a value built from files, built again when one of them changes.

use datafusion_transport_core::error::TransportError;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Certificates are renewed while a worker runs: connections made after a change use the new files, those that
/// exist go on. New files that can't be used are logged, and the old value stays.
pub(crate) struct Reloading<T> {
    files: Vec<PathBuf>,
    build: Build<T>,
    state: Mutex<State<T>>,
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

impl<T> Reloading<T> {
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
        Ok(Self {
            files,
            build: Box::new(build),
            state: Mutex::new(state),
        })
    }

    /// The value of the files as they are now, at most a second late.
    pub(crate) fn current(&self) -> Arc<T> {
        let mut state = self.lock();
        if state.checked.elapsed() >= CHECK_INTERVAL {
            state.checked = Instant::now();
            self.refresh(&mut state);
        }
        Arc::clone(&state.value)
    }

    fn refresh(&self, state: &mut State<T>) {
        let stamps = look(&self.files);
        if stamps == state.stamps {
            return;
        }
        match (self.build)() {
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

impl<T> fmt::Debug for Reloading<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reloading")
            .field("files", &self.files)
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
    use datafusion_transport_core::error::ErrorKind;

    #[test]
    fn a_change_is_taken_and_a_bad_one_is_not() {
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
        let after_a_check = || {
            value.lock().checked -= CHECK_INTERVAL;
            *value.current()
        };
        assert_eq!(1, after_a_check());
        std::fs::write(&file, "not a number").unwrap();
        assert_eq!(1, after_a_check());
        std::fs::write(&file, "234").unwrap();
        assert_eq!(234, after_a_check());
        std::fs::remove_file(&file).unwrap();
        std::fs::write(&file, "56").unwrap();
        assert_eq!(56, after_a_check());
    }
}
