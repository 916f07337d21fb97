//! The relations between a node and other objects: what upstream's graph holds, looked up in the store.

use std::sync::Arc;

use allot_store::{Entry, ListOptions};
use serde_json::Value;

use super::{OF_POD, OF_SLICE, SLICES, allow, no, node_of_slice, selects};
use crate::auth::authorize::AuthorizerAttributes;
use crate::auth::decision::Decision;
use crate::error::Result;
use crate::object::text;
use crate::references;
use crate::select::{Attributes, extract};
use crate::state::ServerState;

/// What a node has to do with the objects of the store.
pub(super) struct View<'a> {
    pub(super) core: &'a ServerState,
    pub(super) node: &'a str,
}

impl View<'_> {
    /// Secrets and config maps, which may be watched one by one.
    pub(super) async fn read(&self, attributes: &AuthorizerAttributes<'_>) -> Result<Decision> {
        if !matches!(attributes.verb, "get" | "list" | "watch") {
            return Ok(no("can only read resources of this type"));
        }
        if !attributes.subresource.is_empty() {
            return Ok(no("cannot read subresource"));
        }
        if attributes.namespace.is_empty() {
            return Ok(no("can only read namespaced object of this type"));
        }
        self.related(attributes).await
    }

    pub(super) async fn get(&self, attributes: &AuthorizerAttributes<'_>) -> Result<Decision> {
        if attributes.verb != "get" {
            return Ok(no("can only get individual resources of this type"));
        }
        if !attributes.subresource.is_empty() {
            return Ok(no("cannot get subresource"));
        }
        self.related(attributes).await
    }

    pub(super) async fn update_status(
        &self,
        attributes: &AuthorizerAttributes<'_>,
    ) -> Result<Decision> {
        if !matches!(attributes.verb, "update" | "patch") {
            return Ok(no("can only get/update/patch this type"));
        }
        self.related(attributes).await
    }

    pub(super) async fn account(
        &self,
        attributes: &AuthorizerAttributes<'_>,
        reads: bool,
    ) -> Result<Decision> {
        if attributes.verb == "get" && attributes.subresource.is_empty() {
            if !reads {
                return Ok(no("not allowed to get service accounts"));
            }
            return self.read(attributes).await;
        }
        if attributes.verb != "create" || attributes.name.is_empty() {
            return Ok(no("can only create tokens for individual service accounts"));
        }
        if attributes.subresource != "token" {
            return Ok(no("can only create token subresource of serviceaccount"));
        }
        self.related(attributes).await
    }

    pub(super) async fn pod(&self, attributes: &AuthorizerAttributes<'_>) -> Result<Decision> {
        match (attributes.subresource, attributes.verb) {
            ("", "get") => self.get(attributes).await,
            ("", "list" | "watch") => {
                if selects(attributes, &["spec.nodeName"], self.node) {
                    Ok(allow())
                } else if attributes.name.is_empty() {
                    Ok(no(
                        "can only list/watch pods with spec.nodeName field selector",
                    ))
                } else {
                    self.related(attributes).await
                }
            }
            // Which pods they are is for the plugin NodeRestriction, which sees them.
            ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => {
                Ok(allow())
            }
            _ => Ok(no("")),
        }
    }

    pub(super) async fn pod_certificate(
        &self,
        attributes: &AuthorizerAttributes<'_>,
    ) -> Result<Decision> {
        if !attributes.subresource.is_empty() {
            return Ok(no(
                "nodes may not access the status subresource of PodCertificateRequests",
            ));
        }
        match attributes.verb {
            // For which pod it is the plugin NodeRestriction sees.
            "create" => Ok(allow()),
            "get" => self.related(attributes).await,
            "list" | "watch" if selects(attributes, &["spec.nodeName"], self.node) => Ok(allow()),
            "list" | "watch" => Ok(no(
                "can only list/watch podcertificaterequests with nodeName field selector",
            )),
            verb => Ok(no(format!("nodes may not {verb} podcertificaterequests"))),
        }
    }

    pub(super) async fn slice(
        &self,
        attributes: &AuthorizerAttributes<'_>,
        with_selectors: bool,
    ) -> Result<Decision> {
        if !attributes.subresource.is_empty() {
            return Ok(no("cannot authorize ResourceSlice subresources"));
        }
        match attributes.verb {
            // For which node it is the plugin NodeRestriction sees.
            "create" => Ok(allow()),
            "get" | "update" | "patch" | "delete" => self.related(attributes).await,
            "list" | "watch" | "deletecollection" => {
                if !with_selectors || selects(attributes, &["spec.nodeName", "nodeName"], self.node)
                {
                    return Ok(allow());
                }
                Ok(no(
                    "can only list/watch/deletecollection resourceslices with nodeName field selector",
                ))
            }
            _ => Ok(no(
                "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, \
                 delete, deletecollection",
            )),
        }
    }

    /// Allows what has to do with the node.
    pub(super) async fn related(&self, attributes: &AuthorizerAttributes<'_>) -> Result<Decision> {
        if attributes.name.is_empty() {
            return Ok(no("No Object name found"));
        }
        if self.is_related(attributes).await? {
            return Ok(allow());
        }
        Ok(no(format!(
            "no relationship found between node '{}' and this object",
            self.node
        )))
    }

    pub(super) async fn is_related(&self, attributes: &AuthorizerAttributes<'_>) -> Result<bool> {
        let (namespace, name) = (attributes.namespace, attributes.name);
        match attributes.resource {
            "pods" => {
                let key = format!("{namespace}/{name}");
                let pod = self.stored("pods", &key, &["spec.nodeName"]).await?;
                Ok(text(&pod, &["spec", "nodeName"]) == self.node)
            }
            "resourceslices" => {
                let slice = self.stored(SLICES, name, &OF_SLICE).await?;
                Ok(node_of_slice(&slice) == self.node)
            }
            "podcertificaterequests" => {
                let collection = "certificates.k8s.io/podcertificaterequests";
                let key = format!("{namespace}/{name}");
                let found = self.stored(collection, &key, &["spec.nodeName"]).await?;
                Ok(text(&found, &["spec", "nodeName"]) == self.node)
            }
            "volumeattachments" => {
                let collection = "storage.k8s.io/volumeattachments";
                let found = self.stored(collection, name, &["spec.nodeName"]).await?;
                Ok(text(&found, &["spec", "nodeName"]) == self.node)
            }
            "persistentvolumes" => {
                let volume = self
                    .stored("persistentvolumes", name, &["spec.claimRef"])
                    .await?;
                self.mounts(&volume).await
            }
            "persistentvolumeclaims" => self.claims(namespace, name).await,
            "resourceclaims" => {
                let refers = |pod: &Value| references::resource_claims(pod).any(|it| it == name);
                self.some_pod(namespace, refers).await
            }
            "serviceaccounts" => {
                let refers = |pod: &Value| text(pod, &["spec", "serviceAccountName"]) == name;
                self.some_pod(namespace, refers).await
            }
            "configmaps" => {
                let refers = |pod: &Value| references::config_maps(pod).any(|it| it == name);
                self.some_pod(namespace, refers).await
            }
            "secrets" => {
                let refers = |pod: &Value| references::secrets(pod).any(|it| it == name);
                Ok(self.some_pod(namespace, refers).await?
                    || self.some_volume_needs(namespace, name).await?)
            }
            _ => Ok(false),
        }
    }

    /// A pod of the node uses the persistent volume claim.
    pub(super) async fn claims(&self, namespace: &str, name: &str) -> Result<bool> {
        let refers = |pod: &Value| references::volume_claims(pod).any(|it| it == name);
        self.some_pod(namespace, refers).await
    }

    /// A pod of the node uses the claim that a persistent volume is for.
    pub(super) async fn mounts(&self, volume: &Value) -> Result<bool> {
        let claim = |key| text(volume, &["spec", "claimRef", key]);
        match (claim("namespace"), claim("name")) {
            ("", _) | (_, "") => Ok(false),
            (namespace, name) => self.claims(namespace, name).await,
        }
    }

    /// A persistent volume of the node's pods needs the secret.
    pub(super) async fn some_volume_needs(&self, namespace: &str, name: &str) -> Result<bool> {
        let volumes = self
            .core
            .backend
            .list("persistentvolumes", ListOptions::default())
            .await?;
        for entry in &volumes.entries {
            // Most volumes do not have the name anywhere: only the others are read.
            if !std::str::from_utf8(&entry.value).is_ok_and(|text| text.contains(name)) {
                continue;
            }
            let volume = extract(&entry.value, &["spec"]);
            if references::secrets_of_volume(&volume).contains(&(namespace, name))
                && self.mounts(&volume).await?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The namespace has a pod on the node that is no mirror pod and `refers` to the object.
    pub(super) async fn some_pod(
        &self,
        namespace: &str,
        refers: impl Fn(&Value) -> bool,
    ) -> Result<bool> {
        let Some(resource) = self.core.registry.load().get("", "pods").cloned() else {
            return Ok(false);
        };
        let prefix = format!("{namespace}/");
        let options = ListOptions {
            prefix: &prefix,
            ..ListOptions::default()
        };
        let page = self.core.backend.list("pods", options).await?;
        let on_node = |entry: &&Arc<Entry>| {
            Attributes::of_entry(&resource, entry).field("spec.nodeName") == Some(self.node)
        };
        Ok(page
            .entries
            .iter()
            .filter(on_node)
            .map(|entry| extract(&entry.value, &OF_POD))
            .any(|pod| !references::is_mirror(&pod) && refers(&pod)))
    }

    /// What counts of a stored object, null if it does not exist.
    pub(super) async fn stored(
        &self,
        collection: &str,
        key: &str,
        paths: &[&str],
    ) -> Result<Value> {
        let found = self.core.stored_parts(collection, key, paths).await?;
        Ok(found.unwrap_or_default())
    }
}
