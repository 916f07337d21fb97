//! Reviews of permissions: kinds that are answered and not stored.

use super::AUTHORIZATION;
use crate::registry::Builtin;

pub(super) static LOCAL_SUBJECT_ACCESS_REVIEW: Builtin = Builtin {
    kind: "LocalSubjectAccessReview",
    plural: "localsubjectaccessreviews",
    namespaced: true,
    ..AUTHORIZATION
};

pub(super) static SELF_SUBJECT_ACCESS_REVIEW: Builtin = Builtin {
    kind: "SelfSubjectAccessReview",
    plural: "selfsubjectaccessreviews",
    ..AUTHORIZATION
};

pub(super) static SELF_SUBJECT_RULES_REVIEW: Builtin = Builtin {
    kind: "SelfSubjectRulesReview",
    plural: "selfsubjectrulesreviews",
    ..AUTHORIZATION
};

pub(super) static SUBJECT_ACCESS_REVIEW: Builtin = Builtin {
    kind: "SubjectAccessReview",
    plural: "subjectaccessreviews",
    ..AUTHORIZATION
};
