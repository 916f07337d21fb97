//! Bootstrap tokens (`--enable-bootstrap-token-auth`): with one, a machine that is to become a node proves that it may ask for
//! a certificate.
//!
//! A token is `ID.SECRET`. The secret `bootstrap-token-ID` in `kube-system` has the other half, what the token may be used
//! for, until when, and which groups its user has.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use ring::digest::{SHA256, digest};
use serde_json::Value;

use crate::error::Result;
use crate::identity::User;
use crate::object::{meta, text};
use crate::state::ServerState;

const SECRETS: &str = "secrets";
const NAMESPACE: &str = "kube-system";
const NAME_PREFIX: &str = "bootstrap-token-";
const TYPE: &str = "bootstrap.kubernetes.io/token";
const USER_PREFIX: &str = "system:bootstrap:";
const GROUP: &str = "system:bootstrappers";
const ID_LENGTH: usize = 6;
const SECRET_LENGTH: usize = 16;
/// The longest name of a further group, behind that of the group of all.
const MAX_GROUP: usize = 256;
/// What is read of the secret: this precedes flow control, however large the secret is.
const PARTS: [&str; 7] = [
    "type",
    "metadata.deletionTimestamp",
    "data.token-id",
    "data.token-secret",
    "data.expiration",
    "data.usage-bootstrap-authentication",
    "data.auth-extra-groups",
];

/// Why a token proves no identity. The client is not told.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum Refused {
    #[error("is deleted and awaiting removal")]
    Deleted,
    #[error("has invalid type, expected {TYPE}")]
    Type,
    #[error("has invalid value for key {0}")]
    Value(&'static str),
    #[error("has expired")]
    Expired,
    #[error("not marked usage-bootstrap-authentication=true")]
    Usage,
    #[error("has invalid value for key auth-extra-groups")]
    Groups,
}

/// The user behind a bootstrap token; `None` if it is none, or proves nothing.
///
/// # Errors
/// Errors of the store.
pub(super) async fn identity(core: &ServerState, token: &str) -> Result<Option<User>> {
    let Some((id, secret)) = parts(token) else {
        return Ok(None);
    };
    let key = format!("{NAMESPACE}/{NAME_PREFIX}{id}");
    let Some(stored) = core.stored_parts(SECRETS, &key, &PARTS).await? else {
        return Ok(None);
    };
    match user(&stored, id, secret, Timestamp::now()) {
        Ok(user) => Ok(Some(user)),
        Err(why) => {
            tracing::debug!(secret = key, %why, "a bootstrap token is refused");
            Ok(None)
        }
    }
}

/// The ID and the secret of a token that has the form of one.
fn parts(token: &str) -> Option<(&str, &str)> {
    let is_plain =
        |part: &str, length: usize| part.len() == length && part.bytes().all(is_alphanumeric);
    let parts = token.split_once('.')?;
    (is_plain(parts.0, ID_LENGTH) && is_plain(parts.1, SECRET_LENGTH)).then_some(parts)
}

/// The user that a stored secret describes, in upstream's order of checks.
fn user(stored: &Value, id: &str, secret: &str, now: Timestamp) -> Result<User, Refused> {
    if !meta(stored, "deletionTimestamp").is_empty() {
        return Err(Refused::Deleted);
    }
    if text(stored, &["type"]) != TYPE || !stored["data"].is_object() {
        return Err(Refused::Type);
    }
    // Of digests: how long it takes to find the first difference tells nothing about the secret.
    let digest_of = |text: &[u8]| digest(&SHA256, text);
    let known = data(stored, "token-secret");
    if digest_of(&known).as_ref() != digest_of(secret.as_bytes()).as_ref() {
        return Err(Refused::Value("token-secret"));
    }
    if data(stored, "token-id") != id.as_bytes() {
        return Err(Refused::Value("token-id"));
    }
    let expiration = data(stored, "expiration");
    if !expiration.is_empty() {
        let expiration = std::str::from_utf8(&expiration).ok();
        // The library also reads other forms than those of RFC 3339.
        let expiration = expiration.filter(|it| allot_schema::decode::time_error(it).is_none());
        let expiration = expiration.and_then(|it| it.parse::<Timestamp>().ok());
        // A time that cannot be read is over.
        if expiration.is_none_or(|it| it <= now) {
            return Err(Refused::Expired);
        }
    }
    if data(stored, "usage-bootstrap-authentication") != b"true" {
        return Err(Refused::Usage);
    }
    let mut groups = BTreeSet::from([GROUP.to_owned()]);
    let extra = String::from_utf8(data(stored, "auth-extra-groups"));
    let extra = extra.map_err(|_| Refused::Groups)?;
    for group in extra.split(',').filter(|_| !extra.is_empty()) {
        if !is_extra_group(group) {
            return Err(Refused::Groups);
        }
        groups.insert(group.to_owned());
    }
    Ok(User::new(format!("{USER_PREFIX}{id}"), groups))
}

