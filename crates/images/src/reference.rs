//! Names of images, by the rules of the `distribution/reference` library that Kubernetes and Docker share.

use std::fmt;
use std::sync::LazyLock;

use regex::Regex;

use crate::{Digest, Error, Result};

const DEFAULT_DOMAIN: &str = "docker.io";
const LEGACY_DOMAIN: &str = "index.docker.io";
const OFFICIAL_PREFIX: &str = "library/";
const DEFAULT_TAG: &str = "latest";
/// Longest path of a repository, in bytes.
const MAX_PATH: usize = 255;
/// Longer than any valid reference: 255 of path, 253 of host and port, 128 of tag and a digest.
const MAX_TEXT: usize = 1024;

/// A name of an image in full form: `DOMAIN/PATH[:TAG][@DIGEST]`.
///
/// [`Reference::parse`] adds the defaults: `docker.io`, `library/`. The tag stays absent when it is absent in the text;
/// [`Reference::with_default_tag`] adds `latest` when there is no digest either.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reference {
    domain: String,
    path: String,
    tag: Option<String>,
    digest: Option<Digest>,
}

struct Patterns {
    reference: Regex,
    name: Regex,
    identifier: Regex,
    tag: Regex,
}

static PATTERNS: LazyLock<Option<Patterns>> = LazyLock::new(|| {
    let component = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])";
    let domain = format!(r"(?:{component}(?:\.{component})*|\[(?:[a-fA-F0-9:]+)\])(?::[0-9]+)?");
    let word = r"[a-z0-9]+(?:(?:[._]|__|[-]+)[a-z0-9]+)*";
    let path = format!("{word}(?:/{word})*");
    let tag = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}";
    let digest = r"[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}";
    let regex = |text: String| Regex::new(&text).ok();
    Some(Patterns {
        reference: regex(format!(
            r"\A((?:{domain}/)?{path})(?::({tag}))?(?:@({digest}))?\z"
        ))?,
        name: regex(format!(r"\A(?:({domain})/)?({path})\z"))?,
        identifier: regex(r"\A[a-f0-9]{64}\z".to_owned())?,
        tag: regex(format!(r"\A{tag}\z"))?,
    })
});

fn patterns() -> Result<&'static Patterns> {
    let invalid = || Error::Internal("the grammar of references does not compile".to_owned());
    PATTERNS.as_ref().ok_or_else(invalid)
}

impl Reference {
    /// Parses a name as used in manifests and on command lines.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`] with the text that upstream's library has for the same fault.
    pub fn parse(text: &str) -> Result<Self> {
        Self::parse_inner(text).map_err(|reason| Error::InvalidName {
            name: shortened(text).to_owned(),
            reason,
        })
    }

    fn parse_inner(text: &str) -> std::result::Result<Self, String> {
        let patterns = patterns().map_err(|error| error.to_string())?;
        if text.len() > MAX_TEXT {
            return Err("invalid reference format".to_owned());
        }
        if patterns.identifier.is_match(text) {
            return Err(format!(
                "invalid repository name ({text}), cannot specify 64-byte hexadecimal strings"
            ));
        }
        let (domain, remainder) = split_domain(text);
        let remote = remainder.split(':').next().unwrap_or_default();
        if remote.to_lowercase() != remote {
            return Err(format!(
                "invalid reference format: repository name ({remote}) must be lowercase"
            ));
        }
        let full = format!("{domain}/{remainder}");
        let Some(found) = patterns.reference.captures(&full) else {
            let lower = full.to_lowercase();
            return Err(if patterns.reference.is_match(&lower) {
                "repository name must be lowercase".to_owned()
            } else {
                "invalid reference format".to_owned()
            });
        };
        let name = found.get(1).map_or("", |found| found.as_str());
        // A host that cannot be one, such as `a_b.io`, would be taken for a part of the path.
        let parts = patterns.name.captures(name);
        let part = |index: usize| Some(parts.as_ref()?.get(index)?.as_str());
        let (Some(domain), Some(path)) = (part(1), part(2)) else {
            return Err("invalid reference format".to_owned());
        };
        if path.len() > MAX_PATH {
            return Err(format!(
                "repository name must not be more than {MAX_PATH} characters"
            ));
        }
        let digest = found.get(3).map(|found| Digest::parse(found.as_str()));
        let digest = digest.transpose().map_err(|error| error.reason)?;
        Ok(Self {
            domain: domain.to_owned(),
            path: path.to_owned(),
            tag: found.get(2).map(|found| found.as_str().to_owned()),
            digest,
        })
    }

