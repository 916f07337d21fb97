//! Front proxies: servers that authenticate clients and pass on what they found in headers. The API server is one towards
//! extension API servers, and may stand behind one itself.

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderName};
use percent_encoding::percent_decode_str;

use crate::identity::{ANONYMOUS, User};
use crate::pki::Identity;

/// Identities in headers, to both sides.
#[derive(Debug, Clone, Default)]
pub struct FrontProxy {
    /// The certificate that proves to extension API servers that a request comes from this server.
    pub client: Option<Identity>,
    /// What headers are believed, and from which proxies.
    pub headers: Option<RequestHeaders>,
}

/// The headers in which a front proxy names the user of a request, and the proof that it is one.
#[derive(Debug, Clone)]
pub struct RequestHeaders {
    /// CA certificates (PEM) that sign the client certificates of proxies.
    pub ca: String,
    /// Common names of proxies; any if empty.
    pub allowed_names: Vec<String>,
    /// Headers with the user name: the first that there is counts.
    pub username: Vec<HeaderName>,
    /// Headers with the UID: the first that there is counts.
    pub uid: Vec<HeaderName>,
    /// Headers with groups: all of them count.
    pub group: Vec<HeaderName>,
    /// What the names of headers with extra attributes begin with, in lower case.
    pub extra_prefixes: Vec<String>,
}

/// An identity is in the headers of a proxy and cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unusable;

impl RequestHeaders {
    /// Whether a proxy may have this common name.
    pub(crate) fn allows(&self, name: &str) -> bool {
        self.allowed_names.is_empty() || self.allowed_names.iter().any(|known| known == name)
    }

    /// The user that a proxy names; `None` if it names none.
    ///
    /// # Errors
    /// [`Unusable`] for a name or UID that is repeated, and for any part that is not UTF-8: the request must not run as
    /// another user, or without a group, because a header was garbled.
    pub(crate) fn user(&self, headers: &HeaderMap) -> Result<Option<User>, Unusable> {
        let Some(name) = first(headers, &self.username)? else {
            return Ok(None);
        };
        let uid = first(headers, &self.uid)?.unwrap_or_default();
        let mut groups = Vec::new();
        for header in &self.group {
            for value in headers.get_all(header) {
                groups.push(text(value.as_bytes())?);
            }
        }
        groups.retain(|group| !group.is_empty());
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for prefix in &self.extra_prefixes {
            for (header, value) in headers {
                let Some(key) = header.as_str().strip_prefix(prefix.as_str()) else {
                    continue;
                };
                let decoded = percent_decode_str(key).decode_utf8();
                let key = decoded.map_or_else(|_| key.to_owned(), |key| key.into_owned());
                extra.entry(key).or_default().push(text(value.as_bytes())?);
            }
        }
        let mut user = User {
            name,
            uid,
            groups,
            extra,
        };
        if user.name != ANONYMOUS {
            user.add_group(crate::identity::AUTHENTICATED);
        }
        Ok(Some(user))
    }

    /// Whether a header is one of those that name users.
    pub(crate) fn names(&self, header: &HeaderName) -> bool {
        [&self.username, &self.uid, &self.group]
            .iter()
            .any(|list| list.contains(header))
            || self
                .extra_prefixes
                .iter()
                .any(|prefix| header.as_str().starts_with(prefix.as_str()))
    }
}

/// Whether a header names the user of a request in the way of all front proxies, or of the ones that are configured. Some
/// servers take `_` for `-`.
pub(crate) fn is_identity(header: &HeaderName, configured: Option<&RequestHeaders>) -> bool {
    let plain = header.as_str().replace('_', "-");
    plain.starts_with("x-remote-")
        || configured.is_some_and(|configured| {
            let plain = HeaderName::try_from(plain.as_str());
            configured.names(header) || plain.is_ok_and(|plain| configured.names(&plain))
        })
}