fn is_alphanumeric(byte: u8) -> bool {
    byte.is_ascii_digit() || byte.is_ascii_lowercase()
}

/// Whether a token may give its user the group: no other group than those of bootstrap tokens, whose names begin alike.
fn is_extra_group(group: &str) -> bool {
    let name = group
        .strip_prefix(GROUP)
        .and_then(|it| it.strip_prefix(':'));
    let name = name.unwrap_or_default();
    let mut bytes = name.bytes();
    name.len() <= MAX_GROUP
        && name.bytes().last().is_some_and(is_alphanumeric)
        && bytes.all(|it| is_alphanumeric(it) || matches!(it, b':' | b'-'))
}

/// The value of a key of a secret; empty if there is none.
fn data(stored: &Value, key: &str) -> Vec<u8> {
    let encoded = text(stored, &["data", key]);
    STANDARD.decode(encoded).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ID: &str = "abcdef";
    const SECRET: &str = "0123456789abcdef";

    fn secret(changes: &[(&str, &str)]) -> Value {
        let mut data = json!({});
        let whole = [
            ("token-id", ID),
            ("token-secret", SECRET),
            ("usage-bootstrap-authentication", "true"),
        ];
        for (key, value) in whole.iter().chain(changes) {
            data[*key] = STANDARD.encode(value).into();
        }
        json!({"type": TYPE, "metadata": {}, "data": data})
    }

    fn check(changes: &[(&str, &str)], expected: Result<&[&str], Refused>) {
        let now = "2030-01-01T00:00:00Z".parse().unwrap();
        let found = user(&secret(changes), ID, SECRET, now).map(|user| {
            assert_eq!(user.name, "system:bootstrap:abcdef");
            user.groups
        });
        let expected = expected.map(|it| it.iter().map(ToString::to_string).collect());
        assert_eq!(found, expected, "{changes:?}");
    }

    #[test]
    fn tokens_have_one_form() {
        assert_eq!(parts("abcdef.0123456789abcdef"), Some((ID, SECRET)));
        for token in [
            "",
            "abcdef",
            "abcdef.0123456789abcde",
            "abcde.0123456789abcdef",
            "abcdef.0123456789abcdef0",
            "ABCDEF.0123456789abcdef",
            "abcdef.0123456789abcde\n",
            "abc/ef.0123456789abcdef",
            "abcdef.0123456789.bcdef",
            "äbcde.0123456789abcdef",
        ] {
            assert_eq!(parts(token), None, "{token:?}");
        }
    }

    #[test]
    fn a_secret_says_whether_and_as_whom_its_token_counts() {
        let plain = ["system:bootstrappers", "system:authenticated"];
        let groups = "system:bootstrappers:b,system:bootstrappers:a:b-c";
        let more = [
            plain[0],
            "system:bootstrappers:a:b-c",
            "system:bootstrappers:b",
            plain[1],
        ];
        check(&[], Ok(&plain));
        check(&[("expiration", "2030-01-01T00:00:01Z")], Ok(&plain));
        check(&[("auth-extra-groups", groups)], Ok(&more));
        for over in [
            "2030-01-01T01:00:00+01:00",
            "2030-01-01T00:00:00Z",
            "2030-01-01",
            "2040-01-01 00:00:00Z",
            "20400101T000000Z",
            "tomorrow",
        ] {
            check(&[("expiration", over)], Err(Refused::Expired));
        }
        for wrong in ["", "0123456789abcdeF", "0123456789abcdef\n"] {
            check(
                &[("token-secret", wrong)],
                Err(Refused::Value("token-secret")),
            );
        }
        check(&[("token-id", "abcdee")], Err(Refused::Value("token-id")));
        check(
            &[("usage-bootstrap-authentication", "True")],
            Err(Refused::Usage),
        );
        for wrong in [
            "system:masters",
            "system:bootstrappers:a,system:masters",
            "system:bootstrappers:a,",
            "system:bootstrappers:",
            "system:bootstrappers:a-",
            "system:bootstrappersa",
            "system:bootstrappers:a\n",
            "system:bootstrappers:A",
        ] {
            check(&[("auth-extra-groups", wrong)], Err(Refused::Groups));
        }
        let now = Timestamp::now();
        for (key, value, expected) in [
            ("type", json!("Opaque"), Refused::Type),
            ("data", Value::Null, Refused::Type),
            (
                "metadata",
                json!({"deletionTimestamp": "2020-01-01T00:00:00Z"}),
                Refused::Deleted,
            ),
        ] {
            let mut stored = secret(&[]);
            stored[key] = value;
            assert_eq!(user(&stored, ID, SECRET, now), Err(expected));
        }
    }
}
