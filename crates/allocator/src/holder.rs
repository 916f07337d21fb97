//! The claims that hold devices, and how messages name them.

use k8s_openapi::api::resource::v1 as api;
use smol_str::SmolStr;

/// The claim that something is allocated for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Holder {
    /// `metadata.namespace`.
    pub namespace: SmolStr,
    /// `metadata.name`.
    pub name: SmolStr,
    /// `metadata.uid`, by which the claim is known.
    pub uid: SmolStr,
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.namespace.is_empty() {
            write!(f, "{}", self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

impl Holder {
    /// Whether a message that is read in `namespace` may name the claim.
    fn may_be_named_in(&self, namespace: &str) -> bool {
        self.namespace.is_empty() || self.namespace == namespace
    }
}

/// The claims that hold a device, for a message that is read in `namespace`. Claims of other namespaces are counted and
/// not named: events must not reveal the names of another tenant's objects.
pub(crate) fn name_holders<'a>(
    namespace: &str,
    holders: impl Iterator<Item = &'a Holder>,
) -> String {
    let (own, foreign): (Vec<_>, Vec<_>) = holders.partition(|h| h.may_be_named_in(namespace));
    let mut parts: Vec<String> = own.iter().map(ToString::to_string).collect();
    match foreign.len() {
        0 => {}
        1 => parts.push("a claim of another namespace".to_owned()),
        count => parts.push(format!("{count} claims of other namespaces")),
    }
    parts.join(", ")
}

impl From<&api::ResourceClaim> for Holder {
    fn from(claim: &api::ResourceClaim) -> Self {
        let text = |value: &Option<String>| SmolStr::new(value.as_deref().unwrap_or_default());
        let meta = &claim.metadata;
        Self {
            namespace: text(&meta.namespace),
            name: text(&meta.name),
            uid: text(&meta.uid),
        }
    }
}
