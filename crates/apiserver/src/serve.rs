//! The server behind a socket: TLS, HTTP/1.1 and HTTP/2, client certificates, orderly end.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use allot_certificates::{Authorities, Presented};
use http::Request;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use parking_lot::RwLock;
use rustix::net::sockopt::{set_socket_keepalive, set_tcp_keepidle, set_tcp_keepintvl};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::auth::certificate;
use crate::connections::{ConnectionSlot, Connections, counted};
use crate::limits::{DRAIN, STREAM_QUEUE};
use crate::pki::Identity;
use crate::server::Server;

/// Timeout of the graceful shutdown of a connection.
const CLOSING: Duration = Duration::from_secs(10);
/// The interval of HTTP/2 pings, and the timeout of their responses.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);
/// The idle time before TCP keep-alive probes, and their interval, as upstream. Linux sends nine before it gives up.
const KEEP_ALIVE: Duration = Duration::from_secs(180);
/// After the system has refused a connection and no other could be closed.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// How the server speaks TLS, and whose client certificates prove identities: those of clients, and those of front proxies.
/// Clones share both, which can change.
#[derive(Debug, Clone)]
pub struct Tls(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    current: RwLock<Current>,
}

#[derive(Debug, Clone)]
struct Current {
    config: Arc<rustls::ServerConfig>,
    /// PEM.
    client_ca: Option<String>,
    /// PEM.
    front_proxy_ca: Option<String>,
    authorities: Option<Authorities>,
    /// Whose client certificates prove that a request comes from a front proxy.
    front_proxies: Option<Authorities>,
}

impl Tls {
    /// What the handshake needs.
    pub fn config(&self) -> Arc<rustls::ServerConfig> {
        self.0.current.read().config.clone()
    }

    /// Those of clients and those of front proxies.
    fn authorities(&self) -> (Option<Authorities>, Option<Authorities>) {
        let current = self.0.current.read();
        (current.authorities.clone(), current.front_proxies.clone())
    }

    /// From now on client certificates of these authorities (PEM) prove identities, and those of others do no longer: also on
    /// connections that are open.
    ///
    /// # Errors
    /// Malformed PEM; the present authorities stay.
    pub fn trust(&self, client_ca: &str) -> io::Result<()> {
        let Shared { chain, key, .. } = &*self.0;
        let mut current = self.0.current.write();
        let front_proxy_ca = current.front_proxy_ca.as_deref();
        *current = Current::new(chain, key, Some(client_ca), front_proxy_ca)?;
        Ok(())
    }

    /// From now on client certificates of these authorities (PEM) prove that headers name users, and those of others do no
    /// longer: also on connections that are open.
    ///
    /// # Errors
    /// Malformed PEM; the present authorities stay.
    pub fn trust_front_proxies(&self, front_proxy_ca: &str) -> io::Result<()> {
        let Shared { chain, key, .. } = &*self.0;
        let mut current = self.0.current.write();
        let client_ca = current.client_ca.as_deref();
        *current = Current::new(chain, key, client_ca, Some(front_proxy_ca))?;
        Ok(())
    }
}

/// A TLS configuration for a serving certificate; client certificates of `client_ca` prove identities.
///
/// # Errors
/// Malformed PEM.
pub fn tls(identity: &Identity, client_ca: Option<&str>) -> io::Result<Tls> {
    tls_behind_proxies(identity, client_ca, None)
}

/// Like [`tls`]; client certificates of `front_proxy_ca` prove that headers name the user of a request.
///
/// # Errors
/// Malformed PEM.
pub fn tls_behind_proxies(
    identity: &Identity,
    client_ca: Option<&str>,
    front_proxy_ca: Option<&str>,
) -> io::Result<Tls> {
    let chain: Vec<CertificateDer<'static>> =
        CertificateDer::pem_slice_iter(identity.certificate.as_bytes())
            .collect::<Result<_, _>>()
            .map_err(|error| bad(&error))?;
    let key =
        PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).map_err(|error| bad(&error))?;
    let current = Current::new(&chain, &key, client_ca, front_proxy_ca)?;
    Ok(Tls(Arc::new(Shared {
        chain,
        key,
        current: RwLock::new(current),
    })))
}

