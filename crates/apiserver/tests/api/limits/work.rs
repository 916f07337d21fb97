//! Long lists cost an amount of work that grows with them, and not with their square.

use std::time::Duration;

use allot_apiserver::Server;
use allot_apiserver::identity::User;
use allot_testing::wait::until;
use serde_json::{Value, json};

use crate::{admin, send};

const PODS: &str = "/api/v1/namespaces/default/pods";
/// The processor time that no request here takes. Each took minutes, or all memory.
const MOST: Duration = Duration::from_secs(60);
/// The longest answer.
const LONGEST: usize = 1 << 20;

/// The processor time of this thread, which all work of a request on a server in memory takes but that of the store. It
/// does not depend on what else the machine does.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    // User and system time in hundredths of a second are the fields 14 and 15; the state is the third.
    let times = fields.split(' ').skip(11).take(2);
    let ticks: u64 = times.map(|it| it.parse::<u64>().unwrap()).sum();
    Duration::from_millis(ticks * 10)
}

async fn answer(server: &Server, method: &str, path: &str, body: Value) -> (u16, Value) {
    let start = processor_time();
    let found = admin(server, method, path, body).await;
    let took = processor_time() - start;
    assert!(took < MOST, "{method} {path}: {took:?}");
    found
}

/// The answer is that the object is invalid, and is not long.
async fn refused(server: &Server, path: &str, body: Value) -> String {
    let (code, answer) = answer(server, "POST", path, body).await;
    let text = answer.to_string();
    assert_eq!(code, 422, "{text:.500}");
    assert!(text.len() < LONGEST, "{}", text.len());
    answer["message"].as_str().unwrap_or_default().to_owned()
}

fn numbered(count: usize, item: impl Fn(usize) -> Value) -> Value {
    (0..count).map(item).collect()
}

/// Each element of the old list was searched for in the new one, and compared as a copy.
#[tokio::test]
async fn regression_the_order_of_long_lists_of_a_pod_costs_little() {
    let server = Server::in_memory().await.unwrap();
    let tolerations = numbered(
        8000,
        |at| json!({"key": format!("k{at}"), "operator": "Exists"}),
    );
    let gates = numbered(8000, |at| json!({"name": format!("example.com/g{at}")}));
    for (key, list) in [("tolerations", tolerations), ("schedulingGates", gates)] {
        let mut spec = json!({"containers": [{"name": "c", "image": "i"}]});
        spec[key] = list;
        let pod = json!({"metadata": {"name": key.to_lowercase()}, "spec": spec});
        let (code, mut pod) = answer(&server, "POST", PODS, pod).await;
        assert_eq!(code, 201, "{pod:.500}");
        pod["spec"][key].as_array_mut().unwrap().reverse();
        let path = format!("{PODS}/{}", key.to_lowercase());
        let (code, body) = answer(&server, "PUT", &path, pod).await;
        // To reorder tolerations is no change that is forbidden; to reorder gates is none either.
        assert_eq!(code, 200, "{key}: {body:.500}");
    }
}

/// Each condition was searched for among the old ones.
#[tokio::test]
async fn regression_the_order_of_many_conditions_costs_little() {
    let server = Server::in_memory().await.unwrap();
    let spec = json!({"containers": [{"name": "c", "image": "i"}]});
    let pod = json!({"metadata": {"name": "p"}, "spec": spec});
    let (code, body) = answer(&server, "POST", PODS, pod).await;
    assert_eq!(code, 201, "{body}");
    let condition = |at| json!({"type": format!("t{at}"), "status": "True"});
    let mut conditions: Vec<Value> = (0..10_000).map(condition).collect();
    for _ in 0..2 {
        let status = json!({"status": {"conditions": conditions}});
        let (code, body) = answer(&server, "PATCH", &format!("{PODS}/p/status"), status).await;
        assert_eq!(code, 200, "{body:.500}");
        conditions.reverse();
    }
}

/// What the sidecars need was added up again for each of them.
#[tokio::test]
async fn regression_sidecars_with_resources_of_their_own_are_counted_once() {
    let server = Server::in_memory().await.unwrap();
    let quotas = "/api/v1/namespaces/default/resourcequotas";
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"requests.cpu": "1000"}}});
    let (code, body) = admin(&server, "POST", quotas, quota).await;
    assert_eq!(code, 201, "{body}");
    let sidecar = |at| {
        let name = format!("example.com/r{at}");
        let resources = json!({"requests": {"cpu": "1m", &name: "1"}, "limits": {&name: "1"}});
        json!({"name": format!("i{at}"), "image": "i", "restartPolicy": "Always", "resources": resources})
    };
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}});
    let spec = json!({"containers": [container], "initContainers": numbered(4000, sidecar)});
    let pod = json!({"metadata": {"name": "p"}, "spec": spec});
    let (code, body) = answer(&server, "POST", &format!("{PODS}?dryRun=All"), pod).await;
    // The quota is not counted yet where no controller runs.
    assert!(matches!(code, 201 | 403), "{code}: {body:.500}");
}

