//! Custom resources whose versions a webhook converts.

use allot_apiserver::Server;
use allot_apiserver::identity::User;
use allot_testing::wait::until;
use serde_json::{Value, json};

use super::Hooks;
use crate::{admin, send};

pub(super) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub(super) const NAME: &str = "things.example.com";

pub(super) fn path(version: &str, name: &str) -> String {
    let collection = format!("/apis/example.com/{version}/namespaces/default/things");
    if name.is_empty() {
        collection
    } else {
        format!("{collection}/{name}")
    }
}

/// `v1` has a size as text, `v2` a count; the webhook of a name that starts with a word does something else.
pub(super) fn convert(path: &str, review: &Value) -> Option<(u16, Value)> {
    let request = &review["request"];
    let wanted = request["desiredAPIVersion"].as_str().unwrap();
    let mut objects = request["objects"].as_array().unwrap().clone();
    for object in &mut objects {
        object["apiVersion"] = wanted.into();
        let spec = object["spec"].take();
        object["spec"] = if wanted.ends_with("v2") {
            json!({"count": spec["size"].as_str().map(|it| it.parse::<i64>().unwrap())})
        } else {
            json!({"size": spec["count"].as_i64().map(|it| it.to_string())})
        };
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        object["metadata"]["labels"]["seen"] = wanted.replace('/', "_").into();
        object["metadata"]["finalizers"] = json!(["example.com/mine"]);
        match name.split('-').next().unwrap() {
            "rename" => object["metadata"]["name"] = "other".into(),
            "kind" => object["kind"] = "Other".into(),
            "version" => object["apiVersion"] = "example.com/v3".into(),
            "label" => object["metadata"]["labels"]["seen"] = "a b".into(),
            "number" => object["metadata"]["annotations"] = json!({"n": 1}),
            "bare" => {
                object.as_object_mut().unwrap().remove("metadata");
            }
            _ => {}
        }
    }
    let path = path.split('?').next().unwrap();
    let mut result = json!({"status": "Success"});
    match path {
        "/fail" => result = json!({"status": "Failed", "message": "I can not"}),
        "/silent" => result = json!({"status": "Failed"}),
        "/few" => objects.clear(),
        "/broken" => return Some((500, json!("no"))),
        _ => {}
    }
    let uid = match path {
        "/stranger" => json!("x"),
        _ => request["uid"].clone(),
    };
    let answer = json!({
        "apiVersion": review["apiVersion"], "kind": "ConversionReview",
        "response": {"uid": uid, "result": result, "convertedObjects": objects},
    });
    Some((200, answer))
}

pub(super) async fn set_conversion(server: &Server, client: Value, reviews: &[&str]) {
    let version = |name: &str, field: &str, kind: &str| {
        json!({
            "name": name, "served": true, "storage": name == "v1",
            "subresources": {
                "status": {},
                "scale": {"specReplicasPath": ".spec.count", "statusReplicasPath": ".status.count"},
            },
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "properties": {
                    field: {"type": kind, "maxLength": 3},
                    "extra": {"type": "string", "default": "of v2"},
                }},
                "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            }}},
        })
    };
    let mut v1 = version("v1", "size", "string");
    let spec = "/schema/openAPIV3Schema/properties/spec/properties";
    v1.pointer_mut(spec)
        .unwrap()
        .as_object_mut()
        .unwrap()
        .remove("extra");
    let mut v2 = version("v2", "count", "integer");
    v2.pointer_mut(spec).unwrap()["count"]
        .as_object_mut()
        .unwrap()
        .remove("maxLength");
    let definition = json!({
        "metadata": {"name": NAME},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "versions": [v1, v2],
            "names": {"plural": "things", "kind": "Thing"},
            "conversion": {"strategy": "Webhook", "webhook": {
                "clientConfig": client, "conversionReviewVersions": reviews,
            }},
        },
    });
    let (code, answer) = admin(server, "POST", DEFINITIONS, definition).await;
    assert_eq!(code, 201, "{answer}");
    wait_for_definition(server, |server| async move {
        admin(&server, "GET", &path("v1", ""), Value::Null).await.0 == 200
    })
    .await;
}

