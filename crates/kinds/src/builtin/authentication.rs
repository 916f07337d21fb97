//! The kinds of `authentication.k8s.io`.

use crate::registry::{Builtin, CLUSTER, CREATE};

mod reviews;

/// The kinds of the group.
pub(super) const KINDS: &[&Builtin] = &[&reviews::SELF_SUBJECT_REVIEW, &reviews::TOKEN_REVIEW];

/// What the kinds of the group have in common.
const AUTHENTICATION: Builtin = Builtin {
    group: "authentication.k8s.io",
    verbs: CREATE,
    ..CLUSTER
};
