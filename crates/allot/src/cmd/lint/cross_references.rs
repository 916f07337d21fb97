//! Names in manifests that no object has.

use std::collections::{BTreeMap, BTreeSet};

use allot_apimachinery::suggest;
use allot_model::migrate;
use allot_scheduler::device_allocator::classes::IMPLICIT_PREFIX;
use jiff::Timestamp;
use serde_json::Value;

use crate::cmd::snapshot::{Hidden, Snapshot, completed};
use crate::cmd::some;

/// A name that no object has.
#[derive(Debug, PartialEq, Eq)]
pub struct Missing {
    /// The field that has the name.
    pub field: String,
    /// The missing object.
    pub text: String,
    /// It does not exist; otherwise it may be in the cluster, which was not read.
    pub sure: bool,
}

/// All objects that can be referenced: those of the files, and those of the cluster if that was read.
pub struct CrossReferences {
    namespace: String,
    classes: BTreeSet<String>,
    /// Names of the requests by namespace and name, of claims and of templates.
    claims: BTreeMap<(String, String), Requests>,
    templates: BTreeMap<(String, String), Requests>,
    /// The kinds that could not be listed in the cluster; `None` if no cluster was read.
    hidden: Option<Vec<Hidden>>,
}

/// The requests of a claim; lists with their alternatives.
type Requests = BTreeSet<String>;