impl Current {
    fn new(
        chain: &[CertificateDer<'static>],
        key: &PrivateKeyDer<'static>,
        client_ca: Option<&str>,
        front_proxy_ca: Option<&str>,
    ) -> io::Result<Self> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| bad(&error))?;
        let read = |ca: &str| {
            Authorities::read(ca.as_bytes(), provider.clone()).map_err(|error| bad(&error))
        };
        let authorities = client_ca.map(read).transpose()?;
        let front_proxies = front_proxy_ca.map(read).transpose()?;
        // The handshake names all of them: a client may choose its certificate by these names.
        let all: Vec<&str> = client_ca.into_iter().chain(front_proxy_ca).collect();
        let builder = match all.is_empty() {
            false => builder.with_client_cert_verifier(read(&all.join("\n"))?.handshake()),
            true => builder.with_no_client_auth(),
        };
        let mut config = builder
            .with_single_cert(chain.to_vec(), key.clone_key())
            .map_err(|error| bad(&error))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let config = Arc::new(config);
        Ok(Self {
            config,
            client_ca: client_ca.map(str::to_owned),
            front_proxy_ca: front_proxy_ca.map(str::to_owned),
            authorities,
            front_proxies,
        })
    }
}

fn bad(error: &dyn std::fmt::Display) -> io::Error {
    io::Error::other(error.to_string())
}

/// Accepts connections until `shutdown`, then drains.
///
/// # Errors
/// None: a failing connection is logged and ends alone.
pub async fn serve(
    server: Server,
    listener: TcpListener,
    tls: Tls,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let limit = server.0.config.limits.max_connections;
    let connections = Connections::new(limit, server.0.unread.clone());
    let tasks = TaskTracker::new();
    loop {
        let (stream, peer) = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of file descriptors, usually.
                    connections.log_closed(&format!("can not accept a connection ({error})"));
                    connections.evict();
                    tokio::time::sleep(ACCEPT_AGAIN).await;
                    continue;
                }
            },
            () = shutdown.cancelled() => break,
        };
        let Some(place) = connections.admit(peer) else {
            continue;
        };
        let _ = stream.set_nodelay(true);
        if let Err(error) = keep_alive(&stream) {
            tracing::debug!(%peer, %error, "TCP keep-alive is not enabled for a connection");
        }
        let (server, tls, shutdown) = (server.clone(), tls.clone(), shutdown.clone());
        tasks.spawn(async move {
            let (connection, place) = (place.connection.clone(), Arc::new(place));
            tokio::select! {
                () = connection.abort.cancelled() => tracing::debug!(%peer, "connection closed"),
                () = one(server, tls, stream, peer, &place, &shutdown) => {}
            }
        });
    }
    // Clients are refused at once, and ask another server: a connection that is not accepted any more would wait until the
    // end of the process.
    drop(listener);
    server.shutdown();
    tasks.close();
    tokio::select! {
        () = tasks.wait() => {}
        () = tokio::time::sleep(DRAIN) => tracing::warn!("some requests did not end in time"),
    }
    if let Some(audit) = server.0.config.audit.clone() {
        let _ = tokio::task::spawn_blocking(move || audit.flush()).await;
    }
    Ok(())
}

/// Enables TCP keep-alive: without it, watches over HTTP/1.1 and upgraded connections would not end when the machine of the
/// client disappears.
fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    set_socket_keepalive(stream, true)?;
    set_tcp_keepidle(stream, KEEP_ALIVE)?;
    set_tcp_keepintvl(stream, KEEP_ALIVE)?;
    Ok(())
}

