//! Selectors of lists and watches.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use allot_apimachinery::fields::FieldSelector;
use allot_apimachinery::labels::Selector;
use allot_model::features::Release;
use allot_model::selectable;
use allot_store::Entry;
use serde_json::Value;

use crate::error::{ApiError, Result};
use crate::object::text;
use crate::registry::Resource;
use crate::request::Query;
use crate::versions;

pub use extract::extract;

mod extract;
#[cfg(test)]
mod tests;

/// A field that every classic slice has, and no newer one.
const CLASSIC_DRIVER: &str = "driverName";

/// What of an object a selector can see; derived once per stored version.
#[derive(Debug, Clone, Default)]
pub struct Attributes {
    labels: BTreeMap<String, String>,
    /// The fields that are not empty, since there is one set for each stored version.
    fields: Box<[(Cow<'static, str>, Box<str>)]>,
    /// The state of the CRD that defines these fields, for custom objects.
    definition: Option<u64>,
}

impl Attributes {
    /// Reads them from an object.
    pub fn of(resource: &Resource, object: &Value) -> Self {
        let labels = crate::object::string_map(&object["metadata"]["labels"]);
        let name = crate::object::meta(object, "name").into();
        let namespace = crate::object::meta(object, "namespace").into();
        let mut fields: Vec<(Cow<'static, str>, Box<str>)> = vec![
            ("metadata.name".into(), name),
            ("metadata.namespace".into(), namespace),
        ];
        for field in selectable(resource) {
            let value = field_value(resource, object, &field).into();
            fields.push((field, value));
        }
        fields.retain(|(_, value)| !value.is_empty());
        let fields = fields.into();
        Attributes {
            labels,
            fields,
            definition: definition(resource),
        }
    }

    /// The value of a selectable field; `None` if it is empty.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| &**value)
    }

    /// The fields of a stored version, cached with it.
    pub fn of_entry(resource: &Resource, entry: &Entry) -> Arc<Self> {
        let derive = |entry: &Entry| {
            // What the store holds was written by this server as JSON.
            let object = match resource.custom {
                Some(_) => versions::stored(resource, &entry.value).unwrap_or(Value::Null),
                None => extract(&entry.value, &visible(resource)),
            };
            Attributes::of(resource, &object)
        };
        let known = entry.memo(derive);
        if known.definition == definition(resource) {
            return known;
        }
        // The CRD has other selectable fields, or other defaults for them, than at the first use.
        Arc::new(derive(entry))
    }
}

/// The identity of a state of a CRD.
fn definition(resource: &Resource) -> Option<u64> {
    resource.custom.as_ref()?.mark(&resource.storage_version)
}

/// Fields besides name and namespace, in upstream's names.
fn selectable(resource: &Resource) -> Vec<Cow<'static, str>> {
    let fixed: &[&'static str] = match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "pods") => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ],
        ("", "nodes") => &["spec.unschedulable"],
        ("", "namespaces") => &["status.phase", "name"],
        ("", "secrets") => &["type"],
        ("", "services") => &["spec.clusterIP", "spec.type"],
        ("", "replicationcontrollers") => &["status.replicas"],
        ("" | "events.k8s.io", "events") => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        ("batch", "jobs") => &["status.successful"],
        ("certificates.k8s.io", "certificatesigningrequests") => &["spec.signerName"],
        ("resource.k8s.io", "resourceslices") if resource.release >= Release::new(37) => &[
            selectable::SLICE_NODE_NAME,
            selectable::SLICE_DRIVER,
            selectable::SLICE_POOL_NAME,
        ],
        ("resource.k8s.io", "resourceslices") => {
            &[selectable::SLICE_NODE_NAME, selectable::SLICE_DRIVER]
        }
        _ => &[],
    };
    if crate::classic::is_apart(resource) {
        return ["spec.nodeName", "spec.driver", "nodeName", CLASSIC_DRIVER]
            .map(Cow::Borrowed)
            .to_vec();
    }
    match &resource.custom {
        Some(custom) => {
            let fields = custom.selectable_fields().into_iter();
            fields.map(Cow::Owned).collect()
        }
        None => fixed.iter().copied().map(Cow::Borrowed).collect(),
    }
}

