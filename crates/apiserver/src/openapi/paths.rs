//! The paths of resources, as documents list them.

use std::sync::Arc;

use allot_schema::openapi::{self as schemas, Format};
use allot_schema::types;
use serde_json::{Map, Value, json};

use crate::registry::Resource;

const PATCHES: [&str; 4] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];

/// The path of a non-resource document.
pub(super) fn plain(name: &str) -> Map<String, Value> {
    let mut out = Map::new();
    let slash = if matches!(name, "version" | "logs") || name.starts_with("openid") {
        ""
    } else {
        "/"
    };
    let responses = json!({"200": {"description": "OK"}, "401": {"description": "Unauthorized"}});
    out.insert(
        format!("/{name}{slash}"),
        json!({"get": {"responses": responses}}),
    );
    out
}

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
    let mut out = Map::new();
    let list = "io.k8s.apimachinery.pkg.apis.meta.v1.APIResourceList";
    let get = json!({"responses": responses(Some(list), format)});
    out.insert(format!("{root}/"), json!({"get": get}));
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
        let item_name = self.schema_name(&resource.kind);
        let list_name = self.schema_name(&resource.list_kind);
        let mut many = Map::new();
        if has("list") {
            many.insert("get".to_owned(), self.operation("list", &list_name));
        }
        if has("create") {
            many.insert("post".to_owned(), self.operation("post", &item_name));
        }
        if has("deletecollection") {
            many.insert(
                "delete".to_owned(),
                self.operation("deletecollection", &None),
            );
        }
        self.insert(out, &collection, many, &[]);
        let mut one = Map::new();
        for (verb, method, action) in [
            ("get", "get", "get"),
            ("update", "put", "put"),
            ("delete", "delete", "delete"),
            ("patch", "patch", "patch"),
        ] {
            if has(verb) {
                one.insert(method.to_owned(), self.operation(action, &item_name));
            }
        }
        self.insert(out, &format!("{collection}/{{name}}"), one, &["name"]);
        for sub in &resource.subresources {
            let mut methods = Map::new();
            let kind = if sub.kind.is_empty() {
                resource.kind.as_str()
            } else {
                sub.kind.as_str()
            };
            let name = if sub.version.is_empty() {
                self.schema_name(kind)
            } else {
                types::lookup(&sub.group, &sub.version, kind)
                    .map(|structure| structure.name.to_owned())
            };
            for (verb, method, action) in [
                ("get", "get", "get"),
                ("create", "post", "post"),
                ("update", "put", "put"),
                ("patch", "patch", "patch"),
                ("delete", "delete", "delete"),
            ] {
                if sub.verbs.iter().any(|known| known == verb) {
                    methods.insert(method.to_owned(), self.operation(action, &name));
                }
            }
            self.insert(
                out,
                &format!("{collection}/{{name}}/{}", sub.name),
                methods,
                &["name"],
            );
        }
        if resource.namespaced && has("list") {
            let mut everywhere = Map::new();
            everywhere.insert("get".to_owned(), self.operation("list", &list_name));
            self.insert(out, &format!("{root}/{plural}"), everywhere, &[]);
        }
        if has("watch") && resource.custom.is_none() {
            self.watches(root, namespace, out);
        }
    }

    fn watches(&self, root: &str, namespace: &str, out: &mut Map<String, Value>) {
        let plural = &self.resource.plural;
        let event = Some("io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent".to_owned());
        let one = |action: &str| {
            let mut methods = Map::new();
            methods.insert("get".to_owned(), self.operation(action, &event));
            methods
        };
        self.insert(
            out,
            &format!("{root}/watch{namespace}/{plural}"),
            one("watchlist"),
            &[],
        );
        self.insert(
            out,
            &format!("{root}/watch{namespace}/{plural}/{{name}}"),
            one("watch"),
            &["name"],
        );
        if self.resource.namespaced {
            self.insert(
                out,
                &format!("{root}/watch/{plural}"),
                one("watchlist"),
                &[],
            );
        }
    }

    fn insert(
        &self,
        out: &mut Map<String, Value>,
        path: &str,
        mut methods: Map<String, Value>,
        parameters: &[&str],
    ) {
        if methods.is_empty() {
            return;
        }
        let mut shared: Vec<Value> = parameters
            .iter()
            .map(|name| parameter(name, "path", "string", self.format))
            .collect();
        if path.contains("{namespace}") {
            shared.push(parameter("namespace", "path", "string", self.format));
        }
        shared.push(parameter("pretty", "query", "string", self.format));
        methods.insert("parameters".to_owned(), shared.into());
        out.insert(path.to_owned(), Value::Object(methods));
    }

    fn schema_name(&self, kind: &str) -> Option<String> {
        if self.resource.custom.is_some() {
            return Some(schemas::custom_name(self.group, self.version, kind));
        }
        types::lookup(self.group, self.version, kind).map(|structure| structure.name.to_owned())
    }

    fn operation(&self, action: &str, schema: &Option<String>) -> Value {
        let string = |name: &str| parameter(name, "query", "string", self.format);
        let options = ["dryRun", "fieldManager", "fieldValidation"].map(string);
        let mut parameters: Vec<Value> = match action {
            "post" | "put" => options.to_vec(),
            "patch" => {
                let mut all = options.to_vec();
                all.push(parameter("force", "query", "boolean", self.format));
                all
            }
            "delete" => vec![
                string("dryRun"),
                parameter("gracePeriodSeconds", "query", "integer", self.format),
                parameter("orphanDependents", "query", "boolean", self.format),
                string("propagationPolicy"),
            ],
            "list" | "watch" | "watchlist" | "deletecollection" => {
                let mut all: Vec<Value> = [
                    "continue",
                    "fieldSelector",
                    "labelSelector",
                    "resourceVersion",
                    "resourceVersionMatch",
                ]
                .map(string)
                .to_vec();
                for (name, kind) in [
                    ("limit", "integer"),
                    ("timeoutSeconds", "integer"),
                    ("allowWatchBookmarks", "boolean"),
                    ("watch", "boolean"),
                ] {
                    all.push(parameter(name, "query", kind, self.format));
                }
                all
            }
            _ => Vec::new(),
        };
        let answer = match action {
            "delete" | "deletecollection" => Some("io.k8s.apimachinery.pkg.apis.meta.v1.Status"),
            _ => schema.as_deref(),
        };
        let body = match action {
            "post" | "put" => schema.as_deref().map(|name| (name.to_owned(), vec!["*/*"])),
            "patch" => Some((
                "io.k8s.apimachinery.pkg.apis.meta.v1.Patch".to_owned(),
                self.patches(),
            )),
            "delete" | "deletecollection" => Some((
                "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions".to_owned(),
                vec!["*/*"],
            )),
            _ => None,
        };
        let mut operation = json!({
            "responses": responses(answer, self.format),
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": {"group": self.group, "version": self.version, "kind": self.resource.kind},
        });
        if let Some((name, media)) = body {
            let schema = self.format.reference(&name);
            match self.format {
                Format::V3 => {
                    let content: Map<String, Value> = media
                        .iter()
                        .map(|media| ((*media).to_owned(), json!({"schema": schema})))
                        .collect();
                    operation["requestBody"] = json!({"content": content});
                }
                Format::V2 => {
                    operation["consumes"] = json!(media);
                    parameters.insert(0, json!({"in": "body", "name": "body", "schema": schema}));
                }
            }
        }
        operation["parameters"] = parameters.into();
        operation
    }

    fn patches(&self) -> Vec<&'static str> {
        PATCHES
            .into_iter()
            .filter(|media| self.resource.custom.is_none() || !media.contains("strategic"))
            .collect()
    }
}

fn parameter(name: &str, place: &str, kind: &str, format: Format) -> Value {
    let mut out = json!({"name": name, "in": place});
    if place == "path" {
        out["required"] = true.into();
    }
    match format {
        Format::V2 => {
            out["type"] = kind.into();
            out["uniqueItems"] = true.into();
        }
        Format::V3 => out["schema"] = json!({"type": kind, "uniqueItems": true}),
    }
    out
}

fn responses(schema: Option<&str>, format: Format) -> Value {
    let mut ok = json!({"description": "OK"});
    if let Some(name) = schema {
        let reference = format.reference(name);
        match format {
            Format::V2 => ok["schema"] = reference,
            Format::V3 => ok["content"] = json!({"application/json": {"schema": reference}}),
        }
    }
    json!({"200": ok, "401": {"description": "Unauthorized"}})
}
