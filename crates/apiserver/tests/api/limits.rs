//! Clients cannot overload the server by sending too much, not reading, or only waiting.

mod bodies;
mod connections;
mod errors;
mod flow;
mod page;
mod streams;
mod unread;
mod uploads;
mod work;

use std::sync::Arc;

use allot_apiserver::identity::{MASTERS, User};
use allot_apiserver::pki::Authority;
use allot_apiserver::{Config, Limits, Server, serve};
use rustls_pki_types::pem::PemObject;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

use crate::with_config;

/// A server behind a socket, in memory. The token `secret` is the administrator's, `jane` that of a user without rights.
pub struct Behind {
    pub server: Server,
    pub address: std::net::SocketAddr,
    authority: Authority,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<std::io::Result<()>>,
}

pub async fn server(limits: Limits) -> Server {
    let mut config = Config {
        limits,
        disabled_admission: vec!["ServiceAccount".to_owned()],
        ..Config::default()
    };
    for (token, user) in [
        ("secret", User::new("admin", [MASTERS])),
        ("jane", User::new("jane", ["people"])),
    ] {
        config.tokens.insert(token.to_owned(), user);
    }
    with_config(config).await
}

impl Behind {
    pub async fn start(limits: Limits) -> Self {
        Self::of(server(limits).await).await
    }

    /// The same server, listening on a socket.
    pub async fn of(server: Server) -> Self {
        let keys = tempfile::tempdir().unwrap();
        let authority = Authority::load_or_generate(keys.path(), "ca").unwrap();
        let names = ["localhost".to_owned()];
        let identity = authority
            .server("kube-apiserver", &names, &[[127, 0, 0, 1].into()])
            .unwrap();
        let tls = serve::tls(&identity, Some(authority.certificate())).unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let task = tokio::spawn(serve::serve(server.clone(), listener, tls, stop.clone()));
        Behind {
            server,
            address,
            authority,
            stop,
            task,
        }
    }

    pub async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
    }

    pub async fn tcp(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// A connection that speaks `protocol`.
    pub async fn tls(&self, protocol: &str) -> TlsStream<TcpStream> {
        self.try_tls(protocol).await.unwrap()
    }

    pub async fn try_tls(&self, protocol: &str) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = rustls::RootCertStore::empty();
        let pem = self.authority.certificate().as_bytes();
        let certificates = rustls_pki_types::CertificateDer::pem_slice_iter(pem);
        for certificate in certificates.map(Result::unwrap) {
            roots.add(certificate).unwrap();
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let socket = TcpSocket::new_v4()?;
        // The kernel would let the buffer of an unread answer grow to tens of megabytes.
        socket.set_recv_buffer_size(64 << 10)?;
        let stream = socket.connect(self.address).await?;
        connector
            .connect("localhost".try_into().unwrap(), stream)
            .await
    }

    /// A number of `/metrics`.
    pub async fn metric(&self, name: &str) -> f64 {
        metric(&self.server, name).await
    }

    /// Waits for a number of `/metrics`.
    pub async fn wait_for(&self, name: &str, wanted: impl Fn(f64) -> bool) {
        for _ in 0..3000 {
            if wanted(self.metric(name).await) {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        panic!("{name} is {}", self.metric(name).await);
    }
}

pub async fn metric(server: &Server, name: &str) -> f64 {
    number_in(&metrics(server).await, name)
}

/// The text of `/metrics`.
pub async fn metrics(server: &Server) -> String {
    let (_, text) = crate::send(server, User::admin(), "GET", "/metrics", "", b"").await;
    text.as_str().unwrap().to_owned()
}

/// A number in the text of `/metrics`.
pub fn number_in(metrics: &str, name: &str) -> f64 {
    let line = metrics
        .lines()
        .find(|line| line.starts_with(&format!("{name} ")));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok())
        .unwrap_or_else(|| panic!("no {name} in {metrics}"))
}

/// The head of a request.
pub fn head(method: &str, path: &str, token: &str, more: &str) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n{more}\r\n"
    )
}

/// What comes until the head and the announced body are there.
pub async fn answer(stream: &mut TlsStream<TcpStream>) -> String {
    let mut all = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&all).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(": ")?;
                name.eq_ignore_ascii_case("content-length")
                    .then(|| value.parse::<usize>().unwrap())
            });
            if body.len() >= length.unwrap_or(0) {
                return text;
            }
        }
        let read = within(stream.read(&mut buffer)).await.unwrap();
        assert!(read > 0, "the connection ends after {text:?}");
        all.extend_from_slice(&buffer[..read]);
    }
}

/// Reads until the connection ends, in whatever way.
pub async fn end(stream: &mut TlsStream<TcpStream>) {
    let mut buffer = vec![0; 1 << 16];
    while matches!(within(stream.read(&mut buffer)).await, Ok(read) if read > 0) {}
}

pub async fn write(stream: &mut TlsStream<TcpStream>, bytes: &[u8]) {
    stream.write_all(bytes).await.unwrap();
    stream.flush().await.unwrap();
}

/// What must happen happens within a minute.
pub async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(std::time::Duration::from_secs(60), future)
        .await
        .expect("nothing happens")
}
