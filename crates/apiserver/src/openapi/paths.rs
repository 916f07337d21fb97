//! The paths of resources, as documents list them.

use std::sync::Arc;

use allot_schema::openapi::{self as schemas, Format};
use allot_schema::types;
use serde_json::{Map, Value, json};

use crate::registry::{Resource, Subresource};

use self::operation::{Answer, Operation, options};
pub(super) use self::plain::{plain, plain_schemas};

mod operation;
mod plain;

const EVENT: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent";

/// The paths of a group and version.
pub(super) fn version(
    group: &str,
    version: &str,
    resources: &[Arc<Resource>],
    format: Format,
) -> Map<String, Value> {
    let root = if group.is_empty() {
        format!("/api/{version}")
    } else {
        format!("/apis/{group}/{version}")
    };
    // The lists of custom resources are described nowhere.
    let mut out = match resources.iter().all(|it| it.custom.is_some()) {
        true => Map::new(),
        false => plain::resources(&root, group, version, format),
    };
    for resource in resources {
        let describe = Describe {
            group,
            version,
            resource,
            format,
        };
        describe.paths(&root, &mut out);
    }
    out
}

struct Describe<'a> {
    group: &'a str,
    version: &'a str,
    resource: &'a Resource,
    format: Format,
}

/// The methods of a path and what they do: the action as `x-kubernetes-action` names it.
const METHODS: [(&str, &str, &str); 5] = [
    ("get", "get", "get"),
    ("create", "post", "post"),
    ("update", "put", "put"),
    ("delete", "delete", "delete"),
    ("patch", "patch", "patch"),
];

