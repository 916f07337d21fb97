//! The identity that the headers of a request name.

use allot_apimachinery::Status;
use allot_apimachinery::quote::quote;
use http::{HeaderMap, HeaderName};

use super::{PREFIX, go_user};
use crate::error::{ApiError, Result};
use crate::header;
use crate::identity::User;

/// The identity in the headers; `None` without headers. No header that is present is ignored: the request would run as
/// its caller instead of the user to impersonate.
///
/// # Errors
/// 400 for a header that cannot be used.
pub(super) fn wanted(headers: &HeaderMap) -> Result<Option<User>> {
    let mut wanted = User::default();
    let mut present = false;
    for (name, value) in headers {
        let Some(part) = name.as_str().strip_prefix(PREFIX) else {
            continue;
        };
        let value = header::exact(name, value)?;
        present = true;
        let once = match part {
            "user" => &mut wanted.name,
            "uid" => &mut wanted.uid,
            "group" => {
                wanted.groups.push(value);
                continue;
            }
            _ => {
                let key = part
                    .strip_prefix("extra-")
                    .ok_or_else(|| unusable(name, "is not known"))?;
                let key = path_unescape(key).ok_or_else(|| unusable(name, "is not valid UTF-8"))?;
                wanted.extra.entry(key).or_default().push(value);
                continue;
            }
        };
        if headers.get_all(name).iter().nth(1).is_some() {
            return Err(unusable(name, "is given several times"));
        }
        *once = value;
    }
    if !wanted.name.is_empty() || !present {
        return Ok(present.then_some(wanted));
    }
    let why = format!(
        "requested {} without impersonating a user name",
        go_user(&wanted)
    );
    Err(Status::bad_request(why).into())
}

fn unusable(name: &HeaderName, why: &str) -> ApiError {
    let name = quote(&header::canonical(name.as_str()));
    Status::bad_request(format!("the impersonation header {name} {why}")).into()
}

/// The name of an extra attribute as `url.PathUnescape` reads it; one with a malformed escape stays as it was sent.
/// `None` if the unescaped name is not UTF-8.
fn path_unescape(key: &str) -> Option<String> {
    let malformed = key.split('%').skip(1).any(|rest| {
        let digits = rest.as_bytes().get(..2);
        !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    });
    if malformed {
        return Some(key.to_owned());
    }
    let decoded = percent_encoding::percent_decode_str(key).decode_utf8();
    decoded.ok().map(std::borrow::Cow::into_owned)
}