#[tokio::test]
async fn regression_ephemeral_containers_are_found_by_their_names() {
    let server = Server::in_memory().await.unwrap();
    let spec = json!({"containers": [{"name": "c", "image": "i"}]});
    let pod = json!({"metadata": {"name": "p"}, "spec": spec});
    let (code, mut pod) = answer(&server, "POST", PODS, pod).await;
    assert_eq!(code, 201, "{pod}");
    let containers = numbered(4000, |at| json!({"name": format!("e{at}"), "image": "i"}));
    pod["spec"]["ephemeralContainers"] = containers;
    let path = format!("{PODS}/p/ephemeralcontainers");
    let (code, mut pod) = answer(&server, "PUT", &path, pod).await;
    assert_eq!(code, 200, "{pod:.500}");
    let list = pod["spec"]["ephemeralContainers"].as_array_mut().unwrap();
    list.reverse();
    let (code, body) = answer(&server, "PUT", &path, pod).await;
    assert_eq!(code, 200, "{body:.500}");
}

/// All mounts of a container were compared with all of its devices.
#[tokio::test]
async fn regression_mounts_and_devices_are_not_compared_with_each_other() {
    let server = Server::in_memory().await.unwrap();
    let mounts = numbered(
        10_000,
        |at| json!({"name": "v", "mountPath": format!("/m{at}")}),
    );
    let devices = numbered(
        10_000,
        |at| json!({"name": format!("w{at}"), "devicePath": format!("/d{at}")}),
    );
    let container =
        json!({"name": "c", "image": "i", "volumeMounts": mounts, "volumeDevices": devices});
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [container]}});
    refused(&server, PODS, pod).await;
}

/// Each scope that does not fit a resource had an error with all scopes: a body of 300 kB took more than 8 GB.
#[tokio::test]
async fn regression_the_scopes_of_a_quota_are_not_repeated_for_each() {
    let server = Server::in_memory().await.unwrap();
    let hard =
        json!({"cpu": "1", "memory": "1", "services": "1", "secrets": "1", "configmaps": "1"});
    let scopes = numbered(20_000, |_| json!("BestEffort"));
    let selector = numbered(
        5000,
        |_| json!({"scopeName": "BestEffort", "operator": "Exists"}),
    );
    for spec in [
        json!({"hard": hard, "scopes": scopes}),
        json!({"hard": hard, "scopeSelector": {"matchExpressions": selector}}),
    ] {
        let (code, body) = answer(
            &server,
            "POST",
            "/api/v1/namespaces/default/resourcequotas",
            json!({"metadata": {"name": "q"}, "spec": spec}),
        )
        .await;
        assert_eq!(code, 422, "{body:.500}");
    }
}

/// 300 000 empty ports, which are 900 kB, took 840 MB before their errors became a text.
#[tokio::test]
async fn regression_errors_are_not_collected_without_a_bound() {
    let server = Server::in_memory().await.unwrap();
    let spec = json!({"ports": numbered(300_000, |_| json!({}))});
    let service = json!({"metadata": {"name": "s"}, "spec": spec});
    let text = refused(&server, "/api/v1/namespaces/default/services", service).await;
    assert!(
        text.contains("spec.ports[0].name: Required value"),
        "{text:.500}"
    );
    assert!(text.contains(", and at least "), "{}", text.len());
}

