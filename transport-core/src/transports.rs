//! [`Transports`]: the registry of transport kinds, and the one call that wires a session to it.

use crate::auto::{Auto, AutoChoice, AutoOptions, AutoResolver, Candidate};
use crate::client::{PeerStats, Pool, PoolOptions, PooledResolver, QueryTable};
use crate::config::{DEFAULT_KIND, TransportOptions};
use crate::connection::Connector;
use crate::error::{ErrorKind, TransportError};
use crate::resolver::TransportResolver;
use crate::runtime::IoRuntime;
use crate::worker::WiredWorker;
use datafusion::common::{Result, config_err};
use datafusion::execution::SessionStateBuilder;
use datafusion::prelude::SessionConfig;
use datafusion_distributed::{ChannelResolver, DistributedExt, WorkerSessionBuilder};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The transports a process can use, by kind. Cheap to clone; dropping the last clone closes all connections.
#[derive(Clone)]
pub struct Transports(Arc<Inner>);

struct Inner {
    default_kind: String,
    kinds: BTreeMap<String, Kind>,
    auto: Option<Arc<Auto>>,
    queries: Arc<QueryTable>,
}

struct Kind {
    resolver: Arc<dyn ChannelResolver + Send + Sync>,
    /// Absent where a foreign resolver keeps its own connections.
    pool: Option<Arc<Pool>>,
}

/// Configuration of [`Transports`].
#[derive(Default)]
pub struct TransportsBuilder {
    connectors: Vec<(String, Arc<dyn Connector>)>,
    resolvers: Vec<(String, Arc<dyn ChannelResolver + Send + Sync>)>,
    first: Option<String>,
    default_kind: Option<String>,
    auto: Option<AutoOptions>,
    pool: PoolOptions,
    io: Option<IoRuntime>,
}

impl TransportsBuilder {
    /// Registers a transport under the name that `transport.kind` selects it by.
    pub fn connector(mut self, kind: impl Into<String>, connector: Arc<dyn Connector>) -> Self {
        let kind = kind.into();
        self.first.get_or_insert_with(|| kind.clone());
        self.connectors.push((kind, connector));
        self
    }

    /// Registers anything that gives a `WorkerChannel` for a URL: a complete third-party transport.
    pub fn channel_resolver(
        mut self,
        kind: impl Into<String>,
        resolver: Arc<dyn ChannelResolver + Send + Sync>,
    ) -> Self {
        let kind = kind.into();
        self.first.get_or_insert_with(|| kind.clone());
        self.resolvers.push((kind, resolver));
        self
    }

    /// Registers the engine's own gRPC transport as kind `grpc`.
    #[cfg(feature = "grpc")]
    pub fn grpc(self) -> Self {
        let resolver = datafusion_distributed::grpc::DefaultChannelResolver::default();
        self.channel_resolver("grpc", Arc::new(resolver))
    }

    /// Registers kind `auto`, which uses for each worker the first of `quic`, `tcp` and `grpc` that works; those of them that are
    /// registered. It is not the default kind unless [`default_kind`](Self::default_kind) says so.
    pub fn auto(self) -> Self {
        self.auto_options(AutoOptions::default())
    }

    /// As [`auto`](Self::auto), with the kinds to choose from, best first.
    pub fn auto_order<K: Into<String>>(mut self, order: impl IntoIterator<Item = K>) -> Self {
        let order = order.into_iter().map(Into::into).collect();
        self.auto.get_or_insert_default().order = Some(order);
        self
    }

    /// As [`auto`](Self::auto), with all its options.
    pub fn auto_options(mut self, options: AutoOptions) -> Self {
        self.auto = Some(options);
        self
    }

    /// The kind that sessions use until they set `transport.kind`. Default: the one registered first.
    pub fn default_kind(mut self, kind: impl Into<String>) -> Self {
        self.default_kind = Some(kind.into());
        self
    }

    /// How connections are kept.
    pub fn pool(mut self, options: PoolOptions) -> Self {
        self.pool = options;
        self
    }

    /// The runtime for the client's own tasks. Default: [`IoRuntime::shared`].
    pub fn io_runtime(mut self, io: IoRuntime) -> Self {
        self.io = Some(io);
        self
    }

