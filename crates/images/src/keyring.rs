//! Credentials from pull secrets, looked up as the kubelet's keyring does.

use std::collections::BTreeMap;

use base64::Engine as _;
use serde::{Deserialize, Serialize};

use crate::{Digest, Error, Result};

/// The type and the key of secrets with a Docker configuration.
pub const DOCKER_CONFIG_JSON: (&str, &str) =
    ("kubernetes.io/dockerconfigjson", ".dockerconfigjson");
/// The type and the key of secrets in the older form.
pub const DOCKER_CFG: (&str, &str) = ("kubernetes.io/dockercfg", ".dockercfg");
/// Docker's key for credentials of Docker Hub.
const DOCKER_HUB: &str = "index.docker.io";

/// A name and a password for a registry.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential {
    /// The user's name.
    pub username: String,
    /// The user's password.
    pub password: String,
    /// Its source; absent for credentials that every pod of the node may use.
    pub source: Option<SecretSource>,
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let source = &self.source;
        out.debug_struct("Credential")
            .field("source", source)
            .finish_non_exhaustive()
    }
}

/// The secret of credentials, to determine later which pods may use an image without another pull.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SecretSource {
    /// The secret's UID.
    pub uid: String,
    /// The secret's namespace.
    pub namespace: String,
    /// The secret's name.
    pub name: String,
    /// A digest of the credentials, not the credentials.
    pub hash: String,
}

impl SecretSource {
    /// Whether it is the same secret, with any credentials.
    pub fn is_same_secret(&self, other: &Self) -> bool {
        self.uid == other.uid && self.namespace == other.namespace && self.name == other.name
    }
}

/// A secret of the API, as far as it matters.
#[derive(Clone, Default)]
pub struct PullSecret {
    /// The secret's UID.
    pub uid: String,
    /// The secret's namespace.
    pub namespace: String,
    /// The secret's name.
    pub name: String,
    /// The secret's type.
    pub kind: String,
    /// The secret's data, decoded.
    pub data: BTreeMap<String, Vec<u8>>,
}

/// Credentials by registry.
#[derive(Clone, Debug, Default)]
pub struct Keyring {
    /// By `HOST[:PORT][/PATH]`, where the host's parts may be globs.
    entries: BTreeMap<String, Vec<Credential>>,
}

#[derive(Deserialize)]
struct ConfigJson {
    #[serde(default)]
    auths: Option<BTreeMap<String, Entry>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Entry {
    username: String,
    password: String,
    auth: String,
}

impl Keyring {
    /// The credentials of a pod's pull secrets. Secrets of other types are passed over, as by the kubelet.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] with the secret's name if its data cannot be read.
    pub fn from_secrets(secrets: &[PullSecret]) -> Result<Self> {
        let mut keyring = Self::default();
        for secret in secrets {
            let data = |(kind, key): (&str, &str)| {
                let data = secret.data.get(key).filter(|data| !data.is_empty());
                data.filter(|_| secret.kind == kind)
            };
            let invalid = |reason: String| {
                Error::Config(format!(
                    "secret {}/{}: {reason}",
                    secret.namespace, secret.name
                ))
            };
            let entries = if let Some(data) = data(DOCKER_CONFIG_JSON) {
                let config: ConfigJson = parse(data).map_err(invalid)?;
                config.auths.unwrap_or_default()
            } else if let Some(data) = data(DOCKER_CFG) {
                parse(data).map_err(invalid)?
            } else {
                continue;
            };
            for (location, entry) in entries {
                let (username, password) = entry.login().map_err(invalid)?;
                let content = serde_json::json!([username, password]).to_string();
                let source = SecretSource {
                    uid: secret.uid.clone(),
                    namespace: secret.namespace.clone(),
                    name: secret.name.clone(),
                    hash: Digest::of(content.as_bytes()).hex().to_owned(),
                };
                let source = Some(source);
                keyring.add(
                    &location,
                    Credential {
                        username,
                        password,
                        source,
                    },
                );
            }
        }
        Ok(keyring)
    }

