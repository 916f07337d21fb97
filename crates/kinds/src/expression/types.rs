//! The types of the variables of CEL expressions, with upstream's names.

use std::sync::LazyLock;

use allot_cel::env::DeclType;
use allot_cel::types::Type;

/// Unlimited size: costs are not estimated, only measured during evaluation.
pub const UNLIMITED: u64 = i64::MAX as u64;

/// The dynamic type: the fields are unknown at compile time.
pub static DYNAMIC: LazyLock<DeclType> = LazyLock::new(|| DeclType::scalar(Type::Dyn, 0));

/// A string.
pub fn text() -> DeclType {
    DeclType::string(UNLIMITED)
}

/// A list of strings.
pub fn texts() -> DeclType {
    DeclType::list(text(), UNLIMITED)
}

/// A map of lists of strings, as the extra attributes of a user are.
pub fn texts_by_key() -> DeclType {
    DeclType::map(text(), texts(), UNLIMITED)
}

/// A user, as policies and rules about tokens see it.
pub fn user_info() -> DeclType {
    object(
        "kubernetes.UserInfo",
        [
            ("username", text()),
            ("uid", text()),
            ("groups", texts()),
            ("extra", texts_by_key()),
        ],
    )
}

fn time() -> DeclType {
    DeclType::scalar(Type::Timestamp, UNLIMITED)
}

fn object<const N: usize>(name: &str, fields: [(&'static str, DeclType); N]) -> DeclType {
    DeclType::object(name, fields)
}

/// The type of `request`, without the parts that are separate variables.
pub(super) fn request() -> DeclType {
    let kind = object(
        "kubernetes.GroupVersionKind",
        ["group", "version", "kind"].map(|name| (name, text())),
    );
    let resource = object(
        "kubernetes.GroupVersionResource",
        ["group", "version", "resource"].map(|name| (name, text())),
    );
    object(
        "kubernetes.AdmissionRequest",
        [
            ("kind", kind.clone()),
            ("resource", resource.clone()),
            ("subResource", text()),
            ("requestKind", kind),
            ("requestResource", resource),
            ("requestSubResource", text()),
            ("name", text()),
            ("namespace", text()),
            ("operation", text()),
            ("userInfo", user_info()),
            ("dryRun", DeclType::bool()),
            ("options", DYNAMIC.clone()),
        ],
    )
}

/// The type of `namespaceObject`, with upstream's selection of fields and spelling of their names.
pub(super) fn namespace() -> DeclType {
    let map = || DeclType::map(text(), text(), UNLIMITED);
    let condition = object(
        "kubernetes.NamespaceCondition",
        [
            ("status", text()),
            ("type", text()),
            ("lastTransitionTime", time()),
            ("message", text()),
            ("reason", text()),
        ],
    );
    let metadata = object(
        "kubernetes.NamespaceMetadata",
        [
            ("name", text()),
            ("generateName", text()),
            ("namespace", text()),
            ("labels", map()),
            ("annotations", map()),
            ("UID", text()),
            ("creationTimestamp", time()),
            ("deletionGracePeriodSeconds", DeclType::int()),
            ("deletionTimestamp", time()),
            ("generation", DeclType::int()),
            ("resourceVersion", text()),
            ("finalizers", texts()),
        ],
    );
    let status = [
        ("conditions", DeclType::list(condition, UNLIMITED)),
        ("phase", text()),
    ];
    object(
        "kubernetes.Namespace",
        [
            ("metadata", metadata),
            (
                "spec",
                object("kubernetes.NamespaceSpec", [("finalizers", texts())]),
            ),
            ("status", object("kubernetes.NamespaceStatus", status)),
        ],
    )
}
