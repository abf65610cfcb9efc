//! [`AutoOptions`]: how `transport.kind = 'auto'` chooses.

use std::time::Duration;

/// The order where none is given; kinds that are not registered are left out.
pub(super) const DEFAULT_ORDER: [&str; 3] = ["quic", "tcp", "grpc"];

/// How the kind `auto` chooses for a worker. A process has one order, because choices are shared by all its queries: a session
/// that wants something else names a kind.
#[derive(Clone, Debug)]
pub struct AutoOptions {
    /// The kinds to choose from, best first. Default: those of `quic`, `tcp`, `grpc` that are registered.
    pub order: Option<Vec<String>>,
    /// How long an attempt is alone before the next kind is tried beside it. Default 250 ms, what RFC 8305 recommends: a handshake
    /// takes two round trips, so a second attempt is rare where the first one works.
    pub head_start: Duration,
    /// How long better kinds still have once a later one has connected. Default 500 ms. With the head start that makes 750 ms: time for a handshake
    /// over a round trip of 250 ms, and all that a blocked UDP port costs.
    pub grace: Duration,
    /// How long a choice other than the best holds before better kinds are tried again. Default 60 s.
    pub remember_for: Duration,
}

impl Default for AutoOptions {
    fn default() -> Self {
        Self {
            order: None,
            head_start: Duration::from_millis(250),
            grace: Duration::from_millis(500),
            remember_for: Duration::from_secs(60),
        }
    }
}

impl AutoOptions {
    /// The names to choose from, best first.
    ///
    /// # Errors
    /// In words: a name that is not registered or given twice, or none left.
    pub(crate) fn resolve_order(
        &self,
        is_registered: impl Fn(&str) -> bool,
    ) -> Result<Vec<String>, String> {
        let Some(order) = &self.order else {
            let known = DEFAULT_ORDER.into_iter().filter(|kind| is_registered(kind));
            let order: Vec<_> = known.map(str::to_owned).collect();
            return match order.is_empty() {
                true => Err("auto() found none of quic, tcp, grpc registered; name others with auto_order()".into()),
                false => Ok(order),
            };
        };
        if order.is_empty() {
            return Err("the order of 'auto' is empty".into());
        }
        for (turn, kind) in order.iter().enumerate() {
            if !is_registered(kind) {
                return Err(format!(
                    "the order of 'auto' names '{kind}', which is not registered"
                ));
            }
            if order.iter().take(turn).any(|earlier| earlier == kind) {
                return Err(format!("the order of 'auto' names '{kind}' twice"));
            }
        }
        Ok(order.clone())
    }
}
