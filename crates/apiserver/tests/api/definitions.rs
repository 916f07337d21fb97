//! What is stored is shown as its definition is now, whatever the definition was when it was written.

mod builtin_groups;

use allot_apiserver::Server;
use allot_apiserver::identity::User;
use allot_testing::wait::PATIENCE;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

use crate::admin;

const GADGETS: &str = "/apis/d.example.com/v1/gadgets";

fn definition(properties: &Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "gadgets.d.example.com"},
        "spec": {
            "group": "d.example.com", "scope": "Cluster",
            "names": {"plural": "gadgets", "kind": "Gadget", "listKind": "GadgetList", "singular": "gadget"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "selectableFields": [{"jsonPath": ".spec.color"}],
                "additionalPrinterColumns": [{"name": "Color", "type": "string", "jsonPath": ".spec.color"}],
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": properties},
                }}},
            }],
        },
    })
}

/// The bytes of an answer in a representation.
async fn bytes(server: &Server, path: &str, accept: &str) -> Vec<u8> {
    let request = http::Request::get(path)
        .header("accept", accept)
        .body(Full::new(bytes::Bytes::new()))
        .unwrap();
    let response = server.handle(request, Some(User::admin())).await;
    response
        .into_body()
        .collect()
        .await
        .unwrap()
        .to_bytes()
        .to_vec()
}

async fn json_of(server: &Server, path: &str, accept: &str) -> Value {
    serde_json::from_slice(&bytes(server, path, accept).await).unwrap_or_default()
}

