//! The file of `--authentication-config` as it is written: `apiserver.config.k8s.io`, `AuthenticationConfiguration`.

use serde::{Deserialize, Deserializer};

use crate::config::decode::Strict;

/// Go reads null as the field that is absent.
fn nullable<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Written {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default, deserialize_with = "nullable")]
    pub jwt: Vec<Jwt>,
    #[serde(default)]
    pub anonymous: Option<WrittenAnonymous>,
}

impl Strict for Written {
    const KIND: &'static str = "AuthenticationConfiguration";

    fn header(&self) -> (&str, &str) {
        (&self.api_version, &self.kind)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct WrittenAnonymous {
    #[serde(default)]
    pub enabled: Option<bool>,
    #[serde(default)]
    pub conditions: Option<Vec<PathCondition>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct PathCondition {
    #[serde(default)]
    pub path: Option<String>,
}

/// An issuer of tokens, and whom its tokens prove.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Jwt {
    #[serde(deserialize_with = "nullable")]
    pub issuer: Issuer,
    #[serde(deserialize_with = "nullable")]
    pub claim_validation_rules: Vec<ClaimRule>,
    #[serde(deserialize_with = "nullable")]
    pub claim_mappings: Mappings,
    #[serde(deserialize_with = "nullable")]
    pub user_validation_rules: Vec<UserRule>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Issuer {
    #[serde(deserialize_with = "nullable")]
    pub url: String,
    #[serde(rename = "discoveryURL", deserialize_with = "nullable")]
    pub discovery_url: String,
    #[serde(deserialize_with = "nullable")]
    pub certificate_authority: String,
    #[serde(deserialize_with = "nullable")]
    pub audiences: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub audience_match_policy: String,
    #[serde(deserialize_with = "nullable")]
    pub egress_selector_type: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct ClaimRule {
    #[serde(deserialize_with = "nullable")]
    pub claim: String,
    #[serde(deserialize_with = "nullable")]
    pub required_value: String,
    #[serde(deserialize_with = "nullable")]
    pub expression: String,
    #[serde(deserialize_with = "nullable")]
    pub message: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct UserRule {
    #[serde(deserialize_with = "nullable")]
    pub expression: String,
    #[serde(deserialize_with = "nullable")]
    pub message: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Mappings {
    #[serde(deserialize_with = "nullable")]
    pub username: Prefixed,
    #[serde(deserialize_with = "nullable")]
    pub groups: Prefixed,
    #[serde(deserialize_with = "nullable")]
    pub uid: ClaimOrExpression,
    #[serde(deserialize_with = "nullable")]
    pub extra: Vec<Extra>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Prefixed {
    #[serde(deserialize_with = "nullable")]
    pub claim: String,
    pub prefix: Option<String>,
    #[serde(deserialize_with = "nullable")]
    pub expression: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct ClaimOrExpression {
    #[serde(deserialize_with = "nullable")]
    pub claim: String,
    #[serde(deserialize_with = "nullable")]
    pub expression: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Extra {
    #[serde(deserialize_with = "nullable")]
    pub key: String,
    #[serde(deserialize_with = "nullable")]
    pub value_expression: String,
}
