//! The file of `--authentication-config` (`apiserver.config.k8s.io`, `AuthenticationConfiguration`): which requests may be anonymous.

use serde::Deserialize;
use serde_json::Value;

use super::decode::{Strict, strict};

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

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    jwt: Option<Vec<Value>>,
    #[serde(default)]
    anonymous: Option<WrittenAnonymous>,
}

impl Strict for Written {
    const KIND: &'static str = "AuthenticationConfiguration";

    fn header(&self) -> (&str, &str) {
        (&self.api_version, &self.kind)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WrittenAnonymous {
    #[serde(default)]
    enabled: Option<bool>,
    #[serde(default)]
    conditions: Option<Vec<Condition>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Condition {
    #[serde(default)]
    path: Option<String>,
}

/// What the content of the file says about anonymous requests; none: nothing.
///
/// # Errors
/// It is no such configuration, is not valid, or has issuers of tokens: they would not be trusted.
pub fn read(content: &[u8]) -> Result<Option<Anonymous>, String> {
    let text = std::str::from_utf8(content).map_err(|error| error.to_string())?;
    if text.is_empty() {
        return Err("empty config data".to_owned());
    }
    let written: Written = strict(text)?;
    if written.jwt.is_some_and(|issuers| !issuers.is_empty()) {
        return Err(
            "jwt: Forbidden: this server has no authentication by OpenID Connect".to_owned(),
        );
    }
    let Some(anonymous) = written.anonymous else {
        return Ok(None);
    };
    let conditions = anonymous.conditions.unwrap_or_default().into_iter();
    let paths: Vec<String> = conditions.map(|it| it.path.unwrap_or_default()).collect();
    match (anonymous.enabled.unwrap_or_default(), paths.is_empty()) {
        (true, true) => Ok(Some(Anonymous::Everywhere)),
        (true, false) => Ok(Some(Anonymous::At(paths))),
        (false, true) => Ok(Some(Anonymous::Nowhere)),
        (false, false) => Err(format!(
            "invalid authentication configuration: anonymous.conditions: Invalid value: {paths:?}: enabled should be set to true when conditions are defined"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Option<Anonymous>, String> {
        read(format!("apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n{text}\n").as_bytes())
    }

    #[test]
    fn paths_restrict_anonymous_requests() {
        let paths = of("anonymous: {enabled: true, conditions: [{path: /livez}, {path: /readyz}]}");
        let paths = paths.unwrap().unwrap();
        for (path, may) in [
            ("/livez", true),
            ("/readyz", true),
            ("/livez/", false),
            ("/livez/ping", false),
            ("/LIVEZ", false),
            ("", false),
            ("/api", false),
        ] {
            assert_eq!(paths.may_ask(path), may, "{path}");
        }
        assert_eq!(
            of("anonymous: {enabled: true}"),
            Ok(Some(Anonymous::Everywhere))
        );
        assert_eq!(of("anonymous: {}"), Ok(Some(Anonymous::Nowhere)));
        assert_eq!(of("jwt: []"), Ok(None));
    }

    #[test]
    fn what_would_not_be_followed_is_refused() {
        for (text, error) in [
            ("jwt: [{issuer: {url: 'https://x'}}]", "jwt: Forbidden"),
            (
                "anonymous: {enabled: false, conditions: [{path: /x}]}",
                "invalid authentication configuration: anonymous.conditions",
            ),
            (
                "anonymous: {enabled: true, condition: []}",
                "strict decoding error: ",
            ),
            (
                "anonymous: {enabled: true, conditions: [{path: /x, verb: get}]}",
                "strict decoding error: ",
            ),
            ("oidc: {}", "strict decoding error: "),
        ] {
            let found = of(text).expect_err(text);
            assert!(found.starts_with(error), "{found}");
        }
        assert_eq!(read(b""), Err("empty config data".to_owned()));
        let other = read(b"apiVersion: v1\nkind: Pod\n").unwrap_err();
        assert_eq!(other, "no kind \"Pod\" is registered for version \"v1\"");
    }
}
