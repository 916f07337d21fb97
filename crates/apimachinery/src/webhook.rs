//! Addresses of webhooks: URLs and services, with upstream's texts.

use crate::{
    field::{Error, ErrorList, Path},
    names,
};

const FORM: &str = "; desired format: https://host[/path]";

/// Errors of the URL of a webhook; `force_https` forbids other schemes.
pub fn url(path: &Path, text: &str, force_https: bool) -> ErrorList {
    let url = match Url::parse(text) {
        Ok(url) => url,
        Err(problem) => {
            let detail = format!("url must be a valid URL: {problem}{FORM}");
            return ErrorList::from([Error::required(path, detail)]);
        }
    };
    let mut errors = ErrorList::new();
    if force_https && url.scheme != "https" {
        let detail = format!("'https' is the only allowed URL scheme{FORM}");
        errors.push(Error::invalid(path, url.scheme.as_str(), detail));
    }
    if url.host.is_empty() {
        let detail = format!("host must be specified{FORM}");
        errors.push(Error::invalid(path, url.host, detail));
    }
    if let Some(user) = url.user {
        let detail = "user information is not permitted in the URL";
        errors.push(Error::invalid(path, user, detail));
    }
    for (part, name) in [(url.fragment, "fragments"), (url.query, "query parameters")] {
        if !part.is_empty() {
            let detail = format!("{name} are not permitted in the URL");
            errors.push(Error::invalid(path, part, detail));
        }
    }
    errors
}

/// Errors of a reference to the service of a webhook; `url_path` is the path of requests, `port` is between 1 and
/// 65535.
pub fn service(
    path: &Path,
    namespace: &str,
    name: &str,
    url_path: Option<&str>,
    port: i64,
) -> ErrorList {
    let mut errors = ErrorList::new();
    for (key, value) in [("name", name), ("namespace", namespace)] {
        if value.is_empty() {
            errors.push(Error::required(&path.child(key), ""));
        }
    }
    if !(1..=65535).contains(&port) {
        let detail = "port is not valid: must be between 1 and 65535, inclusive";
        errors.push(Error::invalid(&path.child("port"), port, detail));
    }
    let at = path.child("path");
    let invalid = |shown: &str, detail: String| Error::invalid(&at, shown, detail);
    let Some(whole) = url_path.filter(|text| !matches!(*text, "" | "/")) else {
        return errors;
    };
    if whole == "//" {
        errors.push(invalid(whole, "segment[0] may not be empty".to_owned()));
        return errors;
    }
    if !whole.starts_with('/') {
        errors.push(invalid(whole, "must start with a '/'".to_owned()));
    }
    // Upstream removes the first character whatever it is.
    let mut chars = whole.chars();
    chars.next();
    let inner = chars.as_str();
    let inner = inner.strip_suffix('/').unwrap_or(inner);
    for (index, segment) in inner.split('/').enumerate() {
        if segment.is_empty() {
            errors.push(invalid(whole, format!("segment[{index}] may not be empty")));
            continue;
        }
        for failure in names::dns1123_subdomain(segment) {
            errors.push(invalid(whole, format!("segment[{index}]: {failure}")));
        }
    }
    errors
}

/// Whether Go would take the text for a URL.
///
/// ```
/// use allot_apimachinery::webhook::parses;
///
/// assert!(parses("https://example.com").is_ok() && parses("issuer").is_ok());
/// assert!(parses("1:2").unwrap_err().ends_with("first path segment in URL cannot contain colon"));
/// ```
///
/// # Errors
/// Go's text.
pub fn parses(text: &str) -> Result<(), String> {
    Url::parse(text).map(drop)
}

/// The parts of a URL that validation rules refer to.
struct Url<'t> {
    scheme: String,
    user: Option<&'t str>,
    host: &'t str,
    query: &'t str,
    fragment: &'t str,
}

impl<'t> Url<'t> {
    /// Parses a URL as leniently as Go does: most texts are valid.
    fn parse(text: &'t str) -> Result<Self, String> {
        let problem = |what: &str| format!("parse {}: {what}", crate::quote::quote(text));
        if text.chars().any(char::is_control) {
            return Err(problem("net/url: invalid control character in URL"));
        }
        let (rest, fragment) = text.split_once('#').unwrap_or((text, ""));
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let before = rest.find(|c: char| !c.is_ascii_alphanumeric() && !"+-.".contains(c));
        let (scheme, rest) = match before {
            Some(0) if rest.starts_with(':') => return Err(problem("missing protocol scheme")),
            Some(end) if rest[end..].starts_with(':') => {
                if !rest.starts_with(|c: char| c.is_ascii_alphabetic()) {
                    return Err(problem("first path segment in URL cannot contain colon"));
                }
                (rest[..end].to_ascii_lowercase(), &rest[end + 1..])
            }
            _ => (String::new(), rest),
        };
        let authority = match rest.strip_prefix("//") {
            Some(after) => after.split('/').next().unwrap_or_default(),
            None => "",
        };
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        if host.contains(' ') {
            return Err(problem("invalid character \" \" in host name"));
        }
        if let Some((_, port)) = host.rsplit_once(':').filter(|_| !host.ends_with(']'))
            && !port.chars().all(|c| c.is_ascii_digit())
        {
            let shown = crate::quote::quote(&format!(":{port}"));
            return Err(problem(&format!("invalid port {shown} after host")));
        }
        Ok(Self {
            scheme,
            user,
            host,
            query,
            fragment,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(errors: ErrorList, expected: &[&str]) {
        let found: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn urls_name_a_host_and_nothing_else() {
        let at = Path::new("u");
        check(url(&at, "https://a.b:8443/c", true), &[]);
        check(
            url(&at, "http://a", true),
            &[
                "u: Invalid value: \"http\": 'https' is the only allowed URL scheme; desired format: https://host[/path]",
            ],
        );
        check(
            url(&at, "https://me@a?x=1#f", true),
            &[
                "u: Invalid value: \"me\": user information is not permitted in the URL",
                "u: Invalid value: \"f\": fragments are not permitted in the URL",
                "u: Invalid value: \"x=1\": query parameters are not permitted in the URL",
            ],
        );
        check(
            url(&at, "a", false),
            &[
                "u: Invalid value: \"\": host must be specified; desired format: https://host[/path]",
            ],
        );
        check(
            url(&at, "https://a:b", true),
            &[
                "u: Required value: url must be a valid URL: parse \"https://a:b\": invalid port \":b\" after host; desired format: https://host[/path]",
            ],
        );
    }

    #[test]
    fn services_have_names_a_port_and_a_clean_path() {
        let at = Path::new("s");
        check(service(&at, "n", "s", Some("/a/b"), 443), &[]);
        check(
            service(&at, "", "", Some("a//B"), 0),
            &[
                "s.name: Required value",
                "s.namespace: Required value",
                "s.port: Invalid value: 0: port is not valid: must be between 1 and 65535, inclusive",
                "s.path: Invalid value: \"a//B\": must start with a '/'",
                "s.path: Invalid value: \"a//B\": segment[0] may not be empty",
                "s.path: Invalid value: \"a//B\": segment[1] may not be empty",
                "s.path: Invalid value: \"a//B\": segment[2]: a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
            ],
        );
    }
}
