//! Which addresses the server connects to on behalf of others.

use allot_apiserver::pki::Authority;
use allot_apiserver::{Config, Server, serve};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{admin, with_config};

const NODES: &str = "/api/v1/nodes";
const PODS: &str = "/api/v1/namespaces/default/pods";
const REFUSED: &str = "address not allowed";

/// Something that listens on the loopback interface with a certificate for these names: an API server, which answers
/// `/livez` as a kubelet answers `/healthz`.
async fn listen(names: &[&str]) -> (u16, DropGuard) {
    let authority = Authority::generate("test").unwrap();
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let identity = authority.server("x", &names, &[[127, 0, 0, 1].into()]);
    let tls = serve::tls(&identity.unwrap(), None).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let stop = CancellationToken::new();
    let server = Server::in_memory().await.unwrap();
    tokio::spawn(serve::serve(server, listener, tls, stop.clone()));
    (port, stop.drop_guard())
}

/// Creates a node whose kubelet is said to be at an address.
async fn node(server: &Server, name: &str, kind: &str, address: &str, port: u16) {
    let status = json!({
        "addresses": [{"type": kind, "address": address}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    });
    let node = json!({"metadata": {"name": name}, "status": status});
    let (code, body) = admin(server, "POST", NODES, node).await;
    assert_eq!(code, 201, "{body}");
}

async fn get(server: &Server, path: &str) -> (u16, String) {
    let (code, body) = admin(server, "GET", path, Value::Null).await;
    let text = body["message"].as_str().or(body.as_str());
    (code, text.unwrap_or_default().to_owned())
}

/// A node could say that its kubelet is where the API server itself listens, and get there what the server's kubelet
/// client may do on other nodes.
#[tokio::test(flavor = "multi_thread")]
async fn on_its_own_host_the_server_connects_to_the_kubelet_of_the_node_only() {
    let server = Server::in_memory().await.unwrap();
    for (name, certificate, expected) in [
        ("own", &["localhost", "own"][..], (200, "ok")),
        ("other", &["localhost", "elsewhere"], (400, REFUSED)),
        ("localhost", &["localhost", "elsewhere"], (400, REFUSED)),
        (
            "kubernetes",
            &["kubernetes", "kubernetes.default.svc"],
            (400, REFUSED),
        ),
    ] {
        let (port, _stop) = listen(certificate).await;
        // By a name, too, whatever it resolves to.
        for (address, suffix) in [("127.0.0.1", ""), ("localhost", "-by-name")] {
            let name = match suffix {
                "" => name.to_owned(),
                suffix if expected.0 == 200 => {
                    assert_eq!(suffix, "-by-name");
                    continue;
                }
                suffix => format!("{name}{suffix}"),
            };
            node(&server, &name, "InternalIP", address, port).await;
            let found = get(&server, &format!("{NODES}/{name}/proxy/livez")).await;
            assert_eq!((found.0, found.1.as_str()), expected, "{name}");
            let pod = json!({
                "metadata": {"name": name},
                "spec": {"nodeName": name, "containers": [{"name": "c", "image": "i"}]},
            });
            let (code, body) = admin(&server, "POST", PODS, pod).await;
            assert_eq!(code, 201, "{body}");
            if expected.0 == 400 {
                let found = get(&server, &format!("{PODS}/{name}/log")).await;
                assert_eq!((found.0, found.1.as_str()), expected, "{name}");
            }
        }
    }
}

/// Starts a kubelet that responds to every request with an endless error text; returns its port.
async fn start_kubelet_with_endless_error(name: &str) -> u16 {
    let authority = Authority::generate("test").unwrap();
    let identity = authority.server("x", &[name.to_owned()], &[[127, 0, 0, 1].into()]);
    let tls = serve::tls(&identity.unwrap(), None).unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(tls.config());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(write_endlessly(acceptor.accept(stream)));
        }
    });
    port
}

async fn write_endlessly(
    accepting: tokio_rustls::Accept<tokio::net::TcpStream>,
) -> std::io::Result<()> {
    let mut stream = accepting.await?;
    let mut head = [0; 4096];
    let _ = stream.read(&mut head).await?;
    stream
        .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        .await?;
    loop {
        stream.write_all(&[b'x'; 4096]).await?;
    }
}

/// The whole text was read into memory.
#[tokio::test(flavor = "multi_thread")]
async fn regression_a_refusal_of_a_kubelet_is_told_in_part() {
    let server = Server::in_memory().await.unwrap();
    let port = start_kubelet_with_endless_error("own").await;
    node(&server, "own", "InternalIP", "127.0.0.1", port).await;
    let pod = json!({
        "metadata": {"name": "p"},
        "spec": {"nodeName": "own", "containers": [{"name": "c", "image": "i"}]},
    });
    assert_eq!(admin(&server, "POST", PODS, pod).await.0, 201);
    let log = format!("{PODS}/p/log");
    let refused = get(&server, &log);
    let (code, text) = tokio::time::timeout(std::time::Duration::from_secs(60), refused)
        .await
        .expect("an answer");
    assert_eq!((code, text.len()), (400, 50_000));
}

