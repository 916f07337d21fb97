//! Deletes that name the object by its UID.

use kube::api::{DeleteParams, Preconditions};

/// A delete of the object with this UID. If another object has the name meanwhile, the server answers 409 Conflict.
/// Without a UID the delete has no precondition.
pub fn by_uid(uid: impl Into<Option<String>>) -> DeleteParams {
    DeleteParams::default().preconditions(Preconditions {
        uid: uid.into(),
        resource_version: None,
    })
}

/// The same delete without a grace period: the object goes at once.
pub fn by_uid_now(uid: impl Into<Option<String>>) -> DeleteParams {
    by_uid(uid).grace_period(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_uid_and_the_grace_period_are_in_the_options() {
        let body = |params: DeleteParams| serde_json::to_value(params).expect("delete options");
        assert_eq!(
            body(by_uid("u".to_owned()))["preconditions"]["uid"],
            "u",
            "the object is named by its UID"
        );
        assert!(body(by_uid("u".to_owned()))["gracePeriodSeconds"].is_null());
        assert_eq!(body(by_uid_now("u".to_owned()))["gracePeriodSeconds"], 0);
    }
}
