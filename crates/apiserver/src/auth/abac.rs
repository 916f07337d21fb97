//! Authorization by a file of policies.

use super::authorize::AuthorizerAttributes;
use super::decision::Decision;
use crate::config::authorization::abac::{Policies, Policy};
use crate::identity::User;

/// Decides by the first policy that matches.
pub(super) fn decide(policies: &Policies, attributes: &AuthorizerAttributes<'_>) -> Decision {
    let mut policies = policies.0.iter();
    match policies.any(|policy| matches(policy, attributes)) {
        true => Decision::allow(""),
        false => Decision::no_opinion("No policy matched."),
    }
}

fn matches(policy: &Policy, attributes: &AuthorizerAttributes<'_>) -> bool {
    let may_change = !policy.readonly || attributes.is_read_only();
    let on = match attributes.is_resource {
        true => {
            covers(&policy.namespace, attributes.namespace)
                && covers(&policy.resource, attributes.resource)
                && covers(&policy.api_group, attributes.group)
        }
        false => covers_path(&policy.path, attributes.path),
    };
    may_change && on && is_subject(policy, attributes.user)
}

fn covers(pattern: &str, value: &str) -> bool {
    pattern == "*" || pattern == value
}

fn covers_path(pattern: &str, path: &str) -> bool {
    let beginning = pattern
        .ends_with('*')
        .then(|| pattern.trim_end_matches('*'));
    pattern == path || beginning.is_some_and(|beginning| path.starts_with(beginning))
}

/// A policy that names neither a user nor a group has none; of one that names both, both must be right.
pub(super) fn is_subject(policy: &Policy, user: &User) -> bool {
    let of_user = policy.user.is_empty() || policy.user == user.name;
    let of_group = policy.group.is_empty() || user.in_group(&policy.group);
    let of_some = !policy.user.is_empty() || !policy.group.is_empty();
    of_some && of_user && of_group
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(text: &str) -> Policy {
        serde_json::from_str(text).unwrap()
    }

    /// Upstream's rules, line by line.
    #[test]
    fn policies_match_what_they_name() {
        let ann = User::new("ann", ["team"]);
        let verb = |verb| AuthorizerAttributes {
            namespace: "n",
            ..AuthorizerAttributes::resource(&ann, verb, "apps", "deployments")
        };
        let path = |verb, path| AuthorizerAttributes::path(&ann, verb, path);
        let on = r#""namespace":"n","resource":"deployments","apiGroup":"apps""#;
        for (text, attributes, matches) in [
            (format!(r#"{{"user":"ann",{on}}}"#), verb("delete"), true),
            (format!(r#"{{"user":"bob",{on}}}"#), verb("get"), false),
            (format!(r#"{{"group":"team",{on}}}"#), verb("get"), true),
            (
                format!(r#"{{"user":"ann","group":"other",{on}}}"#),
                verb("get"),
                false,
            ),
            (
                format!(r#"{{"user":"bob","group":"team",{on}}}"#),
                verb("get"),
                false,
            ),
            (format!("{{{on}}}"), verb("get"), false),
            (
                format!(r#"{{"user":"ann","readonly":true,{on}}}"#),
                verb("watch"),
                true,
            ),
            (
                format!(r#"{{"user":"ann","readonly":true,{on}}}"#),
                verb("update"),
                false,
            ),
            (
                r#"{"user":"ann","namespace":"*","resource":"*","apiGroup":"*"}"#.into(),
                verb("get"),
                true,
            ),
            (
                r#"{"user":"ann","namespace":"*","resource":"*"}"#.into(),
                verb("get"),
                false,
            ),
            (
                r#"{"user":"ann","nonResourcePath":"*"}"#.into(),
                verb("get"),
                false,
            ),
            (
                r#"{"user":"ann","nonResourcePath":"*"}"#.into(),
                path("get", "/x"),
                true,
            ),
            (
                r#"{"user":"ann","nonResourcePath":"/x"}"#.into(),
                path("get", "/x"),
                true,
            ),
            (
                r#"{"user":"ann","nonResourcePath":"/x"}"#.into(),
                path("get", "/xy"),
                false,
            ),
            (
                r#"{"user":"ann","nonResourcePath":"/x/*"}"#.into(),
                path("get", "/x/y/z"),
                true,
            ),
            (
                r#"{"user":"ann","nonResourcePath":"/x/*"}"#.into(),
                path("get", "/x"),
                false,
            ),
            (
                r#"{"user":"ann","nonResourcePath":"/*/y"}"#.into(),
                path("get", "/x/y"),
                false,
            ),
            (
                r#"{"user":"ann","nonResourcePath":"*","readonly":true}"#.into(),
                path("post", "/x"),
                false,
            ),
        ] {
            let policies = Policies(vec![policy(&text)]);
            assert_eq!(decide(&policies, &attributes).allowed(), matches, "{text}");
        }
    }
}
