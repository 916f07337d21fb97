//! The OpenAPI documents of extensions: listed, merged and passed on, whatever extensions say.

use super::*;

const INDEX: &str = "/openapi/v3";
const ALL: &str = "/openapi/v2";
const OWN: &str = "apis/ext.example.com/v1";

async fn get(server: &Server, path: &str) -> Value {
    let (code, _, body) = send_as(server, User::admin(), "GET", path, &[]).await;
    assert_eq!(code, 200, "{path}: {body}");
    serde_json::from_str(&body).unwrap()
}

/// Waits until the index lists a document; returns its address.
async fn wait_until_listed(server: &Server, name: &str) -> String {
    wait::until(name, || async {
        let index = get(server, INDEX).await;
        let address = index["paths"][name]["serverRelativeURL"].as_str();
        address.map(str::to_owned).ok_or(index)
    })
    .await
}

/// The OpenAPI v2 document of a group. It uses a definition with a name that this server uses for another one.
fn v2_document(group: &str) -> Value {
    let meta = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
    let thing = json!({"$ref": "#/definitions/example.Thing"});
    let kind = |group: &str, kind: &str| json!({"group": group, "kind": kind, "version": "v1"});
    let write = json!({
        "operationId": "write", "consumes": ["application/json"], "produces": ["application/json"],
        "x-kubernetes-action": "patch", "x-kubernetes-group-version-kind": kind(group, "Thing"),
        "parameters": [
            {"name": "body", "in": "body", "required": true, "schema": thing},
            {"$ref": "#/parameters/fieldValidation-1"},
        ],
        "responses": {"200": {"description": "OK", "schema": thing}},
    });
    json!({
        "swagger": "2.0",
        "paths": {
            format!("/apis/{group}/v1/namespaces/{{namespace}}/things/{{name}}"): {"patch": write},
            // Paths of others.
            "/api/v1/namespaces/{namespace}/pods/{name}": {"get": {"operationId": "stolen", "responses": {}}},
            "/apis/apps/v1/deployments": {"get": {"operationId": "stolen", "responses": {}}},
        },
        "parameters": {"fieldValidation-1": {"name": "fieldValidation", "in": "query", "type": "string"}},
        "definitions": {
            "example.Thing": {
                "type": "object", "properties": {"metadata": {"$ref": format!("#/definitions/{meta}")}},
                // Kinds of others.
                "x-kubernetes-group-version-kind": [kind(group, "Thing"), kind("apps", "Deployment"), kind("", "Pod")],
            },
            meta: {"type": "object", "description": "stolen"},
            "unused": {"type": "string"},
        },
    })
}

