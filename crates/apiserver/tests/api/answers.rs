//! What upstream says to mistakes, file by file in `tests/answers`.
//!
//! A file is a conversation with a fresh server: a line with method, path and perhaps the media type and what is accepted
//! (`accept:TYPE`), the body if there is one, and the answer. An answer is the code and, for errors, the message; for other
//! answers JSON that is part of what comes back, or a quoted string, which is all of it. Lines before it that begin with `warning:` are the warnings. `#` begins a remark.
//! `# services: NETWORKS` names the networks of the cluster's services.

use allot_apiserver::Server;
use allot_apiserver::config::{Config, ServiceAddresses};
use allot_apiserver::identity::User;
use allot_apiserver::registry::RuntimeConfig;
use allot_model::features::Feature;
use allot_testing::wait::until;
use http_body_util::{BodyExt, Full};
use serde_json::Value;

use crate::with_config;

struct Exchange<'a> {
    request: &'a str,
    body: String,
    warnings: Vec<&'a str>,
    code: &'a str,
    answer: &'a str,
}

fn parse(text: &str) -> Vec<Exchange<'_>> {
    let blocks = text.split("\n\n").map(|block| {
        let lines = block.lines().filter(|line| !line.starts_with('#'));
        lines.filter(|line| !line.is_empty()).collect::<Vec<_>>()
    });
    let exchanges = blocks.filter(|lines| !lines.is_empty()).map(|lines| {
        let (request, rest) = lines.split_first().unwrap();
        let (last, rest) = rest.split_last().expect("an answer");
        let is_warning = |line: &&&str| line.starts_with("warning: ");
        let warnings = rest.iter().filter(is_warning);
        let body = rest.iter().filter(|line| !is_warning(line));
        let (code, answer) = last.split_once(' ').unwrap_or((last, ""));
        Exchange {
            request,
            body: body.copied().collect::<Vec<_>>().join("\n"),
            warnings: warnings.map(|line| &line["warning: ".len()..]).collect(),
            code,
            answer,
        }
    });
    exchanges.collect()
}

/// Whether everything in `part` is in `whole`; lists are compared as they are.
fn contains(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => part
            .iter()
            .all(|(key, part)| contains(whole.get(key).unwrap_or(&Value::Null), part)),
        (whole, part) => whole == part,
    }
}

/// A server with everything switched on that can be asked for here.
async fn server(services: ServiceAddresses, gates: &str) -> Server {
    let versions =
        ["v1beta1", "v1beta2", "v1alpha3"].map(|it| format!("resource.k8s.io/{it}=true"));
    let versions = format!("{},scheduling.k8s.io/v1alpha2=true", versions.join(","));
    let mut config = Config {
        runtime_config: RuntimeConfig::parse(&versions).unwrap(),
        disabled_admission: vec!["ServiceAccount".to_owned()],
        service_addresses: services,
        ..Config::default()
    };
    config.features = config.features.with(Feature::GenericWorkload, true);
    config.features.set(gates).unwrap();
    with_config(config).await
}

/// Waits until the versions of a definition are served. One whose names are taken never is.
async fn wait_until_served(server: &Server, definition: &Value) {
    let spec = &definition["spec"];
    let name = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let path = format!(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{}",
        name(&definition["metadata"]["name"])
    );
    let accepted = until("the names are judged", || async {
        let definition = answer(server, &path).await.1;
        let conditions = definition["status"]["conditions"].as_array();
        conditions
            .into_iter()
            .flatten()
            .find(|condition| condition["type"] == "NamesAccepted")
            .map(|condition| condition["status"] == "True")
            .ok_or(definition)
    })
    .await;
    if !accepted {
        return;
    }
    let is_served = |version: &&Value| version["served"] == true;
    for version in spec["versions"]
        .as_array()
        .unwrap()
        .iter()
        .filter(is_served)
    {
        let path = format!("/apis/{}/{}", name(&spec["group"]), name(&version["name"]));
        until("the version is served", || async {
            let (code, answer) = answer(server, &path).await;
            if code == 200 { Ok(()) } else { Err(answer) }
        })
        .await;
    }
}

/// What the administrator reads.
async fn answer(server: &Server, path: &str) -> (u16, Value) {
    let request = http::Request::get(path)
        .body(Full::new(bytes::Bytes::new()))
        .unwrap();
    let response = server.handle(request, Some(User::admin())).await;
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&body).unwrap_or_default())
}

