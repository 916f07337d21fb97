//! Reviews of users and tokens: kinds that are answered and not stored.

use super::AUTHENTICATION;
use crate::registry::Builtin;

pub(super) static SELF_SUBJECT_REVIEW: Builtin = Builtin {
    kind: "SelfSubjectReview",
    plural: "selfsubjectreviews",
    ..AUTHENTICATION
};

pub(super) static TOKEN_REVIEW: Builtin = Builtin {
    kind: "TokenReview",
    plural: "tokenreviews",
    ..AUTHENTICATION
};
