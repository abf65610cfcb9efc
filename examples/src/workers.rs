//! A fixed list of workers.

use datafusion::common::{DataFusionError, exec_err};
use datafusion_distributed::WorkerResolver;
use url::Url;

/// Resolves to the same URLs every time.
#[derive(Debug, Clone)]
pub struct FixedWorkers(Vec<Url>);

impl FixedWorkers {
    /// The workers at `urls`.
    pub fn new(urls: Vec<Url>) -> Self {
        Self(urls)
    }
}

impl WorkerResolver for FixedWorkers {
    fn get_urls(&self) -> Result<Vec<Url>, DataFusionError> {
        match self.0.is_empty() {
            true => exec_err!("no workers are known: name at least one with --workers"),
            false => Ok(self.0.clone()),
        }
    }
}

/// Parses a worker's URL: `http://host:port`, for which `host:port` is short, or `unix:///path`.
///
/// # Errors
/// A sentence that says what would be accepted.
pub fn parse_worker_url(text: &str) -> Result<Url, String> {
    let text = text.trim();
    let with_scheme = match text.contains("://") {
        true => text.to_owned(),
        false => format!("http://{text}"),
    };
    let url = Url::parse(&with_scheme)
        .map_err(|error| format!("{error}: expected a URL such as http://127.0.0.1:8080"))?;
    if url.scheme() == "unix" && url.path().len() > 1 && !url.has_host() {
        return Ok(url);
    }
    match (url.host_str(), url.port()) {
        (Some(_), Some(_)) => Ok(url),
        _ => Err("host or port missing: expected a URL such as http://127.0.0.1:8080".to_owned()),
    }
}

/// A worker's URL to show and to copy: without the slash that its text ends with.
pub fn display_url(url: &Url) -> &str {
    url.as_str().trim_end_matches('/')
}

/// Names the worker that an error comes from, unless one is named already: the first to do so is the
/// one where it happened.
pub(crate) fn name_worker(url: &Url, error: DataFusionError) -> DataFusionError {
    const FROM: &str = "worker at ";
    match error.to_string().contains(FROM) {
        true => error,
        false => error.context(format!("the worker at {} failed", display_url(url))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_worker_is_named() -> Result<(), String> {
        let error = DataFusionError::Execution("boom".to_owned());
        let error = name_worker(&parse_worker_url("first:1")?, error);
        let error = name_worker(&parse_worker_url("second:1")?, error);
        let text = error.to_string();
        assert!(text.contains("http://first:1 failed"), "{text}");
        assert!(!text.contains("second"), "{text}");
        Ok(())
    }

    #[test]
    fn urls() {
        let text = |url: &str| parse_worker_url(url).map(|url| display_url(&url).to_owned());
        assert_eq!(
            text("127.0.0.1:8080").as_deref(),
            Ok("http://127.0.0.1:8080")
        );
        assert_eq!(text("http://db-1:8080").as_deref(), Ok("http://db-1:8080"));
        assert_eq!(text("[::1]:9").as_deref(), Ok("http://[::1]:9"));
        assert_eq!(text("unix:///x/y").as_deref(), Ok("unix:///x/y"));
        for bad in [
            "unix://",
            "unix://x",
            "",
            "host",
            "http://",
            "http://host",
            "host:99999",
        ] {
            assert!(text(bad).is_err(), "{bad}");
        }
    }
}
