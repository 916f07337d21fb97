//! The file of `--authorization-policy-file`: a policy in JSON on each line (`abac.authorization.kubernetes.io`).

use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::identity::AUTHENTICATED;

const GROUP: &str = "abac.authorization.kubernetes.io";
const KIND: &str = "Policy";
/// The longest line, in bytes, as in kube-apiserver.
const LONGEST_LINE: usize = 64 << 10;

/// The policies of a file, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policies(pub Vec<Policy>);

/// What users or groups may do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Policy {
    /// The user; empty: not restricted.
    #[serde(deserialize_with = "or_default")]
    pub user: String,
    /// The group; empty: not restricted.
    #[serde(deserialize_with = "or_default")]
    pub group: String,
    /// Only requests that change nothing.
    #[serde(deserialize_with = "or_default")]
    pub readonly: bool,
    /// The API group; `*` for all.
    #[serde(deserialize_with = "or_default")]
    pub api_group: String,
    /// The resource; `*` for all.
    #[serde(deserialize_with = "or_default")]
    pub resource: String,
    /// The namespace; `*` for all.
    #[serde(deserialize_with = "or_default")]
    pub namespace: String,
    /// The path that is no resource, perhaps with `*` at its end.
    #[serde(rename = "nonResourcePath", deserialize_with = "or_default")]
    pub path: String,
}

/// As in Go, null is the value that a missing field has.
fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Header {
    #[serde(default)]
    api_version: Option<String>,
    #[serde(default)]
    kind: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    #[serde(default)]
    spec: Option<Map<String, Value>>,
}

/// A policy of before there were versions.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[derive(Default)]
struct Unversioned {
    #[serde(rename = "apiVersion")]
    _api_version: Option<String>,
    #[serde(rename = "kind")]
    _kind: Option<String>,
    #[serde(deserialize_with = "or_default")]
    user: String,
    #[serde(deserialize_with = "or_default")]
    group: String,
    #[serde(deserialize_with = "or_default")]
    readonly: bool,
    #[serde(deserialize_with = "or_default")]
    resource: String,
    #[serde(deserialize_with = "or_default")]
    namespace: String,
}

impl Policies {
    /// Reads a file. Empty lines and those that begin with `#` are skipped.
    ///
    /// # Errors
    /// Names the file, and the line that is no policy. Other than in kube-apiserver an unknown field is an error: a restriction that is
    /// misspelt must not be missing.
    pub fn read(file: &Path) -> Result<Self, String> {
        let shown = file.display();
        let failed =
            |why: &dyn std::fmt::Display| format!("error reading policy file {shown}: {why}");
        let text = std::fs::read(file).map_err(|error| failed(&error))?;
        let (mut policies, mut unversioned) = (Vec::new(), false);
        for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
            if line.len() >= LONGEST_LINE {
                return Err(failed(&"bufio.Scanner: token too long"));
            }
            let line = line.trim_ascii();
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            let policy = Policy::read(line, &mut unversioned).map_err(|why| {
                let line = String::from_utf8_lossy(line);
                format!(
                    "error reading policy file {shown}, line {}: {line}: {why}",
                    index + 1
                )
            })?;
            policies.push(policy);
        }
        if unversioned {
            let file = shown.to_string();
            tracing::warn!(file, "the policy file contains unversioned rules");
        }
        Ok(Policies(policies))
    }
}

impl Policy {
    fn read(line: &[u8], unversioned: &mut bool) -> Result<Self, String> {
        // A list would be read as the fields in their order, and an empty one as no restriction.
        if !line.starts_with(b"{") {
            return Err("it is no object".to_owned());
        }
        let header: Header = decoded(line)?;
        let version = header.api_version.unwrap_or_default();
        let kind = header.kind.unwrap_or_default();
        let known = version
            .strip_prefix(GROUP)
            .and_then(|it| it.strip_prefix('/'));
        match (known, kind.as_str()) {
            (Some("v1beta1"), KIND) => {
                let written: Written = decoded(line)?;
                let spec = Value::Object(written.spec.unwrap_or_default());
                let policy: Policy = serde_json::from_value(spec).map_err(|it| it.to_string())?;
                Ok(policy.of_all_users())
            }
            (Some("v0"), KIND | "") => Ok(decoded::<Unversioned>(line)?.into()),
            (None, KIND | "") if version.is_empty() => {
                *unversioned = true;
                Ok(decoded::<Unversioned>(line)?.into())
            }
            _ => Err(format!(
                "no kind \"{kind}\" is registered for version \"{version}\""
            )),
        }
    }

    /// `*` is all users that are authenticated.
    fn of_all_users(mut self) -> Self {
        if self.user == "*" || self.group == "*" {
            self.user.clear();
            AUTHENTICATED.clone_into(&mut self.group);
        }
        self
    }
}

impl From<Unversioned> for Policy {
    /// What is missing is not restricted.
    fn from(written: Unversioned) -> Self {
        let or_all = |text: &str| match text {
            "" => "*".to_owned(),
            text => text.to_owned(),
        };
        let of_anything = written.namespace.is_empty() && written.resource.is_empty();
        let of_all = written.user.is_empty() && written.group.is_empty();
        let policy = Policy {
            group: match of_all {
                true => AUTHENTICATED.to_owned(),
                false => written.group,
            },
            user: written.user,
            readonly: written.readonly,
            api_group: "*".to_owned(),
            resource: or_all(&written.resource),
            namespace: or_all(&written.namespace),
            path: if of_anything { "*" } else { "" }.to_owned(),
        };
        policy.of_all_users()
    }
}

fn decoded<T: DeserializeOwned>(line: &[u8]) -> Result<T, String> {
    serde_json::from_slice(line).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;
