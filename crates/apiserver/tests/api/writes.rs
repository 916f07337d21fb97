//! Finalizers, grace periods, preconditions, generated names, dry run.

use allot_apiserver::Server;
use serde_json::{Value, json};

use crate::admin;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    })
}

#[tokio::test]
async fn finalizers_hold_an_object() {
    let server = Server::in_memory().await.unwrap();
    let map = json!({"metadata": {"name": "f", "finalizers": ["example.com/a"]}});
    admin(&server, "POST", MAPS, map).await;
    let path = format!("{MAPS}/f");
    let (code, body) = admin(&server, "DELETE", &path, Value::Null).await;
    assert_eq!(
        (code, body["metadata"]["deletionTimestamp"].is_string()),
        (200, true)
    );
    assert_eq!(admin(&server, "GET", &path, Value::Null).await.0, 200);
    let (code, _) = admin(
        &server,
        "PATCH",
        &path,
        json!({"metadata": {"finalizers": null}}),
    )
    .await;
    assert_eq!(code, 200);
    assert_eq!(admin(&server, "GET", &path, Value::Null).await.0, 404);
}

#[tokio::test]
async fn a_name_in_use_says_whether_its_object_is_being_deleted() {
    let server = Server::in_memory().await.unwrap();
    let map = json!({"metadata": {"name": "f", "finalizers": ["example.com/a"]}});
    admin(&server, "POST", MAPS, map.clone()).await;
    let taken = async |path: &str| {
        let (code, body) = admin(&server, "POST", path, map.clone()).await;
        assert_eq!(
            (code, &body["reason"]),
            (409, &json!("AlreadyExists")),
            "{body}"
        );
        body["message"].as_str().unwrap().to_owned()
    };
    let dry = format!("{MAPS}?dryRun=All");
    for path in [MAPS, &dry] {
        assert_eq!(taken(path).await, "configmaps \"f\" already exists");
    }
    admin(&server, "DELETE", &format!("{MAPS}/f"), Value::Null).await;
    for path in [MAPS, &dry] {
        assert_eq!(
            taken(path).await,
            "object is being deleted: configmaps \"f\" already exists"
        );
    }
}

#[tokio::test]
async fn a_binding_owns_no_field_of_the_pod() {
    let server = Server::in_memory().await.unwrap();
    let (_, made) = admin(&server, "POST", PODS, pod("p")).await;
    let target = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    admin(&server, "POST", &format!("{PODS}/p/binding"), target).await;
    let (_, bound) = admin(&server, "GET", &format!("{PODS}/p"), Value::Null).await;
    assert_eq!(bound["spec"]["nodeName"], "n");
    assert_eq!(
        bound["metadata"]["managedFields"],
        made["metadata"]["managedFields"]
    );
    assert!(bound["metadata"]["managedFields"].is_array());
}

#[tokio::test]
async fn a_binding_may_name_the_version_of_the_pod() {
    let server = Server::in_memory().await.unwrap();
    let (_, made) = admin(&server, "POST", PODS, pod("p")).await;
    let path = format!("{PODS}/p/binding");
    let target = |version: &Value| {
        let metadata = json!({"name": "p", "resourceVersion": version});
        json!({"metadata": metadata, "target": {"kind": "Node", "name": "n"}})
    };
    let (code, body) = admin(&server, "POST", &path, target(&json!("1"))).await;
    assert_eq!(code, 409, "{body}");
    let version = &made["metadata"]["resourceVersion"];
    let text = version.as_str().unwrap();
    let why = format!(
        "Precondition failed: ResourceVersion in precondition: 1, ResourceVersion in object meta: {text}"
    );
    assert!(body["message"].as_str().unwrap().contains(&why), "{body}");
    assert_eq!(admin(&server, "POST", &path, target(version)).await.0, 201);
}

#[tokio::test]
async fn a_running_pod_gets_time_to_end() {
    let server = Server::in_memory().await.unwrap();
    admin(&server, "POST", PODS, pod("p")).await;
    let target = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    let (code, body) = admin(
        &server,
        "POST",
        &format!("{PODS}/p/binding"),
        target.clone(),
    )
    .await;
    assert_eq!(code, 201, "{body}");
    let (code, body) = admin(&server, "POST", &format!("{PODS}/p/binding"), target).await;
    assert_eq!(
        (
            code,
            body["message"]
                .as_str()
                .unwrap()
                .contains("already assigned to node \"n\"")
        ),
        (409, true)
    );
    let (_, body) = admin(&server, "DELETE", &format!("{PODS}/p"), Value::Null).await;
    assert_eq!(body["metadata"]["deletionGracePeriodSeconds"], 30);
    let now = json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0});
    assert_eq!(
        admin(&server, "DELETE", &format!("{PODS}/p"), now).await.0,
        200
    );
    assert_eq!(
        admin(&server, "GET", &format!("{PODS}/p"), Value::Null)
            .await
            .0,
        404
    );
}

#[tokio::test]
async fn a_dry_run_leaves_nothing() {
    let server = Server::in_memory().await.unwrap();
    let before = admin(&server, "GET", MAPS, Value::Null).await.1;
    let (code, body) = admin(
        &server,
        "POST",
        &format!("{MAPS}?dryRun=All"),
        json!({"metadata": {"generateName": "g-"}}),
    )
    .await;
    assert_eq!(
        (code, body["metadata"]["name"].as_str().unwrap().len()),
        (201, 7)
    );
    assert_eq!(admin(&server, "GET", MAPS, Value::Null).await.1, before);
}

