//! `audit.k8s.io/v1` policies: how much is written about which requests.

use allot_apimachinery::names::dns1123_subdomain;
use serde::{Deserialize, Serialize};

use crate::identity::User;
use crate::request::RequestInfo;

#[cfg(test)]
mod tests;

/// How much is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Level {
    /// Nothing.
    None,
    /// User, resource, verb and result.
    Metadata,
    /// Also the body of the request.
    Request,
    /// Also that of the answer.
    RequestResponse,
}

/// When it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// The request was received and its user is known.
    RequestReceived,
    /// The head of a long-running answer has been sent.
    ResponseStarted,
    /// The answer is complete.
    ResponseComplete,
    /// The server has failed.
    Panic,
}

/// A policy: the first rule that matches a request determines what is logged about it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Policy {
    api_version: String,
    kind: String,
    #[serde(default, rename = "metadata")]
    _metadata: serde::de::IgnoredAny,
    #[serde(default)]
    rules: Vec<Rule>,
    #[serde(default)]
    omit_stages: Vec<Stage>,
    #[serde(default)]
    omit_managed_fields: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Rule {
    level: Level,
    #[serde(default)]
    users: Vec<String>,
    #[serde(default)]
    user_groups: Vec<String>,
    #[serde(default)]
    verbs: Vec<String>,
    #[serde(default)]
    resources: Vec<Resources>,
    #[serde(default)]
    namespaces: Vec<String>,
    #[serde(default, rename = "nonResourceURLs")]
    urls: Vec<String>,
    #[serde(default)]
    omit_stages: Vec<Stage>,
    omit_managed_fields: Option<bool>,
}

/// The group of a rule that applies to the resources of all groups, the core group included.
const ANY_GROUP: &str = "*";

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Resources {
    #[serde(default)]
    group: String,
    #[serde(default)]
    resources: Vec<String>,
    #[serde(default)]
    resource_names: Vec<String>,
}

/// The decision of a policy about a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Decision {
    pub(super) level: Level,
    pub(super) omit: Vec<Stage>,
    pub(super) omit_managed_fields: bool,
}

impl Policy {
    /// Reads a policy as YAML or JSON.
    ///
    /// # Errors
    /// The error as a text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let policy: Policy = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
        if policy.api_version != "audit.k8s.io/v1" || policy.kind != "Policy" {
            return Err(format!(
                "unknown apiVersion {:?} and kind {:?}: only Policy of audit.k8s.io/v1 is known",
                policy.api_version, policy.kind
            ));
        }
        if policy.rules.is_empty() {
            return Err("loaded illegal policy with 0 rules".to_owned());
        }
        for (index, rule) in policy.rules.iter().enumerate() {
            rule.check().map_err(|why| format!("rules[{index}]{why}"))?;
        }
        Ok(policy)
    }

    pub(super) fn rule(&self, info: &RequestInfo, user: &User) -> Decision {
        let Some(rule) = self.rules.iter().find(|rule| rule.matches(info, user)) else {
            return Decision {
                level: Level::None,
                omit: Vec::new(),
                omit_managed_fields: self.omit_managed_fields,
            };
        };
        let mut omit = self.omit_stages.clone();
        omit.extend(&rule.omit_stages);
        Decision {
            level: rule.level,
            omit,
            omit_managed_fields: rule.omit_managed_fields.unwrap_or(self.omit_managed_fields),
        }
    }
}

fn has(list: &[String], item: &str) -> bool {
    list.iter().any(|known| known == item)
}

impl Rule {
    /// As upstream's validation.
    fn check(&self) -> Result<(), String> {
        let about_resources = !self.resources.is_empty() || !self.namespaces.is_empty();
        if !self.urls.is_empty() && about_resources {
            return Err(".nonResourceURLs: Invalid value: rules cannot apply to both regular resources and \
                        non-resource URLs"
                .to_owned());
        }
        for (index, url) in self.urls.iter().enumerate() {
            if url == "*" {
                continue;
            }
            if !url.starts_with('/') {
                return Err(format!(
                    ".nonResourceURLs[{index}]: Invalid value: {url:?}: non-resource URL rules must begin with a '/' character"
                ));
            }
            if url.strip_suffix('*').unwrap_or(url).contains('*') {
                return Err(format!(
                    ".nonResourceURLs[{index}]: Invalid value: {url:?}: non-resource URL wildcards '*' must be the final character of the rule"
                ));
            }
        }
        for (index, resources) in self.resources.iter().enumerate() {
            let group = resources.group.as_str();
            if !matches!(group, "" | ANY_GROUP) {
                let wrong = dns1123_subdomain(group);
                if !wrong.is_empty() {
                    return Err(format!(
                        ".resources[{index}].group: Invalid value: {group:?}: {}",
                        wrong.join(",")
                    ));
                }
            }
            if !resources.resource_names.is_empty() && resources.resources.is_empty() {
                return Err(format!(
                    ".resources[{index}].resourceNames: Invalid value: using resourceNames requires at least one resource"
                ));
            }
        }
        Ok(())
    }

    fn matches(&self, info: &RequestInfo, user: &User) -> bool {
        if !self.users.is_empty() && !has(&self.users, &user.name)
            || !self.user_groups.is_empty()
                && !self.user_groups.iter().any(|group| user.in_group(group))
            || !self.verbs.is_empty() && !has(&self.verbs, &info.verb)
        {
            return false;
        }
        if !self.namespaces.is_empty() || !self.resources.is_empty() {
            return info.is_resource
                && (self.namespaces.is_empty() || has(&self.namespaces, &info.namespace))
                && (self.resources.is_empty() || self.resources.iter().any(|it| it.matches(info)));
        }
        if self.urls.is_empty() {
            return true;
        }
        !info.is_resource
            && self.urls.iter().any(|url| match url.strip_suffix('*') {
                Some(prefix) => info.path.starts_with(prefix),
                None => *url == info.path,
            })
    }
}

impl Resources {
    fn matches(&self, info: &RequestInfo) -> bool {
        if self.group != ANY_GROUP && self.group != info.group {
            return false;
        }
        if self.resources.is_empty() {
            return true;
        }
        if !self.resource_names.is_empty() && !has(&self.resource_names, &info.name) {
            return false;
        }
        self.resources
            .iter()
            .any(|known| match known.split_once('/') {
                None => known == "*" || *known == info.resource && info.subresource.is_empty(),
                Some(("*", subresource)) => {
                    !info.subresource.is_empty() && subresource == info.subresource
                }
                Some((resource, "*")) => resource == info.resource,
                Some((resource, subresource)) => {
                    resource == info.resource && subresource == info.subresource
                }
            })
    }
}
