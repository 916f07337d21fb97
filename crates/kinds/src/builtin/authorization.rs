//! The kinds of `authorization.k8s.io`.

use crate::registry::{Builtin, CLUSTER, CREATE};

mod reviews;

/// The kinds of the group.
pub(super) const KINDS: &[&Builtin] = &[
    &reviews::LOCAL_SUBJECT_ACCESS_REVIEW,
    &reviews::SELF_SUBJECT_ACCESS_REVIEW,
    &reviews::SELF_SUBJECT_RULES_REVIEW,
    &reviews::SUBJECT_ACCESS_REVIEW,
];

/// What the kinds of the group have in common.
const AUTHORIZATION: Builtin = Builtin {
    group: "authorization.k8s.io",
    verbs: CREATE,
    ..CLUSTER
};