/// One connection from the handshake to the end.
async fn one(
    server: Server,
    tls: Tls,
    stream: TcpStream,
    peer: SocketAddr,
    place: &Arc<ConnectionSlot>,
    shutdown: &CancellationToken,
) {
    let limits = server.0.config.limits.clone();
    let acceptor = TlsAcceptor::from(tls.config());
    let handshake = tokio::time::timeout(limits.handshake_timeout, acceptor.accept(stream));
    let stream = match handshake.await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%peer, %error, "TLS handshake failed"),
        Err(_) => return tracing::debug!(%peer, "TLS handshake took too long"),
    };
    let session = stream.get_ref().1;
    // One for each kind of authorities: it remembers what its chain proved to the last ones.
    let presented = session.peer_certificates();
    let presented = presented.map(|chain| (Presented::new(chain), Presented::new(chain)));
    let presented = Arc::new(presented);
    let http2 = session.alpn_protocol() == Some(b"h2");
    let connection = place.connection.clone();
    let counters = server.0.counters.clone();
    let service = service_fn(move |request: Request<hyper::body::Incoming>| {
        let (server, tls, presented) = (server.clone(), tls.clone(), presented.clone());
        let in_flight = Arc::new(connection.request());
        async move {
            let (authorities, front_proxies) = tls.authorities();
            let user = match (&*presented, authorities) {
                (Some((presented, _)), Some(authorities)) => presented
                    .identity(&authorities, UnixTime::now())
                    .map(|identity| identity.map(certificate::user_of)),
                _ => Ok(None),
            };
            let proxy = presented.as_ref().as_ref().zip(front_proxies);
            let proxy = proxy.and_then(|((_, presented), authorities)| {
                let found = presented.identity(&authorities, UnixTime::now()).ok()?;
                Some(found.map(|it| it.name).unwrap_or_default())
            });
            if let Err(error) = &user {
                tracing::debug!(%peer, %error, "client certificate is of no use");
            }
            let response = server.handle_remote(request, user, proxy, &in_flight).await;
            if response.status() == http::StatusCode::SWITCHING_PROTOCOLS {
                in_flight.connection.upgraded();
            }
            drop(in_flight);
            Ok::<_, Infallible>(response)
        }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.idle_timeout);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT)
        .max_send_buf_size(STREAM_QUEUE)
        .max_concurrent_streams(limits.http2_max_streams);
    // Negotiated in the handshake, so that there is no wait for a first byte without a timeout.
    let builder = match http2 {
        true => builder.http2_only(),
        false => builder.http1_only(),
    };
    // Bytes that arrive over HTTP/2 between requests are not an incomplete head.
    let io = TokioIo::new(counted(stream, place.clone(), !http2));
    let mut serving = std::pin::pin!(builder.serve_connection_with_upgrades(io, service));
    // As for a large answer: the timeout ends the answer, and the same time later the connection.
    let unread_timeout = 2 * limits.stall_timeout;
    let tick = limits.idle_timeout.min(limits.header_timeout);
    let tick = tick.min(unread_timeout);
    let mut check = std::pin::pin!(tokio::time::sleep(tick));
    let mut closing = false;
    loop {
        tokio::select! {
            ended = serving.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%peer, %error, "connection ended");
                }
                return;
            }
            () = shutdown.cancelled(), if !closing => {
                closing = true;
                serving.as_mut().graceful_shutdown();
            }
            () = check.as_mut() => {
                let left = match place.connection.idle_for() {
                    Some(idle) => limits.idle_timeout.saturating_sub(idle),
                    None => limits.idle_timeout,
                };
                let unread = place.connection.unread.oldest();
                if unread.is_some_and(|unread| unread >= unread_timeout) {
                    counters.abandoned();
                    return tracing::debug!(%peer, "the client did not read");
                }
                let head = place.connection.head_for();
                if head.is_some_and(|head| head >= limits.header_timeout) {
                    return tracing::debug!(%peer, "the head of a request took too long");
                }
                if !left.is_zero() {
                    check.as_mut().reset(Instant::now() + left.min(tick));
                } else if closing {
                    return tracing::debug!(%peer, "connection does not end by itself");
                } else {
                    closing = true;
                    serving.as_mut().graceful_shutdown();
                    check.as_mut().reset(Instant::now() + CLOSING);
                }
            }
        }
    }
}
