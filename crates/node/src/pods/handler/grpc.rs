//! The health check of gRPC for probes: one call over HTTP/2, in the texts of the kubelet.

use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use futures::future::{Either, select};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tonic::{Code, Status};

use crate::metrics::code_name;

/// Maximum length of an answer; that of a health check has two bytes.
const LONGEST: usize = 4096;

/// Asks a server for the health of a service; an empty name is for the server as a whole.
///
/// # Errors
/// The message of a failed probe.
pub(super) async fn check(stream: TcpStream, at: &str, service: &str) -> Result<(), String> {
    let answer = match call(stream, at, service).await {
        Ok(answer) => answer,
        Err(status) if status.code() == Code::Unimplemented => {
            return Err(format!(
                "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): {}",
                status.message()
            ));
        }
        Err(status) => {
            return Err(format!(
                "error: health rpc probe failed: rpc error: code = {} desc = {}",
                code_name(status.code()),
                status.message()
            ));
        }
    };
    let name = match serving(&answer) {
        Some(1) => return Ok(()),
        Some(0) => "UNKNOWN".to_owned(),
        Some(2) => "NOT_SERVING".to_owned(),
        Some(3) => "SERVICE_UNKNOWN".to_owned(),
        Some(other) => other.to_string(),
        None => {
            return Err(
                "error: health rpc probe failed: rpc error: code = Internal desc = malformed answer"
                    .to_owned(),
            );
        }
    };
    Err(format!("service unhealthy (responded with {name:?})"))
}

/// What a connection runs by itself. It ends when this is dropped, even if the connection waits: a server that reads
/// nothing would keep it otherwise, with its descriptor, for as long as the server likes.
#[derive(Debug, Default)]
struct Tasks(Arc<Mutex<Vec<AbortHandle>>>);

/// Where a connection starts them.
#[derive(Debug, Clone)]
struct Spawn(Arc<Mutex<Vec<AbortHandle>>>);

impl<F> hyper::rt::Executor<F> for Spawn
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, future: F) {
        let task = tokio::spawn(future);
        self.0.lock().push(task.abort_handle());
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        for task in self.0.lock().drain(..) {
            task.abort();
        }
    }
}

