//! The file of `--authorization-config`: authorizers in order (`apiserver.config.k8s.io`, `AuthorizationConfiguration`).

use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use allot_apimachinery::field::{Error, ErrorList, Path, aggregate, joined};
use allot_apimachinery::names;
use allot_kinds::request::parse_duration;
use serde::{Deserialize, Deserializer};

use super::abac::Policies;
use super::conditions::{Condition, Conditions};
use super::{AuthorizationMode, ReviewVersion, WebhookOptions};
use crate::config::decode::{Strict, strict};
use crate::config::kubeconfig::Kubeconfig;

/// The types of authorizers, sorted.
const TYPES: [&str; 6] = [
    "ABAC",
    "AlwaysAllow",
    "AlwaysDeny",
    "Node",
    "RBAC",
    "Webhook",
];
/// Those that a server has to have from its start.
const FROM_START: [&str; 3] = ["ABAC", "Node", "RBAC"];
const WEBHOOK: &str = "Webhook";
/// Conditions of one webhook.
const MOST_CONDITIONS: usize = 64;
const LONGEST_TIMEOUT: Duration = Duration::from_secs(30);
const AUTHORIZED_TTL: Duration = Duration::from_secs(300);
const UNAUTHORIZED_TTL: Duration = Duration::from_secs(30);

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Written {
    api_version: String,
    kind: String,
    authorizers: Option<Vec<Authorizer>>,
}

impl Strict for Written {
    const KIND: &'static str = "AuthorizationConfiguration";

