//! [`RemoteError`]: an error of a type that does not travel, as text.

use std::error::Error;
use std::fmt;

/// An error raised on a peer, of a type that this side cannot rebuild.
///
/// Displays as the original did. [`source`](Error::source) walks the chain of sources of the original, of which each
/// that is of a known type (such as `DataFusionError` or `io::Error`) can be downcast, and each other is again a
/// `RemoteError`.
#[derive(Debug)]
pub struct RemoteError {
    text: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl RemoteError {
    /// An error that has only a text.
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self::with_source(text, None)
    }

    /// An error with a text and what caused it.
    pub(super) fn with_source(
        text: impl Into<String>,
        source: Option<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self {
            text: text.into(),
            source,
        }
    }

    /// The text of the original.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for RemoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for RemoteError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.source {
            Some(source) => Some(source.as_ref()),
            None => None,
        }
    }
}
