//! The objects that a binding gives its policy as parameters.

use std::sync::Arc;

use allot_apimachinery::labels::LabelSelector;
use allot_store::{Entry, ListOptions};
use serde_json::Value;

use super::request::Request;
use crate::conversion;
use crate::error::Result;
use crate::limits;
use crate::object::{split_api_version, text};
use crate::registry::Resource;
use crate::select::Attributes;
use crate::versions;

/// The kind that a policy takes as parameters.
#[derive(Debug)]
pub(super) struct ParamKind {
    api_version: String,
    kind: String,
}

impl ParamKind {
    /// Of a policy, if it takes any.
    pub fn of(value: &Value) -> Option<Self> {
        value.is_object().then(|| ParamKind {
            api_version: text(value, &["apiVersion"]).to_owned(),
            kind: text(value, &["kind"]).to_owned(),
        })
    }

    /// The resource behind it, and its version.
    ///
    /// # Errors
    /// Upstream's text if there is none.
    pub fn resolve(&self, request: &Request<'_>) -> std::result::Result<Arc<Resource>, String> {
        let (group, version) = split_api_version(&self.api_version);
        let registry = request.core.registry.load();
        let found = registry.by_kind(group, &self.kind).filter(|resource| {
            let version = resource.version(version);
            version.is_some_and(|version| version.served)
        });
        found.cloned().ok_or_else(|| {
            format!(
                "failed to find resource referenced by paramKind: '{}, Kind={}'",
                self.api_version, self.kind
            )
        })
    }

    fn version(&self) -> &str {
        split_api_version(&self.api_version).1
    }
}

/// One object that a binding refers to. It is a tree only while it is used: there may be as many as their authors make,
/// which need not be the author of the policy.
pub(super) struct Param {
    /// `None` if the policy takes no parameters, or the binding gives none.
    stored: Option<(Arc<Resource>, Arc<Entry>)>,
}

impl Param {
    /// Of a policy without parameters.
    pub const NONE: Param = Param { stored: None };

    /// The object, in the version that the policy names.
    ///
    /// # Errors
    /// 500 if it cannot be converted.
    pub fn read(&self, kind: Option<&ParamKind>) -> Result<Value> {
        match (&self.stored, kind) {
            (Some((resource, entry)), Some(kind)) => {
                versions::decode(resource, kind.version(), &entry.value)
            }
            _ => Ok(Value::Null),
        }
    }
}

/// What a binding refers to.
#[derive(Debug)]
pub(super) struct ParamRef {
    name: String,
    namespace: String,
    selector: Value,
    required: bool,
}

impl ParamRef {
    /// The `paramRef` of a binding, if there is one.
    pub fn of(value: &Value) -> Option<Self> {
        value.is_object().then(|| ParamRef {
            name: text(value, &["name"]).to_owned(),
            namespace: text(value, &["namespace"]).to_owned(),
            selector: value["selector"].clone(),
            required: text(value, &["parameterNotFoundAction"]) == "Deny",
        })
    }

    /// The objects.
    ///
    /// # Errors
    /// The error if the binding cannot be used; the outer error is from the store.
    pub async fn collect(
        &self,
        kind: &ParamKind,
        resource: &Arc<Resource>,
        request: &Request<'_>,
    ) -> Result<std::result::Result<Vec<Param>, String>> {
        let namespace = match (resource.namespaced, self.namespace.as_str()) {
            (true, "") if request.namespace.is_empty() => {
                let why = "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources";
                return Ok(Err(why.to_owned()));
            }
            (true, "") => request.namespace,
            (false, "") => "",
            (true, named) => named,
            (false, _) => {
                let why =
                    "paramRef.namespace must not be provided for a cluster-scoped `paramKind`";
                return Ok(Err(why.to_owned()));
            }
        };
        let backend = &request.core.backend;
        let (core, version) = (request.core, kind.version());
        let param = |entry| Param {
            stored: Some((resource.clone(), entry)),
        };
        let mut found = Vec::new();
        if self.name.is_empty() {
            let selector = match LabelSelector::from_json(&self.selector)
                .and_then(|selector| selector.to_selector())
            {
                Ok(selector) => selector,
                Err(error) => return Ok(Err(error.to_string())),
            };
            let prefix = resource.key(namespace, "");
            let options = ListOptions {
                prefix: &prefix,
                ..ListOptions::default()
            };
            let page = backend.list(&resource.collection, options).await?;
            let entries = conversion::entries(core, resource, version, page.entries);
            for entry in entries.await? {
                limits::checkpoint().await;
                if selector.matches(Attributes::of_entry(resource, &entry).labels()) {
                    found.push(param(entry));
                }
            }
        } else {
            let key = resource.key(namespace, &self.name);
            if let Some(entry) = backend.get(&resource.collection, &key).await? {
                let entry = conversion::entry(core, resource, version, entry).await?;
                found.push(param(entry));
            }
        }
        if found.is_empty() && self.required {
            let why = "no params found for policy binding with `Deny` parameterNotFoundAction";
            return Ok(Err(why.to_owned()));
        }
        Ok(Ok(found))
    }
}
