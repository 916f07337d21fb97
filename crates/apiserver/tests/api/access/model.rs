//! No composition of roles and bindings gives a user a permission that its author did not have: random writes by users
//! that may write all of RBAC but neither escalate nor bind, checked against a model of the permissions.

use std::collections::{BTreeMap, BTreeSet};

use allot_apiserver::Server;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use super::kit::{RBAC, allow, binding, rules, send_as, user};
use crate::admin;

const USERS: [&str; 4] = ["ann", "ben", "cid", "root"];
const VERBS: [&str; 3] = ["get", "list", "other"];
const RESOURCES: [&str; 3] = ["pods", "secrets", "pods/log"];
const NAMES: [&str; 2] = ["", "n"];
const PATHS: [&str; 2] = ["/a", "/a/b"];
const SPACE: &str = "default";

/// A right: where, verb, what, name.
type Right = (&'static str, &'static str, &'static str, &'static str);
type Rights = BTreeMap<&'static str, BTreeSet<Right>>;

fn every_right() -> impl Iterator<Item = Right> {
    let resources = ["", SPACE].into_iter().flat_map(|space| {
        VERBS.into_iter().flat_map(move |verb| {
            let named = move |what| NAMES.into_iter().map(move |name| (space, verb, what, name));
            RESOURCES.into_iter().flat_map(named)
        })
    });
    let paths = VERBS
        .into_iter()
        .flat_map(|verb| PATHS.into_iter().map(move |path| ("", verb, path, "")));
    resources.chain(paths)
}

fn has(list: &Value, item: &str) -> bool {
    let items = list.as_array().into_iter().flatten();
    items
        .filter_map(Value::as_str)
        .any(|known| known == "*" || known == item)
}

fn grants(rule: &Value, (_, verb, what, name): Right) -> bool {
    if !has(&rule["verbs"], verb) {
        return false;
    }
    if what.starts_with('/') {
        let urls = rule["nonResourceURLs"].as_array().into_iter().flatten();
        return urls
            .filter_map(Value::as_str)
            .any(|url| match url.strip_suffix('*') {
                Some(prefix) => what.starts_with(prefix),
                None => url == what,
            });
    }
    let names = rule["resourceNames"].as_array();
    let names_match =
        names.is_none_or(|names| names.is_empty() || names.iter().any(|it| it == name));
    let sub = what.split_once('/').map(|(_, sub)| format!("*/{sub}"));
    let resources_match =
        has(&rule["resources"], what) || sub.is_some_and(|sub| has(&rule["resources"], &sub));
    has(&rule["apiGroups"], "") && names_match && resources_match
}

async fn list(server: &Server, path: &str) -> Vec<Value> {
    let (code, answer) = admin(server, "GET", &format!("{RBAC}/{path}"), Value::Null).await;
    assert_eq!(code, 200, "{answer}");
    answer["items"].as_array().unwrap().clone()
}

/// The permissions of each user, from the stored objects.
async fn permissions(server: &Server) -> Rights {
    let cluster_roles = list(server, "clusterroles").await;
    let roles = list(server, &format!("namespaces/{SPACE}/roles")).await;
    let mut rights = Rights::new();
    for (space, bindings) in [
        ("", list(server, "clusterrolebindings").await),
        (
            SPACE,
            list(server, &format!("namespaces/{SPACE}/rolebindings")).await,
        ),
    ] {
        for bound in &bindings {
            let of = match bound["roleRef"]["kind"] == "ClusterRole" {
                true => &cluster_roles,
                false => &roles,
            };
            let Some(role) = of
                .iter()
                .find(|it| it["metadata"]["name"] == bound["roleRef"]["name"])
            else {
                continue;
            };
            let all = role["rules"].as_array().cloned().unwrap_or_default();
            for subject in bound["subjects"].as_array().into_iter().flatten() {
                let Some(name) = USERS.into_iter().find(|it| subject["name"] == *it) else {
                    continue;
                };
                let reached = every_right().filter(|right| space.is_empty() || right.0 == space);
                let granted = reached.filter(|right| all.iter().any(|rule| grants(rule, *right)));
                rights.entry(name).or_default().extend(granted);
            }
        }
    }
    rights
}