/// The value of the first of these headers that has one.
fn first(headers: &HeaderMap, names: &[HeaderName]) -> Result<Option<String>, Unusable> {
    for name in names {
        let mut values = headers.get_all(name).iter();
        let Some(value) = values.next().filter(|value| !value.is_empty()) else {
            continue;
        };
        if values.next().is_some() {
            return Err(Unusable);
        }
        return text(value.as_bytes()).map(Some);
    }
    Ok(None)
}

fn text(value: &[u8]) -> Result<String, Unusable> {
    let text = std::str::from_utf8(value).map_err(|_| Unusable)?;
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn kubeadm() -> RequestHeaders {
        RequestHeaders {
            ca: String::new(),
            allowed_names: vec!["front-proxy-client".to_owned()],
            username: vec![HeaderName::from_static("x-remote-user")],
            uid: vec![HeaderName::from_static("x-remote-uid")],
            group: vec![HeaderName::from_static("x-remote-group")],
            extra_prefixes: vec!["x-remote-extra-".to_owned()],
        }
    }

    fn headers(list: &[(&str, &[u8])]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in list {
            let value = HeaderValue::from_bytes(value).unwrap();
            headers.append(name.parse::<HeaderName>().unwrap(), value);
        }
        headers
    }

    #[test]
    fn a_user_is_read_with_all_its_parts() {
        let sent = headers(&[
            ("x-remote-user", "jörg".as_bytes()),
            ("x-remote-uid", b"7"),
            ("x-remote-group", b"a"),
            ("x-remote-group", b""),
            ("x-remote-group", b"b"),
            ("x-remote-extra-example.org%2fscope", b"one"),
            ("x-remote-extra-example.org%2fscope", b"two"),
        ]);
        let user = kubeadm().user(&sent).unwrap().unwrap();
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("jörg", "7"));
        assert_eq!(user.groups, ["a", "b", "system:authenticated"]);
        assert_eq!(user.extra["example.org/scope"], ["one", "two"]);
        let anonymous = headers(&[("x-remote-user", b"system:anonymous")]);
        let user = kubeadm().user(&anonymous).unwrap().unwrap();
        assert_eq!(user.groups, [""; 0]);
    }

    #[test]
    fn parts_of_an_identity_alone_are_none_and_garbled_ones_are_refused() {
        let none: [&[(&str, &[u8])]; 3] = [
            &[],
            &[("x-remote-group", b"system:masters")],
            &[("x-remote-user", b"")],
        ];
        for none in none {
            assert_eq!(kubeadm().user(&headers(none)), Ok(None));
        }
        let garbled: [&[(&str, &[u8])]; 5] = [
            &[("x-remote-user", b"a"), ("x-remote-user", b"b")],
            &[("x-remote-user", b"\xff")],
            &[("x-remote-user", b"a"), ("x-remote-group", b"\xff")],
            &[
                ("x-remote-user", b"a"),
                ("x-remote-uid", b"1"),
                ("x-remote-uid", b"2"),
            ],
            &[("x-remote-user", b"a"), ("x-remote-extra-k", b"\xff")],
        ];
        for garbled in garbled {
            assert_eq!(kubeadm().user(&headers(garbled)), Err(Unusable));
        }
    }

    #[test]
    fn headers_with_identities_are_known_however_they_are_written() {
        let mut configured = kubeadm();
        configured.username = vec![HeaderName::from_static("x-login")];
        for name in [
            "x-remote-user",
            "x-remote-anything",
            "x_remote_user",
            "x-remote_group",
            "x-login",
            "x_login",
        ] {
            assert!(
                is_identity(&HeaderName::from_static(name), Some(&configured)),
                "{name}"
            );
        }
        for name in ["x-remove-user", "user-agent", "x-forwarded-for"] {
            assert!(
                !is_identity(&HeaderName::from_static(name), Some(&configured)),
                "{name}"
            );
        }
        assert!(!is_identity(&HeaderName::from_static("x-login"), None));
    }
}
