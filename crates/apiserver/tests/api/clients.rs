//! kube-rs against the server in process.

use allot_apiserver::Server;
use allot_apiserver::identity::User;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::{
    Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::json;

async fn client() -> kube::Client {
    let server = Server::in_memory().await.unwrap();
    kube::Client::new(server.client_service(User::admin()), "default")
}

fn config(name: &str, value: &str) -> ConfigMap {
    serde_json::from_value(
        json!({"metadata": {"name": name, "labels": {"app": value}}, "data": {"k": value}}),
    )
    .unwrap()
}

#[tokio::test]
async fn objects_come_and_go() {
    let api: Api<ConfigMap> = Api::default_namespaced(client().await);
    let made = api
        .create(&PostParams::default(), &config("a", "1"))
        .await
        .unwrap();
    let stale = made.clone();
    let merge = Patch::Merge(json!({"data": {"k": "2"}}));
    let patched = api
        .patch("a", &PatchParams::default(), &merge)
        .await
        .unwrap();
    assert_eq!(patched.data.unwrap()["k"], "2");
    let conflict = api
        .replace("a", &PostParams::default(), &stale)
        .await
        .unwrap_err();
    assert!(
        matches!(&conflict, kube::Error::Api(status) if status.code == 409 && status.reason == "Conflict"),
        "{conflict}"
    );
    let again = api
        .create(&PostParams::default(), &config("a", "1"))
        .await
        .unwrap_err();
    assert!(
        matches!(&again, kube::Error::Api(status) if status.reason == "AlreadyExists"),
        "{again}"
    );
    api.delete("a", &DeleteParams::default()).await.unwrap();
    assert!(api.get_opt("a").await.unwrap().is_none());
}

#[tokio::test]
async fn a_watch_shows_objects_entering_and_leaving_a_selection() {
    let api: Api<ConfigMap> = Api::default_namespaced(client().await);
    let start = api
        .list(&ListParams::default())
        .await
        .unwrap()
        .metadata
        .resource_version
        .unwrap();
    api.create(&PostParams::default(), &config("a", "x"))
        .await
        .unwrap();
    api.create(&PostParams::default(), &config("b", "other"))
        .await
        .unwrap();
    let relabel = |value: &str| Patch::Merge(json!({"metadata": {"labels": {"app": value}}}));
    api.patch("b", &PatchParams::default(), &relabel("x"))
        .await
        .unwrap();
    api.patch("a", &PatchParams::default(), &relabel("y"))
        .await
        .unwrap();
    let selected = WatchParams::default().labels("app=x");
    let events = api.watch(&selected, &start).await.unwrap();
    let seen: Vec<String> = events
        .take(3)
        .map(|event| match event.unwrap() {
            WatchEvent::Added(object) => format!("+{}", object.metadata.name.unwrap()),
            WatchEvent::Modified(object) => format!("~{}", object.metadata.name.unwrap()),
            WatchEvent::Deleted(object) => format!("-{}", object.metadata.name.unwrap()),
            other => format!("{other:?}"),
        })
        .collect()
        .await;
    assert_eq!(seen, ["+a", "+b", "-a"]);
}

#[tokio::test]
async fn informers_list_in_pages_and_follow() {
    let api: Api<ConfigMap> = Api::default_namespaced(client().await);
    for number in 0..7 {
        api.create(&PostParams::default(), &config(&format!("c{number}"), "1"))
            .await
            .unwrap();
    }
    for settings in [
        watcher::Config::default().page_size(3),
        watcher::Config::default().streaming_lists(),
    ] {
        let stream = watcher::watcher(api.clone(), settings).applied_objects();
        let names: Vec<String> = stream
            .take(7)
            .map_ok(|object| object.metadata.name.unwrap())
            .try_collect()
            .await
            .unwrap();
        assert_eq!(names, ["c0", "c1", "c2", "c3", "c4", "c5", "c6"]);
    }
}

#[tokio::test]
async fn appliers_conflict_and_force() {
    let api: Api<ConfigMap> = Api::default_namespaced(client().await);
    let apply = |value: &str| {
        Patch::Apply(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "s"}, "data": {"k": value},
        }))
    };
    api.patch("s", &PatchParams::apply("one"), &apply("1"))
        .await
        .unwrap();
    let refused = api
        .patch("s", &PatchParams::apply("two"), &apply("2"))
        .await
        .unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("conflict with \"one\": .data.k"),
        "{refused}"
    );
    let taken = api
        .patch("s", &PatchParams::apply("two").force(), &apply("2"))
        .await
        .unwrap();
    assert_eq!(taken.data.unwrap()["k"], "2");
}

#[tokio::test]
async fn claims_are_defaulted_and_immutable() {
    let api: Api<ResourceClaim> = Api::default_namespaced(client().await);
    let claim = serde_json::from_value(json!({
        "metadata": {"name": "c"},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]}},
    }));
    let made = api
        .create(&PostParams::default(), &claim.unwrap())
        .await
        .unwrap();
    let request = made
        .spec
        .devices
        .unwrap()
        .requests
        .unwrap()
        .remove(0)
        .exactly
        .unwrap();
    assert_eq!(
        (request.allocation_mode.as_deref(), request.count),
        (Some("ExactCount"), Some(1))
    );
    let change = Patch::Json::<()>(
        serde_json::from_value(json!([
            {"op": "replace", "path": "/spec/devices/requests/0/exactly/count", "value": 2},
        ]))
        .unwrap(),
    );
    let refused = api
        .patch("c", &PatchParams::default(), &change)
        .await
        .unwrap_err();
    assert!(
        refused.to_string().contains("field is immutable"),
        "{refused}"
    );
}
