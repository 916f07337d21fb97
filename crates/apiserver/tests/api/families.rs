//! Addresses of services in both families: the networks of the cluster over the runs of its servers, addresses that are
//! given at random, and what is reached at them.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use allot_apiserver::Server;
use allot_apiserver::config::{Config, ServiceRange};
use allot_store::{Backend, Embedded, Options};
use serde_json::{Value, json};

use crate::admin;

const SERVICES: &str = "/api/v1/namespaces/default/services";
const CIDRS: &str = "/apis/networking.k8s.io/v1/servicecidrs";

fn memory() -> Arc<dyn Backend> {
    Arc::new(Embedded::in_memory(Options::default()))
}

async fn start(backend: &Arc<dyn Backend>, networks: &str, advertise: Option<&str>) -> Server {
    let config = Config {
        service_addresses: networks.parse().unwrap(),
        advertise: advertise.map(|it| it.parse().unwrap()),
        disabled_admission: vec!["ServiceAccount".to_owned()],
        ..Config::default()
    };
    let server = Server::new(backend.clone(), config);
    server.bootstrap().await.unwrap();
    server
}

async fn create(server: &Server, name: &str, spec: Value) -> (u16, Value) {
    let mut service = json!({"metadata": {"name": name}, "spec": spec});
    service["spec"]["ports"] = json!([{"port": 80}]);
    admin(server, "POST", SERVICES, service).await
}

