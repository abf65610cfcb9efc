//! Errors as text without recursion: the engine's own `Display` recurses once per level.

use std::borrow::Cow;
use std::error::Error;
use std::io;
use std::sync::Arc;

use datafusion::arrow::error::ArrowError;
use datafusion::error::DataFusionError;

/// What one error adds to the text of the error it holds.
struct Layer<'a> {
    prefix: Cow<'a, str>,
    suffix: &'a str,
    inner: &'a (dyn Error + 'static),
}

/// The `Display` text of `err`, for any depth of the engine's own errors.
pub(super) fn text(err: &(dyn Error + 'static)) -> String {
    let mut text = String::new();
    let mut suffixes = Vec::new();
    let mut next = err;
    while let Some(layer) = peel(next) {
        text.push_str(&layer.prefix);
        suffixes.push(layer.suffix);
        next = layer.inner;
    }
    text.push_str(&innermost(next));
    text.extend(suffixes.into_iter().rev());
    text
}

/// The text of all contexts from `err` inwards, as one context would display them, and the first error that is not one.
/// Diagnostics, shared errors and collections display as what they hold, so the result displays as `err` does.
pub(super) fn merge_contexts(err: &DataFusionError) -> (Option<String>, &DataFusionError) {
    let mut contexts = Vec::new();
    let mut next = err;
    loop {
        next = match next {
            DataFusionError::Context(description, inner) => {
                contexts.push(description.as_str());
                inner
            }
            DataFusionError::Diagnostic(_, inner) => inner,
            DataFusionError::Shared(inner) => inner,
            DataFusionError::Collection(errors) => match errors.first() {
                Some(first) => first,
                None => break,
            },
            _ => break,
        };
    }
    let merged = (!contexts.is_empty()).then(|| contexts.join("\ncaused by\n"));
    (merged, next)
}

fn peel<'a>(err: &'a (dyn Error + 'static)) -> Option<Layer<'a>> {
    if let Some(err) = err.downcast_ref::<DataFusionError>() {
        return peel_datafusion(err);
    }
    if let Some(err) = err.downcast_ref::<Arc<DataFusionError>>() {
        return Some(layer("", err.as_ref()));
    }
    if let Some(ArrowError::ExternalError(inner)) = err.downcast_ref::<ArrowError>() {
        return Some(layer("External error: ", inner.as_ref()));
    }
    if let Some(inner) = err.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        return Some(layer("", inner));
    }
    None
}

fn peel_datafusion(err: &DataFusionError) -> Option<Layer<'_>> {
    match err {
        DataFusionError::ArrowError(inner, backtrace) => Some(Layer {
            suffix: backtrace.as_deref().unwrap_or_default(),
            ..layer("Arrow error: ", inner.as_ref())
        }),
        DataFusionError::IoError(inner) => Some(layer("IO error: ", inner)),
        DataFusionError::External(inner) => Some(layer("External error: ", inner.as_ref())),
        DataFusionError::Context(description, inner) => {
            Some(layer(format!("{description}\ncaused by\n"), inner.as_ref()))
        }
        DataFusionError::Diagnostic(_, inner) => Some(layer("", inner.as_ref())),
        DataFusionError::Shared(inner) => Some(layer("", inner.as_ref())),
        DataFusionError::Collection(errors) => errors.first().map(|first| layer("", first)),
        _ => None,
    }
}

fn layer<'a>(prefix: impl Into<Cow<'a, str>>, inner: &'a (dyn Error + 'static)) -> Layer<'a> {
    Layer {
        prefix: prefix.into(),
        suffix: "",
        inner,
    }
}

fn innermost(err: &(dyn Error + 'static)) -> String {
    match err.downcast_ref::<DataFusionError>() {
        // Its own `Display` panics.
        Some(DataFusionError::Collection(_)) => "a collection of no errors".to_owned(),
        _ => err.to_string(),
    }
}
