use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;
use crate::metrics::Operation;

/// The answer to one request, as it is on the wire.
async fn get(address: std::net::SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("{request} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn probes_and_metrics_are_answered() {
    let (status, registration) = watch::channel(None);
    let metrics = Arc::new(Metrics::default());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let diagnostics = Diagnostics {
        metrics: Arc::clone(&metrics),
        registration,
        checkpoint: Arc::new(Mutex::new(Checkpoint::open(None).unwrap())),
    };
    let server = tokio::spawn(diagnostics.serve(listener));
    let check = async |request: &str, code: &str, part: &str| {
        let answer = get(address, request).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {code}")), "{answer}");
        assert!(answer.contains(part), "{answer}");
    };
    check("GET /healthz", "200", "ok").await;
    check("GET /readyz", "503", "no kubelet has registered").await;
    let refused = RegistrationStatus {
        registered: false,
        error: "no supported version".into(),
    };
    status.send_replace(Some(refused));
    check("GET /readyz", "503", "no supported version").await;
    let accepted = RegistrationStatus {
        registered: true,
        error: String::new(),
    };
    status.send_replace(Some(accepted));
    check("GET /readyz?verbose", "200", "ok").await;
    check("POST /metrics", "405", "").await;
    check("GET /debug", "404", "/metrics").await;

    let begun = metrics.begin(Operation::Prepare, 2);
    metrics.ended(Operation::Unprepare, true, Duration::from_millis(3));
    metrics.set_devices(8);
    for line in [
        r#"dra_driver_operations_in_flight{operation="prepare"} 2"#,
        r#"dra_driver_operation_duration_seconds_count{operation="unprepare",result="error"} 1"#,
        "dra_driver_published_devices 8",
        "dra_driver_prepared_claims 0",
        "dra_driver_registered 1",
        "# EOF",
    ] {
        check("GET /metrics", "200", line).await;
    }
    drop(begun);
    let line = r#"dra_driver_operations_in_flight{operation="prepare"} 0"#;
    check("GET /metrics", "200", line).await;
    server.abort();
}

/// Clients that connect and say nothing do not keep others out for longer than the limit of a head.
#[tokio::test]
async fn silent_connections_are_closed() {
    let (_status, registration) = watch::channel(None);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let diagnostics = Diagnostics {
        metrics: Arc::default(),
        registration,
        checkpoint: Arc::new(Mutex::new(Checkpoint::open(None).unwrap())),
    };
    let server = tokio::spawn(diagnostics.serve(listener));
    let mut silent = Vec::new();
    for _ in 0..CONNECTIONS {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    let answer = get(address, "GET /healthz").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    server.abort();
}
