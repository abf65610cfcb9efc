//! Sessions: the coordinator's, and the single node it is compared with.

use std::num::NonZeroUsize;

use anyhow::Result;
use datafusion::{
    common::DataFusionError,
    config::{ConfigExtension, ConfigOptions, ExtensionOptions},
    execution::SessionStateBuilder,
    prelude::{SessionConfig, SessionContext},
};
use datafusion_distributed::{DistributedConfig, DistributedExt, SessionStateBuilderExt};
use datafusion_transport_core::TransportOptions;
use url::Url;

use crate::{
    kind::Kind,
    program::usage,
    transports::Network,
    units::{parse_count, parse_setting},
    workers::FixedWorkers,
};

/// What a user may choose about a session.
#[derive(clap::Args, Debug, Clone, Default)]
pub struct SessionOptions {
    /// Partitions per task [default: the number of processors, 2 to 8]
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub partitions: Option<NonZeroUsize>,

    /// Decide each stage's number of tasks while the query runs, from the data seen so far
    #[arg(long)]
    pub dynamic: bool,

    /// Set a session option, as SQL's SET does (repeatable)
    ///
    /// Options of the engine start with `datafusion.`, those of the distributed planner with
    /// `distributed.`, those of the transports with `transport.`. Example:
    /// `--set distributed.compression=zstd`
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = parse_setting)]
    pub settings: Vec<(String, String)>,
}

impl SessionOptions {
    /// Checks all settings before there is anything to apply them to.
    ///
    /// # Errors
    /// When a setting is unknown or has a bad value.
    pub fn check(&self) -> Result<()> {
        let mut config = self.config();
        let options = config.options_mut();
        options.extensions.insert(DistributedConfig::default());
        options.extensions.insert(TransportOptions::default());
        for (key, value) in &self.settings {
            set_option(options, key, value)?;
        }
        check_transport(options).map_err(|error| usage(format!("bad --set: {error}")))
    }

    /// A session that plans for `workers` and reaches them through `network`, over `kind`.
    ///
    /// # Errors
    /// When a setting is unknown or has a bad value.
    pub fn distributed(
        &self,
        network: &Network,
        kind: Kind,
        workers: Vec<Url>,
    ) -> Result<SessionContext> {
        let builder = SessionStateBuilder::new()
            .with_default_features()
            .with_config(self.config())
            .with_distributed_worker_resolver(FixedWorkers::new(workers))
            .with_distributed_planner()
            .with_distributed_dynamic_task_count(self.dynamic)?;
        let session = SessionContext::new_with_state(network.wire(builder).build());
        network.select(&session, kind)?;
        for (key, value) in &self.settings {
            set(&session, key, value)?;
        }
        Ok(session)
    }

    /// A session that runs everything in this process. Settings that only mean something to a
    /// distributed session are left out.
    ///
    /// # Errors
    /// When a setting is unknown or has a bad value.
    pub fn single_node(&self) -> Result<SessionContext> {
        let session = SessionContext::new_with_config(self.config());
        for (key, value) in &self.settings {
            if key.starts_with("datafusion.") {
                set(&session, key, value)?;
            }
        }
        Ok(session)
    }

    fn config(&self) -> SessionConfig {
        let processors = std::thread::available_parallelism()
            .map_or(2, usize::from)
            .clamp(2, 8);
        let partitions = self.partitions.map_or(processors, usize::from);
        SessionConfig::new()
            .with_information_schema(true)
            .with_target_partitions(partitions)
    }
}

/// Does what `SET key = value` does.
///
/// # Errors
/// When the option is unknown or the value is bad.
pub fn set(session: &SessionContext, key: &str, value: &str) -> Result<()> {
    let state = session.state_ref();
    let mut state = state.write();
    set_option(state.config_mut().options_mut(), key, value)
}

fn set_option(options: &mut ConfigOptions, key: &str, value: &str) -> Result<()> {
    options.set(key, value).map_err(|error| {
        let known = match key.split_once('.') {
            Some((TransportOptions::PREFIX, _)) => known_options(),
            _ => String::new(),
        };
        let error = error.strip_backtrace().replace("\ncaused by\n", ": ");
        usage(format!("cannot set {key}={value}: {error}{known}"))
    })
}

fn known_options() -> String {
    let entries = TransportOptions::default().entries();
    let keys: Vec<_> = entries
        .iter()
        .map(|entry| format!("{}.{}", TransportOptions::PREFIX, entry.key))
        .collect();
    format!("; there are: {}", keys.join(", "))
}

/// Checks the values of the transports' options, which the session takes as they come: a query
/// would notice only when it first reaches a worker, which not every query does.
///
/// # Errors
/// When a value is bad: says which ones are good.
pub fn check_transport(options: &ConfigOptions) -> Result<()> {
    let Some(transport) = TransportOptions::from_options(options) else {
        return Ok(());
    };
    let kind = transport.kind.as_str();
    let known = |known: &Kind| known.name() == kind;
    anyhow::ensure!(
        kind == "default" || Kind::all().iter().any(known),
        "transport.kind is '{kind}', but the transports here are: {}",
        Kind::names()
    );
    let plain = |error: DataFusionError| anyhow::anyhow!(error.strip_backtrace());
    transport.connect_timeout().map_err(plain)?;
    let engine = options.extensions.get::<DistributedConfig>();
    let inherited = engine.map_or("none", |engine| engine.compression.as_str());
    transport.compression(inherited).map_err(plain)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(key: &str, value: &str) -> String {
        let options = SessionOptions {
            settings: vec![(key.to_owned(), value.to_owned())],
            ..Default::default()
        };
        options
            .check()
            .err()
            .map_or_else(String::new, |error| error.to_string())
    }

    #[test]
    fn settings_are_checked_without_a_session() {
        for (key, value) in [
            ("transport.kind", "grpc"),
            ("transport.compression", "zstd"),
            ("distributed.compression", "none"),
            ("datafusion.execution.batch_size", "10"),
        ] {
            assert_eq!(check(key, value), "", "{key}");
        }
        for (key, value, says) in [
            ("transport.foo", "1", "transport.connect_timeout_ms"),
            (
                "transport.kind",
                "nonsense",
                "quic, tcp, tcp-tls, unix, auto, grpc",
            ),
            ("transport.compression", "best", "zstd"),
            ("transport.connect_timeout_ms", "0", "at least 1"),
            ("transport.connect_timeout_ms", "soon", "cannot set"),
            ("distributed.compression", "best", "zstd"),
            ("distributed.foo", "1", "cannot set"),
            ("foo.bar", "1", "cannot set"),
        ] {
            let error = check(key, value);
            assert!(error.contains(says), "{key}={value}: {error}");
        }
    }
}
