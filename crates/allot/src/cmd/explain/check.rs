//! Whether the API server would accept the manifests.

use allot_model::features::Release;
use allot_model::lint::{Effect, lint};
use allot_model::{GROUP, migrate};
use allot_schema::decode::decode_value;
use allot_schema::{defaults, types};
use jiff::Timestamp;
use serde_json::Value;

use crate::cmd::manifests::{Document, split_path, title};

/// Refuses documents with fields that their kind does not have, or that the API server would refuse; the message names
/// file, line, object and field of each. What a server wrote itself, which has a UID, is only checked for its fields.
///
/// # Errors
/// The findings, one a line.
pub fn check(documents: &[Document], release: Option<&str>) -> anyhow::Result<()> {
    let release = release
        .and_then(|r| r.parse().ok())
        .unwrap_or(Release::DEFAULT);
    let mut findings = Vec::new();
    for document in documents {
        let object = &document.object;
        let title = title(object);
        let file = document.file.display();
        for (field, text) in problems(object, release) {
            let line = document.line(&split_path(&field));
            let field = match field.is_empty() {
                true => String::new(),
                false => format!("{field}: "),
            };
            findings.push(format!("{file}:{line}: {title}: {field}{text}"));
        }
    }
    anyhow::ensure!(findings.is_empty(), "{}", findings.join("\n"));
    Ok(())
}

/// Field and text of an object's errors.
fn problems(object: &Value, release: Release) -> Vec<(String, String)> {
    let text = |field: &str| {
        object
            .get(field)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let (group, version) = text("apiVersion")
        .split_once('/')
        .unwrap_or(("", text("apiVersion")));
    let kind = text("kind");
    let mut found = Vec::new();
    let Some(schema) = types::lookup(group, version, kind) else {
        // Older versions of devices, and kinds that are not validated.
        return match group == GROUP {
            true => refused(object, release),
            false => found,
        };
    };
    let mut whole = object.clone();
    migrate::pod::flatten_claims(&mut whole);
    let decoded = match decode_value(whole, schema) {
        Ok(decoded) => decoded,
        Err(error) => return vec![(String::new(), error.to_string())],
    };
    for unknown in decoded.strict {
        let field = unknown.split('"').nth(1).unwrap_or_default().to_owned();
        found.push((field, format!("{unknown}{}", hint(&unknown, schema))));
    }
    let is_dump = object
        .pointer("/metadata/uid")
        .is_some_and(|uid| !uid.is_null());
    if !found.is_empty() || is_dump {
        return found;
    }
    if group == GROUP {
        return refused(object, release);
    }
    let mut whole = decoded.value;
    defaults::apply(group, version, kind, &mut whole);
    let builtin = allot_apiserver::builtin::find(group, &plural(kind));
    // The server completes a definition before it validates it.
    let builtin = builtin.filter(|it| it.group != "apiextensions.k8s.io");
    let errors = builtin.map(|it| allot_apiserver::validate::create(&it.rules, &whole));
    let errors = errors.into_iter().flatten();
    found.extend(errors.map(|error| (error.field.clone(), error.body())));
    found
}

fn refused(object: &Value, release: Release) -> Vec<(String, String)> {
    let findings = lint(object, release, Timestamp::now()).into_iter();
    let refused = findings.filter(|finding| finding.effect == Effect::Refused);
    refused
        .map(|finding| (finding.field, finding.text))
        .collect()
}

/// The plural of the validated kinds, which are all regular.
fn plural(kind: &str) -> String {
    let lower = kind.to_lowercase();
    match lower.strip_suffix("class") {
        Some(_) => format!("{lower}es"),
        None => format!("{lower}s"),
    }
}

/// A suggestion for a misspelled field: `unknown field "spec.containrs"` contains its path.
fn hint(unknown: &str, schema: &'static types::Struct) -> String {
    let path = unknown.split('"').nth(1).unwrap_or_default();
    let parts = split_path(path);
    let Some((wrong, above)) = parts.split_last() else {
        return String::new();
    };
    let mut current = schema;
    for part in above.iter().filter(|part| part.parse::<usize>().is_err()) {
        let next = current.field(part).and_then(|field| structure(&field.ty));
        let Some(next) = next else {
            return String::new();
        };
        current = next;
    }
    let names = current.fields.iter().map(|field| field.name);
    allot_apimachinery::suggest::hint(wrong, names)
}

/// What a field holds, or the elements of a list in it.
fn structure(ty: &types::Type) -> Option<&'static types::Struct> {
    match ty {
        types::Type::List(of) | types::Type::Map(of) => structure(of),
        types::Type::Struct(id) => Some(id.get()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The errors of an object, one line each.
    fn check(object: Value, expected: &str) {
        let found = problems(&object, Release::DEFAULT);
        let lines = found.iter().map(|(field, text)| format!("{field}: {text}"));
        assert_eq!(lines.collect::<Vec<_>>().join("\n"), expected);
    }

    fn deployment(spec: Value) -> Value {
        json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "d", "namespace": "n"}, "spec": spec})
    }

    #[test]
    fn mistyped_fields_are_found_wherever_they_are() {
        let pod = |spec: Value| {
            json!({"apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": "p", "namespace": "n"}, "spec": spec})
        };
        check(
            pod(json!({"containrs": []})),
            "spec.containrs: unknown field \"spec.containrs\"; did you mean containers?",
        );
        let container = json!({"name": "c", "imgae": "x"});
        let template = json!({"spec": {"containers": [container]}});
        check(
            deployment(json!({"selector": {"matchLabels": {"a": "b"}}, "template": template})),
            "spec.template.spec.containers[0].imgae: unknown field \"spec.template.spec.containers[0].imgae\"; did you mean image?",
        );
        check(
            json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
                "metadata": {"name": "c"}, "spec": {"devices": {"requests": [
                    {"name": "r", "exactly": {"deviceClasName": "gpu"}}]}}}),
            "spec.devices.requests[0].exactly.deviceClasName: unknown field \"spec.devices.requests[0].exactly.deviceClasName\"; did you mean deviceClassName?",
        );
    }

    #[test]
    fn what_the_server_refuses_is_refused() {
        let found = problems(&deployment(json!({})), Release::DEFAULT);
        assert!(
            found.iter().any(|(field, _)| field == "spec.selector"),
            "{found:?}"
        );
        let found = problems(
            &json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass",
                "metadata": {"name": "c"}, "spec": {"selectors": [{"cel": {"expression": "1"}}]}}),
            Release::DEFAULT,
        );
        assert_eq!(found.len(), 1, "{found:?}");
    }

    #[test]
    fn what_a_server_wrote_is_taken() {
        let pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "namespace": "n", "uid": "u", "resourceVersion": "7",
                "creationTimestamp": "2026-01-01T00:00:00Z", "managedFields": []},
            "spec": {"containers": [{"name": "c", "image": "x"}], "nodeName": "n"},
            "status": {"phase": "Running", "podIP": "10.0.0.1"}});
        check(pod, "");
        check(
            json!({"apiVersion": "example.com/v1", "kind": "Other", "anything": 1}),
            "",
        );
    }

    #[test]
    fn a_definition_need_not_say_what_the_server_adds() {
        let schema = json!({"openAPIV3Schema": {"type": "object"}});
        let version = json!({"name": "v1", "served": true, "storage": true, "schema": schema});
        let names = json!({"plural": "cats", "kind": "Cat"});
        check(
            json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": {"name": "cats.example.com"}, "spec": {"group": "example.com",
                    "scope": "Namespaced", "names": names, "versions": [version]}}),
            "",
        );
    }
}