async fn call(stream: TcpStream, at: &str, service: &str) -> Result<Bytes, Status> {
    let failed = |error: &dyn std::fmt::Display| Status::unavailable(error.to_string());
    let tasks = Tasks::default();
    let spawn = Spawn(Arc::clone(&tasks.0));
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(spawn, TokioIo::new(stream))
            .await
            .map_err(|error| failed(&error))?;
    let request = http::Request::post(format!("http://{at}/grpc.health.v1.Health/Check"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("user-agent", "kube-probe/1.36")
        .body(Full::new(question(service)))
        .map_err(|error| failed(&error))?;
    let ask = async {
        let response = sender.send_request(request).await;
        let mut response = response.map_err(|error| failed(&error))?;
        match response.status() {
            http::StatusCode::OK => {}
            other => {
                let code = match other.as_u16() {
                    404 => Code::Unimplemented,
                    _ => Code::Unknown,
                };
                let text = format!("unexpected HTTP status code received from server: {other}");
                return Err(Status::new(code, text));
            }
        }
        let mut told = Status::from_header_map(response.headers());
        let mut data = BytesMut::new();
        while let Some(frame) = response.frame().await {
            match frame.map_err(|error| failed(&error))?.into_data() {
                Ok(piece) if data.len() + piece.len() > LONGEST => {
                    return Err(Status::resource_exhausted("the answer is too long"));
                }
                Ok(piece) => data.put(piece),
                Err(frame) => {
                    told = told.or_else(|| Status::from_header_map(frame.trailers_ref()?));
                }
            }
        }
        match told {
            Some(status) if status.code() == Code::Ok => Ok(data.freeze()),
            Some(failure) => Err(failure),
            None => Err(Status::internal(
                "server closed the stream without sending trailers",
            )),
        }
    };
    // The connection moves the data; what has arrived when it ends must still be evaluated.
    match select(std::pin::pin!(ask), std::pin::pin!(connection)).await {
        Either::Left((answer, _)) => answer,
        Either::Right((_, ask)) => ask.await,
    }
}

/// A `HealthCheckRequest` with the prefix of a message.
fn question(service: &str) -> Bytes {
    let mut message = BytesMut::new();
    if !service.is_empty() {
        message.put_u8(0x0a);
        let mut length = service.len();
        while length > 0x7f {
            message.put_u8((length & 0x7f) as u8 | 0x80);
            length >>= 7;
        }
        message.put_u8(length as u8);
        message.put_slice(service.as_bytes());
    }
    let mut whole = BytesMut::new();
    whole.put_u8(0);
    whole.put_u32(message.len() as u32);
    whole.put(message);
    whole.freeze()
}

/// The `status` of a `HealthCheckResponse` with the prefix of a message. The message has no other field.
fn serving(answer: &[u8]) -> Option<u64> {
    let (head, message) = answer.split_first_chunk::<5>()?;
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
    if head[0] != 0 || length != message.len() {
        return None;
    }
    match message {
        [] => Some(0),
        [0x08, value @ 0..=0x7f] => Some((*value).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::HeaderMap;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioExecutor;
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::{TcpListener, TcpSocket};
    use tokio::time::{Duration, timeout};

    use super::*;

    /// The result of a check at a server that answers this, with the trailers of a status.
    async fn probe(service: &str, answer: &'static [u8], status: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let asked = service.to_owned();
        let server = async move {
            let (stream, _) = listener.accept().await.unwrap();
            let serve = service_fn(move |request: http::Request<hyper::body::Incoming>| {
                let asked = asked.clone();
                async move {
                    assert_eq!(request.uri().path(), "/grpc.health.v1.Health/Check");
                    assert_eq!(request.headers()["content-type"], "application/grpc");
                    let got = request.into_body().collect().await.unwrap().to_bytes();
                    assert_eq!(got, question(&asked));
                    let trailers = async move {
                        let mut trailers = HeaderMap::new();
                        trailers.insert("grpc-status", status.parse().unwrap());
                        trailers.insert("grpc-message", "not%20here".parse().unwrap());
                        Some(Ok(trailers))
                    };
                    let body = Full::new(Bytes::from_static(answer)).with_trailers(trailers);
                    Ok::<_, Infallible>(http::Response::new(body))
                }
            });
            let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            let _ = builder.serve_connection(TokioIo::new(stream), serve).await;
        };
        let server = tokio::spawn(server);
        let stream = TcpStream::connect(at).await.unwrap();
        let result = check(stream, &at.to_string(), service).await;
        server.abort();
        result.err().unwrap_or_default()
    }

    #[tokio::test]
    async fn health_is_asked_for_in_grpc() {
        assert_eq!(question("ab"), &[0, 0, 0, 0, 4, 0x0a, 2, b'a', b'b'][..]);
        let long = question(&"a".repeat(300));
        assert_eq!(long[..8], [0, 0, 0, 1, 47, 0x0a, 0xac, 2]);
        const SERVING: &[u8] = &[0, 0, 0, 0, 2, 8, 1];
        for service in ["", "a.b"] {
            assert_eq!(probe(service, SERVING, "0").await, "");
        }
        let rows: [(&'static [u8], &'static str, &str); 8] = [
            (&[0, 0, 0, 0, 2, 8, 2], "0", "\"NOT_SERVING\""),
            (&[0, 0, 0, 0, 0], "0", "\"UNKNOWN\""),
            (&[0, 0, 0, 0, 9, 8, 1], "0", "malformed"),
            (&[], "0", "malformed"),
            (
                SERVING,
                "12",
                "does not implement the grpc health protocol (grpc.health.v1.Health): not here",
            ),
            (&[], "5", "rpc error: code = NotFound desc = not here"),
            (&[], "1", "rpc error: code = Canceled desc = not here"),
            (&[0; LONGEST + 1], "0", "too long"),
        ];
        for (answer, status, expected) in rows {
            let told = probe("", answer, status).await;
            assert!(told.contains(expected), "{told}");
        }
    }

    /// The attack: a server that asks without end and reads no answer kept the connection of every probe, and a descriptor of
    /// the agent with it.
    #[tokio::test]
    async fn regression_a_connection_ends_with_its_probe() {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(1).unwrap();
        let at = listener.local_addr().unwrap();
        let (stream, accepted) = tokio::join!(TcpStream::connect(at), listener.accept());
        let (mut server, _) = accepted.unwrap();
        let name = at.to_string();
        let asked = check(stream.unwrap(), &name, "");
        // Settings, and then pings, each of which wants an answer.
        let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
        let ping = [0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
        let pings = ping.repeat(1000);
        let fill = async {
            server.write_all(&settings).await.unwrap();
            // Until neither side takes anything.
            while let Ok(written) = timeout(Duration::from_secs(1), server.write_all(&pings)).await
            {
                written.unwrap();
            }
        };
        tokio::select! {
            result = asked => panic!("{result:?}"),
            () = fill => {}
        }
        // The probe is over.
        let over = async { while server.write_all(&pings).await.is_ok() {} };
        let ended = timeout(Duration::from_secs(60), over).await;
        assert!(ended.is_ok(), "the connection is kept");
    }
}
