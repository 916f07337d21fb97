//! Actions of probes and hooks: run a program in the container, send an HTTP request, open a connection, ask a gRPC server for
//! its health, sleep.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::{Either, select};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{
    Container, ExecAction, GRPCAction, HTTPGetAction, LifecycleHandler, Pod, Probe, SleepAction,
    TCPSocketAction,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;

use super::{Node, network};
use crate::runtime::Exec;

mod grpc;

/// Of what a program or a server answers, this much is shown in events.
const SHOWN: usize = 10 * 1024;
/// The longest head of an answer to a probe.
const LARGEST_HEAD: usize = 64 << 10;

/// What to do.
#[derive(Debug, Clone)]
pub(super) enum Action {
    Exec(Vec<String>),
    Http(HTTPGetAction),
    Tcp(TCPSocketAction),
    Grpc(GRPCAction),
    Sleep(Duration),
    /// An action that this agent does not support.
    Unknown(&'static str),
}

/// Why it did not work.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// It was done, and the answer is no.
    No(String),
    /// It could not be carried out: no information about the container.
    Unknown(String),
}

impl Failure {
    pub(super) fn text(&self) -> &str {
        match self {
            Self::No(text) | Self::Unknown(text) => text,
        }
    }
}

fn no(text: impl Into<String>) -> Failure {
    Failure::No(text.into())
}

impl Action {
    pub(super) fn of_probe(probe: &Probe) -> Self {
        Self::exec_or_http(probe.exec.as_ref(), probe.http_get.as_ref())
            .or_else(|| probe.tcp_socket.clone().map(Self::Tcp))
            .or_else(|| probe.grpc.clone().map(Self::Grpc))
            .unwrap_or(Self::Unknown("missing probe handler"))
    }

    pub(super) fn of_hook(hook: &LifecycleHandler) -> Self {
        let sleep =
            |sleep: &SleepAction| Self::Sleep(Duration::from_secs(sleep.seconds.max(0) as u64));
        Self::exec_or_http(hook.exec.as_ref(), hook.http_get.as_ref())
            .or_else(|| hook.sleep.as_ref().map(sleep))
            // As in a kubelet, where TCP checks are for probes only.
            .unwrap_or(Self::Unknown("invalid handler"))
    }

    /// What probes and hooks have in common.
    fn exec_or_http(exec: Option<&ExecAction>, http: Option<&HTTPGetAction>) -> Option<Self> {
        let exec = exec.map(|exec| Self::Exec(exec.command.clone().unwrap_or_default()));
        exec.or_else(|| http.cloned().map(Self::Http))
    }

    /// Does it, with all the time it takes; a program that a runtime runs by itself has `limit`. Dropped in between, it ends
    /// what it has started.
    pub(super) async fn run(
        &self,
        node: &Node,
        pod: &Pod,
        container: &Container,
        id: &str,
        limit: Duration,
    ) -> Result<(), Failure> {
        match self {
            Self::Exec(command) => exec(node, id, command, limit).await,
            Self::Http(action) => get(node, pod, container, action).await,
            Self::Tcp(action) => {
                let host = host(node, pod, action.host.as_deref());
                connect(node, pod, &host, port(container, &action.port)?).await?;
                Ok(())
            }
            Self::Grpc(action) => {
                let host = host(node, pod, None);
                let port = port(container, &IntOrString::Int(action.port))?;
                let stream = connect(node, pod, &host, port).await?;
                let service = action.service.as_deref().unwrap_or_default();
                grpc::check(stream, &authority(&host, port), service)
                    .await
                    .map_err(no)
            }
            Self::Sleep(time) => {
                tokio::time::sleep(*time).await;
                Ok(())
            }
            Self::Unknown(reason) => Err(Failure::Unknown((*reason).to_owned())),
        }
    }
}

async fn exec(node: &Node, id: &str, command: &[String], limit: Duration) -> Result<(), Failure> {
    let unknown = |error: std::io::Error| Failure::Unknown(error.to_string());
    if let Some(complete) = node.runtime.complete() {
        let output = complete.run(id, command.to_vec(), limit).await;
        let mut output = output.map_err(|error| Failure::Unknown(error.to_string()))?;
        output.text.truncate(SHOWN);
        return match output.code {
            0 => Ok(()),
            _ => Err(no(String::from_utf8_lossy(&output.text).trim_end())),
        };
    }
    let exec = node.runtime.exec(id, command.to_vec(), false, false);
    let Exec::Child { mut child, .. } = exec.await.map_err(unknown)? else {
        return Err(Failure::Unknown("the runtime has no processes".into()));
    };
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let (out, err, status) = tokio::join!(start_of(out), start_of(err), child.wait());
    match status.map_err(unknown)? {
        status if status.success() => Ok(()),
        _ => Err(no(String::from_utf8_lossy(&[out, err].concat()).trim_end())),
    }
}

/// The beginning of the output; the rest is read and discarded, so that the writer does not block.
async fn start_of(from: Option<impl AsyncRead + Unpin>) -> Vec<u8> {
    let mut kept = Vec::new();
    let Some(mut from) = from else { return kept };
    let mut buffer = vec![0; 4096];
    while let Ok(n @ 1..) = from.read(&mut buffer).await {
        let room = SHOWN.saturating_sub(kept.len());
        kept.extend_from_slice(&buffer[..n.min(room)]);
    }
    kept
}