    /// Builds the registry. Connects to nobody yet.
    ///
    /// # Errors
    /// `Config`: no kind, a kind registered twice or named `default`, an unknown default kind, an order of `auto` that is empty or
    /// names a kind twice or one that is not registered, no connections per peer.
    pub fn build(self) -> Result<Transports, TransportError> {
        let error = |detail: String| {
            TransportError::new(ErrorKind::Config, "register transports", "local", detail)
        };
        if self.pool.connections_per_peer == 0 {
            return Err(error(
                "connections_per_peer is 0, expected at least 1".into(),
            ));
        }
        let io = self.io.map_or_else(IoRuntime::shared, Ok)?;
        let mut kinds = BTreeMap::new();
        let queries = Arc::new(QueryTable::default());
        let mut add = |name: String, kind: Kind| match kinds.insert(name.clone(), kind) {
            _ if name == DEFAULT_KIND => Err(error(format!("the kind '{name}' is reserved"))),
            Some(_) => Err(error(format!("the kind '{name}' is registered twice"))),
            None => Ok(()),
        };
        for (name, connector) in self.connectors {
            let queries = Arc::clone(&queries);
            let options = self.pool.clone();
            let pool = Pool::new(name.clone(), connector, io.clone(), options, queries);
            let resolver = Arc::new(PooledResolver {
                pool: Arc::clone(&pool),
            });
            let pool = Some(pool);
            add(name, Kind { resolver, pool })?;
        }
        for (name, resolver) in self.resolvers {
            let pool = None;
            add(name, Kind { resolver, pool })?;
        }
        let auto = match self.auto {
            Some(options) => Some(auto(options, &kinds, io).map_err(error)?),
            None => None,
        };
        if let Some(auto) = &auto {
            let resolver = Arc::new(AutoResolver {
                auto: Arc::clone(auto),
            });
            let pool = None;
            if kinds
                .insert(AUTO_KIND.into(), Kind { resolver, pool })
                .is_some()
            {
                return Err(error(format!("the kind '{AUTO_KIND}' is registered twice")));
            }
        }
        let default_kind = self.default_kind.or(self.first);
        let default_kind =
            default_kind.ok_or_else(|| error("no transport is registered".into()))?;
        if !kinds.contains_key(&default_kind) {
            return Err(error(format!(
                "the default kind '{default_kind}' is not registered"
            )));
        }
        Ok(Transports(Arc::new(Inner {
            default_kind,
            kinds,
            auto,
            queries,
        })))
    }
}

/// The value of `transport.kind` that chooses among the others.
const AUTO_KIND: &str = "auto";

fn auto(
    options: AutoOptions,
    kinds: &BTreeMap<String, Kind>,
    io: IoRuntime,
) -> Result<Arc<Auto>, String> {
    let order = options.resolve_order(|kind| kinds.contains_key(kind))?;
    let candidate = |name: String| {
        let kind = kinds.get(&name)?;
        Some(Candidate {
            resolver: Arc::clone(&kind.resolver),
            pool: kind.pool.clone(),
            name,
        })
    };
    let candidates = order.into_iter().filter_map(candidate).collect();
    Ok(Auto::new(candidates, options, io))
}

impl Transports {
    /// Starts a registry.
    pub fn builder() -> TransportsBuilder {
        TransportsBuilder::default()
    }

    /// Makes a worker whose own sessions use these transports, so that traffic among workers goes the way the query's
    /// session says. Only such a worker can be served: one that was not wired would fall back to gRPC in silence.
    pub fn worker(
        &self,
        session_builder: impl WorkerSessionBuilder + Send + Sync + 'static,
    ) -> WiredWorker {
        WiredWorker::new(self.clone(), session_builder)
    }

    /// Wires a session's configuration; [`TransportExt`] does it for a session builder.
    pub fn wire(&self, config: &mut SessionConfig) {
        let mut options = TransportOptions::from_session(config);
        // By its name, because it travels: a worker's own default may be another.
        if options.kind == DEFAULT_KIND {
            options.kind = self.default_kind().to_owned();
        }
        config.set_distributed_option_extension(options);
        config.set_distributed_channel_resolver(TransportResolver::new(self.clone()));
    }

    /// The kinds that `transport.kind` may name.
    pub fn kinds(&self) -> impl Iterator<Item = &str> {
        self.0.kinds.keys().map(String::as_str)
    }

    /// The kind that sessions use by default.
    pub fn default_kind(&self) -> &str {
        &self.0.default_kind
    }

    /// What the connections of this process did so far, by kind and worker. Foreign resolvers have no statistics.
    pub fn stats(&self) -> Vec<PeerStats> {
        let pools = self.0.kinds.values().filter_map(|kind| kind.pool.as_ref());
        pools.flat_map(|pool| pool.stats()).collect()
    }