    /// The registry's host, with a port if the name has one: `docker.io`, `localhost:5000`.
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// The repository in the registry: `library/busybox`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Domain and path, the key for credentials.
    pub fn name(&self) -> String {
        format!("{}/{}", self.domain, self.path)
    }

    /// The tag, if the name has one.
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// The digest, if the name has one. It wins over the tag, as in Docker.
    pub fn digest(&self) -> Option<&Digest> {
        self.digest.as_ref()
    }

    /// The name with `latest` as the tag if it has neither tag nor digest.
    #[must_use]
    pub fn with_default_tag(mut self) -> Self {
        if self.tag.is_none() && self.digest.is_none() {
            self.tag = Some(DEFAULT_TAG.to_owned());
        }
        self
    }

    /// The same repository at a digest alone.
    #[must_use]
    pub fn at(&self, digest: Digest) -> Self {
        Self {
            domain: self.domain.clone(),
            path: self.path.clone(),
            tag: None,
            digest: Some(digest),
        }
    }

    /// Whether the tag, explicit or default, is `latest`: the default pull policy of such images is Always.
    pub fn is_latest(&self) -> bool {
        self.digest.is_none() && self.tag.as_deref().is_none_or(|tag| tag == DEFAULT_TAG)
    }

    /// The reference for the registry: the digest, or else the tag.
    pub fn wanted(&self) -> String {
        match (&self.digest, &self.tag) {
            (Some(digest), _) => digest.to_string(),
            (None, Some(tag)) => tag.clone(),
            (None, None) => DEFAULT_TAG.to_owned(),
        }
    }

    /// The name under which an image is stored: without the tag if there is a digest.
    pub fn key(&self) -> String {
        match &self.digest {
            Some(digest) => format!("{}@{digest}", self.name()),
            None => format!("{}:{}", self.name(), self.wanted()),
        }
    }
}

/// Whether the text can be a tag.
pub(crate) fn is_tag(text: &str) -> bool {
    patterns().is_ok_and(|patterns| patterns.tag.is_match(text))
}

/// The name as its writer wrote it, if short enough to be repeated in a message.
fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_TEXT)]
}

/// The part before the first slash is a registry if it cannot be a part of a path on Docker Hub.
fn split_domain(name: &str) -> (&str, String) {
    let Some((first, rest)) = name.split_once('/') else {
        return (DEFAULT_DOMAIN, format!("{OFFICIAL_PREFIX}{name}"));
    };
    let is_domain =
        first == "localhost" || first.contains(['.', ':']) || first.to_lowercase() != first;
    let (domain, remainder) = match first {
        LEGACY_DOMAIN => (DEFAULT_DOMAIN, rest),
        _ if is_domain => (first, rest),
        _ => (DEFAULT_DOMAIN, name),
    };
    if domain == DEFAULT_DOMAIN && !remainder.contains('/') {
        return (domain, format!("{OFFICIAL_PREFIX}{remainder}"));
    }
    (domain, remainder.to_owned())
}

impl fmt::Display for Reference {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.domain, self.path)?;
        if let Some(tag) = &self.tag {
            write!(out, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(out, "@{digest}")?;
        }
        Ok(())
    }
}

impl std::str::FromStr for Reference {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text)
    }
}

#[cfg(test)]
mod tests;
