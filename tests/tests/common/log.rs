//! [`Log`]: what a test's thread logs.

use super::SOON;
use datafusion_transport_tests::eventually;
use std::io;
use std::sync::{Arc, Mutex};
use tracing::subscriber::DefaultGuard;

/// What this thread logs from now on: for tests on a runtime of one thread.
pub struct Log {
    text: Arc<Mutex<Vec<u8>>>,
    _guard: DefaultGuard,
}

impl Log {
    /// Starts to keep it.
    pub fn capture() -> Self {
        let text = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&text);
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(move || Sink(Arc::clone(&sink)))
            .finish();
        Self {
            text,
            _guard: tracing::subscriber::set_default(subscriber),
        }
    }

    /// Waits for a line with all of these words.
    pub async fn wait_for(&self, words: &[&str]) {
        let has_all = |line: &str| words.iter().all(|words| line.contains(words));
        let what = format!("a line with {words:?} in the log");
        eventually(&what, SOON, || self.text().lines().any(has_all)).await;
    }

    /// All of it so far.
    pub fn text(&self) -> String {
        String::from_utf8(self.text.lock().unwrap().clone()).unwrap()
    }
}

struct Sink(Arc<Mutex<Vec<u8>>>);

impl io::Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