/// What a file expects and does not get.
async fn check(file: &str, text: &str) -> Vec<String> {
    let remark = |key: &str| text.lines().find_map(|line| line.strip_prefix(key));
    let services = remark("# services: ").map(|it| it.parse().unwrap());
    let gates = remark("# gates: ").unwrap_or_default();
    let server = server(services.unwrap_or_default(), gates).await;
    let mut wrong = Vec::new();
    for exchange in parse(text) {
        let mut words = exchange.request.split_whitespace();
        let (method, path) = (words.next().unwrap(), words.next().unwrap());
        let (accepts, kinds): (Vec<&str>, Vec<&str>) =
            words.partition(|word| word.starts_with("accept:"));
        let accepted = accepts
            .first()
            .map_or("*/*", |word| &word["accept:".len()..]);
        let kind = match (kinds.is_empty(), method) {
            (false, _) => kinds.join(" "),
            (true, "PATCH") => "application/merge-patch+json".to_owned(),
            (true, _) => "application/json".to_owned(),
        };
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", kind)
            .header("accept", accepted)
            .body(Full::new(bytes::Bytes::from(exchange.body)))
            .unwrap();
        let response = server.handle(request, Some(User::admin())).await;
        let code = response.status().as_u16().to_string();
        let warnings: Vec<String> = response
            .headers()
            .get_all("warning")
            .iter()
            .map(|value| {
                let text = value.to_str().unwrap().trim_start_matches("299 - ");
                serde_json::from_str(text).unwrap()
            })
            .collect();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let asked = format!("{file}: {}", exchange.request);
        if code != exchange.code {
            wrong.push(format!(
                "{asked}: {code} instead of {}: {body}",
                exchange.code
            ));
            continue;
        }
        if warnings != exchange.warnings {
            let expected = exchange.warnings;
            wrong.push(format!(
                "{asked}: warnings {warnings:?} instead of {expected:?}"
            ));
        }
        if method == "POST" && path.ends_with("/customresourcedefinitions") && code == "201" {
            wait_until_served(&server, &body).await;
        }
        if let Ok(expected) = serde_json::from_str::<String>(exchange.answer) {
            let found = String::from_utf8_lossy(&bytes);
            if found != expected {
                wrong.push(format!("{asked}:\n  {found:?}\ninstead of\n  {expected:?}"));
            }
        } else if exchange.answer.starts_with('{') {
            let part: Value = serde_json::from_str(exchange.answer).unwrap();
            if !contains(&body, &part) {
                wrong.push(format!("{asked}: {body} has not {part}"));
            }
        } else if !exchange.answer.is_empty() {
            let message = body["message"].as_str().unwrap_or_default();
            // Messages of several lines are one line in the file.
            let message = message.replace('\n', "\\n");
            if message != exchange.answer {
                let expected = exchange.answer;
                wrong.push(format!("{asked}:\n  {message}\ninstead of\n  {expected}"));
            }
        }
    }
    wrong
}

/// Objects that are answered and not stored have owners of their fields, too.
#[tokio::test]
async fn reviews_and_token_requests_name_the_owners_of_their_fields() {
    let server = server(ServiceAddresses::default(), "").await;
    let post = async |path: &str, body: Value| {
        let request = http::Request::post(path)
            .header("content-type", "application/json")
            .header("user-agent", "tester/1")
            .body(Full::new(bytes::Bytes::from(body.to_string())))
            .unwrap();
        let response = server.handle(request, Some(User::admin())).await;
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let mut body: Value = serde_json::from_slice(&body).unwrap();
        let mut owners = body["metadata"]["managedFields"].take();
        owners[0].as_object_mut().unwrap().remove("time");
        owners
    };
    let owner = |fields: Value| {
        serde_json::json!({
            "manager": "tester", "operation": "Update", "apiVersion": "authentication.k8s.io/v1",
            "fieldsType": "FieldsV1", "fieldsV1": fields,
        })
    };
    let review = serde_json::json!({"metadata": {"name": "a"}, "spec": {"token": "bad"}});
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    let expected = owner(serde_json::json!({"f:spec": {"f:token": {}}}));
    assert_eq!(post(path, review).await, serde_json::json!([expected]));
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    post(
        accounts,
        serde_json::json!({"metadata": {"name": "s"}, "automountServiceAccountToken": true}),
    )
    .await;
    let request = serde_json::json!({"spec": {"audiences": ["a"]}});
    let fields = serde_json::json!({"f:spec": {"f:audiences": {}, "f:expirationSeconds": {}}});
    let mut expected = owner(fields);
    expected["subresource"] = "token".into();
    let owners = post(&format!("{accounts}/s/token"), request).await;
    assert_eq!(owners, serde_json::json!([expected]));
}

#[tokio::test]
async fn answers_are_upstreams() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/answers");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(!files.is_empty());
    let mut wrong = Vec::new();
    for file in files {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        wrong.extend(check(&name, &std::fs::read_to_string(&file).unwrap()).await);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
