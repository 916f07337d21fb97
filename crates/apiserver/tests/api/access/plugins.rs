//! Admission plugins that are off by default or configured: what they change and refuse, in upstream's words.

use allot_apiserver::Server;
use allot_apiserver::config::{
    AdmissionOptions, Config, EventLimit, EventLimitKind, LimitedResource, Toleration,
    TolerationDefaults,
};
use serde_json::{Value, json};

use crate::{admin, with_config};

const PODS: &str = "/api/v1/namespaces/default/pods";
const NAMESPACE: &str = "/api/v1/namespaces/default";
const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";

/// A server where this plugin runs.
async fn server(plugin: &str, admission: AdmissionOptions) -> Server {
    let mut disabled = vec!["ServiceAccount".to_owned()];
    if plugin == "NamespaceExists" {
        // It would refuse a creation as well.
        disabled.push("NamespaceLifecycle".to_owned());
    }
    let config = Config {
        disabled_admission: disabled,
        enabled_admission: vec![plugin.to_owned()],
        admission,
        ..Config::default()
    };
    with_config(config).await
}

fn pod(name: &str, spec: Value) -> Value {
    let mut pod =
        json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let more = spec.as_object().unwrap().clone();
    pod["spec"].as_object_mut().unwrap().extend(more);
    pod
}

async fn create(server: &Server, spec: Value) -> (u16, Value) {
    admin(server, "POST", PODS, pod("p", spec)).await
}

/// The code of a response, and its message.
fn code_and_message((code, answer): (u16, Value)) -> (u16, String) {
    let message = answer["message"].as_str().unwrap_or_default();
    (code, message.to_owned())
}

async fn annotate(server: &Server, annotations: Value) {
    let patch = json!({"metadata": {"annotations": annotations}});
    let (code, answer) = admin(server, "PATCH", NAMESPACE, patch).await;
    assert_eq!(code, 200, "{answer}");
}

#[tokio::test]
async fn pods_go_where_their_namespace_permits() {
    let selectors = [
        ("clusterDefaultNodeSelector", "zone=a"),
        ("default", "zone=b,disk=ssd,zone2=c"),
    ];
    let node_selectors = selectors
        .map(|(namespace, text)| (namespace.to_owned(), text.to_owned()))
        .into();
    let options = AdmissionOptions {
        node_selectors,
        ..AdmissionOptions::default()
    };
    let server = server("PodNodeSelector", options).await;
    let refused = |why: &str| {
        (
            403,
            format!("pods \"p\" is forbidden: pod node label selector {why}"),
        )
    };
    // The default applies, and the namespace does not permit it.
    let none = json!({});
    let whitelist = refused("labels conflict with its namespace whitelist");
    assert_eq!(
        code_and_message(create(&server, none.clone()).await),
        whitelist
    );
    let annotation = "scheduler.alpha.kubernetes.io/node-selector";
    annotate(&server, json!({annotation: "zone=b"})).await;
    let (code, made) = create(&server, json!({"nodeSelector": {"disk": "ssd"}})).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(
        made["spec"]["nodeSelector"],
        json!({"disk": "ssd", "zone": "b"})
    );
    let other = create(&server, json!({"nodeSelector": {"zone": "c"}})).await;
    let conflict = refused("conflicts with its namespace node label selector");
    assert_eq!(code_and_message(other), conflict);
    annotate(&server, json!({annotation: "zone"})).await;
    let wrong = (500, "invalid selector: [zone]".to_owned());
    assert_eq!(code_and_message(create(&server, none).await), wrong);
}

