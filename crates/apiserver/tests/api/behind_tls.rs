//! Servers that the API server is a client of.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls_pki_types::CertificateDer;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// A server on the loopback interface.
pub struct BehindTls {
    pub port: u16,
    /// How many connections it has accepted.
    pub connections: Arc<AtomicUsize>,
}

/// The certificate of the client, in the extensions of a request.
#[derive(Clone)]
pub struct ClientCertificate(pub CertificateDer<'static>);

impl BehindTls {
    /// Answers requests of HTTP/1.1 on a free port.
    pub async fn start<F>(
        tls: Arc<rustls::ServerConfig>,
        answer: impl Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<Response<Full<Bytes>>, hyper::Error>> + Send + 'static,
    {
        let mut tls = Arc::unwrap_or_clone(tls);
        tls.alpn_protocols.clear();
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = BehindTls {
            port: listener.local_addr().unwrap().port(),
            connections: Arc::default(),
        };
        let connections = server.connections.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                connections.fetch_add(1, Ordering::Relaxed);
                let (acceptor, answer) = (acceptor.clone(), answer.clone());
                tokio::spawn(async move {
                    // A client that does not trust the certificate goes away.
                    let Ok(stream) = acceptor.accept(stream).await else {
                        return;
                    };
                    let chain = stream.get_ref().1.peer_certificates();
                    let client = chain.map(|it| ClientCertificate(it[0].clone().into_owned()));
                    let service = service_fn(move |mut request: Request<Incoming>| {
                        if let Some(client) = client.clone() {
                            request.extensions_mut().insert(client);
                        }
                        answer(request)
                    });
                    let served = Builder::new().serve_connection(TokioIo::new(stream), service);
                    // Ends with the client's connection.
                    let _ = served.with_upgrades().await;
                });
            }
        });
        server
    }
}
