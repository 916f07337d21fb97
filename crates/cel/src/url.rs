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

/// Why a text is neither an absolute URI nor an absolute path, with the text of Go's `url.Error`.
#[derive(Debug, thiserror::Error)]
#[error("parse {}: {reason}", quote(text))]
pub(crate) struct UrlError {
    text: String,
    reason: Reason,
}

/// What Go's `net/url` finds wrong with a URL.
#[derive(Debug, thiserror::Error)]
enum Reason {
    #[error("net/url: invalid control character in URL")]
    ControlCharacter,
    #[error("empty url")]
    Empty,
    #[error("invalid URI for request")]
    NotAbsolute,
    #[error("missing protocol scheme")]
    NoScheme,
    #[error("net/url: invalid userinfo")]
    UserInfo,
    #[error("invalid port {} after host", quote(.0))]
    Port(String),
    #[error("missing ']' in host")]
    OpenBracket,
    #[error("invalid character {} in host name", quote(.0))]
    HostCharacter(String),
    #[error("invalid URL escape {}", quote(.0))]
    Escape(String),
}

/// Reads an absolute URI or an absolute path, as Go's `url.ParseRequestURI`.
pub(crate) fn parse_request_uri(text: &str) -> Result<Url, UrlError> {
    parse(text).map_err(|reason| UrlError {
        text: text.to_owned(),
        reason,
    })
}

fn parse(text: &str) -> Result<Url, Reason> {
    if text.bytes().any(|b| b < b' ' || b == 0x7f) {
        return Err(Reason::ControlCharacter);
    }
    if text.is_empty() {
        return Err(Reason::Empty);
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
            return Err(Reason::NotAbsolute);
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

/// Takes the scheme off the text, if it begins with one, and returns the rest.
fn scheme<'t>(text: &'t str, url: &mut Url) -> Result<&'t str, Reason> {
    for (at, b) in text.bytes().enumerate() {
        match b {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' if at == 0 => return Err(Reason::NoScheme),
            b':' => {
                url.scheme = text[..at].to_ascii_lowercase();
                return Ok(&text[at + 1..]);
            }
            _ => break,
        }
    }
    Ok(text)
}

/// The host of an authority, with its port and without user information.
fn host(authority: &str) -> Result<String, Reason> {
    let (user, host) = authority
        .rsplit_once('@')
        .map_or((None, authority), |(user, host)| (Some(user), host));
    if let Some(user) = user {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&b);
        if !user.bytes().all(allowed) {
            return Err(Reason::UserInfo);
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
            Err(Reason::Port(port.to_owned()))
        }
    };
    if host.starts_with('[') {
        let Some(end) = host.rfind(']') else {
            return Err(Reason::OpenBracket);
        };
        check_port(&host[end + 1..])?;
    } else if let Some(at) = host.rfind(':') {
        check_port(&host[at..])?;
    }
    if let Some(bad) = host.chars().find(|c| {
        c.is_ascii() && !c.is_ascii_alphanumeric() && !"-._~!$&'()*+,;=:[]<>\"%".contains(*c)
    }) {
        return Err(Reason::HostCharacter(bad.to_string()));
    }
    check_escapes(host)?;
    // In the zone of an address the percent sign itself is escaped.
    Ok(if host.starts_with('[') {
        host.replacen("%25", "%", 1)
    } else {
        host.to_owned()
    })
}

fn check_escapes(text: &str) -> Result<(), Reason> {
    for (at, _) in text.match_indices('%') {
        let digits = text.as_bytes().get(at + 1..at + 3).unwrap_or_default();
        if digits.len() < 2 || !digits.iter().all(u8::is_ascii_hexdigit) {
            let bad: String = text[at..].chars().take(3).collect();
            return Err(Reason::Escape(bad));
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