/// All paths that selectors of a built-in kind read.
fn visible(resource: &Resource) -> Vec<Cow<'static, str>> {
    let fixed = ["metadata.labels", "metadata.name", "metadata.namespace"];
    let mut paths: Vec<Cow<'static, str>> = fixed.map(Cow::Borrowed).into();
    for field in selectable(resource) {
        match &*field {
            "status.podIPs" => paths.push("status.podIP".into()),
            "status.successful" => paths.push("status.succeeded".into()),
            "source" => paths.extend(["source.component", "reportingComponent"].map(Cow::Borrowed)),
            _ => paths.push(field),
        }
    }
    paths
}

fn field_value(resource: &Resource, object: &Value, field: &str) -> String {
    let path: Vec<&str> = field.split('.').collect();
    match (resource.plural.as_str(), field) {
        ("namespaces", "name") => return crate::object::meta(object, "name").to_owned(),
        ("events", "source") => {
            let component = text(object, &["source", "component"]);
            let source = if component.is_empty() {
                text(object, &["reportingComponent"])
            } else {
                component
            };
            return source.to_owned();
        }
        ("pods", "status.podIPs") => return text(object, &["status", "podIP"]).to_owned(),
        ("jobs", "status.successful") => {
            return object["status"]["succeeded"]
                .as_i64()
                .unwrap_or(0)
                .to_string();
        }
        (_, "spec.hostNetwork" | "spec.unschedulable") => {
            return path
                .iter()
                .fold(object, |value, key| &value[*key])
                .as_bool()
                .unwrap_or(false)
                .to_string();
        }
        (_, "status.replicas") => {
            return object["status"]["replicas"]
                .as_i64()
                .unwrap_or(0)
                .to_string();
        }
        _ => {}
    }
    match path.iter().fold(object, |value, key| &value[*key]) {
        Value::String(value) => value.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// The label and field selectors of a request.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    labels: Option<Selector>,
    fields: Option<FieldSelector>,
    /// If objects of both generations are stored that cannot be converted to the other one: which of them the request
    /// selects.
    classic: Option<bool>,
    /// The only namespace that can match, if the selector names one.
    pub namespace: Option<String>,
}

impl Selection {
    /// The selectors of a request as they are written.
    ///
    /// # Errors
    /// 400 for bad syntax.
    pub fn read(query: &Query) -> Result<(Option<Selector>, Option<FieldSelector>)> {
        let labels = query
            .text("labelSelector")
            .map(|selector| {
                Selector::parse(selector).map_err(|error| ApiError::bad_request(error.to_string()))
            })
            .transpose()?;
        let fields = query
            .text("fieldSelector")
            .map(|selector| {
                FieldSelector::parse(selector)
                    .map_err(|error| ApiError::bad_request(error.to_string()))
            })
            .transpose()?;
        Ok((labels, fields))
    }

    /// Reads `labelSelector` and `fieldSelector`.
    ///
    /// # Errors
    /// 400 for bad syntax and for fields that the resource does not offer.
    pub fn parse(resource: &Resource, version: &str, query: &Query) -> Result<Self> {
        Self::of(resource, version, Self::read(query)?)
    }

    /// The selection by selectors that have been read.
    ///
    /// # Errors
    /// 400 for fields that the resource does not offer.
    pub fn of(
        resource: &Resource,
        version: &str,
        (labels, mut fields): (Option<Selector>, Option<FieldSelector>),
    ) -> Result<Self> {
        if let Some(fields) = &fields {
            let mut known = selectable(resource);
            if resource.group == versions::EVENTS {
                // It has none for the component that older events name.
                known.retain(|field| field != "source");
                known = known
                    .iter()
                    .map(|field| public_name(field).into())
                    .collect();
            }
            for requirement in fields.requirements() {
                let field = requirement.field.as_str();
                // Custom objects of the cluster have none, while built-in ones only do not match.
                let has_namespace = resource.custom.is_none() || resource.namespaced;
                let everywhere = field == "metadata.name"
                    || field == "metadata.namespace" && has_namespace && !is_slices(resource);
                if !everywhere && !known.iter().any(|it| it == field) {
                    return Err(ApiError::bad_request(unsupported_field(
                        resource, version, field,
                    )));
                }
            }
        }
        if resource.group == versions::EVENTS {
            fields = fields.map(|fields| fields.renamed(stored_name));
        }
        let exact = |field| {
            fields
                .as_ref()
                .and_then(|fields| fields.exact(field))
                .map(str::to_owned)
        };
        Ok(Selection {
            namespace: exact("metadata.namespace"),
            labels: labels.filter(|labels| !labels.is_empty()),
            fields: fields.filter(|fields| !fields.is_empty()),
            classic: crate::classic::is_apart(resource)
                .then(|| crate::classic::is_version(version)),
        })
    }

    /// Everything matches.
    pub fn is_everything(&self) -> bool {
        self.labels.is_none() && self.fields.is_none() && self.classic.is_none()
    }

    /// The stored version matches.
    pub fn matches(&self, resource: &Resource, entry: &Entry) -> bool {
        if self.is_everything() {
            return true;
        }
        self.matches_attributes(&Attributes::of_entry(resource, entry))
    }

    fn matches_attributes(&self, attributes: &Attributes) -> bool {
        self.labels
            .as_ref()
            .is_none_or(|labels| labels.matches(&attributes.labels))
            && self
                .fields
                .as_ref()
                .is_none_or(|fields| fields.matches(|name| attributes.field(name)))
            && self.classic.is_none_or(|classic| {
                let driver = attributes.field(CLASSIC_DRIVER);
                classic == driver.is_some_and(|driver| !driver.is_empty())
            })
    }
}

/// The fields of events that `events.k8s.io` gives other names, as they are stored and as that group calls them.
const EVENT_FIELDS: [(&str, &str); 8] = [
    ("involvedObject.kind", "regarding.kind"),
    ("involvedObject.namespace", "regarding.namespace"),
    ("involvedObject.name", "regarding.name"),
    ("involvedObject.uid", "regarding.uid"),
    ("involvedObject.apiVersion", "regarding.apiVersion"),
    (
        "involvedObject.resourceVersion",
        "regarding.resourceVersion",
    ),
    ("involvedObject.fieldPath", "regarding.fieldPath"),
    ("reportingComponent", "reportingController"),
];

fn public_name(stored: &str) -> String {
    let known = EVENT_FIELDS.iter().find(|(known, _)| *known == stored);
    known.map_or(stored, |(_, public)| public).to_owned()
}

fn stored_name(public: &str) -> String {
    let known = EVENT_FIELDS.iter().find(|(_, known)| *known == public);
    known.map_or(public, |(stored, _)| stored).to_owned()
}

/// The only cluster-scoped kind that rejects a namespace in a field selector.
fn is_slices(resource: &Resource) -> bool {
    resource.is("resource.k8s.io", "resourceslices")
}

/// Upstream's text depends on whether the kind registered its own conversion of field labels.
fn unsupported_field(resource: &Resource, version: &str, field: &str) -> String {
    const CORE: [&str; 7] = [
        "pods",
        "nodes",
        "namespaces",
        "secrets",
        "services",
        "replicationcontrollers",
        "events",
    ];
    let (group, plural) = (resource.group.as_str(), resource.plural.as_str());
    if matches!(group, "" | versions::EVENTS) && CORE.contains(&plural) {
        return format!("field label not supported: {field}");
    }
    if is_slices(resource) {
        return format!(
            "field label not supported for {group}/{version}, Kind={}: {field}",
            resource.kind
        );
    }
    if matches!((group, plural), ("batch", "jobs")) {
        return format!("field label {field:?} not supported for Job");
    }
    if matches!(
        (group, plural),
        ("certificates.k8s.io", "certificatesigningrequests")
    ) {
        return format!("field label not supported: {field}");
    }
    if resource.custom.is_some() {
        return format!("field label not supported: {field}");
    }
    format!(
        "\"{field}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
    )
}