impl CrossReferences {
    /// `namespace` is the default for objects without one.
    pub fn new<'a>(
        files: impl Iterator<Item = &'a Value>,
        snapshot: Option<&'a Snapshot>,
        namespace: &str,
    ) -> Self {
        let mut across = Self {
            namespace: namespace.to_owned(),
            classes: BTreeSet::new(),
            claims: BTreeMap::new(),
            templates: BTreeMap::new(),
            hidden: snapshot.map(|snapshot| snapshot.about.hidden.clone()),
        };
        let stored = snapshot.into_iter().flat_map(|p| &p.objects);
        for object in stored.chain(files) {
            across.add(object);
        }
        across
    }

    fn add(&mut self, object: &Value) {
        let Ok(object) = completed(object.clone(), Timestamp::UNIX_EPOCH) else {
            // Its own errors are reported.
            return;
        };
        let Some(name) = text(&object, "/metadata/name") else {
            return;
        };
        let key = (self.namespace_of(&object), name.to_owned());
        match text(&object, "/kind") {
            Some("DeviceClass") => {
                self.classes.insert(key.1);
            }
            Some("ResourceClaim") => {
                self.claims.insert(key, requests(object.pointer("/spec")));
            }
            Some("ResourceClaimTemplate") => {
                self.templates
                    .insert(key, requests(object.pointer("/spec/spec")));
            }
            _ => {}
        }
    }

    fn namespace_of(&self, object: &Value) -> String {
        text(object, "/metadata/namespace")
            .unwrap_or(&self.namespace)
            .to_owned()
    }

    /// The names in an object that no object has.
    pub fn missing(&self, object: &Value) -> Vec<Missing> {
        let mut found = Vec::new();
        let namespace = self.namespace_of(object);
        match text(object, "/kind") {
            Some("ResourceClaim") => self.in_claim(object, "/spec", &mut found),
            Some("ResourceClaimTemplate") => self.in_claim(object, "/spec/spec", &mut found),
            Some("ResourceQuota") => self.in_quota(object, &mut found),
            _ => {
                for pointer in [
                    "/spec",
                    "/spec/template/spec",
                    "/spec/jobTemplate/spec/template/spec",
                ] {
                    let mut whole = object.clone();
                    migrate::pod::flatten_claims(&mut whole);
                    let spec = whole
                        .pointer(pointer)
                        .filter(|spec| spec["containers"].is_array());
                    if let Some(spec) = spec {
                        let path = pointer.trim_start_matches('/').replace('/', ".");
                        self.in_pod(spec, &path, &namespace, &mut found);
                    }
                }
            }
        }
        found
    }

    fn class(&self, name: &str, field: String, found: &mut Vec<Missing>) {
        if name.is_empty() || self.classes.contains(name) {
            return;
        }
        let known = self.classes.iter().map(String::as_str);
        found.push(self.absent("DeviceClass", "", name, field, known.collect()));
    }

    /// An object that does not exist: in the cluster, if that was read; else in the files.
    fn absent(
        &self,
        kind: &str,
        namespace: &str,
        name: &str,
        field: String,
        known: Vec<&str>,
    ) -> Missing {
        let place = match &self.hidden {
            None => " in these files".to_owned(),
            Some(hidden) => match hidden.iter().find(|h| h.hides(kind, namespace)) {
                Some(Hidden { resource, .. }) => {
                    format!(" in these files, and no right to list {resource}")
                }
                None => String::new(),
            },
        };
        let hint = existing(name, &known);
        Missing {
            field,
            sure: place.is_empty(),
            text: format!("there is no {kind} {name}{place}{hint}"),
        }
    }

    fn in_claim(&self, object: &Value, pointer: &str, found: &mut Vec<Missing>) {
        let Ok(whole) = completed(object.clone(), Timestamp::UNIX_EPOCH) else {
            return;
        };
        let path = pointer.trim_start_matches('/').replace('/', ".");
        // Requests were flat in older versions.
        let version = text(object, "/apiVersion").unwrap_or_default();
        let exactly = match version.ends_with("v1beta1") || version.ends_with("v1alpha3") {
            true => "",
            false => "exactly.",
        };
        let list = whole.pointer(&format!("{pointer}/devices/requests"));
        for (index, request) in array(list).enumerate() {
            let at = format!("{path}.devices.requests[{index}]");
            if let Some(class) = text(request, "/exactly/deviceClassName") {
                self.class(class, format!("{at}.{exactly}deviceClassName"), found);
            }
            for (number, alternative) in array(request.get("firstAvailable")).enumerate() {
                if let Some(class) = text(alternative, "/deviceClassName") {
                    let field = format!("{at}.firstAvailable[{number}].deviceClassName");
                    self.class(class, field, found);
                }
            }
        }
    }

    fn in_quota(&self, object: &Value, found: &mut Vec<Missing>) {
        let hard = object.pointer("/spec/hard").and_then(Value::as_object);
        for name in hard.into_iter().flatten().map(|(name, _)| name) {
            if let Some(class) = name.strip_suffix(allot_model::quota::DEVICES) {
                self.class(class, "spec.hard".to_owned(), found);
            }
        }
    }

    fn in_pod(&self, spec: &Value, path: &str, namespace: &str, found: &mut Vec<Missing>) {
        let mut entries: BTreeMap<&str, Option<&Requests>> = BTreeMap::new();
        for (index, entry) in array(spec.get("resourceClaims")).enumerate() {
            let mut known = None;
            for (member, kind, objects) in [
                ("resourceClaimName", "ResourceClaim", &self.claims),
                (
                    "resourceClaimTemplateName",
                    "ResourceClaimTemplate",
                    &self.templates,
                ),
            ] {
                let Some(name) = entry[member].as_str() else {
                    continue;
                };
                known = objects.get(&(namespace.to_owned(), name.to_owned()));
                if known.is_none() {
                    let same = objects.keys().filter(|(of, _)| of == namespace);
                    let names = same.map(|(_, name)| &**name).collect();
                    let field = format!("{path}.resourceClaims[{index}].{member}");
                    found.push(self.absent(kind, namespace, name, field, names));
                }
            }
            entries.insert(entry["name"].as_str().unwrap_or_default(), known);
        }
        for list in ["initContainers", "containers", "ephemeralContainers"] {
            for (index, container) in array(spec.get(list)).enumerate() {
                let at = format!("{path}.{list}[{index}].resources");
                self.in_container(container, &at, &entries, found);
            }
        }
    }

    fn in_container(
        &self,
        container: &Value,
        at: &str,
        entries: &BTreeMap<&str, Option<&Requests>>,
        found: &mut Vec<Missing>,
    ) {
        for (index, claim) in array(container.pointer("/resources/claims")).enumerate() {
            let at = format!("{at}.claims[{index}]");
            let name = claim["name"].as_str().unwrap_or_default();
            let Some(requests) = entries.get(name) else {
                let hint = suggest::hint(name, entries.keys().copied());
                found.push(Missing {
                    field: format!("{at}.name"),
                    text: format!("the pod has no claim {name:?}{hint}"),
                    sure: true,
                });
                continue;
            };
            let Some(request) = claim["request"].as_str().filter(|name| !name.is_empty()) else {
                continue;
            };
            if let Some(requests) = requests.filter(|known| !known.contains(request)) {
                let known: Vec<&str> = requests.iter().map(String::as_str).collect();
                let hint = existing(request, &known);
                found.push(Missing {
                    field: format!("{at}.request"),
                    text: format!("claim {name:?} has no request {request:?}{hint}"),
                    sure: true,
                });
            }
        }
        for kind in ["limits", "requests"] {
            let amounts = container
                .pointer(&format!("/resources/{kind}"))
                .and_then(Value::as_object);
            for name in amounts.into_iter().flatten().map(|(name, _)| name) {
                if let Some(class) = name.strip_prefix(IMPLICIT_PREFIX) {
                    self.class(class, format!("{at}.{kind}"), found);
                }
            }
        }
    }
}

/// Alternatives to a missing name: similar names, or otherwise all names.
fn existing(name: &str, known: &[&str]) -> String {
    match suggest::hint(name, known.iter().copied()) {
        hint if !hint.is_empty() => hint,
        _ if known.is_empty() => String::new(),
        _ => format!("; there are: {}", some(known)),
    }
}

fn text<'a>(object: &'a Value, pointer: &str) -> Option<&'a str> {
    object.pointer(pointer).and_then(Value::as_str)
}

fn array(list: Option<&Value>) -> impl Iterator<Item = &Value> {
    list.and_then(Value::as_array).into_iter().flatten()
}

/// The names that containers can use: requests, and alternatives as `request/alternative`.
fn requests(spec: Option<&Value>) -> Requests {
    let list = spec.and_then(|spec| spec.pointer("/devices/requests"));
    let mut names = Requests::new();
    for request in array(list) {
        let name = request["name"].as_str().unwrap_or_default();
        names.insert(name.to_owned());
        for alternative in array(request.get("firstAvailable")) {
            names.extend(
                alternative["name"]
                    .as_str()
                    .map(|sub| format!("{name}/{sub}")),
            );
        }
    }
    names
}

#[cfg(test)]
mod tests;
