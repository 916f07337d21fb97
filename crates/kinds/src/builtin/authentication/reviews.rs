//! Reviews of users and tokens: kinds that are answered and not stored.

use super::AUTHENTICATION;
use crate::registry::{Builtin, Create, Review, Rules};

pub(super) static SELF_SUBJECT_REVIEW: Builtin = Builtin {
    kind: "SelfSubjectReview",
    plural: "selfsubjectreviews",
    rules: rules(Review::SelfSubject),
    ..AUTHENTICATION
};

pub(super) static TOKEN_REVIEW: Builtin = Builtin {
    kind: "TokenReview",
    plural: "tokenreviews",
    rules: rules(Review::Token),
    ..AUTHENTICATION
};

const fn rules(review: Review) -> Rules {
    Rules {
        create: Create::Review(review),
        ..AUTHENTICATION.rules
    }
}
