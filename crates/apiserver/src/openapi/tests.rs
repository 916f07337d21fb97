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
    assert_eq!(hash_all(&registry), hash_all(&registry));
    assert_ne!(hash_all(&registry), hash_all(&more));
}
