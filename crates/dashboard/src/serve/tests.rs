use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::api::tests::dashboard;
use crate::guard::Login;

async fn served() -> (SocketAddr, tokio_util::sync::DropGuard) {
    let (dashboard, _asked) = dashboard(
        Login::Token,
        &[("resource.k8s.io", 200, r#"{"versions": []}"#)],
    );
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    tokio::spawn(serve(dashboard, listener, stop.clone()));
    (address, stop.drop_guard())
}

/// Asks for the session on an open connection; the first line of the answer, empty if the connection has ended.
async fn ask(stream: &mut TcpStream, header: &str) -> String {
    let request = format!("GET /api/session HTTP/1.1\r\nhost: h:1\r\n{header}\r\n");
    // One that was closed meanwhile shows when it is read.
    let _closed = stream.write_all(request.as_bytes()).await;
    let mut got = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(n @ 1..) = stream.read(&mut buffer).await {
        got.extend_from_slice(&buffer[..n]);
        // Both answers are JSON objects in one piece.
        if got.ends_with(b"}") || got.ends_with(b"}\n") {
            break;
        }
    }
    let text = String::from_utf8_lossy(&got);
    text.lines().next().unwrap_or_default().to_owned()
}

const READER: &str = "authorization: Bearer reader\r\n";

/// 128 idle connections, or as many whose answers nothing reads, kept every reader out for twenty minutes.
#[tokio::test]
async fn regression_strangers_do_not_keep_readers_out() {
    let (address, _stop) = served().await;
    let mut early = TcpStream::connect(address).await.unwrap();
    assert_eq!(ask(&mut early, READER).await, "HTTP/1.1 200 OK");
    let mut strangers = Vec::new();
    for _ in 0..CONNECTIONS + 8 {
        let mut stranger = TcpStream::connect(address).await.unwrap();
        assert_eq!(ask(&mut stranger, "").await, "HTTP/1.1 401 Unauthorized");
        strangers.push(stranger);
    }
    let mut late = TcpStream::connect(address).await.unwrap();
    assert_eq!(ask(&mut late, READER).await, "HTTP/1.1 200 OK");
    // Those of readers are left, the newest of strangers as well.
    assert_eq!(ask(&mut early, READER).await, "HTTP/1.1 200 OK");
    assert_eq!(ask(&mut strangers[0], "").await, "");
    let last = strangers.last_mut().unwrap();
    assert_eq!(ask(last, "").await, "HTTP/1.1 401 Unauthorized");
}
