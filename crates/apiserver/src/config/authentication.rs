//! The file of `--authentication-config` (`apiserver.config.k8s.io`, `AuthenticationConfiguration`): which requests may be
//! anonymous, and which issuers' tokens prove an identity; and the flags `--oidc-*`, which describe one issuer.

mod expressions;
mod issuer;
mod rules;
mod written;

use std::collections::BTreeMap;
use std::sync::Arc;

use allot_apimachinery::field::{Error, ErrorList, Path, aggregate};

use super::decode::strict;
use written::{ClaimRule, Issuer, Jwt, Mappings, Prefixed, Written, WrittenAnonymous};

pub(crate) use expressions::{BUDGET, Expression, Object, strings};
pub use issuer::{ALGORITHMS, TokenIssuer};
pub(crate) use rules::{Mapping, Rule};

/// Which requests without credentials are anonymous; the others are refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Anonymous {
    /// All.
    Everywhere,
    /// Those for one of these paths.
    At(Vec<String>),
    /// None.
    Nowhere,
}

impl Anonymous {
    /// Whether a request for this path, decoded, may be anonymous.
    pub(crate) fn may_ask(&self, path: &str) -> bool {
        match self {
            Anonymous::Everywhere => true,
            Anonymous::At(paths) => paths.iter().any(|it| it == path),
            Anonymous::Nowhere => false,
        }
    }
}

/// What the file says.
#[derive(Debug, Default)]
pub struct AuthenticationFile {
    /// About anonymous requests; none: nothing.
    pub anonymous: Option<Anonymous>,
    /// Whose tokens prove an identity.
    pub issuers: Vec<Arc<TokenIssuer>>,
}

/// The content of the file. `own` are the issuers of service-account tokens.
///
/// # Errors
/// It is no such configuration, or is not valid.
pub fn read(content: &[u8], own: &[String]) -> Result<AuthenticationFile, String> {
    let text = std::str::from_utf8(content).map_err(|error| error.to_string())?;
    if text.is_empty() {
        return Err("empty config data".to_owned());
    }
    let written: Written = strict(text)?;
    let mut errors = ErrorList::new();
    let issuers = issuer::issuers(written.jwt, own, &ALGORITHMS);
    let issuers = issuers.unwrap_or_else(|found| {
        errors.append(found);
        Vec::new()
    });
    let anonymous = written.anonymous.map(|it| anonymous(it, &mut errors));
    match aggregate(&errors) {
        Some(errors) => Err(format!("invalid authentication configuration: {errors}")),
        None => Ok(AuthenticationFile { anonymous, issuers }),
    }
}

/// The issuers in the changed content of the file. `first` is what it has said about anonymous requests at the start of the server.
///
/// # Errors
/// As [`read`], and anonymous requests may not be treated in another way.
pub fn read_again(
    content: &[u8],
    own: &[String],
    first: Option<&Anonymous>,
) -> Result<Vec<Arc<TokenIssuer>>, String> {
    let read = read(content, own)?;
    if read.anonymous.as_ref() != first {
        let why = "changed from initial configuration file";
        return Err(Error::forbidden(&Path::new("anonymous"), why).to_string());
    }
    Ok(read.issuers)
}

fn anonymous(written: WrittenAnonymous, errors: &mut ErrorList) -> Anonymous {
    let conditions = written.conditions.unwrap_or_default().into_iter();
    let paths: Vec<String> = conditions.map(|it| it.path.unwrap_or_default()).collect();
    match (written.enabled.unwrap_or_default(), paths.is_empty()) {
        (true, true) => Anonymous::Everywhere,
        (true, false) => Anonymous::At(paths),
        (false, true) => Anonymous::Nowhere,
        (false, false) => {
            let at = Path::new("anonymous").child("conditions");
            let shown = allot_apimachinery::field::BadValue::raw(format!("{paths:?}"));
            let detail = "enabled should be set to true when conditions are defined";
            errors.push(Error::invalid(&at, shown, detail));
            Anonymous::Nowhere
        }
    }
}

/// The issuer that the flags `--oidc-*` describe.
#[derive(Debug, Clone, Default)]
pub struct IssuerFlags {
    /// Its URL.
    pub url: String,
    /// The audience of its tokens.
    pub client_id: String,
    /// Certificates in PEM that are trusted for connections to it; those of the system if empty.
    pub ca: String,
    /// The claim with the name of the user.
    pub username_claim: String,
    /// Before the name. Empty: the URL and `#`, unless the claim is `email`; `-`: nothing.
    pub username_prefix: String,
    /// The claim with the groups; empty: there are none.
    pub groups_claim: String,
    /// Before each group.
    pub groups_prefix: String,
    /// Claims with the values that they must have.
    pub required: BTreeMap<String, String>,
    /// Algorithms of signatures; RS256 if there are none.
    pub algorithms: Vec<String>,
}

impl IssuerFlags {
    /// The issuer. `own` are the issuers of service-account tokens.
    ///
    /// # Errors
    /// Upstream's text for what is not valid.
    pub fn issuer(self, own: &[String]) -> Result<Vec<Arc<TokenIssuer>>, String> {
        let mut algorithms = Vec::new();
        for named in &self.algorithms {
            let known = ALGORITHMS.iter().find(|known| *known == named);
            let known = known.ok_or_else(|| format!("oidc: unsupported signing alg: {named:?}"))?;
            algorithms.push(*known);
        }
        if algorithms.is_empty() {
            algorithms.push("RS256");
        }
        let prefix = match (self.username_prefix.as_str(), self.username_claim.as_str()) {
            ("-", _) | ("", "email") => String::new(),
            // Users of several issuers must not be the same one.
            ("", _) => format!("{}#", self.url),
            (prefix, _) => prefix.to_owned(),
        };
        let mapped = |claim: String, prefix: String| Prefixed {
            claim,
            prefix: Some(prefix),
            expression: String::new(),
        };
        let groups = match self.groups_claim.is_empty() {
            true => Prefixed::default(),
            false => mapped(self.groups_claim, self.groups_prefix),
        };
        let required = self.required.into_iter();
        let required = required.map(|(claim, required_value)| ClaimRule {
            claim,
            required_value,
            ..ClaimRule::default()
        });
        let written = Jwt {
            issuer: Issuer {
                url: self.url,
                audiences: vec![self.client_id],
                certificate_authority: self.ca,
                ..Issuer::default()
            },
            claim_validation_rules: required.collect(),
            claim_mappings: Mappings {
                username: mapped(self.username_claim, prefix),
                groups,
                ..Mappings::default()
            },
            ..Jwt::default()
        };
        issuer::issuers(vec![written], own, &algorithms).map_err(|errors| {
            let errors = aggregate(&errors).unwrap_or_default();
            format!("invalid authentication configuration: {errors}")
        })
    }
}

#[cfg(test)]
mod tests;