/// What the controller of cluster roles does, until nothing changes.
async fn aggregate(server: &Server) {
    for _ in 0..8 {
        let roles = list(server, "clusterroles").await;
        let mut changed = false;
        for role in &roles {
            let Some(selectors) = role["aggregationRule"]["clusterRoleSelectors"].as_array() else {
                continue;
            };
            let selected = |other: &&Value| {
                other["metadata"]["name"] != role["metadata"]["name"]
                    && selectors.iter().any(|selector| {
                        let labels = selector["matchLabels"].as_object();
                        let mut labels = labels.into_iter().flatten();
                        labels.all(|(key, value)| other["metadata"]["labels"][key] == *value)
                    })
            };
            let mut all: Vec<Value> = Vec::new();
            for rule in roles
                .iter()
                .filter(selected)
                .filter_map(|it| it["rules"].as_array())
                .flatten()
            {
                if !all.contains(rule) {
                    all.push(rule.clone());
                }
            }
            if role["rules"].as_array().map_or(&[][..], Vec::as_slice) != all {
                changed = true;
                let path = format!(
                    "{RBAC}/clusterroles/{}",
                    role["metadata"]["name"].as_str().unwrap()
                );
                let (code, body) = admin(server, "PATCH", &path, json!({"rules": all})).await;
                assert_eq!(code, 200, "{body}");
            }
        }
        if !changed {
            return;
        }
    }
}

fn pick<'a>(random: &mut StdRng, all: &[&'a str]) -> &'a str {
    all[random.random_range(0..all.len())]
}

fn random_rules(random: &mut StdRng, namespaced: bool) -> Value {
    let all: Vec<String> = (0..random.random_range(1..3))
        .map(|_| {
            let verb = pick(random, &["get", "list", "get list", "*"]);
            if !namespaced && random.random_bool(0.2) {
                return format!("{verb}|url|{}", pick(random, &["/a", "/a/*", "*"]));
            }
            let what = pick(
                random,
                &["pods", "secrets", "pods/log", "*/log", "*", "pods secrets"],
            );
            match random.random_bool(0.3) {
                true => format!("{verb}|-|{what}|n"),
                false => format!("{verb}|-|{what}"),
            }
        })
        .collect();
    rules(&all.join(";"))
}

fn random_role(random: &mut StdRng, name: &str) -> Value {
    let mut role = super::kit::cluster_role(name, "");
    role["rules"] = random_rules(random, false);
    let label = pick(random, &["x", "y"]);
    if random.random_bool(0.5) {
        role["metadata"]["labels"] = json!({label: "true"});
    }
    if random.random_bool(0.2) {
        let selector = json!({"matchLabels": {pick(random, &["x", "y"]): "true"}});
        role["aggregationRule"] = json!({"clusterRoleSelectors": [selector]});
    }
    role
}

