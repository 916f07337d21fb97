//! Semantic versions as Kubernetes compares them: precedence of semver.org 2.0, build metadata ignored.

use std::{cmp::Ordering, fmt};

use allot_apimachinery::quote::quote;

/// A semantic version. Equality and order are by precedence, so build metadata does not count.
#[derive(Debug, Clone)]
pub struct Version {
    /// Major number.
    pub major: u64,
    /// Minor number.
    pub minor: u64,
    /// Patch number.
    pub patch: u64,
    pre: Box<[Identifier]>,
    build: Box<str>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Identifier {
    Number(u64),
    Text(Box<str>),
}

/// Why a text is no semantic version, with the texts of the library that Kubernetes uses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(String);

impl Version {
    /// Reads a full version: `major.minor.patch[-prerelease][+build]`.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        if text.is_empty() {
            return Err(ParseError("Version string empty".to_owned()));
        }
        let mut parts = text.splitn(3, '.');
        let (Some(major), Some(minor), Some(rest)) = (parts.next(), parts.next(), parts.next())
        else {
            return Err(ParseError("No Major.Minor.Patch elements found".to_owned()));
        };
        let (major, minor) = (number("Major", major)?, number("Minor", minor)?);
        let (rest, build) = match rest.split_once('+') {
            Some((rest, build)) => (rest, Some(build)),
            None => (rest, None),
        };
        let (patch, pre) = match rest.split_once('-') {
            Some((patch, pre)) => (patch, Some(pre)),
            None => (rest, None),
        };
        let patch = number("Patch", patch)?;
        let pre = pre
            .map(|pre| pre.split('.').map(Identifier::parse).collect())
            .transpose()?
            .unwrap_or_default();
        for part in build.into_iter().flat_map(|build| build.split('.')) {
            if part.is_empty() {
                return Err(ParseError("Build meta data is empty".to_owned()));
            }
            if !part.bytes().all(identifier_byte) {
                return Err(bad_character("build meta data", part));
            }
        }
        Ok(Self {
            major,
            minor,
            patch,
            pre,
            build: build.unwrap_or_default().into(),
        })
    }

    /// Reads a version leniently, as `semver(text, true)` does: a `v` in front, leading zeros and missing minor and patch
    /// numbers are allowed.
    pub fn parse_normalized(text: &str) -> Result<Self, ParseError> {
        Self::parse(&normalize(text)?)
    }
}

/// Drops a leading `v` and leading zeros and adds missing parts.
fn normalize(text: &str) -> Result<String, ParseError> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let mut parts: Vec<String> = text.splitn(3, '.').map(str::to_owned).collect();
    for part in &mut parts {
        if part.len() > 1 {
            let trimmed = part.trim_start_matches('0');
            let zero = if trimmed.starts_with(|c: char| c.is_ascii_digit()) {
                ""
            } else {
                "0"
            };
            *part = format!("{zero}{trimmed}");
        }
    }
    if parts.len() < 3 {
        if parts.last().is_some_and(|part| part.contains(['+', '-'])) {
            return Err(ParseError(
                "short version cannot contain PreRelease/Build meta data".to_owned(),
            ));
        }
        parts.resize(3, "0".to_owned());
    }
    Ok(parts.join("."))
}

fn number(part: &str, text: &str) -> Result<u64, ParseError> {
    if !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(bad_character(
            &format!("{} number", part.to_ascii_lowercase()),
            text,
        ));
    }
    if text.len() > 1 && text.starts_with('0') {
        return Err(ParseError(format!(
            "{part} number must not contain leading zeroes {}",
            quote(text)
        )));
    }
    parse_number(text)
}

fn parse_number(text: &str) -> Result<u64, ParseError> {
    let problem = if text.is_empty() {
        "invalid syntax"
    } else {
        "value out of range"
    };
    text.parse().map_err(|_| {
        ParseError(format!(
            "strconv.ParseUint: parsing {}: {problem}",
            quote(text)
        ))
    })
}

fn bad_character(part: &str, text: &str) -> ParseError {
    ParseError(format!(
        "Invalid character(s) found in {part} {}",
        quote(text)
    ))
}

fn identifier_byte(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b == b'-'
}

impl Identifier {
    fn parse(text: &str) -> Result<Self, ParseError> {
        if text.is_empty() {
            return Err(ParseError("Prerelease is empty".to_owned()));
        }
        if text.bytes().all(|b| b.is_ascii_digit()) {
            if text.len() > 1 && text.starts_with('0') {
                let problem = "Numeric PreRelease version must not contain leading zeroes";
                return Err(ParseError(format!("{problem} {}", quote(text))));
            }
            return parse_number(text).map(Self::Number);
        }
        if !text.bytes().all(identifier_byte) {
            return Err(bad_character("prerelease", text));
        }
        Ok(Self::Text(text.into()))
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.major, self.minor, self.patch)
            .cmp(&(other.major, other.minor, other.patch))
            .then_with(|| match (self.pre.is_empty(), other.pre.is_empty()) {
                (true, true) => Ordering::Equal,
                (true, false) => Ordering::Greater,
                (false, true) => Ordering::Less,
                (false, false) => self.pre.cmp(&other.pre),
            })
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Version {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Version {}

impl Ord for Identifier {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Number(a), Self::Number(b)) => a.cmp(b),
            (Self::Number(_), Self::Text(_)) => Ordering::Less,
            (Self::Text(_), Self::Number(_)) => Ordering::Greater,
            (Self::Text(a), Self::Text(b)) => a.cmp(b),
        }
    }
}

impl PartialOrd for Identifier {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)?;
        for (i, part) in self.pre.iter().enumerate() {
            f.write_str(if i == 0 { "-" } else { "." })?;
            match part {
                Identifier::Number(number) => write!(f, "{number}")?,
                Identifier::Text(text) => f.write_str(text)?,
            }
        }
        if !self.build.is_empty() {
            write!(f, "+{}", self.build)?;
        }
        Ok(())
    }
}
