//! Whether the API server would accept the manifests.

use std::collections::BTreeSet;

use allot_apimachinery::field::Path;
use allot_apiserver::registry::{self, Resource, Rules, is_builtin_group};
use allot_apiserver::request::Part;
use allot_model::features::Release;
use allot_model::lint::{Effect, lint};
use allot_model::validate::meta as meta_rules;
use allot_model::{GROUP, migrate};
use allot_schema::decode::decode_value;
use allot_schema::{defaults, types};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Document, split_path, title};

/// The properties of an API server that determine which objects it accepts.
#[derive(Debug)]
pub struct Server {
    release: Release,
    /// The kinds of its CustomResourceDefinitions.
    custom: Vec<Resource>,
    /// The values of devices and claims are checked elsewhere.
    skips_devices: bool,
}

impl Server {
    /// A server of a release with these CustomResourceDefinitions; other objects among them are left out.
    pub fn new<'a>(release: Release, definitions: impl IntoIterator<Item = &'a Value>) -> Self {
        let definitions = definitions.into_iter().filter(|it| is_definition(it));
        let custom = definitions.map(|definition| {
            let mut accepted = definition.clone();
            accepted["status"] = json!({"acceptedNames": definition["spec"]["names"]});
            registry::of_definition(&accepted, None)
        });
        Self {
            release,
            custom: custom.collect(),
            skips_devices: false,
        }
    }

    /// Leaves the values of `resource.k8s.io` to the caller, which knows the feature gates of the server.
    #[must_use]
    pub fn without_devices(mut self) -> Self {
        self.skips_devices = true;
        self
    }

    /// Field and text of what the server would refuse about an object of another group than `resource.k8s.io`, which
    /// [`allot_model::lint`] is for. What a server wrote itself, which has a UID, is only checked for its fields.
    pub fn problems(&self, object: &Value) -> Vec<(String, String)> {
        let (group, version, kind) = named(object);
        let custom = self.custom.iter();
        let mut custom = custom.filter(|it| it.group == group && it.kind == kind);
        match custom.next() {
            Some(resource) => custom_problems(object, version, resource),
            None => problems(object, self.release, self.skips_devices),
        }
    }
}

/// The kinds of documents that only definitions of a cluster can tell about, as `apiVersion` and `kind`: other than
/// built-in ones, and not defined by another document.
pub fn undefined(documents: &[Document]) -> BTreeSet<(String, String)> {
    let defined: BTreeSet<(Option<&str>, Option<&str>)> = (documents.iter())
        .filter(|it| is_definition(&it.object))
        .map(|Document { object, .. }| {
            let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
            (text("/spec/group"), text("/spec/names/kind"))
        })
        .collect();
    let objects = documents.iter().map(|it| named(&it.object));
    let custom = objects.filter(|(group, _, kind)| {
        // The name of a group is part of a path.
        let is_group = allot_apimachinery::names::dns1123_subdomain(group).is_empty();
        is_group
            && group.contains('.')
            && !is_builtin_group(group)
            && !defined.contains(&(Some(group), Some(kind)))
    });
    custom
        .filter(|(_, version, _)| allot_apimachinery::names::dns1123_label(version).is_empty())
        .map(|(group, version, kind)| (format!("{group}/{version}"), kind.to_owned()))
        .collect()
}

