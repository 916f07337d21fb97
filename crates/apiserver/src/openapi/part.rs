//! The parts of the document: each group and version, and the paths that are no resources.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use allot_model::features::Release;
use allot_schema::openapi::{self as schemas, Format};
use allot_schema::types;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha512};

use super::paths;
use crate::registered;
use crate::registry::{Registry, Resource};

/// What one document is about.
pub(super) enum Part {
    /// A group and version with its resources.
    Version {
        group: String,
        version: String,
        resources: Vec<Arc<Resource>>,
        /// Pods name the origin of claims in the form of 1.30 as well.
        old_claims: bool,
    },
    /// Paths that are not resources.
    Plain { name: String, release: Release },
}

/// The release whose API the registry has.
pub(super) fn release(registry: &Registry) -> Release {
    let mut built_in = registry.iter().filter(|it| it.custom.is_none());
    built_in.next().map_or(Release::DEFAULT, |it| it.release)
}

/// The parts of the OpenAPI document, by the paths that they describe.
pub(super) fn parts(registry: &Registry) -> BTreeMap<String, Part> {
    let mut out = BTreeMap::new();
    let release = release(registry);
    // A classic version of any resource comes with that of claims.
    let old_claims = registry.iter().any(|it| crate::classic::is_shared(it));
    for name in [
        "api",
        "apis",
        "version",
        ".well-known/openid-configuration",
        "openid/v1/jwks",
    ] {
        out.insert(
            name.to_owned(),
            Part::Plain {
                name: name.to_owned(),
                release,
            },
        );
    }
    for resource in registry.iter() {
        for version in resource.versions.iter().filter(|version| version.served) {
            let name = if resource.group.is_empty() {
                format!("api/{}", version.name)
            } else {
                // Upstream describes the paths of built-in groups only.
                if resource.custom.is_none() {
                    let group = format!("apis/{}", resource.group);
                    out.entry(group.clone()).or_insert(Part::Plain {
                        name: group,
                        release,
                    });
                }
                format!("apis/{}/{}", resource.group, version.name)
            };
            let part = out.entry(name).or_insert_with(|| Part::Version {
                group: resource.group.clone(),
                version: version.name.clone(),
                resources: Vec::new(),
                old_claims,
            });
            if let Part::Version { resources, .. } = part {
                resources.push(resource.clone());
            }
        }
    }
    out
}

pub(super) fn digest(parts: &[&str]) -> String {
    let mut hasher = Sha512::new();
    hasher.update(env!("CARGO_PKG_VERSION"));
    for part in parts {
        hasher.update(part.as_bytes());
        hasher.update([0]);
    }
    hasher
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02X}"))
        .collect()
}

impl Part {
    /// Changes when the document does, and is available without generating it.
    pub(super) fn hash(&self) -> String {
        match self {
            Part::Plain { name, .. } => digest(&[name]),
            Part::Version {
                group,
                version,
                resources,
                old_claims,
            } => {
                let facts: Vec<String> = resources
                    .iter()
                    .map(|resource| {
                        let custom = resource.custom.as_ref();
                        let custom = custom.map(|custom| custom.schema_digest(version));
                        let subresources = resource.subresources_of(version);
                        let subresources: Vec<&str> =
                            subresources.map(|sub| sub.name.as_str()).collect();
                        format!(
                            "{} {:?} {subresources:?} {}",
                            resource.plural,
                            resource.verbs,
                            custom.unwrap_or_default()
                        )
                    })
                    .collect();
                digest(&[group, version, &facts.join("\n"), &old_claims.to_string()])
            }
        }
    }

    /// All resources are custom ones.
    fn is_custom(&self) -> bool {
        match self {
            Part::Plain { .. } => false,
            Part::Version { resources, .. } => resources.iter().all(|it| it.custom.is_some()),
        }
    }

    /// What the document is called.
    fn info(&self) -> Value {
        if self.is_custom() {
            return json!({"title": "Kubernetes CRD Swagger", "version": "v0.1.0"});
        }
        let release = match self {
            Part::Plain { release, .. } => *release,
            Part::Version { resources, .. } => {
                let mut built_in = resources.iter().filter(|it| it.custom.is_none());
                built_in.next().map_or(Release::DEFAULT, |it| it.release)
            }
        };
        json!({"title": "Kubernetes", "version": release.to_string()})
    }

    pub(super) fn v3(&self) -> Value {
        let (paths, components) = match self {
            Part::Plain { name, .. } => {
                let components = paths::plain_schemas(name, Format::V3);
                (paths::plain(name, Format::V3), components)
            }
            Part::Version {
                group,
                version,
                resources,
                old_claims,
            } => (
                paths::version(group, version, resources, Format::V3),
                components(version, resources, *old_claims, Format::V3),
            ),
        };
        let mut document = json!({
            "openapi": "3.0.0",
            "info": self.info(),
            "paths": paths,
            "components": {},
        });
        if !self.is_custom() {
            document["components"]["securitySchemes"] =
                json!({"BearerToken": {"in": "header", "name": "authorization", "type": "apiKey"}});
        }
        // Clients that write the document again leave out what is empty.
        if !components.is_empty() {
            document["components"]["schemas"] = components.into();
        }
        document
    }
}