/// A random write: `METHOD path` and a body.
fn write(random: &mut StdRng) -> (String, Value) {
    let role = pick(random, &["c0", "c1", "c2", "c3"]);
    let bound = pick(random, &["b0", "b1", "b2"]);
    let whom = pick(random, &USERS[..3]);
    let local = format!("namespaces/{SPACE}");
    match random.random_range(0..11) {
        0 => (
            format!("POST {RBAC}/clusterroles"),
            random_role(random, role),
        ),
        1 => (
            format!("PUT {RBAC}/clusterroles/{role}"),
            random_role(random, role),
        ),
        2 => (
            format!("PATCH {RBAC}/clusterroles/{role}"),
            random_role(random, role),
        ),
        3 => {
            let apply = format!("PATCH {RBAC}/clusterroles/{role}?fieldManager=m&force=true");
            (apply, random_role(random, role))
        }
        4 => {
            let labels = json!({"metadata": {"labels": {pick(random, &["x", "y"]): "true"}}});
            (format!("PATCH {RBAC}/clusterroles/{role}"), labels)
        }
        5 => (
            format!("POST {RBAC}/clusterrolebindings"),
            binding(bound, role, whom),
        ),
        6 => (
            format!("PUT {RBAC}/clusterrolebindings/{bound}"),
            binding(bound, role, whom),
        ),
        7 => {
            let mut local_role = random_role(random, "r");
            local_role["kind"] = "Role".into();
            local_role["rules"] = random_rules(random, true);
            local_role
                .as_object_mut()
                .unwrap()
                .remove("aggregationRule");
            (format!("PUT {RBAC}/{local}/roles/r"), local_role)
        }
        8 => {
            let (kind, name) = match random.random_bool(0.5) {
                true => ("Role", "r"),
                false => ("ClusterRole", role),
            };
            let mut local_binding = binding(bound, name, whom);
            local_binding["kind"] = "RoleBinding".into();
            local_binding["roleRef"]["kind"] = kind.into();
            (
                format!("PUT {RBAC}/{local}/rolebindings/{bound}"),
                local_binding,
            )
        }
        9 => {
            let path = pick(
                random,
                &[
                    "clusterroles/c0",
                    "clusterroles/c1",
                    "clusterrolebindings/b0",
                ],
            );
            (format!("DELETE {RBAC}/{path}"), Value::Null)
        }
        _ => (
            format!("DELETE {RBAC}/{local}/rolebindings/{bound}"),
            Value::Null,
        ),
    }
}

/// The server decides as the model does.
async fn check_decision(server: &Server, random: &mut StdRng, held: &Rights) {
    let all: Vec<Right> = every_right().collect();
    let right = all[random.random_range(0..all.len())];
    let name = pick(random, &USERS);
    let mut spec = json!({"user": name});
    match right.2.starts_with('/') {
        true => spec["nonResourceAttributes"] = json!({"verb": right.1, "path": right.2}),
        false => {
            let (resource, subresource) = right.2.split_once('/').unwrap_or((right.2, ""));
            spec["resourceAttributes"] = json!({
                "namespace": right.0, "verb": right.1, "resource": resource, "subresource": subresource, "name": right.3,
            });
        }
    }
    let reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let (_, answer) = admin(server, "POST", reviews, json!({"spec": spec})).await;
    let expected = held.get(name).is_some_and(|it| it.contains(&right));
    assert_eq!(answer["status"]["allowed"], expected, "{name} {right:?}");
}

#[tokio::test]
async fn no_user_gets_more_than_the_author_holds() {
    for seed in 0..1 {
        let mut random = StdRng::seed_from_u64(seed);
        let server = Server::in_memory().await.unwrap();
        let write_all = "get create update patch delete|rbac.authorization.k8s.io|*";
        allow(
            &server,
            "ann",
            &format!("{write_all}; get list|-|pods; get|url|/a/*"),
        )
        .await;
        allow(
            &server,
            "ben",
            &format!("{write_all}; *|-|secrets|n; get|-|*/log"),
        )
        .await;
        allow(&server, "cid", write_all).await;
        allow(&server, "root", "*|*|*; *|url|*").await;
        let mut before = permissions(&server).await;
        let mut accepted = 0;
        for step in 0..250 {
            // The user with all permissions acts rarely: its writes test little.
            let author = match random.random_bool(0.05) {
                true => "root",
                false => pick(&mut random, &USERS[..3]),
            };
            let (request, body) = write(&mut random);
            let answer = send_as(&server, &user(author), &request, &body).await;
            if !answer.starts_with('2') {
                continue;
            }
            accepted += 1;
            aggregate(&server).await;
            let after = permissions(&server).await;
            let of_author = before.get(author).cloned().unwrap_or_default();
            for (name, rights) in &after {
                let known = before.get(name).cloned().unwrap_or_default();
                let gained: Vec<&Right> = rights.difference(&known).collect();
                let given = gained.iter().all(|right| of_author.contains(*right));
                assert!(
                    given,
                    "seed {seed} step {step}: {author} {request} {body} gave {name} {gained:?}"
                );
            }
            before = after;
            check_decision(&server, &mut random, &before).await;
        }
        assert!(accepted > 10, "{accepted}");
    }
}