/// Sets the properties of the definition, and waits until it is served with them.
async fn set_properties(server: &Server, properties: Value) {
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let named = format!("{definitions}/gadgets.d.example.com");
    let wanted = definition(&properties);
    if admin(server, "GET", &named, Value::Null).await.0 == 404 {
        let (code, answer) = admin(server, "POST", definitions, wanted).await;
        assert_eq!(code, 201, "{answer}");
    } else {
        let versions = json!({"spec": {"versions": wanted["spec"]["versions"]}});
        let (code, answer) = admin(server, "PATCH", &named, versions).await;
        assert_eq!(code, 200, "{answer}");
    }
    let document = "/openapi/v3/apis/d.example.com/v1";
    let schema = "/components/schemas/com.example.d.v1.Gadget/properties/spec/properties";
    let served = async {
        loop {
            let document = json_of(server, document, "application/json").await;
            let served = document.pointer(schema).and_then(Value::as_object);
            if served.is_some_and(|it| it.keys().eq(properties.as_object().unwrap().keys())) {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, served)
        .await
        .expect("the definition is served");
}

/// The spec of the gadget in every way of reading it.
async fn specs(server: &Server) -> Vec<Value> {
    let one = format!("{GADGETS}/g");
    let table = "application/json;as=Table;g=meta.k8s.io;v=v1";
    let rows = json_of(server, &format!("{GADGETS}?includeObject=Object"), table).await;
    let watch = format!("{GADGETS}?watch=true&timeoutSeconds=1&resourceVersion=0");
    let events = bytes(server, &watch, "application/json").await;
    let event: Value =
        serde_json::from_slice(events.split(|it| *it == b'\n').next().unwrap()).unwrap();
    // Twice, as the first reading remembers what it saw.
    let mut specs = Vec::new();
    for _ in 0..2 {
        specs.push(json_of(server, &one, "application/json").await["spec"].take());
        let mut list = json_of(server, GADGETS, "application/json").await;
        specs.push(list["items"][0]["spec"].take());
    }
    specs.push(rows["rows"][0]["object"]["spec"].clone());
    specs.push(event["object"]["spec"].clone());
    specs
}

async fn check(server: &Server, expected: Value) {
    for spec in specs(server).await {
        assert_eq!(spec, expected);
    }
}

#[tokio::test]
async fn a_changed_definition_counts_for_what_is_stored_already() {
    let server = Server::in_memory().await.unwrap();
    let text = json!({"type": "string"});
    let blue = json!({"type": "string", "default": "blue"});
    set_properties(&server, json!({"size": text, "shape": text, "color": text})).await;
    let gadget = json!({
        "apiVersion": "d.example.com/v1", "kind": "Gadget", "metadata": {"name": "g"},
        "spec": {"size": "s", "shape": "round"},
    });
    let (code, answer) = admin(&server, "POST", GADGETS, gadget).await;
    assert_eq!(code, 201, "{answer}");
    check(&server, json!({"size": "s", "shape": "round"})).await;
    let selected = format!("{GADGETS}?fieldSelector=spec.color%3Dblue");
    let found = json_of(&server, &selected, "application/json").await;
    assert_eq!(found["items"], json!([]));

    // A new default, and a narrower schema. What is stored stays.
    set_properties(&server, json!({"size": text, "color": blue, "more": text})).await;
    check(&server, json!({"size": "s", "color": "blue"})).await;
    let found = json_of(&server, &selected, "application/json").await;
    assert_eq!(found["items"][0]["metadata"]["name"], "g");
    set_properties(&server, json!({"size": text, "shape": text, "color": text})).await;
    check(&server, json!({"size": "s", "shape": "round"})).await;

    // A write settles it.
    set_properties(&server, json!({"size": text, "color": blue})).await;
    let large = json!({"spec": {"size": "l"}});
    let (code, answer) = admin(&server, "PATCH", &format!("{GADGETS}/g"), large).await;
    assert_eq!(
        (code, &answer["spec"]["color"]),
        (200, &json!("blue")),
        "{answer}"
    );
    set_properties(&server, json!({"size": text, "shape": text, "color": text})).await;
    check(&server, json!({"size": "l", "color": "blue"})).await;
}

#[tokio::test]
async fn what_is_served_as_it_is_stored_is_what_was_sent_back_for_the_write() {
    let server = Server::in_memory().await.unwrap();
    set_properties(
        &server,
        json!({"size": {"type": "string"}, "color": {"type": "string"}}),
    )
    .await;
    let gadget = json!({
        "apiVersion": "d.example.com/v1", "kind": "Gadget",
        "metadata": {"name": "g", "labels": {"z": "1", "a": "2"}, "annotations": {"text": "\u{e9}\"\n"}},
        "spec": {"size": "s"},
    });
    let request = http::Request::post(GADGETS)
        .header("content-type", "application/json")
        .body(Full::new(bytes::Bytes::from(gadget.to_string())))
        .unwrap();
    let response = server.handle(request, Some(User::admin())).await;
    let status = response.status();
    let written = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(status, 201, "{}", String::from_utf8_lossy(&written));
    let tree: Value = serde_json::from_slice(&written).unwrap();
    // An object without a type is sorted by name.
    assert_eq!(tree.to_string().as_bytes(), &written[..]);
    for _ in 0..2 {
        assert_eq!(
            bytes(&server, &format!("{GADGETS}/g"), "application/json").await,
            written
        );
        let list = bytes(&server, GADGETS, "application/json").await;
        assert!(list.windows(written.len()).any(|part| part == &written[..]));
    }
}

#[tokio::test]
async fn no_object_is_made_while_its_definition_ends() {
    let server = Server::in_memory().await.unwrap();
    set_properties(
        &server,
        json!({"size": {"type": "string"}, "color": {"type": "string"}}),
    )
    .await;
    let named = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gadgets.d.example.com";
    let gadget = |name: &str| {
        json!({
            "apiVersion": "d.example.com/v1", "kind": "Gadget",
            "metadata": {"name": name, "finalizers": ["d.example.com/hold"]},
        })
    };
    assert_eq!(admin(&server, "POST", GADGETS, gadget("held")).await.0, 201);
    assert_eq!(admin(&server, "DELETE", named, Value::Null).await.0, 200);
    let ending = async {
        loop {
            let document = json_of(&server, "/apis/d.example.com/v1", "application/json").await;
            if document["resources"][0]["verbs"]
                == json!(["delete", "deletecollection", "get", "list", "watch"])
            {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, ending)
        .await
        .expect("discovery says so");
    let (code, answer) = admin(&server, "POST", GADGETS, gadget("late")).await;
    let why = "gadgets.d.example.com \"late\" is forbidden: create not allowed while custom resource definition is terminating";
    assert_eq!((code, &answer["message"]), (403, &json!(why)));
    // What this server has written into the status is its own.
    let definition = admin(&server, "GET", named, Value::Null).await.1;
    let owners = definition["metadata"]["managedFields"].as_array().unwrap();
    let own = owners
        .iter()
        .find(|it| it["manager"] == "kube-apiserver")
        .unwrap();
    assert_eq!(own["subresource"], "status");
    assert!(
        own["fieldsV1"]["f:status"]["f:acceptedNames"].is_object(),
        "{own}"
    );
    let free = json!({"metadata": {"finalizers": null}});
    assert_eq!(
        admin(&server, "PATCH", &format!("{GADGETS}/held"), free)
            .await
            .0,
        200
    );
}

/// Upstream converts an object into the version of each owner of its fields, and a definition that has lost one of these fails that.
#[tokio::test]
async fn an_apply_fails_while_fields_are_owned_through_a_version_that_the_definition_has_lost() {
    let server = Server::in_memory().await.unwrap();
    let properties = json!({"size": {"type": "string"}, "color": {"type": "string"}});
    let mut wanted = definition(&properties);
    let mut old = wanted["spec"]["versions"][0].clone();
    old["name"] = json!("v1alpha1");
    old["storage"] = json!(false);
    wanted["spec"]["versions"].as_array_mut().unwrap().push(old);
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(admin(&server, "POST", definitions, wanted).await.0, 201);
    let old = "/apis/d.example.com/v1alpha1/gadgets";
    let answered = |code| {
        let server = &server;
        let wait = async move {
            while admin(server, "GET", old, Value::Null).await.0 != code {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, wait)
    };
    answered(200).await.expect("the old version is served");
    let gadget = json!({
        "apiVersion": "d.example.com/v1alpha1", "kind": "Gadget",
        "metadata": {"name": "g"}, "spec": {"size": "s"},
    });
    assert_eq!(admin(&server, "POST", old, gadget).await.0, 201);
    let versions = definition(&properties)["spec"]["versions"].take();
    let change = json!({"spec": {"versions": versions}});
    let named = format!("{definitions}/gadgets.d.example.com");
    let (code, answer) = admin(&server, "PATCH", &named, change).await;
    assert_eq!(code, 200, "{answer}");
    answered(404).await.expect("the old version is gone");

    let one = format!("{GADGETS}/g");
    let apply = async || {
        let config = json!({
            "apiVersion": "d.example.com/v1", "kind": "Gadget",
            "metadata": {"name": "g"}, "spec": {"color": "red"},
        });
        let path = format!("{one}?fieldManager=m");
        let kind = "application/apply-patch+yaml";
        let body = config.to_string();
        crate::send(
            &server,
            User::admin(),
            "PATCH",
            &path,
            kind,
            body.as_bytes(),
        )
        .await
    };
    let (code, answer) = apply().await;
    let why = "request to convert CR to an invalid group/version: d.example.com/v1alpha1";
    assert_eq!((code, &answer["message"]), (500, &json!(why)), "{answer}");
    // Any other write gives up the owners, after which an apply goes through.
    let large = json!({"spec": {"size": "l"}});
    let (code, answer) = admin(&server, "PATCH", &one, large).await;
    assert_eq!(code, 200, "{answer}");
    assert_eq!(answer["metadata"]["managedFields"], Value::Null);
    let (code, answer) = apply().await;
    assert_eq!(code, 200, "{answer}");
    let owners = answer["metadata"]["managedFields"].as_array().unwrap();
    let names: Vec<&Value> = owners.iter().map(|it| &it["manager"]).collect();
    assert_eq!(names, ["m", "before-first-apply"]);
}

#[tokio::test]
async fn a_watch_ends_when_its_definition_changes_or_goes() {
    let server = Server::in_memory().await.unwrap();
    let color = json!({"color": {"type": "string"}});
    set_properties(&server, color.clone()).await;
    let gadget =
        json!({"apiVersion": "d.example.com/v1", "kind": "Gadget", "metadata": {"name": "g"}});
    let (code, answer) = admin(&server, "POST", GADGETS, gadget).await;
    assert_eq!(code, 201, "{answer}");
    let watch = async |path: &str| {
        let request = http::Request::get(path)
            .body(Full::new(bytes::Bytes::new()))
            .unwrap();
        let mut body = server
            .handle(request, Some(User::admin()))
            .await
            .into_body();
        let first = body.frame().await.unwrap().unwrap();
        (first.into_data().unwrap(), body)
    };
    let path = format!("{GADGETS}?watch=true&timeoutSeconds=600");
    let (first, body) = watch(&path).await;
    assert!(first.starts_with(b"{\"type\":\"ADDED\""));
    set_properties(
        &server,
        json!({"color": {"type": "string"}, "size": {"type": "integer"}}),
    )
    .await;
    let rest = tokio::time::timeout(PATIENCE, body.collect()).await;
    assert!(rest.expect("the watch ends").unwrap().to_bytes().is_empty());

    // What happens before the definition goes is told.
    let (_, body) = watch(&path).await;
    let named = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gadgets.d.example.com";
    assert_eq!(admin(&server, "DELETE", named, Value::Null).await.0, 200);
    let rest = tokio::time::timeout(PATIENCE, body.collect()).await;
    let rest = rest.expect("the watch ends").unwrap().to_bytes();
    assert!(rest.starts_with(b"{\"type\":\"DELETED\""), "{rest:?}");
}

/// A definition was established a moment before its objects were served: a client that waited for it got 404.
#[tokio::test(flavor = "multi_thread")]
async fn regression_objects_of_an_established_definition_are_served() {
    let server = Server::in_memory().await.unwrap();
    for number in 0..20 {
        let group = format!("d{number}.example.com");
        let mut definition = definition(&json!({"color": {"type": "string"}}));
        definition["metadata"]["name"] = format!("gadgets.{group}").into();
        definition["spec"]["group"] = group.as_str().into();
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let (code, answer) = admin(&server, "POST", definitions, definition).await;
        assert_eq!(code, 201, "{answer}");
        let named = format!("{definitions}/gadgets.{group}");
        let established = async {
            loop {
                let definition = admin(&server, "GET", &named, Value::Null).await.1;
                let conditions = definition["status"]["conditions"].as_array();
                let is_true = |it: &Value| it["type"] == "Established" && it["status"] == "True";
                if conditions.is_some_and(|all| all.iter().any(is_true)) {
                    return;
                }
                tokio::task::yield_now().await;
            }
        };
        let established = tokio::time::timeout(PATIENCE, established).await;
        established.expect("the definition is established");
        let objects = format!("/apis/{group}/v1/gadgets");
        let (code, answer) = admin(&server, "GET", &objects, Value::Null).await;
        assert_eq!(code, 200, "{answer}");
    }
}
