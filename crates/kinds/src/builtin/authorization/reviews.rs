//! Reviews of permissions: kinds that are answered and not stored.

use super::AUTHORIZATION;
use crate::registry::{Builtin, Create, Review, Rules};

pub(super) static LOCAL_SUBJECT_ACCESS_REVIEW: Builtin = Builtin {
    kind: "LocalSubjectAccessReview",
    plural: "localsubjectaccessreviews",
    namespaced: true,
    rules: rules(Review::LocalSubjectAccess),
    ..AUTHORIZATION
};

pub(super) static SELF_SUBJECT_ACCESS_REVIEW: Builtin = Builtin {
    kind: "SelfSubjectAccessReview",
    plural: "selfsubjectaccessreviews",
    rules: rules(Review::SelfSubjectAccess),
    ..AUTHORIZATION
};

pub(super) static SELF_SUBJECT_RULES_REVIEW: Builtin = Builtin {
    kind: "SelfSubjectRulesReview",
    plural: "selfsubjectrulesreviews",
    rules: rules(Review::SelfSubjectRules),
    ..AUTHORIZATION
};

pub(super) static SUBJECT_ACCESS_REVIEW: Builtin = Builtin {
    kind: "SubjectAccessReview",
    plural: "subjectaccessreviews",
    rules: rules(Review::SubjectAccess),
    ..AUTHORIZATION
};

const fn rules(review: Review) -> Rules {
    Rules {
        create: Create::Review(review),
        ..AUTHORIZATION.rules
    }
}