#[tokio::test]
async fn the_addresses_of_nodes_are_global() {
    let server = Server::in_memory().await.unwrap();
    for (index, address) in [
        "169.254.169.254",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "100.100.100.200",
        "fe80::1",
        "fd00:ec2::254",
        "::ffff:169.254.169.254",
    ]
    .iter()
    .enumerate()
    {
        let name = format!("n{index}");
        node(&server, &name, "InternalIP", address, 80).await;
        let found = get(&server, &format!("{NODES}/{name}/proxy/latest/meta-data")).await;
        assert_eq!(found, (400, REFUSED.to_owned()), "{address}");
    }
}

/// The address of an endpoint may be that of a metadata service without being a link-local one.
#[tokio::test]
async fn services_do_not_lead_to_metadata() {
    let server = Server::in_memory().await.unwrap();
    let services = "/api/v1/namespaces/default/services";
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}});
    assert_eq!(admin(&server, "POST", services, service).await.0, 201);
    for (family, address) in [("IPv6", "fd00:ec2::254"), ("IPv4", "100.100.100.200")] {
        let slice = json!({
            "metadata": {"name": "s", "labels": {"kubernetes.io/service-name": "s"}},
            "addressType": family, "ports": [{"name": "", "port": 80}], "endpoints": [{"addresses": [address]}],
        });
        let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
        let (code, body) = admin(&server, "POST", slices, slice).await;
        assert_eq!(code, 201, "{body}");
        let found = get(&server, &format!("{services}/s/proxy/latest/api/token")).await;
        assert_eq!(found, (400, REFUSED.to_owned()), "{address}");
        admin(&server, "DELETE", &format!("{slices}/s"), Value::Null).await;
    }
}

/// A workload that redirects the server to another port of its host is told to the client, and not followed.
#[tokio::test(flavor = "multi_thread")]
async fn redirects_are_not_followed() {
    let inner = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = format!("http://{}/secret", inner.local_addr().unwrap());
    let outer = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = Config {
        advertise: Some(outer.local_addr().unwrap()),
        ..Config::default()
    };
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = outer.accept().await {
            let _ = stream.read(&mut [0; 4096]).await;
            let answer =
                format!("HTTP/1.1 302 Found\r\nlocation: {target}\r\ncontent-length: 0\r\n\r\n");
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    let server = with_config(config).await;
    let path = "/api/v1/namespaces/default/services/kubernetes/proxy/";
    assert_eq!(get(&server, path).await.0, 302);
    // A connection would be waiting.
    let nobody = futures::poll!(std::pin::pin!(inner.accept()));
    assert!(nobody.is_pending());
}

/// An address of the host at which others reach it leads to its processes as the loopback interface does.
#[tokio::test(flavor = "multi_thread")]
async fn endpoints_on_the_servers_host_are_ports_that_their_pods_declare() {
    // Without a route to others the host has no such address.
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    let own = socket
        .connect("192.0.2.1:9")
        .and_then(|()| socket.local_addr());
    let reachable = |ip: &std::net::IpAddr| match ip {
        std::net::IpAddr::V4(ip) => !ip.is_loopback() && !ip.is_link_local(),
        std::net::IpAddr::V6(_) => false,
    };
    let Some(own) = own.ok().map(|own| own.ip()).filter(reachable) else {
        return;
    };
    let listener = TcpListener::bind((own, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 4096]).await;
            let answer = "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nserved";
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    let server = Server::in_memory().await.unwrap();
    let services = "/api/v1/namespaces/default/services";
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}});
    assert_eq!(admin(&server, "POST", services, service).await.0, 201);
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    let to = async |address: &str, target: Value| {
        let slice = json!({
            "metadata": {"name": "s", "labels": {"kubernetes.io/service-name": "s"}},
            "addressType": "IPv4", "ports": [{"name": "", "port": port}],
            "endpoints": [{"addresses": [address], "targetRef": target}],
        });
        let (code, body) = admin(&server, "POST", slices, slice).await;
        assert_eq!(code, 201, "{body}");
        let found = get(&server, &format!("{services}/s/proxy/")).await;
        admin(&server, "DELETE", &format!("{slices}/s"), Value::Null).await;
        found
    };
    let address = own.to_string();
    let refused = (400, REFUSED.to_owned());
    let pod = |name: &str| json!({"kind": "Pod", "namespace": "default", "name": name});
    assert_eq!(to(&address, Value::Null).await, refused);
    // The address of another service, the API server's among them.
    assert_eq!(to("10.96.0.1", Value::Null).await, refused);
    assert_eq!(to(&address, pod("missing")).await, refused);
    let container =
        |port: u16| json!([{"name": "c", "image": "i", "ports": [{"containerPort": port}]}]);
    for (name, port, at, expected) in [
        ("elsewhere", port, "10.0.0.7", refused.clone()),
        ("undeclared", 1, &*address, refused.clone()),
        ("declared", port, &*address, (200, "served".to_owned())),
    ] {
        let spec = json!({"containers": container(port)});
        let created = json!({"metadata": {"name": name}, "spec": spec});
        let (code, body) = admin(&server, "POST", PODS, created).await;
        assert_eq!(code, 201, "{body}");
        let status = json!({"status": {"podIP": at}});
        admin(&server, "PATCH", &format!("{PODS}/{name}/status"), status).await;
        assert_eq!(to(&address, pod(name)).await, expected, "{name}");
    }
}