/// Refuses documents with fields that their kind does not have, or that the API server would refuse; the message names
/// file, line, object and field of each.
///
/// # Errors
/// The findings, one a line.
pub fn check(documents: &[Document], server: &Server) -> anyhow::Result<()> {
    let mut findings = Vec::new();
    for document in documents {
        let object = &document.object;
        let title = title(object);
        let file = document.file.display();
        for (field, text) in server.problems(object) {
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

/// The API group of an object.
pub fn group(object: &Value) -> &str {
    named(object).0
}

/// Group, version and kind of an object.
fn named(object: &Value) -> (&str, &str, &str) {
    let text = |field: &str| object.get(field).and_then(Value::as_str);
    let api = text("apiVersion").unwrap_or_default();
    let (group, version) = api.split_once('/').unwrap_or(("", api));
    (group, version, text("kind").unwrap_or_default())
}

fn is_definition(object: &Value) -> bool {
    let (group, _, kind) = named(object);
    (group, kind) == ("apiextensions.k8s.io", "CustomResourceDefinition")
}

/// A server wrote the object.
fn is_dump(object: &Value) -> bool {
    let uid = object.pointer("/metadata/uid");
    uid.is_some_and(|uid| !uid.is_null())
}

/// A kind that is like one of its group: it is a typing error. Kinds of which nothing is known are left out.
fn misspelt(group: &str, version: &str, kind: &str) -> Vec<(String, String)> {
    let of_group = allot_apiserver::builtin::all().filter(|it| it.group == group);
    let known: Vec<&str> = of_group.map(|it| it.kind).collect();
    let hint = allot_apimachinery::suggest::hint(kind, known.iter().copied());
    if known.contains(&kind) || hint.is_empty() {
        return Vec::new();
    }
    let api = match group.is_empty() {
        true => version.to_owned(),
        false => format!("{group}/{version}"),
    };
    let text = format!("there is no kind {kind} in {api}{hint}");
    vec![("kind".to_owned(), text)]
}

/// Field and text of a custom resource's errors.
fn custom_problems(object: &Value, version: &str, resource: &Resource) -> Vec<(String, String)> {
    let served: Vec<&str> = (resource.versions.iter())
        .filter(|it| it.served)
        .map(|it| it.name.as_str())
        .collect();
    let Some(custom) = resource.custom.as_ref() else {
        return Vec::new();
    };
    if !served.contains(&version) {
        let Resource { group, kind, .. } = resource;
        let served = served.join(", ");
        let text = format!("{kind} of {group} is served in {served}, not in {version}");
        return vec![("apiVersion".to_owned(), text)];
    }
    let mut whole = object.clone();
    let unknown = match custom.read(&mut whole) {
        Ok(unknown) => unknown,
        Err(error) => return vec![(String::new(), error.to_string())],
    };
    if !unknown.is_empty() || is_dump(object) {
        let schema = custom.schema(version);
        let hinted = unknown.into_iter().map(|text| {
            let field = text.split('"').nth(1).unwrap_or_default().to_owned();
            let hint = custom_hint(&field, &schema);
            (field, format!("{text}{hint}"))
        });
        return hinted.collect();
    }
    custom.default(version, &mut whole);
    name_new(&mut whole, resource.namespaced);
    let errors = custom.validate(version, &whole, None, Part::Main);
    let errors = errors.iter();
    errors
        .map(|error| (error.field.clone(), error.body()))
        .collect()
}

/// A suggestion for a misspelled field of a custom resource.
fn custom_hint(path: &str, schema: &Value) -> String {
    let parts = split_path(path);
    let Some((wrong, above)) = parts.split_last() else {
        return String::new();
    };
    let mut current = schema;
    for part in above {
        current = match part.parse::<usize>() {
            Ok(_) => &current["items"],
            Err(_) => &current["properties"][part],
        };
    }
    let names = current["properties"].as_object().into_iter().flatten();
    allot_apimachinery::suggest::hint(wrong, names.map(|(name, _)| name.as_str()))
}

/// Field and text of an object's errors.
fn problems(object: &Value, release: Release, skips_devices: bool) -> Vec<(String, String)> {
    let (group, version, kind) = named(object);
    let mut found = Vec::new();
    let Some(schema) = types::lookup(group, version, kind) else {
        // Older versions of devices, and kinds that are not validated.
        return match group == GROUP {
            true if skips_devices => Vec::new(),
            true => refused(object, release),
            false => misspelt(group, version, kind),
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
    if !found.is_empty() || is_dump(object) {
        return found;
    }
    if group == GROUP {
        return match skips_devices {
            true => Vec::new(),
            false => refused(object, release),
        };
    }
    let mut whole = decoded.value;
    defaults::apply(group, version, kind, &mut whole);
    let mut builtin = allot_apiserver::builtin::all();
    let builtin = builtin.find(|it| it.group == group && it.kind == kind);
    // The server completes a definition before it validates it.
    if let Some(builtin) = builtin.filter(|it| it.group != "apiextensions.k8s.io") {
        complete(&builtin.rules, &mut whole);
        found.extend(metadata_problems(
            &builtin.rules,
            builtin.namespaced,
            &mut whole,
        ));
        let errors = allot_apiserver::validate::create(&builtin.rules, &whole);
        let errors = errors.into_iter();
        found.extend(errors.map(|error| (error.field.clone(), error.body())));
    }
    found
}

/// Field and text of errors in the metadata of a new object: such as a name that the server would not accept.
fn metadata_problems(rules: &Rules, namespaced: bool, object: &mut Value) -> Vec<(String, String)> {
    name_new(object, namespaced);
    let path = Path::new("metadata");
    let meta = &object["metadata"];
    let errors = match rules.own_finalizers {
        true => meta_rules::any_object_meta(meta, namespaced, rules.name, &path),
        false => meta_rules::object_meta(meta, namespaced, rules.name, &path),
    };
    let errors = errors.into_iter();
    // Templates of pods need no name, and one that is missing is reported by those that need it.
    let errors = errors.filter(|error| !meta["name"].is_null() || error.field != "metadata.name");
    errors
        .map(|error| (error.field.clone(), error.body()))
        .collect()
}

/// Sets name and namespace of a new object as the server does before it validates it.
fn name_new(object: &mut Value, namespaced: bool) {
    let meta = &mut object["metadata"];
    if namespaced && meta["namespace"].is_null() {
        meta["namespace"] = json!("default");
    }
    if let (None, Some(prefix)) = (meta["name"].as_str(), meta["generateName"].as_str()) {
        meta["name"] = json!(format!("{prefix}x"));
    }
}

/// Sets the fields that the server sets before it validates a new object.
fn complete(rules: &Rules, object: &mut Value) {
    if let Some(prepare) = rules.prepare_create {
        prepare(object);
    }
    let spec = &mut object["spec"];
    if rules.allocates_addresses
        && spec["clusterIPs"].is_null()
        && let Some(address) = spec["clusterIP"].as_str().filter(|it| !it.is_empty())
    {
        spec["clusterIPs"] = json!([address]);
    }
}

fn refused(object: &Value, release: Release) -> Vec<(String, String)> {
    let findings = lint(object, release, &[], Timestamp::now()).into_iter();
    let refused = findings.filter(|finding| finding.effect == Effect::Refused);
    refused
        .map(|finding| (finding.field, finding.text))
        .collect()
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

/// The value of a field, or its elements if it is a list.
fn structure(ty: &types::Type) -> Option<&'static types::Struct> {
    match ty {
        types::Type::List(of) | types::Type::Map(of) => structure(of),
        types::Type::Struct(id) => Some(id.get()),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