impl Describe<'_> {
    fn paths(&self, root: &str, out: &mut Map<String, Value>) {
        let resource = self.resource;
        let plural = &resource.plural;
        let namespace = if resource.namespaced {
            "/namespaces/{namespace}"
        } else {
            ""
        };
        let collection = format!("{root}{namespace}/{plural}");
        let has = |verb: &str| resource.verbs.iter().any(|known| known == verb);
        let item = Answer::Schema(self.schema_name(&resource.kind));
        let list = Answer::Schema(self.schema_name(&resource.list_kind));
        let mut many = Vec::new();
        for (verb, method, action, answer) in [
            ("list", "get", "list", &list),
            ("create", "post", "post", &item),
            (
                "deletecollection",
                "delete",
                "deletecollection",
                &Answer::Status,
            ),
        ] {
            if has(verb) {
                many.push((method, self.operation(action, answer, "")));
            }
        }
        self.insert(out, &collection, many);
        let deleted = match (resource.rules.delete_returns_object)(self.version) {
            true if resource.custom.is_none() => &item,
            _ => &Answer::Status,
        };
        let one = METHODS
            .into_iter()
            .filter(|(verb, _, action)| has(verb) && *action != "post");
        let one = one.map(|(_, method, action)| {
            let answer = if action == "delete" { deleted } else { &item };
            (method, self.operation(action, answer, ""))
        });
        self.insert(out, &format!("{collection}/{{name}}"), one.collect());
        for subresource in resource.subresources_of(self.version) {
            self.subresource(&format!("{collection}/{{name}}"), subresource, out);
        }
        if resource.namespaced && has("list") {
            let everywhere = self.operation("list", &list, "ForAllNamespaces");
            self.insert(out, &format!("{root}/{plural}"), vec![("get", everywhere)]);
        }
        if has("watch") && resource.custom.is_none() {
            self.watches(root, namespace, out);
        }
    }

    fn subresource(&self, object: &str, of: &Subresource, out: &mut Map<String, Value>) {
        let path = format!("{object}/{}", of.name);
        let known = |verb: &str| of.verbs.iter().any(|known| known == verb);
        if options(&of.kind).is_some() {
            let proxy = of.name == "proxy";
            let methods = METHODS.into_iter().filter(|(verb, _, _)| known(verb));
            let methods = methods.map(|(_, method, _)| method);
            let more = ["head", "options"].into_iter().filter(|_| proxy);
            let methods: Vec<&str> = methods.chain(more).collect();
            let all = |suffix: &str| {
                let connect = |method: &&'static str| (*method, self.connect(of, method, suffix));
                methods.iter().map(connect).collect()
            };
            self.insert(out, &path, all(""));
            if proxy {
                self.insert(out, &format!("{path}/{{path}}"), all("WithPath"));
            }
            return;
        }
        let kind = match of.kind.as_str() {
            "" => &self.resource.kind,
            kind => kind,
        };
        let answer = if of.name == "log" {
            Answer::Text
        } else if of.version.is_empty() {
            Answer::Schema(self.schema_name(kind))
        } else {
            let found = types::lookup(&of.group, &of.version, kind);
            Answer::Schema(found.map(|structure| structure.name.to_owned()))
        };
        let methods = METHODS.into_iter().filter(|(verb, _, _)| known(verb));
        let methods = methods.map(|(_, method, action)| {
            let operation = Operation {
                of: Some(of),
                ..self.described(action, &answer, "")
            };
            (method, operation.build())
        });
        self.insert(out, &path, methods.collect());
    }

    fn watches(&self, root: &str, namespace: &str, out: &mut Map<String, Value>) {
        let plural = &self.resource.plural;
        let event = Answer::Schema(Some(EVENT.to_owned()));
        let one = |action, suffix| vec![("get", self.operation(action, &event, suffix))];
        let collection = format!("{root}/watch{namespace}/{plural}");
        self.insert(out, &collection, one("watchlist", "List"));
        self.insert(out, &format!("{collection}/{{name}}"), one("watch", ""));
        if self.resource.namespaced {
            let everywhere = one("watchlist", "ListForAllNamespaces");
            self.insert(out, &format!("{root}/watch/{plural}"), everywhere);
        }
    }

    /// Adds a path. Parameters that all its operations have are listed once.
    fn insert(&self, out: &mut Map<String, Value>, path: &str, operations: Vec<(&str, Value)>) {
        if operations.is_empty() {
            return;
        }
        let mut own: Vec<Value> = Vec::new();
        for name in ["name", "namespace", "path"] {
            if path.contains(&format!("{{{name}}}")) {
                own.push(operation::parameter(name, "path", "string", self.format));
            }
        }
        let mut operations: Vec<(&str, Value, Vec<Value>)> = operations
            .into_iter()
            .map(|(method, mut operation)| {
                let sent = match operation["parameters"].take() {
                    Value::Array(sent) => sent,
                    _ => Vec::new(),
                };
                (method, operation, sent)
            })
            .collect();
        // The body is that of one operation.
        let first = operations[0].2.iter().filter(|one| one["in"] != "body");
        let shared: Vec<Value> = first
            .filter(|one| operations.iter().all(|(_, _, sent)| sent.contains(one)))
            .cloned()
            .collect();
        let mut methods = Map::new();
        for (method, operation, sent) in &mut operations {
            sent.retain(|one| !shared.contains(one));
            match operation.as_object_mut() {
                Some(members) if sent.is_empty() => {
                    members.remove("parameters");
                }
                _ => operation["parameters"] = sorted(std::mem::take(sent)),
            }
            methods.insert((*method).to_owned(), operation.take());
        }
        own.extend(shared);
        methods.insert("parameters".to_owned(), sorted(own));
        out.insert(path.to_owned(), Value::Object(methods));
    }

    fn schema_name(&self, kind: &str) -> Option<String> {
        if self.resource.custom.is_some() {
            return Some(schemas::custom_name(self.group, self.version, kind));
        }
        types::lookup(self.group, self.version, kind).map(|structure| structure.name.to_owned())
    }

    fn operation(&self, action: &str, answer: &Answer, suffix: &str) -> Value {
        self.described(action, answer, suffix).build()
    }

    fn connect(&self, of: &Subresource, method: &str, suffix: &str) -> Value {
        let operation = Operation {
            of: Some(of),
            method,
            ..self.described("connect", &Answer::Stream, suffix)
        };
        operation.build()
    }

    fn described<'a>(
        &'a self,
        action: &'a str,
        answer: &'a Answer,
        suffix: &'a str,
    ) -> Operation<'a> {
        Operation {
            group: self.group,
            version: self.version,
            resource: self.resource,
            format: self.format,
            action,
            answer,
            suffix,
            of: None,
            method: "",
        }
    }
}

/// Parameters by name, and by place where two have one name.
fn sorted(mut parameters: Vec<Value>) -> Value {
    let key =
        |one: &Value| ["name", "in"].map(|key| one[key].as_str().unwrap_or_default().to_owned());
    parameters.sort_by_key(key);
    json!(parameters)
}