#[tokio::test]
async fn an_update_that_changes_nothing_is_no_write() {
    let server = Server::in_memory().await.unwrap();
    let (_, made) = admin(
        &server,
        "POST",
        MAPS,
        json!({"metadata": {"name": "a"}, "data": {"k": "v"}}),
    )
    .await;
    let (_, same) = admin(
        &server,
        "PATCH",
        &format!("{MAPS}/a"),
        json!({"data": {"k": "v"}}),
    )
    .await;
    assert_eq!(
        made["metadata"]["resourceVersion"],
        same["metadata"]["resourceVersion"]
    );
}

#[tokio::test]
async fn objects_need_a_namespace_that_stays() {
    let server = Server::in_memory().await.unwrap();
    let map = json!({"metadata": {"name": "x"}});
    let (code, _) = admin(
        &server,
        "POST",
        "/api/v1/namespaces/none/configmaps",
        map.clone(),
    )
    .await;
    assert_eq!(code, 404);
    admin(
        &server,
        "POST",
        "/api/v1/namespaces",
        json!({"metadata": {"name": "going"}}),
    )
    .await;
    let (_, body) = admin(&server, "DELETE", "/api/v1/namespaces/going", Value::Null).await;
    assert_eq!(body["status"]["phase"], "Terminating");
    let (code, body) = admin(&server, "POST", "/api/v1/namespaces/going/configmaps", map).await;
    assert_eq!(
        (code, body["details"]["causes"][0]["reason"].as_str()),
        (403, Some("NamespaceTerminating"))
    );
}

#[tokio::test]
async fn concurrent_changes_are_all_kept() {
    let server = Server::in_memory().await.unwrap();
    admin(&server, "POST", MAPS, json!({"metadata": {"name": "c"}})).await;
    let changes = (0..20).map(|number| {
        let server = server.clone();
        async move {
            let patch = json!({"data": {format!("k{number}"): "v"}});
            admin(&server, "PATCH", &format!("{MAPS}/c"), patch).await.0
        }
    });
    assert_eq!(futures::future::join_all(changes).await, [200; 20]);
    let (_, body) = admin(&server, "GET", &format!("{MAPS}/c"), Value::Null).await;
    assert_eq!(body["data"].as_object().unwrap().len(), 20);
}

#[tokio::test]
async fn events_have_two_faces() {
    let server = Server::in_memory().await.unwrap();
    let event = json!({
        "metadata": {"name": "e"}, "eventTime": "2026-01-02T03:04:05.000000Z", "action": "a", "reason": "r",
        "note": "n", "type": "Normal", "reportingController": "example.com/c", "reportingInstance": "i",
        "regarding": {"kind": "Pod", "namespace": "default", "name": "p"},
    });
    let new = "/apis/events.k8s.io/v1/namespaces/default/events";
    let old = "/api/v1/namespaces/default/events";
    let (code, body) = admin(&server, "POST", new, event).await;
    assert_eq!((code, body["note"].as_str()), (201, Some("n")), "{body}");
    let (_, body) = admin(&server, "GET", &format!("{old}/e"), Value::Null).await;
    assert_eq!(
        (
            body["message"].as_str(),
            body["involvedObject"]["name"].as_str()
        ),
        (Some("n"), Some("p")),
        "{body}"
    );
    let (_, body) = admin(
        &server,
        "GET",
        &format!("{old}?fieldSelector=involvedObject.name%3Dp"),
        Value::Null,
    )
    .await;
    assert_eq!(body["items"].as_array().map(Vec::len), Some(1), "{body}");
}

#[tokio::test]
async fn a_job_gets_the_selector_of_its_pods() {
    const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
    let server = Server::in_memory().await.unwrap();
    let job = |name: &str, spec: Value| {
        let template = json!({
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
        });
        let mut job = json!({"metadata": {"name": name}, "spec": {"template": template}});
        for (key, value) in spec.as_object().unwrap() {
            match key.as_str() {
                "labels" => job["spec"]["template"]["metadata"] = json!({"labels": value}),
                key => job["spec"][key] = value.clone(),
            }
        }
        job
    };
    let post = async |job: Value| admin(&server, "POST", JOBS, job).await;

    let (code, body) = post(job("a", json!({"labels": {"app": "x"}}))).await;
    assert_eq!(code, 201, "{body}");
    let uid = &body["metadata"]["uid"];
    assert_eq!(
        body["spec"]["selector"],
        json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}})
    );
    assert_eq!(
        body["spec"]["template"]["metadata"]["labels"],
        json!({
            "app": "x", "job-name": "a", "batch.kubernetes.io/job-name": "a",
            "controller-uid": uid, "batch.kubernetes.io/controller-uid": uid,
        })
    );
    assert_eq!(
        body["metadata"]["labels"],
        body["spec"]["template"]["metadata"]["labels"]
    );
    // A manifest that was read from one job does not make another that takes its pods.
    let copied = json!({"selector": body["spec"]["selector"], "labels": body["spec"]["template"]["metadata"]["labels"]});
    let (code, body) = post(job("b", copied)).await;
    let message = body["message"].as_str().unwrap_or_default();
    assert!(
        code == 422
            && message.contains("spec.selector: Invalid value")
            && message.contains("`selector` not auto-generated"),
        "{body}"
    );

    let by_hand = json!({
        "manualSelector": true, "selector": {"matchLabels": {"app": "x"}}, "labels": {"app": "x"},
    });
    let (code, body) = post(job("c", by_hand)).await;
    assert_eq!(code, 201, "{body}");
    assert_eq!(
        body["spec"]["template"]["metadata"]["labels"],
        json!({"app": "x"})
    );
    let (code, body) = post(job("d", json!({"manualSelector": true}))).await;
    let message = body["message"].as_str().unwrap_or_default();
    assert!(
        code == 422 && message.contains("spec.selector: Required value"),
        "{body}"
    );
}
