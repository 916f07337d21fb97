//! The objects that a binding gives its policy as parameters.

use std::sync::Arc;

use allot_apimachinery::labels::LabelSelector;
use allot_store::ListOptions;
use serde_json::Value;

use super::request::Request;
use crate::conversion;
use crate::error::Result;
use crate::object::{split_api_version, string_map, text};
use crate::registry::Resource;
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

    /// The objects, in the version that the policy names.
    ///
    /// # Errors
    /// The error if the binding cannot be used; the outer error is from the store.
    pub async fn collect(
        &self,
        kind: &ParamKind,
        resource: &Resource,
        request: &Request<'_>,
    ) -> Result<std::result::Result<Vec<Value>, String>> {
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
        let read = |bytes: &[u8]| versions::decode(resource, version, bytes);
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
                let param = read(&entry.value)?;
                if selector.matches(&string_map(&param["metadata"]["labels"])) {
                    found.push(param);
                }
            }
        } else {
            let key = resource.key(namespace, &self.name);
            if let Some(entry) = backend.get(&resource.collection, &key).await? {
                let entry = conversion::entry(core, resource, version, entry).await?;
                found.push(read(&entry.value)?);
            }
        }
        if found.is_empty() && self.required {
            let why = "no params found for policy binding with `Deny` parameterNotFoundAction";
            return Ok(Err(why.to_owned()));
        }
        Ok(Ok(found))
    }
}
