//! The effect of a cluster's release on a manifest: which fields it drops or rejects.

#[cfg(test)]
mod tests;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::availability::{self, Served};
use crate::features::{Feature, Features, Release, Stage};
use crate::kind::{GROUP, Kind, Version};
use crate::shape::{self, tables};
use crate::view::{View, set};
use crate::{admin, convert, defaults, strategy, validate};

/// The effect on the part of a manifest that a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// The API server refuses the object.
    Refused,
    /// The API server accepts the object without the field.
    Dropped,
    /// Accepted, with a note.
    Warning,
}

/// One effect of a cluster on a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What the API server of that release does with the field.
    pub effect: Effect,
    /// The field, as the API server names it.
    pub field: String,
    /// The reason, as a sentence.
    pub text: String,
}

/// Checks one document for a cluster of `release` with default feature gates. `served` are the versions of the group
/// `resource.k8s.io` that the cluster is known to serve, also those that a release does not serve by default. `now` is
/// the time of creation.
pub fn lint(document: &Value, release: Release, served: &[String], now: Timestamp) -> Vec<Finding> {
    let mut findings = Findings {
        release,
        served,
        list: Vec::new(),
    };
    let (group, version) = document
        .text("apiVersion")
        .split_once('/')
        .unwrap_or(("", document.text("apiVersion")));
    if group == GROUP {
        findings.object(document, version, now);
    } else {
        findings.pod(document);
    }
    findings.list
}

/// The replacement of a kind, or a similar kind if no release has it.
fn misspelt(release: Release, kind: &str) -> String {
    // Those of classic DRA.
    match kind {
        _ if release.minor() <= 30 => {}
        "ResourceClass" => return "; a DeviceClass takes its place".to_owned(),
        "ResourceClaimParameters" | "ResourceClassParameters" => {
            return "; parameters are in spec.devices.config of a claim, or spec.config of a DeviceClass".to_owned();
        }
        "PodScheduling" | "PodSchedulingContext" => {
            return "; nothing takes its place: the scheduler allocates without asking drivers"
                .to_owned();
        }
        _ => {}
    }
    match Kind::from_name(kind) {
        Some(_) => String::new(),
        None => allot_apimachinery::suggest::hint(kind, Kind::ALL.iter().map(|it| it.name())),
    }
}

struct Findings<'a> {
    release: Release,
    served: &'a [String],
    list: Vec<Finding>,
}

