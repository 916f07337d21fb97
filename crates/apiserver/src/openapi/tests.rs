use allot_model::features::Release;

use super::*;
use crate::builtin;
use crate::registry::RuntimeConfig;

#[test]
fn every_version_has_a_document_whose_references_resolve() {
    let registry = builtin::registry(&RuntimeConfig::default(), Release::NEWEST);
    for (name, part) in parts(&registry) {
        let document = part.v3();
        let known = document["components"]["schemas"]
            .as_object()
            .cloned()
            .unwrap_or_default();
        for reference in document
            .to_string()
            .split("\"$ref\":\"#/components/schemas/")
            .skip(1)
        {
            let target = reference.split('"').next().unwrap_or_default();
            assert!(known.contains_key(target), "{name}: {target}");
        }
    }
}

/// A client that writes a document again leaves out an empty map.
#[test]
fn no_document_has_schemas_that_are_empty() {
    let registry = builtin::registry(&RuntimeConfig::default(), Release::NEWEST);
    for (name, part) in parts(&registry) {
        let document = part.v3();
        let schemas = document["components"].get("schemas");
        let is_empty = schemas.is_some_and(|it| it.as_object().is_none_or(Map::is_empty));
        assert!(!is_empty, "{name}");
    }
    let version = parts(&registry)["version"].v3();
    let answer =
        &version["paths"]["/version/"]["get"]["responses"]["200"]["content"]["application/json"];
    let info = "#/components/schemas/io.k8s.apimachinery.pkg.version.Info";
    assert_eq!(answer["schema"]["$ref"], info);
}

#[test]
fn the_old_format_holds_everything_once() {
    let registry = builtin::registry(&RuntimeConfig::default(), Release::NEWEST);
    let document = v2(&registry);
    let known = document["definitions"]
        .as_object()
        .cloned()
        .unwrap_or_default();
    for reference in document
        .to_string()
        .split("\"$ref\":\"#/definitions/")
        .skip(1)
    {
        let target = reference.split('"').next().unwrap_or_default();
        assert!(known.contains_key(target), "{target}");
    }
    assert!(document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"].is_object());
}

#[test]
fn hashes_follow_the_resources() {
    let registry = builtin::registry(&RuntimeConfig::default(), Release::NEWEST);
    let more = builtin::registry(
        &RuntimeConfig::parse("resource.k8s.io/v1beta1=true").expect("a valid configuration"),
        Release::NEWEST,
    );
    let hash = |registry: &Registry| Hashes::of(registry).all;
    assert_eq!(hash(&registry), hash(&registry));
    assert_ne!(hash(&registry), hash(&more));
}

/// Generated clients are named after the operations.
#[test]
fn operations_have_the_names_and_parameters_of_upstream() {
    let registry = builtin::registry(&RuntimeConfig::default(), Release::DEFAULT);
    let document = parts(&registry)["apis/resource.k8s.io/v1"].v3();
    let claims = "/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims";
    let names = |path: &Value| -> Vec<String> {
        let all = path["parameters"].as_array().into_iter().flatten();
        all.map(|one| one["name"].as_str().unwrap_or_default().to_owned())
            .collect()
    };
    let many = &document["paths"][claims];
    assert_eq!(names(many), ["namespace", "pretty"]);
    let delete = &many["delete"];
    assert_eq!(
        delete["operationId"],
        "deleteResourceV1CollectionNamespacedResourceClaim"
    );
    assert_eq!(delete["tags"], json!(["resource_v1"]));
    assert_eq!(
        names(&many["post"]),
        ["dryRun", "fieldManager", "fieldValidation"]
    );
    let codes: Vec<_> = many["post"]["responses"]
        .as_object()
        .unwrap()
        .keys()
        .collect();
    assert_eq!(codes, ["200", "201", "202", "401"]);
    // Parameters that every operation of a path has are listed once.
    let everywhere = &document["paths"]["/apis/resource.k8s.io/v1/resourceclaims"];
    assert!(names(&everywhere["get"]).is_empty());
    assert_eq!(names(everywhere)[..2], ["allowWatchBookmarks", "continue"]);
    let document = parts(&registry)["api/v1"].v3();
    let proxy = &document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}/proxy/{path}"];
    assert_eq!(
        proxy["head"]["operationId"],
        "connectCoreV1HeadNamespacedPodProxyWithPath"
    );
    assert_eq!(names(proxy), ["name", "namespace", "path", "path"]);
}

/// Only one version of the kind can be scaled, and has a status of its own.
#[test]
fn regression_versions_of_a_definition_have_their_own_subresources() {
    let with = |subresources: Value| {
        let version = |name: &str, subresources: &Value| json!({"name": name, "served": true, "storage": name == "v1", "subresources": subresources});
        let names = json!({"plural": "things", "kind": "Thing", "listKind": "ThingList"});
        let definition = json!({
            "spec": {
                "group": "example.com", "scope": "Namespaced", "names": names,
                "versions": [version("v1", &subresources), version("v2", &json!({}))],
            },
            "status": {"acceptedNames": names},
        });
        let mut registry = builtin::registry(&RuntimeConfig::default(), Release::NEWEST);
        registry.insert_custom(crate::registry::of_definition(&definition, None));
        registry
    };
    let scale =
        json!({"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"});
    let registry = with(json!({"status": {}, "scale": scale}));
    let parts = parts(&registry);
    let paths = |version: &str| -> Vec<String> {
        let document = parts[&format!("apis/example.com/{version}")].v3();
        let paths = document["paths"].as_object().cloned().unwrap_or_default();
        paths.into_iter().map(|(path, _)| path).collect()
    };
    let of = |version: &str, rest: &[&str]| -> Vec<String> {
        let root = format!("/apis/example.com/{version}");
        let one = format!("{root}/namespaces/{{namespace}}/things");
        let rest = rest.iter().map(|rest| format!("{one}/{{name}}{rest}"));
        let mut all: Vec<String> = rest
            .chain([one.clone(), format!("{root}/things")])
            .collect();
        all.sort();
        all
    };
    assert_eq!(paths("v1"), of("v1", &["", "/scale", "/status"]));
    assert_eq!(paths("v2"), of("v2", &[""]));
    assert!(!parts.contains_key("apis/example.com"));
    let bare = with(json!({"status": {}}));
    let hash = |registry: &Registry| super::parts(registry)["apis/example.com/v1"].hash();
    assert_ne!(hash(&registry), hash(&bare));
}

/// Every request serialised and hashed the schemas of all definitions, also that of a client that had the document.
#[tokio::test]
async fn regression_a_registry_is_hashed_once() {
    let registry = || {
        let made = builtin::registry(&RuntimeConfig::default(), Release::NEWEST);
        Arc::new(made)
    };
    let (one, another) = (registry(), registry());
    let cache = Cache::default();
    let first = cache.hashes(&one).await;
    assert!(Arc::ptr_eq(&first, &cache.hashes(&one).await));
    let second = cache.hashes(&another).await;
    assert!(!Arc::ptr_eq(&first, &second));
    assert_eq!(first.all, second.all);
}
