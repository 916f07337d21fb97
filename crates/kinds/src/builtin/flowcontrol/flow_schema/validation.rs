//! Validation of flow schemas.

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::names;
use serde_json::Value;

use crate::builtin::flowcontrol::validate_conditions;
use crate::flow_defaults::mandatory;
use crate::validate::{internal, list, rule, text};

const SCHEMA: (&str, &str, &str) = ("flowcontrol.apiserver.k8s.io", "v1", "FlowSchema");
/// Largest matching precedence.
const MAX_PRECEDENCE: i64 = 10_000;
const VERBS: [&str; 9] = [
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "proxy",
    "update",
    "watch",
];
/// Matches everything.
const ALL: &str = "*";

/// Checks a schema.
pub(super) fn validate(object: &Value, errors: &mut ErrorList) {
    let (spec, path) = (&object["spec"], Path::new("spec"));
    let name = text(&object["metadata"], "name");
    let precedence = spec["matchingPrecedence"].as_i64().unwrap_or_default();
    let at = path.child("matchingPrecedence");
    if precedence <= 0 {
        errors.push(Error::invalid(&at, precedence, "must be a positive value"));
    }
    if precedence > MAX_PRECEDENCE {
        let detail = format!("must not be greater than {MAX_PRECEDENCE}");
        errors.push(Error::invalid(&at, precedence, detail));
    }
    if precedence == 1 && name != "exempt" {
        let detail = "only the schema named 'exempt' may have matchingPrecedence 1";
        errors.push(Error::invalid(&at, precedence, detail));
    }
    let method = &spec["distinguisherMethod"];
    let methods = ["ByNamespace", "ByUser"];
    if method.is_object() && !methods.contains(&text(method, "type")) {
        let at = path.child("distinguisherMethod").child("type");
        let shown = internal::shown(SCHEMA, &["spec", "distinguisherMethod"], method);
        errors.push(Error::not_supported(&at, shown, &methods));
    }
    let level = text(&spec["priorityLevelConfiguration"], "name");
    let at = path.child("priorityLevelConfiguration").child("name");
    if level.is_empty() {
        errors.push(Error::required(&at, "must reference a priority level"));
    } else {
        rule(names::dns1123_subdomain(level), level, &at, errors);
    }
    for (index, rules) in list(spec, "rules").iter().enumerate() {
        schema_rules(rules, &path.child("rules").index(index), errors);
    }
    validate_mandatory(object, errors);
    validate_conditions(object, errors);
}

/// The spec of a mandatory schema cannot be changed.
fn validate_mandatory(object: &Value, errors: &mut ErrorList) {
    let name = text(&object["metadata"], "name");
    let wanted = mandatory("flowschemas", name);
    if wanted.is_some_and(|wanted| object["spec"] != wanted) {
        let detail = format!("spec of '{name}' must equal the fixed value");
        let shown = internal::shown(SCHEMA, &["spec"], &object["spec"]);
        errors.push(Error::invalid(&Path::new("spec"), shown, detail));
    }
}

fn schema_rules(rules: &Value, path: &Path, errors: &mut ErrorList) {
    let subjects = list(rules, "subjects");
    if subjects.is_empty() {
        let detail = "subjects must contain at least one value";
        errors.push(Error::required(&path.child("subjects"), detail));
    }
    for (index, subject) in subjects.iter().enumerate() {
        self::subject(subject, &path.child("subjects").index(index), errors);
    }
    let (resources, others) = (
        list(rules, "resourceRules"),
        list(rules, "nonResourceRules"),
    );
    if resources.is_empty() && others.is_empty() {
        let detail = "at least one of resourceRules and nonResourceRules has to be non-empty";
        errors.push(Error::required(path, detail));
    }
    for (index, item) in resources.iter().enumerate() {
        resource_rule(item, &path.child("resourceRules").index(index), errors);
    }
    for (index, item) in others.iter().enumerate() {
        path_rule(item, &path.child("nonResourceRules").index(index), errors);
    }
}