fn host(node: &Node, pod: &Pod, named: Option<&str>) -> String {
    match named.filter(|name| !name.is_empty()) {
        Some(name) => name.to_owned(),
        None => node.addresses(pod).into_iter().next().unwrap_or_default(),
    }
}

fn port(container: &Container, port: &IntOrString) -> Result<u16, Failure> {
    let number = match port {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(name) => container
            .ports
            .iter()
            .flatten()
            .find(|port| port.name.as_ref() == Some(name))
            .map(|port| port.container_port),
    };
    number
        .and_then(|number| u16::try_from(number).ok())
        .filter(|number| *number > 0)
        .ok_or_else(|| Failure::Unknown("invalid port number".to_owned()))
}

fn authority(host: &str, port: u16) -> String {
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

/// Connects to a port of a container. One in a network without an address is reached over its loopback interface.
async fn connect(node: &Node, pod: &Pod, host: &str, port: u16) -> Result<TcpStream, Failure> {
    let at = authority(host, port);
    let directory = node.pod_dir(&pod.uid().unwrap_or_default());
    let connected = match network::of(&directory).filter(|_| !node.has_own_network(pod)) {
        Some(namespace) => network::connect(namespace, port).await,
        None => TcpStream::connect(&at).await,
    };
    connected.map_err(|error| {
        let reason = match error.kind() {
            std::io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
            _ => error.to_string(),
        };
        no(format!("dial tcp {at}: {reason}"))
    })
}

async fn get(
    node: &Node,
    pod: &Pod,
    container: &Container,
    action: &HTTPGetAction,
) -> Result<(), Failure> {
    let host = host(node, pod, action.host.as_deref());
    let port = port(container, &action.port)?;
    let path = action.path.as_deref().unwrap_or("/");
    let slash = if path.starts_with('/') { "" } else { "/" };
    let target = format!("{slash}{path}");
    let secure = action.scheme.as_deref() == Some("HTTPS");
    let url = format!(
        "{}://{host}:{port}{target}",
        if secure { "https" } else { "http" }
    );
    let failed = |error: &dyn std::fmt::Display| no(format!("Get \"{url}\": {error}"));
    let mut request = http::Request::get(&target)
        .header("host", format!("{host}:{port}"))
        .header("user-agent", "kube-probe/1.36")
        .header("accept", "*/*");
    for header in action.http_headers.iter().flatten() {
        if header.name.eq_ignore_ascii_case("host")
            && let Some(headers) = request.headers_mut()
        {
            headers.remove("host");
        }
        request = request.header(&header.name, &header.value);
    }
    let request = request
        .body(Empty::<Bytes>::new())
        .map_err(|error| Failure::Unknown(error.to_string()))?;
    let stream = connect(node, pod, &host, port)
        .await
        .map_err(|failure| failed(&failure.text()))?;
    let status = match secure {
        false => ask(stream, request).await,
        true => match tls::connect(&host, stream).await {
            Ok(stream) => ask(stream, request).await,
            Err(error) => Err(error.to_string()),
        },
    }
    .map_err(|error| failed(&error))?;
    match status.as_u16() {
        200..400 => Ok(()),
        code => Err(no(format!("HTTP probe failed with statuscode: {code}"))),
    }
}

async fn ask<S>(stream: S, request: http::Request<Empty<Bytes>>) -> Result<http::StatusCode, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    // What is read at once is small: a container can send informational answers without end, and as long as hyper finds one in
    // what has been read, a worker of the runtime does nothing else.
    let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
        .max_buf_size(LARGEST_HEAD)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| error.to_string())?;
    let ask = async {
        let mut response = sender.send_request(request).await?;
        // Read to the end, within reason, so that the server has no broken connection in its log.
        let mut read = 0;
        while let Some(frame) = response.frame().await {
            read += frame?.data_ref().map_or(0, Bytes::len);
            if read > SHOWN {
                break;
            }
        }
        Ok::<_, hyper::Error>(response.status())
    };
    // The connection moves the data; what has arrived when it ends must still be evaluated.
    let answer = match select(std::pin::pin!(ask), connection).await {
        Either::Left((answer, _)) => answer,
        Either::Right((_, ask)) => ask.await,
    };
    answer.map_err(|error| error.to_string())
}

/// HTTPS to a container. As in the kubelet, its certificate is not verified.
mod tls {
    use super::{Arc, TcpStream};
    use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
    use rustls::crypto::CryptoProvider;
    use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
    use tokio_rustls::client::TlsStream;

    pub(super) async fn connect(
        host: &str,
        stream: TcpStream,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(std::io::Error::other)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Any(provider)))
            .with_no_client_auth();
        let name = ServerName::try_from(host.to_owned()).map_err(std::io::Error::other)?;
        tokio_rustls::TlsConnector::from(Arc::new(config))
            .connect(name, stream)
            .await
    }

    #[derive(Debug)]
    struct Any(Arc<CryptoProvider>);

    impl ServerCertVerifier for Any {
        fn verify_server_cert(
            &self,
            _: &CertificateDer<'_>,
            _: &[CertificateDer<'_>],
            _: &ServerName<'_>,
            _: &[u8],
            _: UnixTime,
        ) -> Result<ServerCertVerified, rustls::Error> {
            Ok(ServerCertVerified::assertion())
        }

        fn verify_tls12_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signed: &rustls::DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            let algorithms = &self.0.signature_verification_algorithms;
            rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signed: &rustls::DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            let algorithms = &self.0.signature_verification_algorithms;
            rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
            self.0.signature_verification_algorithms.supported_schemes()
        }
    }
}
