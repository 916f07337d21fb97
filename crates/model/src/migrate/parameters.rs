//! Finding the parameters that classic classes and claims refer to.

use serde_json::Value;

use super::{Context, own_metadata};
use crate::kind::GROUP;
use crate::view::{View, remove, set};

/// A reference to parameters, with the namespace it is resolved in ("" for objects without).
pub(super) struct Reference<'a> {
    pub(super) group: &'a str,
    pub(super) kind: &'a str,
    pub(super) name: &'a str,
    pub(super) namespace: &'a str,
}

impl<'a> Reference<'a> {
    pub(super) fn of(reference: &'a Value, namespace: &'a str) -> Reference<'a> {
        Reference {
            group: reference.text("apiGroup"),
            kind: reference.text("kind"),
            name: reference.text("name"),
            namespace,
        }
    }
}

impl std::fmt::Display for Reference<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (kind, name) = (self.kind, self.name);
        if self.group.is_empty() {
            write!(f, "{kind} {name}")
        } else {
            write!(f, "{kind}.{} {name}", self.group)
        }
    }
}

fn group_of(document: &Value) -> &str {
    document
        .text("apiVersion")
        .split_once('/')
        .map_or("", |(group, _)| group)
}

impl<'a> Context<'a> {
    /// The document that a reference names. The namespace only counts where both sides have one: manifests often
    /// leave it out.
    pub(super) fn resolve(&self, reference: &Reference<'_>) -> Option<&'a Value> {
        self.documents.iter().find(|document| {
            group_of(document) == reference.group
                && document.text("kind") == reference.kind
                && document.at("metadata").text("name") == reference.name
                && same_namespace(
                    document.at("metadata").text("namespace"),
                    reference.namespace,
                )
        })
    }

    /// The in-tree parameters that a reference leads to: named directly, or generated from the named object.
    pub(super) fn in_tree(&self, reference: &Reference<'_>, kind: &str) -> Option<&'a Value> {
        if reference.group == GROUP && reference.kind == kind {
            return self.resolve(reference);
        }
        self.documents.iter().find(|document| {
            let from = document.at("generatedFrom");
            group_of(document) == GROUP
                && document.text("kind") == kind
                && from.text("apiGroup") == reference.group
                && from.text("kind") == reference.kind
                && from.text("name") == reference.name
                && same_namespace(
                    document.at("metadata").text("namespace"),
                    reference.namespace,
                )
        })
    }
}

fn same_namespace(left: &str, right: &str) -> bool {
    left.is_empty() || right.is_empty() || left == right
}

/// A vendor's object as opaque parameters: without status and without the fields that the server added.
pub(super) fn as_opaque(object: &Value) -> Value {
    let mut object = object.clone();
    remove(&mut object, "status");
    let metadata = own_metadata(object.at("metadata"));
    set(&mut object, "metadata", metadata);
    object
}
