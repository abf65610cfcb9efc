//! [`Grpc`]: the engine's own transport in the shapes that users run it in.

#![allow(clippy::expect_used)]

use async_trait::async_trait;
use datafusion::common::DataFusionError;
use datafusion_distributed::grpc::{
    BoxCloneSyncChannel, DefaultChannelResolver, create_worker_client,
};
use datafusion_distributed::{ChannelResolver, WorkerChannel};
use datafusion_transport_core::error::ErrorKind;
use datafusion_transport_core::tls::DevelopmentIdentity;
use datafusion_transport_core::{GrpcStream, IoRuntime, TransportError, Transports};
use datafusion_transport_tests::harness::{address, identity};
use datafusion_transport_tests::{ChannelHarness, Served, Service, Subject};
use futures::future::{BoxFuture, FutureExt, Shared};
use futures::{StreamExt, stream};
use hyper_util::rt::TokioIo;
use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tokio_util::task::AbortOnDropHandle;
use tonic::transport::{Endpoint, Uri, server::TcpIncoming};
use url::Url;

/// HTTP/2 flow control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Windows {
    /// Of h2: 64 KiB per stream and per connection.
    Default,
    /// As large as this project's own: 4 MiB per stream, 16 MiB per connection, frames of 1 MiB.
    Large,
}

/// Encryption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Security {
    /// None.
    None,
    /// TLS 1.3 by rustls, the same certificates and ciphers as this project's transports.
    Tls,
}

const STREAM_WINDOW_BYTES: u32 = 4 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;
const FRAME_BYTES: u32 = 1 << 20;

/// The engine's gRPC on loopback.
pub struct Grpc {
    name: &'static str,
    windows: Windows,
    tls: Option<(DevelopmentIdentity, TempDir)>,
}

impl Grpc {
    /// A worker and its clients in this shape.
    pub fn new(name: &'static str, windows: Windows, security: Security) -> Self {
        let tls = (security == Security::Tls).then(identity);
        Self { name, windows, tls }
    }
}

impl Subject for Grpc {
    fn name(&self) -> &str {
        self.name
    }
}

#[async_trait]
impl ChannelHarness for Grpc {
    fn transports(&self) -> Transports {
        let resolver: Arc<dyn ChannelResolver + Send + Sync> = match (self.windows, &self.tls) {
            (Windows::Default, None) => Arc::new(DefaultChannelResolver::default()),
            (windows, tls) => {
                let identity = tls.as_ref().map(|(identity, _)| identity.clone());
                let channels = Mutex::default();
                Arc::new(Resolver {
                    windows,
                    identity,
                    channels,
                })
            }
        };
        let builder = Transports::builder().channel_resolver(self.name, resolver);
        builder.build().expect("a registry of one kind")
    }

    async fn serve(
        &self,
        service: Service,
        at: Option<&Url>,
        _io: Option<&IoRuntime>,
    ) -> Result<Box<dyn Served>, TransportError> {
        let service = service.into_worker().worker().into_worker_server();
        let failed = |err: std::io::Error| {
            TransportError::new(ErrorKind::Config, "bind", "local", err.to_string())
        };
        let listener = TcpListener::bind(address(at)).await.map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        let mut server = tonic::transport::Server::builder();
        if self.windows == Windows::Large {
            server = server
                .initial_stream_window_size(STREAM_WINDOW_BYTES)
                .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
                .max_frame_size(FRAME_BYTES);
        }
        let router = server.add_service(service);
        let serving = match &self.tls {
            None => {
                let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
                router.serve_with_incoming(incoming).boxed()
            }
            Some((identity, _)) => {
                let config = identity.server_tls()?.current(&[b"h2"]).await;
                let incoming = accept_tls(listener, TlsAcceptor::from(config));
                router.serve_with_incoming(incoming).boxed()
            }
        };
        Ok(Box::new(Serving {
            url: format!("http://{bound}").parse().expect("a URL"),
            _task: AbortOnDropHandle::new(tokio::spawn(serving.map(|_| ()))),
        }))
    }
}

/// Connections whose handshakes are done.
fn accept_tls(
    listener: TcpListener,
    acceptor: TlsAcceptor,
) -> impl futures::Stream<
    Item = Result<GrpcStream<tokio_rustls::server::TlsStream<TcpStream>>, Infallible>,
> {
    let sockets = stream::unfold(listener, |listener| async {
        let accepted = listener.accept().await;
        Some((accepted, listener))
    });
    sockets.filter_map(move |accepted| {
        let acceptor = acceptor.clone();
        async move {
            let (socket, peer): (TcpStream, SocketAddr) = accepted.ok()?;
            socket.set_nodelay(true).ok()?;
            let stream = acceptor.accept(socket).await.ok()?;
            Some(Ok(GrpcStream::new(peer, stream)))
        }
    })
}

struct Serving {
    url: Url,
    _task: AbortOnDropHandle<()>,
}

#[async_trait]
impl Served for Serving {
    fn url(&self) -> &Url {
        &self.url
    }

    async fn kill(self: Box<Self>) {}
}

type Channel = Shared<BoxFuture<'static, BoxCloneSyncChannel>>;

/// One channel for each worker, as the engine's own resolver has.
struct Resolver {
    windows: Windows,
    identity: Option<DevelopmentIdentity>,
    channels: Mutex<HashMap<Url, Channel>>,
}

#[async_trait]
impl ChannelResolver for Resolver {
    async fn get_worker_client_for_url(
        &self,
        url: &Url,
    ) -> Result<Box<dyn WorkerChannel>, DataFusionError> {
        let channel = {
            let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
            let dial = || {
                dial(url.clone(), self.windows, self.identity.clone())
                    .boxed()
                    .shared()
            };
            channels.entry(url.clone()).or_insert_with(dial).clone()
        };
        Ok(create_worker_client(channel.await))
    }
}

async fn dial(
    url: Url,
    windows: Windows,
    identity: Option<DevelopmentIdentity>,
) -> BoxCloneSyncChannel {
    let mut endpoint = Endpoint::from_shared(url.to_string()).expect("a URL");
    if windows == Windows::Large {
        endpoint = endpoint
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES);
    }
    let Some(identity) = identity else {
        return BoxCloneSyncChannel::new(endpoint.connect().await.expect("a connection"));
    };
    let config = identity
        .client_tls()
        .expect("certificates")
        .current(&[b"h2"])
        .await;
    let connector = TlsConnector::from(config);
    let connect = tower::service_fn(move |uri: Uri| {
        let connector = connector.clone();
        async move {
            let host = uri.host().unwrap_or_default().to_owned();
            let socket = TcpStream::connect((host.as_str(), uri.port_u16().unwrap_or(80))).await?;
            socket.set_nodelay(true)?;
            let name = ServerName::try_from(host).map_err(std::io::Error::other)?;
            let stream = connector.connect(name, socket).await?;
            Ok::<_, std::io::Error>(TokioIo::new(stream))
        }
    });
    let channel = endpoint.connect_with_connector(connect).await;
    BoxCloneSyncChannel::new(channel.expect("a connection"))
}