#[tokio::test]
async fn tolerations_are_those_of_the_namespace() {
    let of = |key: &str| -> Vec<Toleration> {
        let list = json!([{"key": key, "operator": "Exists", "effect": "NoSchedule"}]);
        serde_json::from_value(list).unwrap()
    };
    let options = AdmissionOptions {
        tolerations: TolerationDefaults {
            added: of("cluster"),
            permitted: Vec::new(),
        },
        ..AdmissionOptions::default()
    };
    let server = server("PodTolerationRestriction", options).await;
    let keys = |pod: &Value| -> Vec<String> {
        let tolerations = pod["spec"]["tolerations"].as_array().unwrap().iter();
        let mut keys: Vec<_> = tolerations
            .map(|it| {
                it["key"]
                    .as_str()
                    .unwrap()
                    .replace("node.kubernetes.io/", "")
            })
            .collect();
        keys.sort();
        keys
    };
    let (_, made) = admin(&server, "POST", PODS, pod("best-effort", json!({}))).await;
    assert_eq!(keys(&made), ["cluster", "not-ready", "unreachable"]);
    let default = "scheduler.alpha.kubernetes.io/defaultTolerations";
    let permitted = "scheduler.alpha.kubernetes.io/tolerationsWhitelist";
    annotate(
        &server,
        json!({default: "[{\"key\": \"own\", \"operator\": \"Exists\"}]"}),
    )
    .await;
    let mut some = pod("some", json!({}));
    some["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "1"}});
    let (_, made) = admin(&server, "POST", PODS, some).await;
    assert_eq!(
        keys(&made),
        ["memory-pressure", "not-ready", "own", "unreachable"]
    );
    let all = "[{\"key\": \"own\", \"operator\": \"Exists\"}, {\"operator\": \"Exists\", \"effect\": \"NoExecute\"}]";
    annotate(&server, json!({permitted: all})).await;
    assert_eq!(create(&server, json!({})).await.0, 201);
    let other =
        json!({"tolerations": [{"key": "x", "operator": "Exists", "effect": "NoSchedule"}]});
    let made = admin(&server, "POST", PODS, pod("other", other.clone())).await;
    let why = "pod tolerations (possibly merged with namespace default tolerations) conflict with its namespace whitelist";
    assert_eq!(code_and_message(made), (500, why.to_owned()));
    let (code, old) = admin(&server, "GET", &format!("{PODS}/p"), Value::Null).await;
    assert_eq!(code, 200);
    let mut changed = old;
    let list = changed["spec"]["tolerations"].as_array_mut().unwrap();
    list.push(other["tolerations"][0].clone());
    let changed = admin(&server, "PUT", &format!("{PODS}/p"), changed).await;
    assert_eq!(code_and_message(changed), (500, why.to_owned()));
    // Without its key it would be one of everything.
    annotate(
        &server,
        json!({permitted: "[{\"key\": 5, \"operator\": \"Exists\"}]"}),
    )
    .await;
    let (code, why) = code_and_message(admin(&server, "POST", PODS, pod("typed", json!({}))).await);
    assert!(code == 500 && why.contains("invalid type"), "{why}");
}

#[tokio::test]
async fn extended_resources_are_tolerated_as_taints() {
    let server = server("ExtendedResourceToleration", AdmissionOptions::default()).await;
    let mut asks = pod("p", json!({}));
    let amounts = json!({"example.com/gpu": "1", "cpu": "1", "memory": "1"});
    asks["spec"]["containers"][0]["resources"] = json!({"requests": amounts, "limits": amounts});
    let (code, made) = admin(&server, "POST", PODS, asks).await;
    assert_eq!(code, 201, "{made}");
    let wanted = json!({"key": "example.com/gpu", "operator": "Exists", "effect": "NoSchedule"});
    let list = made["spec"]["tolerations"].as_array().unwrap();
    assert_eq!(list.iter().filter(|it| **it == wanted).count(), 1);
    assert_eq!(list.len(), 3);
}

#[tokio::test]
async fn images_are_always_pulled() {
    let server = server("AlwaysPullImages", AdmissionOptions::default()).await;
    let spec = json!({
        "initContainers": [{"name": "i", "image": "i", "imagePullPolicy": "Never"}],
        "volumes": [{"name": "v", "image": {"reference": "r", "pullPolicy": "IfNotPresent"}}],
    });
    let (code, made) = create(&server, spec).await;
    assert_eq!(code, 201, "{made}");
    let spec = &made["spec"];
    assert_eq!(spec["initContainers"][0]["imagePullPolicy"], "Always");
    assert_eq!(spec["containers"][0]["imagePullPolicy"], "Always");
    assert_eq!(spec["volumes"][0]["image"]["pullPolicy"], "Always");
}

#[tokio::test]
async fn what_is_off_by_default_refuses_where_it_is_on() {
    let options = AdmissionOptions::default;
    let server_of = |plugin: &'static str| server(plugin, options());
    let apart = |key: &str| {
        let term = json!({"topologyKey": key, "labelSelector": {"matchLabels": {"a": "b"}}});
        json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
    };
    let server = server_of("LimitPodHardAntiAffinityTopology").await;
    let why = "pods \"p\" is forbidden: affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey zone but only key \
               kubernetes.io/hostname is allowed";
    assert_eq!(
        code_and_message(create(&server, apart("zone")).await),
        (403, why.to_owned())
    );
    assert_eq!(
        create(&server, apart("kubernetes.io/hostname")).await.0,
        201
    );

    let services = "/api/v1/namespaces/default/services";
    let service = |addresses: Value| json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 1}], "externalIPs": addresses}});
    let server = server_of("DenyServiceExternalIPs").await;
    let why = "services \"s\" is forbidden: Use of external IPs is denied by admission control";
    let made = admin(&server, "POST", services, service(json!(["1.2.3.4"]))).await;
    assert_eq!(code_and_message(made), (403, why.to_owned()));
    let (code, made) = admin(&server, "POST", services, service(json!([]))).await;
    assert_eq!(code, 201, "{made}");
    let patch = json!({"spec": {"externalIPs": ["1.2.3.4"]}});
    let path = format!("{services}/s");
    assert_eq!(
        code_and_message(admin(&server, "PATCH", &path, patch).await),
        (403, why.to_owned())
    );

    let server = server_of("NamespaceExists").await;
    let path = "/api/v1/namespaces/nope/configmaps";
    let made = admin(&server, "POST", path, json!({"metadata": {"name": "m"}})).await;
    assert_eq!(
        code_and_message(made),
        (404, "namespaces \"nope\" not found".to_owned())
    );

    let server = server_of("AlwaysDeny").await;
    let why = "configmaps \"m\" is forbidden: admission control is denying all modifications";
    let maps = "/api/v1/namespaces/default/configmaps";
    let made = admin(&server, "POST", maps, json!({"metadata": {"name": "m"}})).await;
    assert_eq!(code_and_message(made), (403, why.to_owned()));
    let (code, _) = admin(&server, "DELETE", NAMESPACE, Value::Null).await;
    assert_eq!(code, 403);
}

