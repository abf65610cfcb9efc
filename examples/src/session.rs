//! Sessions: the coordinator's, and the single node it is compared with.

use std::num::NonZeroUsize;

use anyhow::Result;
use datafusion::{
    execution::SessionStateBuilder,
    prelude::{SessionConfig, SessionContext},
};
use datafusion_distributed::{DistributedExt, SessionStateBuilderExt};
use url::Url;

use crate::{
    program::usage,
    transports::{Kind, Network},
    units::parse_setting,
    workers::FixedWorkers,
};

/// What a user may choose about a session.
#[derive(clap::Args, Debug, Clone, Default)]
pub struct SessionOptions {
    /// Partitions per task [default: the number of processors, 2 to 8]
    #[arg(long, value_name = "N")]
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
    let options = state.config_mut().options_mut();
    options.set(key, value).map_err(|error| {
        usage(format!(
            "cannot set {key}={value}: {}",
            error.strip_backtrace()
        ))
    })
}
