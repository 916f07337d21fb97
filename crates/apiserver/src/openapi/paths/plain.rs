//! Paths that are no resources.

use allot_schema::openapi::{self as schemas, Format};
use allot_schema::types;
use serde_json::{Map, Value, json};

use super::operation::{capital, responses, tag, title};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
const OBJECTS: [&str; 3] = [
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
];

/// The schema of what `/version` answers, which is no type of the API.
const VERSION_INFO: &str = "io.k8s.apimachinery.pkg.version.Info";
/// Its fields that are always there.
const VERSION_FIELDS: [&str; 9] = [
    "major",
    "minor",
    "gitVersion",
    "gitCommit",
    "gitTreeState",
    "buildDate",
    "goVersion",
    "compiler",
    "platform",
];
/// Its other fields.
const MORE_VERSION_FIELDS: [&str; 4] = [
    "emulationMajor",
    "emulationMinor",
    "minCompatibilityMajor",
    "minCompatibilityMinor",
];

/// The schemas that the document of paths without resources contains.
pub(crate) fn plain_schemas(name: &str, format: Format) -> Map<String, Value> {
    if name != "version" {
        let answer = answer(name);
        let root = answer.iter().filter_map(|name| types::by_name(name));
        return schemas::schemas(root, format);
    }
    let always = VERSION_FIELDS.map(|name| (name, json!({"type": "string", "default": ""})));
    let always = match format {
        Format::V2 => VERSION_FIELDS.map(|name| (name, json!({"type": "string"}))),
        Format::V3 => always,
    };
    let more = MORE_VERSION_FIELDS.map(|name| (name, json!({"type": "string"})));
    let fields = always.into_iter().chain(more);
    let fields: Map<String, Value> = fields.map(|(name, it)| (name.to_owned(), it)).collect();
    let info = json!({
        "description": "The versions of the server, of its build and of what it emulates.",
        "type": "object", "required": VERSION_FIELDS, "properties": fields,
    });
    Map::from_iter([(VERSION_INFO.to_owned(), info)])
}

/// The name of the schema that a document without resources answers with; none for a text.
fn answer(name: &str) -> Option<String> {
    let kind = match name {
        "version" => return Some(VERSION_INFO.to_owned()),
        "api" => "APIVersions",
        "apis" => "APIGroupList",
        name if name.starts_with("apis/") => "APIGroup",
        _ => return None,
    };
    let name = format!("{META}.{kind}");
    types::by_name(&name).map(|_| name)
}

/// The path of a document without resources.
pub(crate) fn plain(name: &str, format: Format) -> Map<String, Value> {
    let (tag, id, media): (String, String, &[&str]) = match name {
        "api" => ("core".to_owned(), "getCoreAPIVersions".to_owned(), &OBJECTS),
        "apis" => ("apis".to_owned(), "getAPIVersions".to_owned(), &OBJECTS),
        "version" => {
            let id = "getCodeVersion".to_owned();
            ("version".to_owned(), id, &["application/json"])
        }
        "openid/v1/jwks" => {
            let id = "getServiceAccountIssuerOpenIDKeyset".to_owned();
            ("openid".to_owned(), id, &["application/jwk-set+json"])
        }
        ".well-known/openid-configuration" => {
            let id = "getServiceAccountIssuerOpenIDConfiguration".to_owned();
            ("WellKnown".to_owned(), id, &["application/json"])
        }
        name => {
            let group = name.strip_prefix("apis/").unwrap_or(name);
            let id = format!("get{}APIGroup", title(group));
            (tag(group, None), id, &OBJECTS)
        }
    };
    let schema = match answer(name) {
        Some(name) => format.reference(&name),
        None => json!({"type": "string"}),
    };
    let mut out = Map::new();
    let get = get(&tag, &id, &schema, media, format);
    out.insert(format!("/{name}/"), json!({"get": get}));
    out
}

/// The path that lists the resources of a group and version.
pub(super) fn resources(
    root: &str,
    group: &str,
    version: &str,
    format: Format,
) -> Map<String, Value> {
    let list = format.reference(&format!("{META}.APIResourceList"));
    let id = format!("get{}{}APIResources", title(group), capital(version));
    let get = get(&tag(group, Some(version)), &id, &list, &OBJECTS, format);
    let mut out = Map::new();
    out.insert(format!("{root}/"), json!({"get": get}));
    out
}

fn get(tag: &str, id: &str, schema: &Value, media: &[&str], format: Format) -> Value {
    let mut get = json!({
        "tags": [tag],
        "operationId": id,
        "responses": responses(&[("200", "OK")], schema, media, format),
    });
    if format == Format::V2 {
        get["produces"] = json!(media);
        get["schemes"] = json!(["https"]);
        // Upstream's handlers of keys for tokens do not say what they read.
        if !matches!(tag, "openid" | "WellKnown") {
            get["consumes"] = json!(media);
        }
    }
    get
}