    /// Adds credentials for a location: a host with optional scheme, port and path.
    pub fn add(&mut self, location: &str, credential: Credential) {
        let rest = location
            .strip_prefix("https://")
            .or(location.strip_prefix("http://"));
        let rest = rest.unwrap_or(location);
        let rest = &rest[..rest.find(['?', '#']).unwrap_or(rest.len())];
        let (host, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        let path = match path.get(..4) {
            Some("/v1/" | "/v2/") => &path[3..],
            _ => path,
        };
        let path = if path == "/" { "" } else { path };
        self.entries
            .entry(format!("{host}{path}"))
            .or_default()
            .push(credential);
    }

    /// The credentials for an image's name (`DOMAIN/PATH`), the most specific first. All are tried in turn.
    pub fn lookup(&self, name: &str) -> Vec<Credential> {
        let matching = self
            .entries
            .iter()
            .rev()
            .filter(|(glob, _)| matches(glob, name));
        let found: Vec<Credential> = matching
            .flat_map(|(_, credentials)| credentials.clone())
            .collect();
        if found.is_empty() && is_docker_hub(name) {
            return self.entries.get(DOCKER_HUB).cloned().unwrap_or_default();
        }
        found
    }
}

fn parse<T: for<'de> Deserialize<'de>>(data: &[u8]) -> std::result::Result<T, String> {
    // Not the error of the parser, which could repeat a part of the secret.
    serde_json::from_slice(data)
        .map_err(|_| "error occurred while trying to unmarshal json".to_owned())
}

impl Entry {
    fn login(self) -> std::result::Result<(String, String), String> {
        use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
        if self.auth.is_empty() {
            return Ok((self.username, self.password));
        }
        // Go's decoder ignores line breaks.
        let text: String = self
            .auth
            .chars()
            .filter(|letter| !matches!(letter, '\r' | '\n'))
            .collect();
        let engine = if text.trim().ends_with('=') {
            STANDARD
        } else {
            STANDARD_NO_PAD
        };
        let decoded = engine
            .decode(&text)
            .map_err(|_| "illegal base64 data in auth".to_owned())?;
        let decoded = String::from_utf8_lossy(&decoded).into_owned();
        let login = decoded
            .split_once(':')
            .map(|(name, word)| (name.to_owned(), word.to_owned()));
        login.ok_or_else(|| {
            "unable to parse auth field, must be formatted as base64(username:password)".to_owned()
        })
    }
}

/// Docker Hub, by the rules of old names: no dot and no port in the first part.
fn is_docker_hub(name: &str) -> bool {
    match name.split_once('/') {
        None => !name.is_empty(),
        Some((first, _)) => {
            matches!(first, "docker.io" | "index.docker.io")
                || !first.is_empty() && !first.contains(['.', ':'])
        }
    }
}

/// Whether `HOST[:PORT][/PATH]` with globs in the host covers a name. Ports must be equal, hosts must have the same
/// number of parts, and the path is a prefix.
fn matches(glob: &str, name: &str) -> bool {
    let split = |text: &str| {
        let (host, path) = match text.find('/') {
            Some(at) => text.split_at(at),
            None => (text, ""),
        };
        let (host, port) = match host.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port),
            _ => (host, ""),
        };
        // In a glob pattern, the brackets of an IPv6 address would be a character class.
        let address = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        let host = address
            .filter(|address| address.contains(':'))
            .unwrap_or(host);
        (host.to_owned(), port.to_owned(), path.to_owned())
    };
    let (glob_host, glob_port, glob_path) = split(glob);
    let (host, port, path) = split(name);
    let globs: Vec<&str> = glob_host.split('.').collect();
    let parts: Vec<&str> = host.split('.').collect();
    glob_port == port
        && globs.len() == parts.len()
        && path.starts_with(&glob_path)
        && globs
            .iter()
            .zip(parts)
            .all(|(glob, part)| wildcard(glob.as_bytes(), part.as_bytes()))
}

/// `*`, `?` and `[a-z]` in one part of a host name. Takes time in proportion to both lengths, regardless of the pattern.
fn wildcard(glob: &[u8], text: &[u8]) -> bool {
    let (mut at, mut position) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while position < text.len() {
        let step = match glob.get(at) {
            Some(b'*') => {
                star = Some((at, position));
                at += 1;
                continue;
            }
            Some(b'?') => Some(1),
            Some(b'[') => class(&glob[at..], text[position]),
            Some(b'\\') if glob.get(at + 1) == Some(&text[position]) => Some(2),
            Some(letter) if *letter == text[position] => Some(1),
            _ => None,
        };
        match (step, star) {
            (Some(step), _) => {
                at += step;
                position += 1;
            }
            (None, Some((from, matched))) => {
                at = from + 1;
                position = matched + 1;
                star = Some((from, position));
            }
            (None, None) => return false,
        }
    }
    glob[at..].iter().all(|letter| *letter == b'*')
}

/// The length of a class of letters at the beginning of a glob if the letter is in it.
fn class(glob: &[u8], letter: u8) -> Option<usize> {
    let end = glob.iter().position(|byte| *byte == b']')?;
    let mut letters = &glob[1..end];
    let negated = letters.first() == Some(&b'^');
    if negated {
        letters = &letters[1..];
    }
    let mut inside = false;
    while let Some(first) = letters.first() {
        if let (Some(b'-'), Some(last)) = (letters.get(1), letters.get(2)) {
            inside |= (*first..=*last).contains(&letter);
            letters = &letters[3..];
        } else {
            inside |= *first == letter;
            letters = &letters[1..];
        }
    }
    (inside != negated).then_some(end + 1)
}

#[cfg(test)]
mod tests;
