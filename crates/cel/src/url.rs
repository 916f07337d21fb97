//! URL parsing as in Go's `net/url`.

use allot_apimachinery::quote::quote;

/// A URL as Go's `net/url` parses it, for the `url` function of Kubernetes' CEL library.
#[derive(Debug, Clone, PartialEq)]
pub struct Url {
    text: String,
    pub(crate) scheme: String,
    pub(crate) host: String,
    pub(crate) path: String,
    pub(crate) query: String,
}

impl Url {
    /// The text that was parsed.
    pub fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn hostname(&self) -> &str {
        let host = self.split_port().0;
        host.strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .unwrap_or(host)
    }

    pub(crate) fn split_port(&self) -> (&str, &str) {
        match self.host.rsplit_once(':') {
            Some((host, port))
                if port.bytes().all(|b| b.is_ascii_digit())
                    && (!host.contains('[') || host.ends_with(']')) =>
            {
                (host, port)
            }
            _ => (&self.host, ""),
        }
    }
}

/// Reads an absolute URI or an absolute path. The error is Go's text.
pub(crate) fn parse_request_uri(text: &str) -> Result<Url, String> {
    parse(text).map_err(|problem| format!("parse {}: {problem}", quote(text)))
}

fn parse(text: &str) -> Result<Url, String> {
    if text.bytes().any(|b| b < b' ' || b == 0x7f) {
        return Err("net/url: invalid control character in URL".to_owned());
    }
    if text.is_empty() {
        return Err("empty url".to_owned());
    }
    let mut url = Url {
        text: text.to_owned(),
        scheme: String::new(),
        host: String::new(),
        path: String::new(),
        query: String::new(),
    };
    if text == "*" {
        url.path = "*".to_owned();
        return Ok(url);
    }
    let rest = scheme(text, &mut url)?;
    // `ParseRequestURI` does not parse a fragment; the path of the resulting URL contains none.
    let rest = rest.split_once('#').map_or(rest, |(rest, _)| rest);
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    url.query = query.to_owned();
    if !rest.starts_with('/') {
        if url.scheme.is_empty() {
            return Err("invalid URI for request".to_owned());
        }
        return Ok(url);
    }
    let path = match rest.strip_prefix("//") {
        // Without a scheme only the second, more lenient parser recognizes a host.
        Some(after) if !url.scheme.is_empty() || !after.starts_with('/') => {
            let end = after.find('/').unwrap_or(after.len());
            let (authority, path) = after.split_at(end);
            url.host = host(authority)?;
            path
        }
        _ => rest,
    };
    check_escapes(path)?;
    url.path = escape_path(path);
    Ok(url)
}

fn scheme<'t>(text: &'t str, url: &mut Url) -> Result<&'t str, String> {
    for (at, b) in text.bytes().enumerate() {
        match b {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' if at == 0 => return Err("missing protocol scheme".to_owned()),
            b':' => {
                url.scheme = text[..at].to_ascii_lowercase();
                return Ok(&text[at + 1..]);
            }
            _ => break,
        }
    }
    Ok(text)
}

fn host(authority: &str) -> Result<String, String> {
    let (user, host) = authority
        .rsplit_once('@')
        .map_or((None, authority), |(user, host)| (Some(user), host));
    if let Some(user) = user {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&b);
        if !user.bytes().all(allowed) {
            return Err("net/url: invalid userinfo".to_owned());
        }
    }
    let check_port = |port: &str| {
        let ok = port.is_empty()
            || port
                .strip_prefix(':')
                .is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_digit()));
        if ok {
            Ok(())
        } else {
            Err(format!("invalid port {} after host", quote(port)))
        }
    };
    if host.starts_with('[') {
        let Some(end) = host.rfind(']') else {
            return Err("missing ']' in host".to_owned());
        };
        check_port(&host[end + 1..])?;
    } else if let Some(at) = host.rfind(':') {
        check_port(&host[at..])?;
    }
    if let Some(bad) = host.chars().find(|c| {
        c.is_ascii() && !c.is_ascii_alphanumeric() && !"-._~!$&'()*+,;=:[]<>\"%".contains(*c)
    }) {
        return Err(format!(
            "invalid character {} in host name",
            quote(&bad.to_string())
        ));
    }
    check_escapes(host)?;
    // In the zone of an address the percent sign itself is escaped.
    Ok(if host.starts_with('[') {
        host.replacen("%25", "%", 1)
    } else {
        host.to_owned()
    })
}

fn check_escapes(text: &str) -> Result<(), String> {
    for (at, _) in text.match_indices('%') {
        let digits = text.as_bytes().get(at + 1..at + 3).unwrap_or_default();
        if digits.len() < 2 || !digits.iter().all(u8::is_ascii_hexdigit) {
            let bad: String = text[at..].chars().take(3).collect();
            return Err(format!("invalid URL escape {}", quote(&bad)));
        }
    }
    Ok(())
}

/// The path with everything escaped that must be.
fn escape_path(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for b in path.bytes() {
        if b.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@%!'()*[]".contains(&b) {
            out.push(b as char);
        } else {
            out.push_str(&format!("%{b:02X}"));
        }
    }
    out
}