/// Waits until the task that follows definitions has applied a change.
async fn wait_for_definition<F: Future<Output = bool>>(
    server: &Server,
    done: impl Fn(Server) -> F,
) {
    until("the definition has an effect", || async {
        done(server.clone()).await.then_some(()).ok_or(())
    })
    .await;
}

pub(super) async fn ready(reply: super::Reply, path: &str) -> (Hooks, Server) {
    let hooks = Hooks::start(reply).await;
    let server = Server::in_memory().await.unwrap();
    set_conversion(&server, hooks.url(path), &["v9", "v1", "v1beta1"]).await;
    (hooks, server)
}

pub(super) async fn create(
    server: &Server,
    version: &str,
    name: &str,
    spec: Value,
) -> (u16, Value) {
    let object = json!({
        "apiVersion": format!("example.com/{version}"), "kind": "Thing", "metadata": {"name": name}, "spec": spec,
    });
    admin(server, "POST", &path(version, ""), object).await
}

#[tokio::test]
async fn objects_are_read_and_written_in_every_version() {
    let (hooks, server) = ready(convert, "/convert").await;
    // In the storage version no webhook is called.
    let (code, made) = create(&server, "v1", "a", json!({"size": "3"})).await;
    assert_eq!(code, 201, "{made}");
    let v1 = path("v1", "a");
    assert_eq!(admin(&server, "GET", &v1, Value::Null).await.0, 200);
    assert_eq!(hooks.take_requests(), []);
    // What is asked for in another is asked for once, whole.
    let (code, read) = admin(&server, "GET", &path("v2", "a"), Value::Null).await;
    assert_eq!(code, 200, "{read}");
    assert_eq!(read["apiVersion"], "example.com/v2");
    assert_eq!(read["spec"], json!({"count": 3}), "no defaults of v2");
    assert_eq!(
        read["metadata"]["labels"],
        json!({"seen": "example.com_v2"})
    );
    assert_eq!(read["metadata"]["finalizers"], Value::Null);
    admin(&server, "GET", &path("v2", "a"), Value::Null).await;
    let asked = hooks.take_requests();
    let [(target, review)] = &asked[..] else {
        panic!("{asked:?}");
    };
    assert_eq!(target, "/convert?timeout=30s");
    assert_eq!(review["apiVersion"], "apiextensions.k8s.io/v1");
    assert_eq!(review["kind"], "ConversionReview");
    let request = &review["request"];
    assert_eq!(request["desiredAPIVersion"], "example.com/v2");
    assert_eq!(request["objects"][0], made);
    // A write is judged and defaulted in its version, and stored in the other.
    let (code, made) = create(&server, "v2", "b", json!({"count": 4000})).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(made["spec"], json!({"count": 4000}));
    assert_eq!(made["metadata"]["labels"]["seen"], "example.com_v2");
    let stored = admin(&server, "GET", &path("v1", "b"), Value::Null).await.1;
    assert_eq!(stored["spec"], json!({"size": "4000"}));
    let defaulted = hooks.take_requests()[0].1["request"]["objects"][0]["spec"].clone();
    assert_eq!(defaulted, json!({"count": 4000, "extra": "of v2"}));
    let (code, refused) = create(&server, "v2", "c", json!({"count": "x"})).await;
    assert_eq!(code, 422, "{refused}");
    assert!(
        refused["message"]
            .as_str()
            .unwrap()
            .contains("spec.count: Invalid value: \"string\""),
        "{refused}"
    );
    // Lists bring many at once.
    hooks.take_requests();
    let (code, list) = admin(&server, "GET", &path("v2", ""), Value::Null).await;
    assert_eq!(code, 200, "{list}");
    let specs: Vec<&Value> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["spec"])
        .collect();
    assert_eq!(specs, [&json!({"count": 3}), &json!({"count": 4000})]);
    let (_, selected) = admin(
        &server,
        "GET",
        &format!("{}?labelSelector=seen%3Dexample.com_v2", path("v2", "")),
        Value::Null,
    )
    .await;
    assert_eq!(selected["items"].as_array().unwrap().len(), 2, "{selected}");
    assert_eq!(hooks.take_requests(), [], "both are at hand");
}