fn subject(subject: &Value, path: &Path, errors: &mut ErrorList) {
    let kinds = [
        ("ServiceAccount", "serviceAccount"),
        ("User", "user"),
        ("Group", "group"),
    ];
    let kind = text(subject, "kind");
    let Some((_, key)) = kinds.iter().find(|(known, _)| *known == kind) else {
        let known = ["Group", "ServiceAccount", "User"];
        errors.push(Error::not_supported(&path.child("kind"), kind, &known));
        return;
    };
    let (who, at) = (&subject[*key], path.child(key));
    if !who.is_object() {
        let detail = format!("{key} is required when subject kind is '{kind}'");
        errors.push(Error::required(&at, detail));
    } else {
        let name = text(who, "name");
        if name.is_empty() {
            errors.push(Error::required(&at.child("name"), ""));
        } else if kind == "ServiceAccount" && name != ALL {
            rule(
                names::dns1123_subdomain(name),
                name,
                &at.child("name"),
                errors,
            );
        }
        if kind == "ServiceAccount" {
            let (namespace, at) = (text(who, "namespace"), at.child("namespace"));
            if namespace.is_empty() {
                let detail = "must specify namespace for service account";
                errors.push(Error::required(&at, detail));
            } else {
                rule(names::dns1123_label(namespace), namespace, &at, errors);
            }
        }
    }
    for (other, key) in kinds.iter().filter(|(other, _)| *other != kind) {
        if subject[*key].is_object() {
            let detail = format!("{key} is forbidden when subject kind is not '{other}'");
            errors.push(Error::forbidden(&path.child(key), detail));
        }
    }
}

/// A list that must not be empty, with `*` as its only element or not at all. Returns whether its members must be
/// validated.
fn members(
    item: &Value,
    (key, none, others): (&str, &str, &str),
    path: &Path,
    errors: &mut ErrorList,
) -> bool {
    let found = list(item, key);
    let all = found.iter().any(|it| it == ALL);
    if found.is_empty() {
        errors.push(Error::required(&path.child(key), none));
    } else if all && found.len() > 1 {
        let detail = format!("if '*' is present, must not specify other {others}");
        errors.push(Error::invalid(&path.child(key), &item[key], detail));
    }
    !found.is_empty() && !all
}

fn verbs(item: &Value, path: &Path, errors: &mut ErrorList) {
    let rules = ("verbs", "verbs must contain at least one value", "verbs");
    let named = members(item, rules, path, errors);
    let known = |verb: &Value| verb.as_str().is_some_and(|verb| VERBS.contains(&verb));
    if named && !list(item, "verbs").iter().all(known) {
        errors.push(Error::not_supported(
            &path.child("verbs"),
            &item["verbs"],
            &VERBS,
        ));
    }
}

fn resource_rule(item: &Value, path: &Path, errors: &mut ErrorList) {
    verbs(item, path, errors);
    let groups = "resource rules must supply at least one api group";
    members(item, ("apiGroups", groups, "api groups"), path, errors);
    let resources = "resource rules must supply at least one resource";
    members(item, ("resources", resources, "resources"), path, errors);
    let none = "resource rules that are not cluster scoped must supply at least one namespace";
    let cluster = item["clusterScope"] == true && list(item, "namespaces").is_empty();
    if cluster || !members(item, ("namespaces", none, "namespaces"), path, errors) {
        return;
    }
    for (index, namespace) in list(item, "namespaces").iter().enumerate() {
        let namespace = namespace.as_str().unwrap_or_default();
        let at = path.child("namespaces").index(index);
        for text in names::dns1123_label(namespace) {
            let detail =
                format!("each member of this list must be '*' or a DNS-1123 label; {text}");
            errors.push(Error::invalid(&at, namespace, detail));
        }
    }
}

fn path_rule(item: &Value, path: &Path, errors: &mut ErrorList) {
    verbs(item, path, errors);
    let none = "nonResourceURLs must contain at least one value";
    let rules = ("nonResourceURLs", none, "non-resource URLs");
    if !members(item, rules, path, errors) {
        return;
    }
    for (index, url) in list(item, "nonResourceURLs").iter().enumerate() {
        let url = url.as_str().unwrap_or_default();
        if let Some(detail) = url_path(url) {
            let at = path.child("nonResourceURLs").index(index);
            errors.push(Error::invalid(&at, url, detail));
        }
    }
}

fn url_path(path: &str) -> Option<&'static str> {
    let stars = path.matches('*').count();
    match path {
        "" => Some("must not be empty"),
        "/" => None,
        _ if !path.starts_with('/') => Some("must start with slash"),
        _ if path.contains(' ') => Some("must not contain white-space"),
        _ if path.contains("//") => Some("must not contain double slash"),
        _ if stars > 1 || stars == 1 && !path.ends_with("/*") => {
            Some("wildcard can only do suffix matching")
        }
        _ => None,
    }
}