/// What is wrong with the default range is told in one event, and not changed.
#[tokio::test]
async fn a_default_range_that_is_not_that_of_the_server_is_told_in_an_event() {
    let backend = memory();
    start(&backend, "10.0.0.0/24", None).await;
    let server = start(&backend, "10.1.0.0/24", None).await;
    let events = "/api/v1/namespaces/default/events?fieldSelector=involvedObject.kind=ServiceCIDR";
    let (_, list) = admin(&server, "GET", events, Value::Null).await;
    let found = list["items"].as_array().unwrap();
    let [event] = found.as_slice() else {
        panic!("{list}");
    };
    assert_eq!(event["reason"], "KubernetesDefaultServiceCIDRInconsistent");
    assert_eq!(
        event["message"],
        "The default ServiceCIDR [10.0.0.0/24] does not match the controller flag configurations [10.1.0.0/24]"
    );
    assert_eq!(event["type"], "Warning");
    assert_eq!(event["involvedObject"]["name"], "kubernetes");

    // Another component has found it not ready: told as well.
    let status = json!({"status": {"conditions": [{
        "type": "Ready", "status": "False", "reason": "Odd", "message": "it is odd",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]}});
    let path = format!("{CIDRS}/kubernetes/status");
    assert_eq!(admin(&server, "PATCH", &path, status).await.0, 200);
    let server = start(&backend, "10.0.0.0/24", None).await;
    let (_, list) = admin(&server, "GET", &format!("{events},reason=Odd"), Value::Null).await;
    assert_eq!(
        list["items"][0]["message"],
        "Configuration matches, but it is odd"
    );
}

/// What a server makes of the networks of the one before: a second family is added, and nothing else is changed.
#[tokio::test]
async fn the_default_range_gets_a_second_family_and_stays_otherwise() {
    const FOUR: &str = "10.0.0.0/24";
    const SIX: &str = "fd00:1::/112";
    for (first, second, kept, family) in [
        ("10.0.0.0/24", "10.0.0.0/24", vec![FOUR], "IPv4"),
        (
            "10.0.0.0/24",
            "10.0.0.0/24,fd00:1::/112",
            vec![FOUR, SIX],
            "IPv4",
        ),
        (
            "fd00:1::/112",
            "fd00:1::/112,10.0.0.0/24",
            vec![SIX, FOUR],
            "IPv6",
        ),
        (
            "10.0.0.0/24,fd00:1::/112",
            "10.0.0.0/24",
            vec![FOUR, SIX],
            "IPv4",
        ),
        (
            "10.0.0.0/24,fd00:1::/112",
            "fd00:1::/112,10.0.0.0/24",
            vec![FOUR, SIX],
            "IPv6",
        ),
        ("10.0.0.0/24", "10.1.0.0/24", vec![FOUR], "IPv4"),
        (
            "10.0.0.0/24",
            "10.1.0.0/24,fd00:1::/112",
            vec![FOUR],
            "IPv4",
        ),
    ] {
        let (named, backend) = (format!("{first} {second}"), memory());
        let server = start(&backend, first, None).await;
        let (code, before) = create(&server, "before", json!({})).await;
        assert_eq!(code, 201, "{named}: {before}");
        server.shutdown();
        let server = start(&backend, second, None).await;
        let (_, cidr) = admin(&server, "GET", &format!("{CIDRS}/kubernetes"), Value::Null).await;
        assert_eq!(cidr["spec"]["cidrs"], json!(kept), "{named}");
        assert_eq!(cidr["status"]["conditions"][0]["status"], "True", "{named}");
        let (_, now) = admin(&server, "GET", &format!("{SERVICES}/before"), Value::Null).await;
        assert_eq!(
            now["spec"]["clusterIPs"], before["spec"]["clusterIPs"],
            "{named}"
        );
        let (code, after) = create(&server, "after", json!({})).await;
        assert_eq!(code, 201, "{named}: {after}");
        assert_eq!(after["spec"]["ipFamilies"], json!([family]), "{named}");
    }
    // Without a network of its family a service gets nothing, as with kube-apiserver.
    let backend = memory();
    start(&backend, FOUR, None).await.shutdown();
    let server = start(&backend, SIX, None).await;
    let (code, full) = create(&server, "six", json!({})).await;
    assert_eq!(code, 500, "{full}");
    let why = "Internal error occurred: failed to allocate a serviceIP for Service \"six\": range is full";
    assert_eq!(full["message"], why);
}

/// A cluster that gets a second family leaves the services which prefer two as they are, until they are changed.
#[tokio::test]
async fn services_follow_a_second_family_on_request() {
    let backend = memory();
    let server = start(&backend, "10.0.0.0/24", None).await;
    let spec = json!({"ipFamilyPolicy": "PreferDualStack"});
    let (code, old) = create(&server, "s", spec).await;
    assert_eq!((code, &old["spec"]["ipFamilies"]), (201, &json!(["IPv4"])));
    server.shutdown();
    let server = start(&backend, "10.0.0.0/24,fd00:1::/112", None).await;
    let path = format!("{SERVICES}/s");
    let change =
        async |change: Value| admin(&server, "PATCH", &path, change).await.1["spec"].clone();
    let spec = change(json!({"metadata": {"labels": {"a": "b"}}})).await;
    assert_eq!(spec["clusterIPs"], old["spec"]["clusterIPs"]);
    let spec = change(json!({"spec": {"ipFamilies": ["IPv4", "IPv6"]}})).await;
    assert_eq!(spec["clusterIPs"][0], old["spec"]["clusterIP"]);
    let second: IpAddr = spec["clusterIPs"][1].as_str().unwrap().parse().unwrap();
    let network: ServiceRange = "fd00:1::/112".parse().unwrap();
    assert!(network.gives(second), "{second}");
    let shown = format!("/apis/networking.k8s.io/v1/ipaddresses/{second}");
    assert_eq!(admin(&server, "GET", &shown, Value::Null).await.0, 200);
    let spec = change(json!({"spec": {"ipFamilyPolicy": "SingleStack"}})).await;
    assert_eq!(spec["clusterIPs"], old["spec"]["clusterIPs"]);
    assert_eq!(admin(&server, "GET", &shown, Value::Null).await.0, 404);
}

/// Many clients at once: each address is given once, and the range is full when all are given.
#[tokio::test]
async fn no_address_of_either_family_is_given_twice() {
    let server = start(&memory(), "10.0.0.0/28,fd00:1::/124", None).await;
    // 14 addresses of IPv4 and 15 of IPv6.
    let spec = || json!({"ipFamilyPolicy": "RequireDualStack"});
    let all = (0..20).map(|at| {
        let server = server.clone();
        async move { create(&server, &format!("s{at}"), spec()).await }
    });
    let answers = futures::future::join_all(all).await;
    let made = answers.iter().filter(|(code, _)| *code == 201);
    let addresses = made.flat_map(|(_, service)| service["spec"]["clusterIPs"].as_array().unwrap());
    let addresses: Vec<&str> = addresses.map(|it| it.as_str().unwrap()).collect();
    assert_eq!(addresses.len(), 2 * 14);
    let different: BTreeSet<&str> = addresses.iter().copied().collect();
    assert_eq!(different.len(), addresses.len(), "{addresses:?}");
    // Those that failed have not kept the address of the family that had one: the last one of IPv6 is free.
    let (code, last) = create(&server, "last", json!({"ipFamilies": ["IPv6"]})).await;
    assert_eq!(code, 201, "{last}");
    let (code, full) = create(&server, "none", json!({"ipFamilies": ["IPv6"]})).await;
    assert_eq!(code, 500, "{full}");
    let gone = format!("{SERVICES}/last");
    assert_eq!(admin(&server, "DELETE", &gone, Value::Null).await.0, 200);
    let (code, heir) = create(&server, "heir", json!({"ipFamilies": ["IPv6"]})).await;
    assert_eq!(code, 201, "{heir}");
    assert_eq!(heir["spec"]["clusterIP"], last["spec"]["clusterIP"]);
}

/// The server's own service and its endpoints have one family, that of services which name none.
#[tokio::test]
async fn the_service_of_the_server_has_the_first_family() {
    for (networks, advertise, address, family) in [
        (
            "10.0.0.0/24,fd00:1::/112",
            "192.0.2.1:6443",
            "10.0.0.1",
            "IPv4",
        ),
        (
            "fd00:1::/112,10.0.0.0/24",
            "[2001:db8::10]:6443",
            "fd00:1::1",
            "IPv6",
        ),
    ] {
        let server = start(&memory(), networks, Some(advertise)).await;
        let (_, service) = admin(
            &server,
            "GET",
            &format!("{SERVICES}/kubernetes"),
            Value::Null,
        )
        .await;
        let spec = &service["spec"];
        assert_eq!(spec["clusterIPs"], json!([address]));
        assert_eq!(spec["ipFamilies"], json!([family]));
        assert_eq!(spec["ipFamilyPolicy"], "SingleStack");
        let slice = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";
        let (_, slice) = admin(&server, "GET", slice, Value::Null).await;
        assert_eq!(slice["addressType"], family);
        let shown = format!("/apis/networking.k8s.io/v1/ipaddresses/{address}");
        assert_eq!(admin(&server, "GET", &shown, Value::Null).await.0, 200);
    }
}

/// The endpoint of the server's own service answers with the request's first line.
#[tokio::test]
async fn services_are_reached_at_endpoints_of_ipv6() {
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
    let Ok(listener) = tokio::net::TcpListener::bind("[::1]:0").await else {
        eprintln!("skipped: this machine has no IPv6");
        return;
    };
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        stream.read_line(&mut line).await.unwrap();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", line.len());
        let answer = format!("{head}{line}");
        stream.write_all(answer.as_bytes()).await.unwrap();
    });
    let server = start(&memory(), "fd00:1::/112,10.0.0.0/24", Some(&address)).await;
    let path = format!("{SERVICES}/kubernetes:https/proxy/a");
    let (code, answer) = admin(&server, "GET", &path, Value::Null).await;
    assert_eq!(
        (code, answer.as_str()),
        (200, Some("GET /a HTTP/1.1\r\n")),
        "{answer}"
    );
}