#[tokio::test]
async fn changes_go_through_every_version() {
    let (_hooks, server) = ready(convert, "/convert").await;
    assert_eq!(
        create(&server, "v1", "a", json!({"size": "3"})).await.0,
        201
    );
    let (v1, v2) = (path("v1", "a"), path("v2", "a"));
    let (code, patched) = admin(&server, "PATCH", &v2, json!({"spec": {"count": 5}})).await;
    assert_eq!(
        (code, &patched["spec"]["count"]),
        (200, &json!(5)),
        "{patched}"
    );
    let stored = admin(&server, "GET", &v1, Value::Null).await.1;
    assert_eq!(stored["spec"], json!({"size": "5"}));
    let mut read = admin(&server, "GET", &v2, Value::Null).await.1;
    read["spec"]["count"] = 6.into();
    let (code, updated) = admin(&server, "PUT", &v2, read).await;
    assert_eq!(
        (code, &updated["spec"]["count"]),
        (200, &json!(6)),
        "{updated}"
    );
    let status = format!("{v2}/status");
    let (code, reported) = admin(&server, "PATCH", &status, json!({"status": {"count": 2}})).await;
    assert_eq!(
        (code, &reported["status"]["count"]),
        (200, &json!(2)),
        "{reported}"
    );
    let scale = format!("{v2}/scale");
    let (code, scaled) = admin(&server, "PATCH", &scale, json!({"spec": {"replicas": 7}})).await;
    assert_eq!(code, 200, "{scaled}");
    assert_eq!(
        (&scaled["spec"]["replicas"], &scaled["status"]["replicas"]),
        (&json!(7), &json!(2))
    );
    let (_, events) = admin(
        &server,
        "GET",
        &format!(
            "{}?watch=1&resourceVersion=0&timeoutSeconds=1",
            path("v2", "")
        ),
        Value::Null,
    )
    .await;
    assert_eq!(events["object"]["spec"]["count"], 7, "{events}");
    assert_eq!(events["object"]["apiVersion"], "example.com/v2");
    let (code, gone) = admin(&server, "DELETE", &v2, Value::Null).await;
    assert_eq!((code, &gone["status"]), (200, &json!("Success")), "{gone}");
}

#[tokio::test]
async fn appliers_of_several_versions_meet() {
    let (_hooks, server) = ready(convert, "/convert").await;
    let apply = async |version: &str, manager: &str, spec: Value| {
        let object = json!({
            "apiVersion": format!("example.com/{version}"), "kind": "Thing", "metadata": {"name": "a"}, "spec": spec,
        });
        let path = format!("{}?fieldManager={manager}", path(version, "a"));
        let body = object.to_string();
        let kind = "application/apply-patch+yaml";
        send(
            &server,
            User::admin(),
            "PATCH",
            &path,
            kind,
            body.as_bytes(),
        )
        .await
    };
    let (code, made) = apply("v1", "one", json!({"size": "3"})).await;
    assert_eq!(code, 201, "{made}");
    let (code, same) = apply("v2", "two", json!({"count": 3})).await;
    assert_eq!(code, 200, "{same}");
    let (code, other) = apply("v2", "two", json!({"count": 4})).await;
    assert_eq!(code, 409, "{other}");
    assert_eq!(
        other["message"],
        "Apply failed with 1 conflict: conflict with \"one\": .spec.size"
    );
}