/// A tenant with the permission to write roles could end the server: a rule of 5 kB with 300 groups, resources and verbs has 27 million
/// parts, which were all written down.
#[tokio::test]
async fn regression_the_parts_of_a_role_are_not_written_down() {
    let server = Server::in_memory().await.unwrap();
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
    let binding = json!({
        "metadata": {"name": "eve"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"},
        "subjects": [{"kind": "User", "name": "eve", "apiGroup": "rbac.authorization.k8s.io"}],
    });
    let (code, body) = admin(&server, "POST", rbac, binding).await;
    assert_eq!(code, 201, "{body}");
    let many = |letter: char| numbered(1000, |at| format!("{letter}{at}").into());
    let rule = json!({"apiGroups": many('g'), "resources": many('r'), "verbs": many('v')});
    let role = json!({"metadata": {"name": "r"}, "rules": [rule]});
    let eve = User::new("eve", ["system:authenticated"]);
    let start = processor_time();
    let kind = "application/json";
    let (code, body) = send(
        &server,
        eve,
        "POST",
        roles,
        kind,
        role.to_string().as_bytes(),
    )
    .await;
    let took = processor_time() - start;
    assert!(took < MOST, "{took:?}");
    let text = body["message"].as_str().unwrap();
    assert_eq!(code, 403, "{text:.500}");
    assert!(text.len() < LONGEST, "{}", text.len());
    assert!(text.ends_with("and more"), "{}", &text[text.len() - 200..]);
}

/// Each element without a key, and each with that of another, is an error of an apply.
#[tokio::test]
async fn regression_the_errors_of_an_apply_are_told_up_to_a_bound() {
    let server = Server::in_memory().await.unwrap();
    for port in [json!({}), json!({"containerPort": 80, "protocol": "TCP"})] {
        let container =
            json!({"name": "c", "image": "i", "ports": numbered(20_000, |_| port.clone())});
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [container]},
        });
        let path = format!("{PODS}/p?fieldManager=m");
        let kind = "application/apply-patch+yaml";
        let (code, body) = send(
            &server,
            User::admin(),
            "PATCH",
            &path,
            kind,
            pod.to_string().as_bytes(),
        )
        .await;
        let text = body.to_string();
        assert_eq!(code, 500, "{text:.500}");
        assert!(text.len() < LONGEST, "{}", text.len());
    }
}

/// A definition of which `schema` is the schema.
fn definition(schema: Value) -> Value {
    let names =
        json!({"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    json!({
        "metadata": {"name": "things.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]},
    })
}

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// For each rule with a path the whole schema was read again, which contains the rules.
#[tokio::test]
async fn regression_the_schema_is_read_once_for_all_rules() {
    let server = Server::in_memory().await.unwrap();
    let rules = numbered(
        8000,
        |at| json!({"rule": "true", "message": "m", "fieldPath": format!(".a{at}")}),
    );
    let schema = json!({"type": "object", "x-kubernetes-validations": rules});
    let text = refused(&server, DEFINITIONS, definition(schema)).await;
    assert!(text.contains("must be a valid path"), "{text:.500}");
}

/// After the list of errors was full, each further key of the list still wrote an error with all of them.
#[tokio::test]
async fn regression_errors_that_are_not_kept_are_not_made() {
    let server = Server::in_memory().await.unwrap();
    let list = |keys: Value| {
        let items =
            json!({"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}}});
        definition(json!({"type": "object", "properties": {"l": {
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys, "items": items,
        }}}))
    };
    let equal = list(numbered(100_000, |_| json!("k")));
    let (code, body) = answer(&server, "POST", DEFINITIONS, equal).await;
    assert_eq!(code, 422, "{body:.500}");
    let other = list(numbered(50_000, |at| json!(format!("{at}"))));
    let (code, body) = answer(&server, "POST", DEFINITIONS, other).await;
    assert_eq!(code, 422, "{body:.500}");
}

/// Validation continued to its end after the request had been answered with 504.
#[tokio::test]
async fn regression_validation_ends_with_the_time_of_the_request() {
    let server = Server::in_memory().await.unwrap();
    let rule = |at: usize| json!({"rule": format!("self.size() < {}", 100 + at)});
    let items =
        json!({"type": "string", "maxLength": 10, "x-kubernetes-validations": numbered(8, rule)});
    let schema = json!({"type": "object", "properties": {
        "list": {"type": "array", "maxItems": 200_000, "items": items},
    }});
    let definition = json!({
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let (code, body) = admin(&server, "POST", definitions, definition).await;
    assert_eq!(code, 201, "{body}");
    let things = "/apis/example.com/v1/namespaces/default/things";
    until("the definition has an effect", || async {
        let (code, _) = admin(&server, "GET", things, Value::Null).await;
        (code == 200).then_some(()).ok_or(())
    })
    .await;
    let thing = json!({
        "apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"},
        "list": vec!["x"; 100_000],
    });
    let took = async |path: &str, wanted: u16| {
        let start = processor_time();
        let (code, body) = admin(&server, "POST", path, thing.clone()).await;
        assert_eq!(code, wanted, "{body:.500}");
        processor_time() - start
    };
    let whole = took(&format!("{things}?dryRun=All"), 201).await;
    // Long enough to reach the rules, and too short for all of them.
    let limit = whole.as_millis() / 4;
    let part = took(&format!("{things}?dryRun=All&timeout={limit}ms"), 504).await;
    assert!(part < whole * 3 / 4, "{part:?} of {whole:?}");
}