/// Another service may have the address while the server's own is deleted and the server is down: it keeps it.
#[tokio::test]
async fn regression_the_service_of_the_server_takes_no_address_of_another() {
    let backend = memory();
    let (networks, advertise) = ("10.0.0.0/24", Some("192.0.2.1:6443"));
    let server = start(&backend, networks, advertise).await;
    let own = format!("{SERVICES}/kubernetes");
    assert_eq!(admin(&server, "DELETE", &own, Value::Null).await.0, 200);
    let spec = json!({"clusterIP": "10.0.0.1"});
    let (code, other) = create(&server, "other", spec).await;
    assert_eq!(code, 201, "{other}");
    server.shutdown();
    let server = start(&backend, networks, advertise).await;
    assert_eq!(admin(&server, "GET", &own, Value::Null).await.0, 404);
    let other = format!("{SERVICES}/other");
    assert_eq!(admin(&server, "DELETE", &other, Value::Null).await.0, 200);
    server.shutdown();
    let server = start(&backend, networks, advertise).await;
    let (_, made) = admin(&server, "GET", &own, Value::Null).await;
    assert_eq!(made["spec"]["clusterIP"], "10.0.0.1");
}

/// The address of a service may lead to the server itself, also one of a range that was added later: a pod which says that it
/// has the address is asked no port that it does not declare.
#[tokio::test]
async fn regression_addresses_of_further_ranges_may_be_the_servers_own() {
    let server = start(&memory(), "10.0.0.0/24", None).await;
    let more = json!({"metadata": {"name": "more"}, "spec": {"cidrs": ["198.18.7.0/24", "2001:db8:7::/112"]}});
    assert_eq!(admin(&server, "POST", CIDRS, more).await.0, 201);
    let pods = "/api/v1/namespaces/default/pods";
    let pod =
        json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    assert_eq!(admin(&server, "POST", pods, pod).await.0, 201);
    for address in [
        "10.0.0.1",
        "198.18.7.9",
        "198.18.7.255",
        "2001:db8:7::9",
        // Gateways connect to the IPv4 address in it.
        "64:ff9b::198.18.7.9",
    ] {
        let status = json!({"status": {"podIP": address, "podIPs": [{"ip": address}]}});
        let (code, answer) = admin(&server, "PATCH", &format!("{pods}/p/status"), status).await;
        assert_eq!(code, 200, "{answer}");
        let (code, answer) =
            admin(&server, "GET", &format!("{pods}/p:443/proxy/"), Value::Null).await;
        let message = answer["message"].as_str().unwrap_or_default();
        assert_eq!((code, message), (400, "address not allowed"), "{address}");
    }
}
