//! Validation of webhook configurations.

use std::collections::BTreeSet;

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::{names, webhook as places};
use serde_json::{Value, json};

use crate::builtin::admissionregistration::match_rules;
use crate::builtin::admissionregistration::matching::{
    FAILURE_POLICIES, REINVOCATION_POLICIES, match_conditions,
};
use crate::validate::{label_selector, list, one_of, one_of_set, rule, text};

/// Versions of the review that a server can send.
const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];
const NO_SIDE_EFFECTS: [&str; 2] = ["None", "NoneOnDryRun"];
const SIDE_EFFECTS: [&str; 4] = ["None", "NoneOnDryRun", "Some", "Unknown"];

/// Errors that an update need not fix, because the old object had them.
struct RatchetedErrors {
    conditions: bool,
    side_effects: bool,
    versions: bool,
    names: bool,
    selectors: bool,
}

impl RatchetedErrors {
    fn of(new: &[Value], old: Option<&Value>) -> Self {
        let Some(old) = old else {
            return RatchetedErrors {
                conditions: false,
                side_effects: false,
                versions: false,
                names: false,
                selectors: false,
            };
        };
        let old = list(old, "webhooks");
        let same = |(a, b): (&Value, &Value)| a["matchConditions"] == b["matchConditions"];
        let unknown = |hook: &Value| {
            let versions = list(hook, "admissionReviewVersions");
            !versions.is_empty() && !versions.iter().any(is_known)
        };
        let mut seen = BTreeSet::new();
        let bad_selector = |hook: &Value| {
            let mut errors = ErrorList::new();
            for key in ["namespaceSelector", "objectSelector"] {
                label_selector(&hook[key], &Path::root(), &mut errors);
            }
            !errors.is_empty()
        };
        RatchetedErrors {
            conditions: new.len() == old.len() && new.iter().zip(old).all(same),
            side_effects: old
                .iter()
                .any(|hook| !NO_SIDE_EFFECTS.contains(&text(hook, "sideEffects"))),
            versions: old.iter().any(unknown),
            names: old.iter().any(|hook| !seen.insert(text(hook, "name"))),
            selectors: old.iter().any(bad_selector),
        }
    }
}

fn is_known(version: &Value) -> bool {
    version
        .as_str()
        .is_some_and(|it| REVIEW_VERSIONS.contains(&it))
}

/// Validates a configuration; `old` is the object before an update.
pub(super) fn validate(object: &Value, old: Option<&Value>, errors: &mut ErrorList) {
    let hooks = list(object, "webhooks");
    let lenient = RatchetedErrors::of(hooks, old);
    let mut seen = BTreeSet::new();
    for (index, hook) in hooks.iter().enumerate() {
        let path = Path::new("webhooks").index(index);
        webhook(hook, &lenient, &path, errors);
        let at = path.child("admissionReviewVersions");
        review_versions(hook, &lenient, &at, errors);
        let name = text(hook, "name");
        let repeated = !seen.insert(name);
        if !lenient.names && !name.is_empty() && repeated {
            errors.push(Error::duplicate(&path.child("name"), name));
        }
    }
}

fn webhook(hook: &Value, lenient: &RatchetedErrors, path: &Path, errors: &mut ErrorList) {
    qualified(text(hook, "name"), &path.child("name"), errors);
    for (index, it) in list(hook, "rules").iter().enumerate() {
        match_rules::with_operations(it, &path.child("rules").index(index), errors);
    }
    for (key, supported) in [
        ("failurePolicy", FAILURE_POLICIES),
        ("matchPolicy", match_rules::MATCH_POLICIES),
    ] {
        one_of_set(&hook[key], &supported, false, &path.child(key), errors);
    }
    let allowed = if lenient.side_effects {
        &SIDE_EFFECTS[..]
    } else {
        &NO_SIDE_EFFECTS[..]
    };
    let (effects, at) = (text(hook, "sideEffects"), path.child("sideEffects"));
    if effects.is_empty() {
        let detail = format!("must specify one of {}", allowed.join(", "));
        errors.push(Error::required(&at, detail));
    } else {
        one_of(effects, allowed, false, &at, errors);
    }
    let timeout = hook["timeoutSeconds"].as_i64();
    if let Some(seconds) = timeout.filter(|seconds| !(1..=30).contains(seconds)) {
        let detail = "the timeout value must be between 1 and 30 seconds";
        errors.push(Error::invalid(
            &path.child("timeoutSeconds"),
            seconds,
            detail,
        ));
    }
    if !lenient.selectors {
        for key in ["namespaceSelector", "objectSelector"] {
            label_selector(&hook[key], &path.child(key), errors);
        }
    }
    let at = path.child("reinvocationPolicy");
    one_of_set(
        &hook["reinvocationPolicy"],
        &REINVOCATION_POLICIES,
        false,
        &at,
        errors,
    );
    client(&hook["clientConfig"], &path.child("clientConfig"), errors);
    if !lenient.conditions {
        let at = path.child("matchConditions");
        match_conditions(list(hook, "matchConditions"), false, &at, errors);
    }
}

fn qualified(name: &str, path: &Path, errors: &mut ErrorList) {
    let texts = names::dns1123_subdomain(name);
    if name.is_empty() {
        errors.push(Error::required(path, ""));
    } else if !texts.is_empty() {
        errors.push(Error::invalid(path, name, texts.join(",")));
    } else if name.split('.').count() < 3 {
        let detail = "should be a domain with at least three segments separated by dots";
        errors.push(Error::invalid(path, name, detail));
    }
}

fn review_versions(hook: &Value, lenient: &RatchetedErrors, path: &Path, errors: &mut ErrorList) {
    let versions = list(hook, "admissionReviewVersions");
    let known = REVIEW_VERSIONS.join(", ");
    if versions.is_empty() {
        let detail = format!("must specify one of {known}");
        errors.push(Error::required(path, detail));
        return;
    }
    let mut seen = BTreeSet::new();
    for (index, version) in versions.iter().enumerate() {
        let (name, at) = (version.as_str().unwrap_or_default(), path.index(index));
        if !seen.insert(name) {
            errors.push(Error::invalid(&at, name, "duplicate version"));
        } else {
            rule(names::dns1035_label(name), name, &at, errors);
        }
    }
    if !lenient.versions && !versions.iter().any(is_known) {
        let detail = format!("must include at least one of {known}");
        errors.push(Error::invalid(path, &json!(versions), detail));
    }
}

/// The address of the webhook.
fn client(config: &Value, path: &Path, errors: &mut ErrorList) {
    let (address, service) = (config["url"].as_str(), &config["service"]);
    match address {
        None if service.is_object() => {
            let (name, namespace) = (text(service, "name"), text(service, "namespace"));
            let (at, port) = (path.child("service"), service["port"].as_i64());
            // Upstream takes the one for the other.
            errors.extend(places::service(
                &at,
                name,
                namespace,
                service["path"].as_str(),
                port.unwrap_or_default(),
            ));
        }
        Some(address) if !service.is_object() => {
            errors.extend(places::url(&path.child("url"), address, true));
        }
        _ => {
            let detail = "exactly one of url or service is required";
            errors.push(Error::required(path, detail));
        }
    }
}