    /// What kind `auto` uses for each worker that was called lately, and why no better one. Empty where it is not registered.
    pub fn auto_choices(&self) -> Vec<AutoChoice> {
        let auto = self.0.auto.as_ref();
        auto.map_or_else(Vec::new, |auto| auto.choices())
    }

    /// Closes all pooled connections and waits for the client's tasks to end. Streams still open fail; later calls too.
    pub async fn shutdown(&self) {
        if let Some(auto) = &self.0.auto {
            auto.close().await;
        }
        for pool in self.0.kinds.values().filter_map(|kind| kind.pool.as_ref()) {
            pool.close("the client shut down").await;
        }
    }

    /// What the streams of this process's queries share, whatever kind they go by.
    pub(crate) fn queries(&self) -> &QueryTable {
        &self.0.queries
    }

    /// The resolver of the kind that a session asks for.
    pub(crate) fn resolver(&self, kind: &str) -> Result<&Arc<dyn ChannelResolver + Send + Sync>> {
        let kind = match kind {
            DEFAULT_KIND => self.default_kind(),
            named => named,
        };
        match self.0.kinds.get(kind) {
            Some(kind) => Ok(&kind.resolver),
            None => {
                let known = self.kinds().collect::<Vec<_>>().join(", ");
                config_err!(
                    "transport.kind is '{kind}', but the transports registered in this process are: {known}"
                )
            }
        }
    }
}

impl fmt::Debug for Transports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transports")
            .field("default_kind", &self.0.default_kind)
            .field("kinds", &self.0.kinds.keys())
            .finish()
    }
}

/// Wires a coordinator's session in one call.
pub trait TransportExt {
    /// Makes the session send its queries over these transports, and adds the `transport` options to it.
    fn with_distributed_transports(self, transports: &Transports) -> Self;
}

impl TransportExt for SessionStateBuilder {
    fn with_distributed_transports(mut self, transports: &Transports) -> Self {
        transports.wire(self.config().get_or_insert_default());
        self
    }
}

impl TransportExt for SessionConfig {
    fn with_distributed_transports(mut self, transports: &Transports) -> Self {
        transports.wire(&mut self);
        self
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::memory::MemoryNetwork;

    fn builder() -> TransportsBuilder {
        let network = || Arc::new(MemoryNetwork::new());
        let builder = Transports::builder().connector("a", network());
        builder.connector("b", network())
    }

    #[test]
    fn a_wired_session_names_the_default_kind_because_it_travels() {
        let transports = builder().default_kind("b").build().unwrap();
        let config = SessionConfig::new().with_distributed_transports(&transports);
        assert_eq!(TransportOptions::from_session(&config).kind, "b");
    }

    #[test]
    fn wiring_again_keeps_what_the_session_chose() {
        let transports = builder().build().unwrap();
        let mut config = SessionConfig::new().with_distributed_transports(&transports);
        config.options_mut().set("transport.kind", "b").unwrap();
        transports.wire(&mut config);
        assert_eq!(TransportOptions::from_session(&config).kind, "b");
    }

    #[test]
    fn bad_registries_are_refused_and_say_why() {
        let err = |builder: TransportsBuilder| builder.build().unwrap_err().to_string();
        assert!(err(Transports::builder()).contains("no transport"));
        assert!(err(builder().default_kind("c")).contains("'c' is not registered"));
        let network = Arc::new(MemoryNetwork::new());
        assert!(err(builder().connector("a", Arc::clone(&network) as _)).contains("twice"));
        assert!(
            err(builder().connector("default", Arc::clone(&network) as _)).contains("reserved")
        );
        assert!(err(builder().auto()).contains("none of quic, tcp, grpc"));
        assert!(err(builder().auto_order([""; 0])).contains("empty"));
        assert!(
            err(builder().auto_order(["a", "quic"])).contains("'quic', which is not registered")
        );
        assert!(err(builder().auto_order(["a", "b", "a"])).contains("'a' twice"));
        assert!(err(builder().auto_order(["auto"])).contains("not registered"));
        assert!(err(builder().connector("auto", network).auto_order(["a"])).contains("twice"));
        let transports = builder().build().unwrap();
        let unknown = transports
            .resolver("c")
            .map(|_| ())
            .unwrap_err()
            .to_string();
        assert!(unknown.contains("a, b"), "{unknown}");
    }
}