#[tokio::test]
async fn events_are_limited() {
    let options = AdmissionOptions {
        event_limits: vec![EventLimit {
            kind: EventLimitKind::SourceAndObject,
            qps: 1,
            burst: 1,
            cache_size: 10,
        }],
        ..AdmissionOptions::default()
    };
    let server = server("EventRateLimit", options).await;
    let event = |name: &str, object: &str| {
        json!({
            "metadata": {"name": name, "namespace": "default"}, "source": {"component": "c"},
            "involvedObject": {"kind": "Pod", "namespace": "default", "name": object},
        })
    };
    let path = "/api/v1/namespaces/default/events";
    let expected = "Too many requests: limit reached on type SourceAndObject for key cPoddefaultp";
    let mut refused = None;
    // How many are accepted depends on the time that they take.
    for number in 0..200 {
        let event = event(&format!("e{number}"), "p");
        let (code, why) = code_and_message(admin(&server, "POST", path, event).await);
        if code != 201 {
            refused = Some((code, why));
            break;
        }
    }
    assert_eq!(refused, Some((429, expected.to_owned())));
    // A dry run counts for nothing, and another object has a limit of its own.
    let dry = format!("{path}?dryRun=All");
    for _ in 0..3 {
        assert_eq!(admin(&server, "POST", &dry, event("b", "q")).await.0, 201);
    }
    assert_eq!(admin(&server, "POST", path, event("b", "q")).await.0, 201);
}

fn limited() -> AdmissionOptions {
    let limited: Vec<LimitedResource> = serde_json::from_value(json!([
        {"resource": "pods", "matchContains": ["cpu"]},
        {"resource": "pods", "matchScopes": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]},
        {"apiGroup": "apps", "resource": "deployments", "matchContains": ["count"]},
    ]))
    .unwrap();
    AdmissionOptions {
        limited_resources: limited,
        ..AdmissionOptions::default()
    }
}

/// Creates a quota whose usage is known.
async fn quota(server: &Server, name: &str, spec: Value) {
    let hard = spec["hard"].clone();
    let quota = json!({"metadata": {"name": name}, "spec": spec});
    let (code, mut made) = admin(server, "POST", QUOTAS, quota).await;
    assert_eq!(code, 201, "{made}");
    let used: serde_json::Map<String, Value> = hard
        .as_object()
        .unwrap()
        .keys()
        .map(|key| (key.clone(), "0".into()))
        .collect();
    made["status"] = json!({"hard": hard, "used": used});
    let path = format!("{QUOTAS}/{name}/status");
    let (code, answer) = admin(server, "PUT", &path, made).await;
    assert_eq!(code, 200, "{answer}");
}

