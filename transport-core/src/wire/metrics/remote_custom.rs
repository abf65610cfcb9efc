//! [`RemoteCustomMetric`]: a metric of a type that only its sender knows.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::physical_plan::metrics::CustomMetricValue;

/// Different texts kept when values are merged: enough to see that tasks differ, and a line that still fits a screen.
const MAX_TEXTS: usize = 8;

/// A custom metric of a type that the protocol does not know: what the sender displays, and its value as a number.
///
/// It is for display. Merging cannot know the type's own rule: equal texts stay one text, different texts are listed in
/// the order in which they came (the first eight, then `…`), and the larger number stands.
///
/// It does not merge into the sender's own type. Where both end up under one name on one plan node, the other type's
/// `aggregate` meets a type that it does not know.
#[derive(Debug, Default)]
pub struct RemoteCustomMetric {
    state: Mutex<State>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct State {
    texts: Vec<String>,
    more: bool,
    number: usize,
}

impl RemoteCustomMetric {
    /// Builds the metric from the displayed text and the value as a number (zero if it has none).
    pub fn new(text: impl Into<String>, number: usize) -> Self {
        let text = text.into();
        let texts = if text.is_empty() { vec![] } else { vec![text] };
        Self {
            state: Mutex::new(State {
                texts,
                more: false,
                number,
            }),
        }
    }

    fn snapshot(&self) -> State {
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl State {
    fn merge(&mut self, other: State) {
        self.number = self.number.max(other.number);
        self.more |= other.more;
        for text in other.texts {
            if self.texts.contains(&text) {
                continue;
            }
            if self.texts.len() == MAX_TEXTS {
                self.more = true;
                break;
            }
            self.texts.push(text);
        }
    }
}

impl fmt::Display for RemoteCustomMetric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.snapshot();
        f.write_str(&state.texts.join(", "))?;
        if state.more {
            f.write_str(", …")?;
        }
        Ok(())
    }
}

impl CustomMetricValue for RemoteCustomMetric {
    fn new_empty(&self) -> Arc<dyn CustomMetricValue> {
        Arc::new(Self::default())
    }

    fn aggregate(&self, other: Arc<dyn CustomMetricValue>) {
        let other = match other.as_any().downcast_ref::<Self>() {
            Some(other) => other.snapshot(),
            None => Self::new(other.to_string(), other.as_usize()).snapshot(),
        };
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .merge(other);
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_usize(&self) -> usize {
        self.snapshot().number
    }

    fn is_eq(&self, other: &Arc<dyn CustomMetricValue>) -> bool {
        other
            .as_any()
            .downcast_ref::<Self>()
            .is_some_and(|other| self.snapshot() == other.snapshot())
    }
}
