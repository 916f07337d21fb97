//! Users that certificates name: the common name is the user, each organization a group.

use std::collections::BTreeMap;

use allot_certificates::subject::{self, CREDENTIAL_ID};
pub(crate) use allot_certificates::subject::{SubjectError, requested};

use crate::identity::User;

/// The user of a certificate; `None` if it names none.
///
/// # Errors
/// See [`SubjectError`].
pub(crate) fn user(der: &[u8]) -> Result<Option<User>, SubjectError> {
    Ok(subject::identity(der)?.map(user_of))
}

/// The user that has proven an identity.
pub(crate) fn user_of(identity: subject::Identity) -> User {
    let mut user = User::new(identity.name, identity.groups);
    user.uid = identity.uid;
    let credential = vec![identity.credential_id];
    user.extra = BTreeMap::from([(CREDENTIAL_ID.to_owned(), credential)]);
    user
}
