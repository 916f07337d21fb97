//! What is nested, or refers to itself, is answered; nothing of it ends the process.
//!
//! The work runs on a thread with the stack that the server's own threads have.

use allot_apiserver::Server;
use allot_apiserver::identity::User;
use serde_json::{Value, json};

use crate::{admin, send};

const DEEP: usize = 10_000;
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";

/// Runs a test on a stack of two MiB, as threads of the runtime have it.
fn on_a_small_stack<F: Future<Output = ()>>(work: impl FnOnce() -> F + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(|| {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().unwrap().block_on(work());
    });
    thread.unwrap().join().unwrap();
}

fn claim(name: &str, parameters: &str) -> String {
    format!(
        r#"{{"kind":"ResourceClaim","apiVersion":"resource.k8s.io/v1","metadata":{{"name":"{name}"}},"spec":{{"devices":{{
        "requests":[{{"name":"r","exactly":{{"deviceClassName":"c"}}}}],
        "config":[{{"opaque":{{"driver":"d.example.com","parameters":{parameters}}}}}]}}}}}}"#
    )
}

fn nested(depth: usize) -> String {
    format!("{}1{}", r#"{"a":"#.repeat(depth), "}".repeat(depth))
}

#[test]
fn bodies_of_ten_thousand_levels_are_refused() {
    on_a_small_stack(async || {
        let server = Server::in_memory().await.unwrap();
        let list = format!("{}{}", "[".repeat(DEEP), "]".repeat(DEEP));
        let yaml_block: String = (0..2_000)
            .map(|level| format!("{}a:\n", " ".repeat(level)))
            .collect();
        let yaml_flow = format!("a: {list}");
        let bodies = [
            &claim("c", &nested(DEEP)),
            &nested(DEEP),
            &list,
            &yaml_block,
            &yaml_flow,
        ];
        for kind in [
            "application/json",
            "application/yaml",
            "application/apply-patch+yaml",
            "application/merge-patch+json",
            "application/strategic-merge-patch+json",
            "application/json-patch+json",
        ] {
            for body in bodies {
                for (method, path) in [
                    ("POST", CLAIMS.to_owned()),
                    ("PUT", format!("{CLAIMS}/c")),
                    ("PATCH", format!("{CLAIMS}/c?fieldManager=m")),
                    ("DELETE", format!("{CLAIMS}/c")),
                ] {
                    let (code, answer) =
                        send(&server, User::admin(), method, &path, kind, body.as_bytes()).await;
                    assert!(
                        (400..500).contains(&code),
                        "{method} {kind} {code} {answer}"
                    );
                }
            }
        }
        assert_eq!(admin(&server, "GET", MAPS, Value::Null).await.0, 200);
    });
}

/// An object that can be written but not be read by clients would stop all that list its kind.
#[test]
fn an_object_is_nested_less_deep_than_clients_read() {
    on_a_small_stack(async || {
        let server = Server::in_memory().await.unwrap();
        let post = async |depth: usize| {
            let body = claim(&format!("c{depth}"), &nested(depth));
            send(
                &server,
                User::admin(),
                "POST",
                CLAIMS,
                "application/json",
                body.as_bytes(),
            )
            .await
        };
        let (code, body) = post(90).await;
        assert_eq!(code, 201, "{body}");
        for depth in [100, 110, 115, 118, 119, 120] {
            assert_eq!(post(depth).await.0, 400, "{depth}");
        }
        let (_, all) = admin(&server, "GET", CLAIMS, Value::Null).await;
        assert_eq!(all["items"].as_array().map(Vec::len), Some(1), "{all}");
    });
}

#[test]
fn patches_nest_nothing_without_end() {
    on_a_small_stack(async || {
        let server = Server::in_memory().await.unwrap();
        let body = claim("c", r#"{"a":{}}"#);
        let (code, answer) = send(
            &server,
            User::admin(),
            "POST",
            CLAIMS,
            "application/json",
            body.as_bytes(),
        )
        .await;
        assert_eq!(code, 201, "{answer}");
        let at = "/metadata/annotations";
        let moves: Vec<Value> = (0..3_000)
            .flat_map(|_| {
                [
                    json!({"op": "add", "path": format!("{at}-"), "value": {}}),
                    json!({"op": "move", "from": at, "path": format!("{at}-/a")}),
                    json!({"op": "move", "from": format!("{at}-"), "path": at}),
                ]
            })
            .collect();
        let mut patch = vec![json!({"op": "add", "path": at, "value": {}})];
        patch.extend(moves);
        let patch = Value::from(patch).to_string();
        let path = format!("{CLAIMS}/c");
        let kind = "application/json-patch+json";
        let (code, answer) = send(
            &server,
            User::admin(),
            "PATCH",
            &path,
            kind,
            patch.as_bytes(),
        )
        .await;
        assert_eq!(code, 422, "{answer}");
        let (code, _) = admin(&server, "GET", &path, Value::Null).await;
        assert_eq!(code, 200);
    });
}

/// A policy whose variables refer to each other in a chain, each nesting the one before it.
#[test]
fn a_chain_of_variables_is_evaluated_without_end_of_the_stack() {
    on_a_small_stack(async || {
        let server = Server::in_memory().await.unwrap();
        for (name, first, next, rule) in [
            ("sum", "1", "variables.vPREV + 1", "variables.vLAST > 0"),
            (
                "nest",
                "[1]",
                "[variables.vPREV]",
                "size(variables.vLAST) > 0",
            ),
        ] {
            let count = 400;
            let variables: Vec<Value> = (0..count)
                .map(|at: usize| {
                    let text = match at {
                        0 => first.to_owned(),
                        at => next.replace("PREV", &(at - 1).to_string()),
                    };
                    json!({"name": format!("v{at}"), "expression": text})
                })
                .collect();
            let rule = rule.replace("LAST", &(count - 1).to_string());
            let policy = json!({
                "metadata": {"name": name},
                "spec": {
                    "failurePolicy": "Fail", "variables": variables, "validations": [{"expression": rule}],
                    "matchConstraints": {"resourceRules": [
                        {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["secrets"]},
                    ]},
                },
            });
            let binding = json!({
                "metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]},
            });
            let group = "/apis/admissionregistration.k8s.io/v1";
            let (code, body) = admin(
                &server,
                "POST",
                &format!("{group}/validatingadmissionpolicies"),
                policy,
            )
            .await;
            assert_eq!(code, 201, "{body}");
            let bindings = format!("{group}/validatingadmissionpolicybindings");
            let (code, body) = admin(&server, "POST", &bindings, binding).await;
            assert_eq!(code, 201, "{body}");
            let secret = json!({"metadata": {"name": "s"}});
            let (code, body) = admin(
                &server,
                "POST",
                "/api/v1/namespaces/default/secrets?dryRun=All",
                secret,
            )
            .await;
            match name {
                "sum" => assert_eq!(code, 201, "{body}"),
                _ => assert_eq!(code, 422, "{body}"),
            }
            let (code, _) = admin(
                &server,
                "DELETE",
                &format!("{bindings}/{name}"),
                Value::Null,
            )
            .await;
            assert_eq!(code, 200);
        }
    });
}

/// Every rule of the grammar nested as deep as it may be, each inside the others.
#[test]
fn expressions_are_as_deep_as_the_stack_bears() {
    on_a_small_stack(async || {
        let server = Server::in_memory().await.unwrap();
        let classes = "/apis/resource.k8s.io/v1/deviceclasses";
        let inner = |open: &str, core: &str, close: &str, times: usize| {
            format!("{}{core}{}", open.repeat(times), close.repeat(times))
        };
        let sum = format!("1{}", "+1".repeat(240));
        let and = format!("true{}", " && true".repeat(240));
        for text in [
            inner("(", "true", ")", DEEP),
            inner("[", "true", "]", DEEP),
            inner("!", "true", "", DEEP),
            inner("-", "1", "", DEEP),
            inner("true ? true : ", "true", "", DEEP),
            inner("{'a':", "1", "}", DEEP),
            format!("1{}", "+1".repeat(DEEP)),
            format!("true{}", " && true".repeat(DEEP)),
            format!("device{}", ".a".repeat(DEEP)),
            format!("device.attributes{}", "['a']".repeat(DEEP)),
            format!("device.driver{}", ".lowerAscii()".repeat(DEEP)),
            inner("[1].map(x,", "1", ")", DEEP),
            inner("[[", &format!("({sum})"), "]]", 100),
            inner("[", &format!("({sum}) == 241 ? [{and}] : []"), "][0]", 200),
            inner("[1].all(x,", &and, ")", 100),
            inner("(true ? [", &sum, "][0] : 1)", 80),
        ] {
            let class = json!({
                "metadata": {"name": "c"}, "spec": {"selectors": [{"cel": {"expression": text}}]},
            });
            let path = format!("{classes}?dryRun=All");
            let (code, answer) = admin(&server, "POST", &path, class).await;
            assert!(matches!(code, 201 | 422), "{code} {answer}");
        }
    });
}