    fn header(&self) -> (&str, &str) {
        (&self.api_version, &self.kind)
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Authorizer {
    r#type: Option<String>,
    name: Option<String>,
    webhook: Option<Webhook>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Webhook {
    #[serde(rename = "authorizedTTL")]
    authorized_ttl: Time,
    cache_authorized_requests: Option<bool>,
    #[serde(rename = "unauthorizedTTL")]
    unauthorized_ttl: Time,
    cache_unauthorized_requests: Option<bool>,
    timeout: Time,
    subject_access_review_version: Option<String>,
    match_condition_subject_access_review_version: Option<String>,
    failure_policy: Option<String>,
    connection_info: Option<ConnectionInfo>,
    match_conditions: Option<Vec<MatchCondition>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct ConnectionInfo {
    r#type: Option<String>,
    kube_config_file: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct MatchCondition {
    expression: Option<String>,
}

/// A duration as Go writes it: in nanoseconds, and as it is written.
#[derive(Default, Clone)]
struct Time(i64, String);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Some(text) = Option::<String>::deserialize(deserializer)? else {
            return Ok(Time::default());
        };
        let nanoseconds = parse_duration(&text).map_err(serde::de::Error::custom)?;
        Ok(Time(nanoseconds, text))
    }
}

impl Time {
    /// The time, or the default for none.
    fn or(&self, default: Duration) -> Duration {
        match u64::try_from(self.0) {
            Ok(0) | Err(_) => default,
            Ok(nanoseconds) => Duration::from_nanos(nanoseconds),
        }
    }
}

/// The authorizers in the content of a file, at the start of a server. `policies` is the file for authorizers of type ABAC.
///
/// # Errors
/// Upstream's texts: what is no such configuration or is not valid, and files that it names and that cannot be used.
pub fn read(content: &[u8], policies: Option<&FilePath>) -> Result<Vec<AuthorizationMode>, String> {
    let authorizers = validated(content)?;
    made(authorizers, || {
        let file = policies.unwrap_or(FilePath::new(""));
        Policies::read(file).map(Arc::new)
    })
}

/// The authorizers in the changed content of the file. `first` are those that the server has started with: except for webhooks all
/// of their types remain, and policies are not read again.
///
/// # Errors
/// As [`read`].
pub fn read_again(
    content: &[u8],
    first: &[AuthorizationMode],
) -> Result<Vec<AuthorizationMode>, String> {
    let authorizers = validated(content)?;
    let has = |kind: &str| first.iter().any(|it| it.kind() == kind);
    let is_named = |kind: &&str| {
        let mut types = authorizers.iter().map(|it| it.r#type.as_deref());
        types.any(|it| it == Some(*kind))
    };
    let missing = TYPES.iter().filter(|kind| **kind != WEBHOOK && has(kind));
    let missing: Vec<&str> = missing.filter(|kind| !is_named(kind)).copied().collect();
    if !missing.is_empty() {
        return Err(format!("missing required types: [{}]", missing.join(" ")));
    }
    let new = FROM_START.iter().find(|kind| is_named(kind) && !has(kind));
    if let Some(new) = new {
        return Err(format!(
            "authorizer type {new} is not allowed if it was not enabled at initial server startup"
        ));
    }
    let policies = first.iter().find_map(|it| match it {
        AuthorizationMode::Abac(policies) => Some(Arc::clone(policies)),
        _ => None,
    });
    made(authorizers, || Ok(policies.clone().unwrap_or_default()))
}

fn made(
    authorizers: Vec<Authorizer>,
    policies: impl Fn() -> Result<Arc<Policies>, String>,
) -> Result<Vec<AuthorizationMode>, String> {
    let made = authorizers.into_iter().map(|authorizer| {
        let kind = authorizer.r#type.unwrap_or_default();
        match (kind.as_str(), authorizer.webhook) {
            ("ABAC", _) => Ok(AuthorizationMode::Abac(policies()?)),
            (_, Some(webhook)) => {
                let name = authorizer.name.unwrap_or_default();
                let options = webhook.options(name)?;
                Ok(AuthorizationMode::Webhook(Arc::new(options)))
            }
            (kind, None) => AuthorizationMode::named(kind)
                .ok_or_else(|| format!("unknown authorization mode {kind} specified")),
        }
    });
    made.collect()
}

/// The authorizers of a configuration that is valid.
fn validated(content: &[u8]) -> Result<Vec<Authorizer>, String> {
    let written = parsed(content)
        .map_err(|why| format!("failed to load AuthorizationConfiguration from file: {why}"))?;
    let authorizers = written.authorizers.unwrap_or_default();
    let errors = validate(&authorizers);
    if let Some(errors) = aggregate(&errors) {
        return Err(errors);
    }
    let mut wrong = Vec::new();
    for it in &authorizers {
        let [kind, name] = [&it.r#type, &it.name].map(|it| it.as_deref().unwrap_or_default());
        let expected = kind.to_lowercase();
        if kind != WEBHOOK && name != expected {
            wrong.push(format!(
                "expected name {expected} for authorizer {kind} instead of {name}"
            ));
        }
    }
    joined(&wrong).map_or(Ok(authorizers), Err)
}

fn parsed(content: &[u8]) -> Result<Written, String> {
    let text = std::str::from_utf8(content).map_err(|error| error.to_string())?;
    if text.is_empty() {
        return Ok(Written::default());
    }
    strict(text)
}

fn validate(authorizers: &[Authorizer]) -> ErrorList {
    let path = Path::new("authorizers");
    let mut errors = ErrorList::new();
    if authorizers.is_empty() {
        let detail = "at least one authorization mode must be defined";
        errors.push(Error::required(&path, detail));
    }
    let (mut types, mut seen) = (Vec::new(), Vec::new());
    for (index, it) in authorizers.iter().enumerate() {
        let path = path.index(index);
        let [kind, name] = [&it.r#type, &it.name].map(|it| it.as_deref().unwrap_or_default());
        let at = path.child("type");
        if kind.is_empty() {
            errors.push(Error::required(&at, ""));
            continue;
        }
        if !TYPES.contains(&kind) {
            errors.push(Error::not_supported(&at, kind, &TYPES));
            continue;
        }
        if kind != WEBHOOK && types.contains(&kind) {
            errors.push(Error::duplicate(&at, kind));
            continue;
        }
        types.push(kind);
        let at = path.child("name");
        let why = names::dns1123_subdomain(name);
        if name.is_empty() {
            errors.push(Error::required(&at, ""));
        } else if seen.contains(&name) {
            errors.push(Error::duplicate(&at, name));
        } else if !why.is_empty() {
            let detail = format!("authorizer name is invalid: {}", why.join(", "));
            errors.push(Error::invalid(&at, name, detail));
        }
        seen.push(name);
        let at = path.child("webhook");
        match (kind == WEBHOOK, &it.webhook) {
            (true, None) => errors.push(Error::required(&at, "required when type=Webhook")),
            (true, Some(webhook)) => webhook.validate(&path, &mut errors),
            (false, Some(_)) => {
                let detail = "may only be specified when type=Webhook";
                errors.push(Error::invalid(&at, "non-null", detail));
            }
            (false, None) => {}
        }
    }
    errors
}

impl Webhook {
    /// Upstream's paths leave out `webhook`.
    fn validate(&self, path: &Path, errors: &mut ErrorList) {
        let at = path.child("timeout");
        let is_too_long = self.timeout.or(Duration::ZERO) > LONGEST_TIMEOUT;
        if self.timeout.0 == 0 {
            errors.push(Error::required(&at, ""));
        } else if self.timeout.0 < 0 || is_too_long {
            let text = self.timeout.1.as_str();
            errors.push(Error::invalid(&at, text, "must be > 0s and <= 30s"));
        }
        for (key, time) in [
            ("authorizedTTL", &self.authorized_ttl),
            ("unauthorizedTTL", &self.unauthorized_ttl),
        ] {
            if time.0 < 0 {
                let at = path.child(key);
                errors.push(Error::invalid(&at, time.1.as_str(), "must be > 0s"));
            }
        }
        let mut one_of =
            |key: &str, value: &Option<String>, known: &[&str], needed: Option<&str>| {
                let value = value.as_deref().unwrap_or_default();
                let at = path.child(key);
                if value.is_empty() {
                    if let Some(why) = needed {
                        errors.push(Error::required(&at, why));
                    }
                } else if !known.contains(&value) {
                    errors.push(Error::not_supported(&at, value, known));
                }
            };
        let version = &self.subject_access_review_version;
        let versions = ["v1", "v1beta1"];
        one_of("subjectAccessReviewVersion", version, &versions, Some(""));
        let has_conditions = self
            .match_conditions
            .as_ref()
            .is_some_and(|it| !it.is_empty());
        let needed = has_conditions.then_some("required if match conditions are specified");
        let version = &self.match_condition_subject_access_review_version;
        let key = "matchConditionSubjectAccessReviewVersion";
        one_of(key, version, &["v1"], needed);
        let policies = ["NoOpinion", "Deny"];
        one_of("failurePolicy", &self.failure_policy, &policies, Some(""));
        self.validate_connection(&path.child("connectionInfo"), errors);
        let (_, found) = self.conditions(path);
        errors.append(found);
    }

    fn validate_connection(&self, path: &Path, errors: &mut ErrorList) {
        let none = ConnectionInfo::default();
        let info = self.connection_info.as_ref().unwrap_or(&none);
        let (kind, file) = (path.child("type"), path.child("kubeConfigFile"));
        let named = info.kube_config_file.as_deref().unwrap_or_default();
        match info.r#type.as_deref().unwrap_or_default() {
            "" => errors.push(Error::required(&kind, "")),
            "KubeConfigFile" if named.is_empty() => errors.push(Error::required(&file, "")),
            "KubeConfigFile" if !named.starts_with('/') => {
                errors.push(Error::invalid(&file, named, "must be an absolute path"));
            }
            "KubeConfigFile" => match std::fs::metadata(named) {
                Err(error) => {
                    let detail = format!("error loading file: {error}");
                    errors.push(Error::invalid(&file, named, detail));
                }
                Ok(found) if !found.is_file() => {
                    errors.push(Error::invalid(&file, named, "must be a regular file"));
                }
                Ok(_) => {}
            },
            // For servers that ask this one; upstream's API server ends with a panic.
            "InClusterConfig" => {
                let detail = "is not allowed for an API server, which would ask itself";
                errors.push(Error::invalid(&kind, "InClusterConfig", detail));
            }
            other => {
                let known = ["InClusterConfig", "KubeConfigFile"];
                errors.push(Error::not_supported(&kind, other, &known));
            }
        }
    }

    /// The compiled match conditions, and the errors of those that do not compile.
    fn conditions(&self, path: &Path) -> (Vec<Condition>, ErrorList) {
        let path = path.child("matchConditions");
        let (mut compiled, mut errors) = (Vec::new(), ErrorList::new());
        let conditions = self.match_conditions.as_deref().unwrap_or_default();
        if conditions.len() > MOST_CONDITIONS {
            errors.push(Error::too_many(&path, conditions.len(), MOST_CONDITIONS));
            return (compiled, errors);
        }
        let mut seen = Vec::new();
        for (index, condition) in conditions.iter().enumerate() {
            let at = path.index(index).child("expression");
            let text = condition.expression.as_deref().unwrap_or_default();
            if text.trim().is_empty() {
                errors.push(Error::required(&at, ""));
                continue;
            }
            if seen.contains(&text) {
                errors.push(Error::duplicate(&at, text));
                continue;
            }
            seen.push(text);
            match Condition::compile(text) {
                Ok(condition) => compiled.push(condition),
                Err(error) => errors.push(Error::invalid(&at, text, error.to_string())),
            }
        }
        (compiled, errors)
    }

    /// The options of a webhook that is valid.
    fn options(self, name: String) -> Result<WebhookOptions, String> {
        let (conditions, _) = self.conditions(&Path::root());
        let file = self.connection_info.and_then(|it| it.kube_config_file);
        let file = PathBuf::from(file.unwrap_or_default());
        let version = self.subject_access_review_version.as_deref();
        let version = version.and_then(ReviewVersion::named);
        let kept = |wanted: Option<bool>, time: &Time, default| match wanted {
            Some(false) => Duration::ZERO,
            _ => time.or(default),
        };
        Ok(WebhookOptions {
            name,
            kubeconfig: Kubeconfig::read(&file)?,
            version: version.unwrap_or(ReviewVersion::V1),
            timeout: self.timeout.or(LONGEST_TIMEOUT),
            authorized_ttl: kept(
                self.cache_authorized_requests,
                &self.authorized_ttl,
                AUTHORIZED_TTL,
            ),
            unauthorized_ttl: kept(
                self.cache_unauthorized_requests,
                &self.unauthorized_ttl,
                UNAUTHORIZED_TTL,
            ),
            denies_on_error: self.failure_policy.as_deref() == Some("Deny"),
            conditions: Conditions::new(conditions),
        })
    }
}

#[cfg(test)]
mod tests;
