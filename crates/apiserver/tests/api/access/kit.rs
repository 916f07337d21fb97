//! What the tests of access share: users with rights, and requests whose answer is one line.

use allot_apiserver::Server;
use allot_apiserver::identity::User;
use serde_json::{Value, json};

use crate::{admin, send};

pub const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// An authenticated user without groups.
pub fn user(name: &str) -> User {
    User::new(name, Vec::<String>::new())
}

/// Rules as text: `get list|-|pods secrets|name`, several separated by `;`. `-` is the core group, and `url` in its place
/// begins a list of paths.
pub fn rules(text: &str) -> Value {
    let words = |text: &str| -> Vec<String> {
        let words = text.split_whitespace();
        words
            .map(|word| if word == "-" { "" } else { word }.to_owned())
            .collect()
    };
    let rule = |text: &str| {
        let parts: Vec<&str> = text.split('|').map(str::trim).collect();
        if parts[1] == "url" {
            return json!({"verbs": words(parts[0]), "nonResourceURLs": words(parts[2])});
        }
        let mut rule = json!({
            "verbs": words(parts[0]), "apiGroups": words(parts[1]), "resources": words(parts[2]),
        });
        if let Some(names) = parts.get(3) {
            rule["resourceNames"] = words(names).into();
        }
        rule
    };
    text.split(';')
        .map(str::trim)
        .filter(|it| !it.is_empty())
        .map(rule)
        .collect()
}

pub fn cluster_role(name: &str, text: &str) -> Value {
    json!({"kind": "ClusterRole", "apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": name}, "rules": rules(text)})
}

/// A binding of a cluster role to a user.
pub fn binding(name: &str, role: &str, user: &str) -> Value {
    json!({
        "kind": "ClusterRoleBinding", "apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}],
    })
}

/// Lets a user do something in the whole cluster; answers the user.
pub async fn allow(server: &Server, name: &str, text: &str) -> User {
    let role = cluster_role(name, text);
    let bound = binding(name, name, name);
    for (plural, object) in [("clusterroles", role), ("clusterrolebindings", bound)] {
        let (code, body) = admin(server, "POST", &format!("{RBAC}/{plural}"), object).await;
        assert_eq!(code, 201, "{body}");
    }
    user(name)
}

/// Sends `METHOD path` as a user; returns the code and, after a failure, the message. A patch with a field manager in its
/// path is an apply, any other a merge patch.
pub async fn send_as(server: &Server, user: &User, request: &str, body: &Value) -> String {
    let (method, path) = request.split_once(' ').unwrap();
    let kind = match method {
        "PATCH" if path.contains("fieldManager=") => "application/apply-patch+yaml",
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let text = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let (code, answer) = send(server, user.clone(), method, path, kind, text.as_bytes()).await;
    match code {
        200..=299 => code.to_string(),
        _ => format!("{code} {}", answer["message"].as_str().unwrap_or_default()),
    }
}

/// Asserts the beginning of the answer to a request.
pub async fn check(server: &Server, user: &User, request: &str, body: &Value, expected: &str) {
    let found = send_as(server, user, request, body).await;
    assert!(
        found.starts_with(expected),
        "{} {request} {body}\nexpected {expected}\nfound    {found}",
        user.name
    );
}
