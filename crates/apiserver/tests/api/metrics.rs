//! `/metrics`, as queries and alerts for kube-apiserver read it.

use allot_apiserver::Server;
use allot_apiserver::config::Config;
use allot_apiserver::identity::User;
use allot_apiserver::registry::RuntimeConfig;
use serde_json::{Value, json};

use crate::{admin, send, with_config};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// The page, with the labels of each line in the order of their names.
async fn page(server: &Server) -> Vec<String> {
    let (code, text) = send(server, User::admin(), "GET", "/metrics", "", b"").await;
    assert_eq!(code, 200);
    let lines = text.as_str().unwrap().lines();
    lines
        .filter(|line| !line.starts_with('#'))
        .map(
            |line| match line.split_once('{').zip(line.rsplit_once('}')) {
                Some(((name, _), (_, value))) => {
                    let labels = &line[name.len() + 1..line.len() - value.len() - 1];
                    let mut labels: Vec<&str> = labels.split(',').collect();
                    labels.sort_unstable();
                    format!("{name}{{{}}}{value}", labels.join(","))
                }
                None => line.to_owned(),
            },
        )
        .collect()
}

/// Tools that compare lines read what kube-apiserver writes: the labels in the order of their names, but for `le`.
#[tokio::test]
async fn regression_labels_are_in_the_order_of_their_names() {
    let server = with_config(Config::default()).await;
    for path in ["/api/v1/pods", "/metrics"] {
        let (code, _) = admin(&server, "GET", path, Value::Null).await;
        assert_eq!(code, 200);
    }
    let (_, text) = send(&server, User::admin(), "GET", "/metrics", "", b"").await;
    let text = text.as_str().unwrap();
    let mut several = 0;
    for line in text.lines() {
        // The metrics of priority and fairness have an order of their own.
        if line.starts_with('#') || line.starts_with("apiserver_flowcontrol_") {
            continue;
        }
        let names: Vec<&str> = line
            .split(['{', ',', '}'])
            .filter_map(|label| label.split_once("=\""))
            .map(|(name, _)| name)
            .filter(|name| *name != "le")
            .collect();
        assert!(names.is_sorted(), "{line}");
        several += usize::from(names.len() > 1);
    }
    assert!(several > 10, "{text}");
}

#[tokio::test]
async fn requests_are_counted_with_the_labels_of_kube_apiserver() {
    let config = Config {
        runtime_config: RuntimeConfig::parse("networking.k8s.io/v1beta1=true").unwrap(),
        ..Config::default()
    };
    let server = with_config(config).await;
    let one = format!("{MAPS}/a");
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    for (method, path, body) in [
        ("POST", MAPS, map.clone()),
        (
            "POST",
            &*format!("{MAPS}?dryRun=All"),
            json!({"metadata": {"name": "b"}}),
        ),
        ("PUT", &one, map.clone()),
        ("PATCH", &one, json!({"data": {"k": "v"}})),
        ("GET", &one, Value::Null),
        ("GET", MAPS, Value::Null),
        ("GET", "/api/v1/configmaps", Value::Null),
        ("DELETE", &one, Value::Null),
        ("DELETE", MAPS, Value::Null),
        (
            "GET",
            "/api/v1/namespaces/default/pods/p/proxy",
            Value::Null,
        ),
        ("GET", "/version", Value::Null),
        (
            "GET",
            "/apis/networking.k8s.io/v1beta1/servicecidrs",
            Value::Null,
        ),
    ] {
        admin(&server, method, path, body).await;
    }
    let apply = format!("{one}?fieldManager=m");
    let kind = "application/apply-patch+yaml";
    let text = map.to_string();
    send(
        &server,
        User::admin(),
        "PATCH",
        &apply,
        kind,
        text.as_bytes(),
    )
    .await;
    let page = page(&server).await;
    let labels = |verb: &str, dry_run: &str, code: u16, scope: &str| {
        format!(
            "code=\"{code}\",component=\"apiserver\",dry_run=\"{dry_run}\",group=\"\",resource=\"configmaps\",\
             scope=\"{scope}\",subresource=\"\",verb=\"{verb}\",version=\"v1\""
        )
    };
    let timed = labels("GET", "", 200, "resource").replace("code=\"200\",", "");
    let counted = [
        ("POST", "", 201, "resource"),
        ("POST", "All", 201, "resource"),
        ("PUT", "", 200, "resource"),
        ("PATCH", "", 200, "resource"),
        ("APPLY", "", 201, "resource"),
        ("GET", "", 200, "resource"),
        ("LIST", "", 200, "namespace"),
        ("LIST", "", 200, "cluster"),
        ("DELETE", "", 200, "resource"),
        ("DELETECOLLECTION", "", 200, "namespace"),
    ];
    let counted = counted.map(|(verb, dry_run, code, scope)| {
        let labels = labels(verb, dry_run, code, scope);
        format!("apiserver_request_total{{{labels}}} 1")
    });
    let others = [
        format!("apiserver_request_duration_seconds_count{{{timed}}} 1"),
        "apiserver_requested_deprecated_apis{group=\"networking.k8s.io\",removed_release=\"1.37\",\
         resource=\"servicecidrs\",subresource=\"\",version=\"v1beta1\"} 1"
            .to_owned(),
        // The request for the page itself.
        "apiserver_current_inflight_requests{request_kind=\"readOnly\"} 1".to_owned(),
        "apiserver_current_inflight_requests{request_kind=\"mutating\"} 0".to_owned(),
        "apiserver_storage_objects{resource=\"servicecidrs.networking.k8s.io\"} 1".to_owned(),
        "apiserver_resource_objects{group=\"\",resource=\"namespaces\"} 4".to_owned(),
    ];
    for line in counted.into_iter().chain(others) {
        assert!(page.contains(&line), "{line}\nin\n{}", page.join("\n"));
    }
    let connected = page.iter().any(|line| {
        line.starts_with("apiserver_request_total{")
            && line.contains("subresource=\"proxy\",verb=\"CONNECT\"")
    });
    assert!(connected, "{}", page.join("\n"));
    for name in [
        "process_open_fds",
        "process_max_fds",
        "process_start_time_seconds",
    ] {
        let line = page
            .iter()
            .find(|line| line.starts_with(&format!("{name} ")));
        let value = line.and_then(|line| line.rsplit(' ').next());
        let value: f64 = value.unwrap().parse().unwrap();
        assert!(value > 0.0, "{name} {value}");
    }
}

/// Each name would cost memory for as long as the server runs.
#[tokio::test]
async fn attack_names_that_clients_make_up_are_no_labels() {
    let server = Server::in_memory().await.unwrap();
    for path in [
        "/api/v1/namespaces/default/pods/p/madeup",
        "/api/madeup/namespaces/default/pods/p",
        "/api/v1/namespaces/default/madeup/p",
        "/apis/madeup/v1/pods",
        "/apis/apps/madeup/deployments",
        "/madeup",
    ] {
        let (code, _) = admin(&server, "GET", path, Value::Null).await;
        assert_eq!(code, 404, "{path}");
    }
    let unknown = format!("{MAPS}?dryRun=madeup");
    admin(&server, "MADEUP", &unknown, Value::Null).await;
    let page = page(&server).await.join("\n").to_lowercase();
    assert!(!page.contains("madeup"), "{page}");
}