fn with_v3_documents(path: &str) -> Option<Answer> {
    let address = |name: &str, hash: &str| json!({"serverRelativeURL": format!("https://192.0.2.1/{name}?hash={hash}")});
    Some(match path.split('?').next()? {
        INDEX => with(
            200,
            &json!({"paths": {
                OWN: address(OWN, "A1"), "apis/ext.example.com": address("x", "a%2Fb"), "api/v1": address("x", "1"),
                "apis/apps/v1": address("x", "1"), "version": address("x", "1"), "apis/ext.example.com/v2": address("x", "1"),
            }}),
        ),
        ALL => with(200, &v2_document("ext.example.com")),
        path if path.starts_with(INDEX) => with(200, &json!({"document": path})),
        _ => return None,
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_of_an_extension_are_listed_and_merged_and_nothing_of_others() {
    let (server, _backend) = server().await;
    let own = get(&server, INDEX).await;
    let (_, headers, _) = send_as(&server, User::admin(), "GET", ALL, &[]).await;
    let (server, _backend, extension) = with_extension(with_v3_documents).await;
    let address = wait_until_listed(&server, OWN).await;
    assert_eq!(address, format!("{INDEX}/{OWN}?hash=A1"));
    let mut index = get(&server, INDEX).await;
    let paths = index["paths"].as_object_mut().unwrap();
    paths.remove(OWN);
    // A hash that is none is not told.
    let group = paths.remove("apis/ext.example.com").unwrap();
    assert_eq!(
        group["serverRelativeURL"],
        "/openapi/v3/apis/ext.example.com"
    );
    assert_eq!(index, own);
    // The extension answers for its documents, and is told who asks, of this server's address with a hash as well.
    let jo = User::new("jo", ["team"]);
    let known = [("if-none-match", "\"A1\"")];
    let (code, _, body) = send_as(&server, jo, "GET", &address, &known).await;
    assert_eq!(code, 200);
    assert_eq!(
        body,
        json!({"document": format!("{INDEX}/{OWN}")}).to_string()
    );
    let got = extension.take_requests();
    assert_eq!(got[0].target, format!("{INDEX}/{OWN}"));
    assert_eq!(got[0].all("x-remote-user"), ["jo"]);
    assert_eq!(got[0].all("if-none-match"), ["\"A1\""]);
    // Not for those of others.
    for name in ["api/v1", "apis/apps/v1"] {
        let document = get(&server, &format!("{INDEX}/{name}")).await;
        assert_eq!(document["openapi"], "3.0.0", "{name}");
    }
    let nothing = format!("{INDEX}/apis/ext.example.com/v2");
    let (code, ..) = send_as(&server, User::admin(), "GET", &nothing, &[]).await;
    assert_eq!(code, 404);
    assert!(extension.take_requests().is_empty());
    // The document of all groups.
    let (_, now, body) = send_as(&server, User::admin(), "GET", ALL, &[]).await;
    assert_ne!(now["etag"], headers["etag"]);
    let all: Value = serde_json::from_str(&body).unwrap();
    let path = &all["paths"]["/apis/ext.example.com/v1/namespaces/{namespace}/things/{name}"];
    assert_eq!(path["patch"]["parameters"][1]["name"], "fieldValidation");
    let thing = &all["definitions"]["example.Thing"];
    let kind = json!([{"group": "ext.example.com", "kind": "Thing", "version": "v1"}]);
    assert_eq!(thing["x-kubernetes-group-version-kind"], kind);
    let meta = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
    let used = format!("#/definitions/{meta}_v2");
    assert_eq!(thing["properties"]["metadata"]["$ref"], used.as_str());
    assert_eq!(
        all["definitions"][format!("{meta}_v2")]["description"],
        "stolen"
    );
    assert!(!all["definitions"]["unused"].is_object());
    assert_ne!(all["definitions"][meta]["description"], "stolen");
    assert!(all["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"].is_object());
    assert!(!body.contains("\"operationId\":\"stolen\""));
    let tag = now["etag"].to_str().unwrap();
    let again = send_as(
        &server,
        User::admin(),
        "GET",
        ALL,
        &[("if-none-match", tag)],
    )
    .await;
    assert_eq!(again.0, 304);
    // All of it is gone with the APIService.
    let path = format!("{APISERVICES}/{NAME}");
    assert_eq!(admin(&server, "DELETE", &path, Value::Null).await.0, 200);
    wait::until("the documents without the extension", || async {
        let index = get(&server, INDEX).await;
        let (_, now, _) = send_as(&server, User::admin(), "GET", ALL, &[]).await;
        match index == own && now["etag"] == headers["etag"] {
            true => Ok(()),
            false => Err(index["paths"][OWN].clone()),
        }
    })
    .await;
}

fn silent(path: &str) -> Option<Answer> {
    let mut answer = Response::new(Full::default());
    *answer.status_mut() = SILENT.try_into().unwrap();
    path.starts_with("/openapi").then_some(answer)
}

/// The responses of a server without OpenAPI v3.
fn with_v2_document(path: &str) -> Option<Answer> {
    match path {
        ALL => Some(with(200, &v2_document("old.example.com"))),
        path if path.starts_with(INDEX) => Some(with(404, &Value::Null)),
        _ => None,
    }
}

/// The attack: an extension takes the requests for its documents, and never answers.
#[tokio::test(flavor = "multi_thread")]
async fn an_extension_that_is_silent_holds_nothing_up_and_an_old_one_has_its_document_converted() {
    let (server, backend, silent) = with_extension(silent).await;
    let other = Extension::of_service("other", with_v2_document).await;
    create_service(&server, "other").await;
    endpoint_of(&backend, "other", "https", other.port, true).await;
    let mut object = apiservice(json!({
        "caBundle": other.bundle, "group": "old.example.com", "service": {"namespace": "default", "name": "other"},
    }));
    object["metadata"]["name"] = "v1.old.example.com".into();
    create(&server, APISERVICES, object).await;
    let name = "apis/old.example.com/v1";
    let address = wait_until_listed(&server, name).await;
    let asked = |it: &ReceivedRequest| {
        it.target == INDEX && it.all("x-remote-user") == ["system:aggregator"]
    };
    wait::until("a request to the silent one", || async {
        let got = silent.got.lock();
        got.iter().any(asked).then_some(()).ok_or(got.len())
    })
    .await;
    let index = get(&server, INDEX).await;
    assert!(index["paths"][OWN].is_null());
    // What is asked of other groups, and what the silent one does answer.
    get(&server, ALL).await;
    get(&server, "/openapi/v3/apis/apps/v1").await;
    get(&server, THINGS).await;
    wait_for_condition(&server, "True", "Passed").await;
    let document = get(&server, &address).await;
    let path = "/apis/old.example.com/v1/namespaces/{namespace}/things/{name}";
    let patch = &document["paths"][path]["patch"];
    let thing = json!({"$ref": "#/components/schemas/example.Thing"});
    assert_eq!(
        patch["requestBody"]["content"]["application/json"]["schema"],
        thing
    );
    assert_eq!(patch["parameters"][0]["name"], "fieldValidation");
    let kinds =
        &document["components"]["schemas"]["example.Thing"]["x-kubernetes-group-version-kind"];
    assert_eq!(kinds.as_array().map(Vec::len), Some(1));
    // The address with the hash of an earlier document.
    let earlier = format!("{INDEX}/{name}?hash=0");
    let (code, headers, _) = send_as(&server, User::admin(), "GET", &earlier, &[]).await;
    assert_eq!(
        (code, headers["location"].to_str().unwrap()),
        (301, &*address)
    );
}