#[tokio::test]
async fn what_is_limited_needs_a_quota() {
    let server = server("ResourceQuota", limited()).await;
    let class = json!({"metadata": {"name": "high"}, "value": 7});
    let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
    assert_eq!(admin(&server, "POST", classes, class).await.0, 201);
    // It consumes nothing that is limited.
    let made = admin(&server, "POST", PODS, pod("free", json!({}))).await;
    assert_eq!(made.0, 201, "{}", made.1);
    let asks = |spec: Value| {
        let mut asks = pod("p", spec);
        asks["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "1"}});
        asks
    };
    let lacks = |names: &str| {
        (
            403,
            format!("pods \"p\" is forbidden: insufficient quota to consume: {names}"),
        )
    };
    let none = admin(&server, "POST", PODS, asks(json!({}))).await;
    assert_eq!(code_and_message(none), lacks("cpu,requests.cpu"));
    quota(&server, "part", json!({"hard": {"cpu": "5"}})).await;
    let part = admin(&server, "POST", PODS, asks(json!({}))).await;
    assert_eq!(code_and_message(part), lacks("requests.cpu"));
    quota(&server, "rest", json!({"hard": {"requests.cpu": "5"}})).await;
    let high = json!({"priorityClassName": "high"});
    let scope = "insufficient quota to match these scopes: [{PriorityClass In [high]}]";
    let without = admin(&server, "POST", PODS, asks(high.clone())).await;
    assert_eq!(code_and_message(without), (500, scope.to_owned()));
    let (code, made) = admin(&server, "POST", PODS, asks(json!({}))).await;
    assert_eq!(code, 201, "{made}");
    let (_, used) = admin(&server, "GET", &format!("{QUOTAS}/rest"), Value::Null).await;
    assert_eq!(used["status"]["used"]["requests.cpu"], "1");
    let terms = json!([{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]);
    let spec = json!({"hard": {"pods": "1"}, "scopeSelector": {"matchExpressions": terms}});
    quota(&server, "scoped", spec).await;
    let mut second = asks(high);
    second["metadata"]["name"] = "second".into();
    let (code, made) = admin(&server, "POST", PODS, second).await;
    assert_eq!(code, 201, "{made}");
    // Names of one kind do not cover another.
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let deployment = json!({"metadata": {"name": "d"}, "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    }});
    let made = admin(&server, "POST", deployments, deployment).await;
    let why = "deployments.apps \"d\" is forbidden: insufficient quota to consume: count/deployments.apps";
    assert_eq!(code_and_message(made), (403, why.to_owned()));
}

/// A claim that looks like the one for the extended resources of a pod costs nothing, since the pod has paid: but one.
#[tokio::test]
async fn regression_claims_that_name_a_pod_as_their_owner_count() {
    let server = server("ResourceQuota", AdmissionOptions::default()).await;
    let class =
        json!({"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": "example.com/gpu"}});
    let path = "/apis/resource.k8s.io/v1/deviceclasses";
    let (code, answer) = admin(&server, "POST", path, class).await;
    assert_eq!(code, 201, "{answer}");
    quota(
        &server,
        "q",
        json!({"hard": {"requests.example.com/gpu": "1"}}),
    )
    .await;
    let amount = json!({"example.com/gpu": "1"});
    let container =
        json!({"name": "c", "image": "i", "resources": {"requests": amount, "limits": amount}});
    let (code, made) = create(&server, json!({"containers": [container]})).await;
    assert_eq!(code, 201, "{made}");
    let claim = |name: &str, count: i64| {
        json!({"metadata": {"name": name,
            "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p",
                "uid": made["metadata"]["uid"], "controller": true}]},
        "spec": {"devices": {"requests": [
            {"name": "a", "exactly": {"deviceClassName": "gpu", "count": count}},
            {"name": "b", "exactly": {"deviceClassName": "gpu", "count": 1}},
        ]}}})
    };
    let path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
    let why = |requested: &str| {
        format!(
            "resourceclaims.resource.k8s.io \"c\" is forbidden: exceeded quota: q, requested: \
            requests.example.com/gpu={requested}, used: requests.example.com/gpu=1, limited: requests.example.com/gpu=1"
        )
    };
    // More devices than 64 bits count were a negative number.
    let answer = code_and_message(admin(&server, "POST", path, claim("c", i64::MAX)).await);
    assert_eq!(answer, (403, why("9223372036854775807")));
    let mut one = claim("first", 1);
    let requests = one["spec"]["devices"]["requests"].as_array_mut().unwrap();
    requests.truncate(1);
    let mut another = one.clone();
    another["metadata"]["name"] = json!("c");
    let (code, answer) = admin(&server, "POST", path, one).await;
    assert_eq!(code, 201, "{answer}");
    let answer = code_and_message(admin(&server, "POST", path, another).await);
    assert_eq!(answer, (403, why("1")));
}