#[tokio::test]
async fn errors_of_a_webhook_are_reported() {
    let of = "conversion webhook for example.com/v1, Kind=Thing";
    for (route, name, why) in [
        ("/fail", "a", format!("{of} failed: I can not")),
        (
            "/silent",
            "a",
            format!("{of} failed: response.result.status was 'Failed', not 'Success'"),
        ),
        ("/few", "a", format!("{of} returned 0 objects, expected 1")),
        (
            "/broken",
            "a",
            format!(
                "{of} failed: an error on the server (\"\\\"no\\\"\") has prevented the request from succeeding"
            ),
        ),
        (
            "/",
            "rename-a",
            format!("{of} returned invalid object: must have the same name: rename-a != other"),
        ),
        (
            "/",
            "kind-a",
            format!(
                "{of} returned invalid object at index 0: invalid kind (expected Thing, received Other)"
            ),
        ),
        (
            "/",
            "version-a",
            format!(
                "{of} returned invalid object at index 0: invalid groupVersion (expected example.com/v2, received \
                 example.com/v3)"
            ),
        ),
        (
            "/",
            "number-a",
            format!(
                "{of} returned invalid metadata: metadata.annotations[n] must be a string, but is int64 in converted \
                 object"
            ),
        ),
    ] {
        let (_hooks, server) = ready(convert, route).await;
        assert_eq!(
            create(&server, "v1", name, json!({"size": "3"})).await.0,
            201
        );
        let (code, answer) = admin(&server, "GET", &path("v2", name), Value::Null).await;
        assert_eq!(
            (code, answer["message"].as_str().unwrap()),
            (500, why.as_str())
        );
        // The version it is stored in does not need it.
        let (code, _) = admin(&server, "GET", &path("v1", name), Value::Null).await;
        assert_eq!(code, 200);
    }
    let (_hooks, server) = ready(convert, "/stranger").await;
    assert_eq!(create(&server, "v1", "a", json!({})).await.0, 201);
    let (code, answer) = admin(&server, "GET", &path("v2", "a"), Value::Null).await;
    let message = answer["message"].as_str().unwrap();
    assert_eq!(code, 500);
    assert!(
        message.starts_with(&format!("{of} failed: expected response.uid=\"")),
        "{message}"
    );
    let (code, _) = create(&server, "v2", "b", json!({})).await;
    assert_eq!(code, 500);
    let (code, _) = admin(&server, "GET", &path("v1", "b"), Value::Null).await;
    assert_eq!(code, 404, "nothing is stored");
}

#[tokio::test]
async fn objects_stay_in_the_version_they_were_stored_in_until_they_are_written() {
    let (hooks, server) = ready(convert, "/convert").await;
    assert_eq!(
        create(&server, "v1", "a", json!({"size": "3"})).await.0,
        201
    );
    let definition = format!("{DEFINITIONS}/{NAME}");
    let mut changed = admin(&server, "GET", &definition, Value::Null).await.1;
    for version in changed["spec"]["versions"].as_array_mut().unwrap() {
        version["storage"] = (version["name"] == "v2").into();
    }
    let (code, changed) = admin(&server, "PUT", &definition, changed).await;
    assert_eq!(code, 200, "{changed}");
    assert_eq!(changed["status"]["storedVersions"], json!(["v1", "v2"]));
    // Counts as soon as a new object is stored in the other version.
    wait_for_definition(&server, |server| {
        let hooks = &hooks;
        async move {
            hooks.take_requests();
            create(&server, "v2", "probe", json!({"count": 1})).await;
            let stored_as_it_is = hooks.take_requests().is_empty();
            admin(&server, "DELETE", &path("v2", "probe"), Value::Null).await;
            stored_as_it_is
        }
    })
    .await;
    hooks.take_requests();
    assert_eq!(
        admin(&server, "GET", &path("v1", "a"), Value::Null).await.0,
        200
    );
    assert_eq!(hooks.take_requests(), [], "it is stored in v1");
    let before = admin(&server, "GET", &path("v2", "a"), Value::Null).await.1;
    let (code, after) = admin(&server, "PUT", &path("v2", "a"), before.clone()).await;
    assert_eq!(code, 200);
    assert_ne!(
        before["metadata"]["resourceVersion"], after["metadata"]["resourceVersion"],
        "the same content in another version"
    );
    hooks.take_requests();
    assert_eq!(
        admin(&server, "GET", &path("v2", "a"), Value::Null).await.0,
        200
    );
    assert_eq!(hooks.take_requests(), [], "now it is stored in v2");
}