/// The schemas that the resources of a version speak.
pub(super) fn components(
    version: &str,
    resources: &[Arc<Resource>],
    old_claims: bool,
    format: Format,
) -> Map<String, Value> {
    const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
    // What operations refer to besides their kind, by the verb of a resource that has them.
    let built_in = |verb: &str| {
        resources
            .iter()
            .any(|it| it.custom.is_none() && has(it, verb))
    };
    let any = |verb: &str| resources.iter().any(|it| has(it, verb));
    let common = [
        (
            "APIResourceList",
            resources.iter().any(|it| it.custom.is_none()),
        ),
        ("DeleteOptions", any("delete") || any("deletecollection")),
        ("Status", any("delete") || any("deletecollection")),
        ("WatchEvent", built_in("watch")),
        ("Patch", any("patch")),
        ("ObjectMeta", true),
        ("ListMeta", any("list")),
    ];
    let common = common.iter().filter(|(_, is_used)| *is_used);
    let mut roots: BTreeSet<String> = common.map(|(name, _)| format!("{META}.{name}")).collect();
    let mut custom = Map::new();
    for resource in resources {
        match &resource.custom {
            None => {
                let kinds = [resource.kind.as_str(), resource.list_kind.as_str()];
                let known = kinds
                    .into_iter()
                    .filter_map(|kind| types::lookup(&resource.group, version, kind));
                roots.extend(known.map(|structure| structure.name.to_owned()));
                for sub in &resource.subresources {
                    let group = if sub.version.is_empty() {
                        &resource.group
                    } else {
                        &sub.group
                    };
                    let of = if sub.version.is_empty() {
                        version
                    } else {
                        &sub.version
                    };
                    roots.extend(
                        types::lookup(group, of, &sub.kind)
                            .map(|structure| structure.name.to_owned()),
                    );
                }
            }
            Some(made) => {
                let (group, kind) = (&resource.group, &resource.kind);
                let name = schemas::custom_name(group, version, kind);
                let list_name = schemas::custom_name(group, version, &resource.list_kind);
                let list = schemas::list_schema(&name, group, version, &resource.list_kind, format);
                custom.insert(list_name, list);
                custom.insert(
                    name,
                    schemas::custom_schema(&made.schema(version), group, version, kind, format),
                );
                if made.scale(version).is_some() {
                    roots.insert("io.k8s.api.autoscaling.v1.Scale".to_owned());
                }
            }
        }
    }
    let mut out = schemas::schemas(roots.iter().filter_map(|name| types::by_name(name)), format);
    out.extend(custom);
    match resources.iter().find(|it| it.custom.is_none()) {
        Some(it) => add_groups(&mut out, [(it.group.as_str(), version)]),
        None => add_groups(&mut out, of_core_server()),
    }
    if old_claims && let Some(claim) = out.get_mut("io.k8s.api.core.v1.PodResourceClaim") {
        let text = json!({"type": "string"});
        claim["properties"]["source"] = json!({
            "description": "Where the claim comes from, in the form of 1.30 and before.",
            "type": "object",
            "properties": {"resourceClaimName": text, "resourceClaimTemplateName": text},
        });
    }
    out
}

fn has(resource: &Resource, verb: &str) -> bool {
    resource.verbs.iter().any(|known| known == verb)
}

/// The groups of upstream's core server, whose types definitions of custom resources refer to.
fn of_core_server() -> impl Iterator<Item = (&'static str, &'static str)> {
    const OTHERS: [&str; 4] = [
        "admission.k8s.io",
        "apiextensions.k8s.io",
        "apiregistration.k8s.io",
        "imagepolicy.k8s.io",
    ];
    registered::versions().filter(|(group, _)| !OTHERS.contains(group))
}

/// Types that are part of every group are kinds of the core group, and of that of the document.
pub(super) fn add_groups<'a>(
    schemas: &mut Map<String, Value>,
    groups: impl IntoIterator<Item = (&'a str, &'a str)>,
) {
    let mut all = BTreeSet::from([("", "v1")]);
    all.extend(groups);
    for (name, schema) in schemas {
        let Some(id) = types::by_name(name).filter(|id| id.get().any_group) else {
            continue;
        };
        let kind = id.get().simple_name();
        let kinds = all.iter();
        let kinds =
            kinds.map(|(group, version)| json!({"group":group,"version":version,"kind":kind}));
        schema["x-kubernetes-group-version-kind"] = kinds.collect();
    }
}