impl Findings<'_> {
    fn add(&mut self, effect: Effect, field: impl Into<String>, text: impl Into<String>) {
        self.list.push(Finding {
            effect,
            field: field.into(),
            text: text.into(),
        });
    }

    /// Claims of pods had another form up to 1.30.
    fn pod(&mut self, document: &Value) {
        let wrapped = self.release.minor() <= 30;
        for pointer in [
            "/spec",
            "/spec/template/spec",
            "/spec/jobTemplate/spec/template/spec",
            "/template/spec",
        ] {
            let claims = document
                .pointer(pointer)
                .map_or(&[][..], |spec| spec.list("resourceClaims"));
            let path = pointer.trim_start_matches('/').replace('/', ".");
            for (index, claim) in claims.iter().enumerate() {
                let path = format!("{path}.resourceClaims[{index}]");
                if !wrapped && claim.has("source") {
                    self.add(
                        Effect::Dropped,
                        format!("{path}.source"),
                        "from 1.31 on its members stand in the claim itself",
                    );
                }
                for key in ["resourceClaimName", "resourceClaimTemplateName"] {
                    if wrapped && claim.has(key) {
                        self.add(
                            Effect::Dropped,
                            format!("{path}.{key}"),
                            "up to 1.30 it stands inside `source`",
                        );
                    }
                }
            }
        }
    }

    fn object(&mut self, document: &Value, version: &str, now: Timestamp) {
        let kind = document.text("kind");
        let release = self.release;
        match availability::served(release, version, kind) {
            Served::Never => {
                let has = availability::versions(release, kind);
                let known = match has.first() {
                    Some(newest) => format!("it has {kind} in {newest}"),
                    None => format!("it has no {kind}{}", misspelt(release, kind)),
                };
                return self.add(
                    Effect::Refused,
                    "apiVersion",
                    format!("{release} does not know {kind} in {version}; {known}"),
                );
            }
            Served::OnRequest if self.served.iter().any(|known| known == version) => {}
            Served::OnRequest => {
                let text = format!(
                    "not served unless the API server runs with --runtime-config={GROUP}/{version}=true"
                );
                self.add(Effect::Warning, "apiVersion", text);
            }
            Served::ByDefault => {}
        }
        let (Some(kind), Ok(version)) = (Kind::from_name(kind), version.parse::<Version>()) else {
            return;
        };
        if !kind.versions().contains(&version) {
            return;
        }
        let mut object = document.clone();
        complete(kind, &mut object);
        defaults::default(kind, version, &mut object, now);
        let Ok(object) = convert::convert(kind, version, kind.hub(), object) else {
            return self.add(Effect::Refused, "", "not an object");
        };
        let start = self.list.len();
        for field in shape::unknown_fields(tables::of(kind), &object) {
            self.add(
                Effect::Dropped,
                field,
                "not a known field; kubectl refuses it",
            );
        }
        let kept = self.features(kind, &object);
        self.rules(kind, &kept);
        if version == Version::V1Beta1 {
            self.list[start..]
                .iter_mut()
                .for_each(|finding| finding.field = in_v1beta1(&finding.field));
        }
    }

    /// Fields of features that are off; the result is what the API server keeps.
    fn features(&mut self, kind: Kind, object: &Value) -> Value {
        let features = Features::of(self.release);
        let mut kept = object.clone();
        for feature in Feature::ALL
            .iter()
            .copied()
            .filter(|feature| !features.enabled(*feature))
        {
            let mut without = kept.clone();
            // Everything else is on, so that each loss has one reason.
            let all = Feature::ALL.iter().fold(Features::default(), |all, other| {
                all.with(*other, *other != feature)
            });
            strategy::drop_disabled_fields(kind, &mut without, None, &all);
            let mut lost = Vec::new();
            removed(&kept, &without, "", &mut lost);
            for field in lost {
                let text = match feature.spec(self.release).map(|spec| spec.stage) {
                    Some(Stage::Alpha) => format!(
                        "needs the feature {feature}, which is alpha and off in {}",
                        self.release
                    ),
                    Some(Stage::Beta) => format!(
                        "needs the feature {feature}, which is off in {}",
                        self.release
                    ),
                    _ => format!(
                        "{} does not know the field ({feature}); kubectl refuses it",
                        self.release
                    ),
                };
                self.add(Effect::Dropped, field, text);
            }
            kept = without;
        }
        kept
    }

    fn rules(&mut self, kind: Kind, object: &Value) {
        let features = Features::of(self.release);
        for error in validate::create(kind, object, &features) {
            self.add(Effect::Refused, error.field.clone(), error.body());
        }
        if let Some(place) = admin::requested(kind, object) {
            let text = format!(
                "only works in a namespace with the label {}=true",
                admin::ADMIN_ACCESS_LABEL
            );
            self.add(Effect::Warning, place.as_str(), text);
        }
        for warning in validate::warnings(kind, object) {
            let (field, text) = warning.split_once(": ").unwrap_or(("", &warning));
            self.add(Effect::Warning, field, text);
        }
    }
}

/// Adds fields that kubectl or the API server would add to a manifest.
fn complete(kind: Kind, object: &mut Value) {
    if !object.has("metadata") {
        set(object, "metadata", json!({}));
    }
    let Some(metadata) = object.get_mut("metadata") else {
        return;
    };
    if kind.namespaced() && metadata.text("namespace").is_empty() {
        set(metadata, "namespace", "default");
    }
    let prefix = metadata.text("generateName").to_owned();
    if metadata.text("name").is_empty() && !prefix.is_empty() {
        set(metadata, "name", format!("{prefix}x"));
    }
}

/// The members of `before` that are not in `after`.
fn removed(before: &Value, after: &Value, path: &str, lost: &mut Vec<String>) {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            for (key, member) in before {
                let path = if path.is_empty() {
                    key.clone()
                } else {
                    format!("{path}.{key}")
                };
                match after.get(key) {
                    Some(other) => removed(member, other, &path, lost),
                    None => lost.push(path),
                }
            }
        }
        (Value::Array(before), Value::Array(after)) => {
            for (index, (member, other)) in before.iter().zip(after).enumerate() {
                removed(member, other, &format!("{path}[{index}]"), lost);
            }
        }
        _ => {}
    }
}

/// The path of a field in v1beta1, where requests are flat and devices are not.
fn in_v1beta1(field: &str) -> String {
    let field = field.replace(".exactly.", ".");
    let Some(rest) = field.strip_prefix("spec.devices[") else {
        return field;
    };
    match rest.split_once("].") {
        Some((index, member)) if member != "name" => {
            format!("spec.devices[{index}].basic.{member}")
        }
        _ => field,
    }
}
