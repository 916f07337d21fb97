//! The format of kubeconfig files. As in Go, a field that is null is absent.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use serde_json::Value;

/// What a server reads of a file.
#[derive(Deserialize, Default)]
#[serde(rename_all = "kebab-case", default)]
pub(in crate::config) struct File {
    pub clusters: Option<Vec<NamedCluster>>,
    pub users: Option<Vec<NamedUser>>,
    pub contexts: Option<Vec<NamedContext>>,
    pub current_context: Option<String>,
}

#[derive(Deserialize)]
pub(in crate::config) struct NamedCluster {
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub cluster: Option<Cluster>,
}

#[derive(Deserialize)]
pub(in crate::config) struct NamedUser {
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub user: Option<User>,
}

#[derive(Deserialize)]
pub(in crate::config) struct NamedContext {
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub context: Option<Context>,
}

#[derive(Deserialize, Default)]
pub(in crate::config) struct Context {
    #[serde(default)]
    pub cluster: Option<String>,
    #[serde(default)]
    pub user: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "kebab-case", default)]
pub(in crate::config) struct Cluster {
    pub server: Option<String>,
    pub certificate_authority: Option<PathBuf>,
    pub certificate_authority_data: Option<String>,
    pub insecure_skip_tls_verify: Option<bool>,
    pub tls_server_name: Option<String>,
    pub proxy_url: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "kebab-case", default)]
pub(in crate::config) struct User {
    pub client_certificate: Option<PathBuf>,
    pub client_certificate_data: Option<String>,
    pub client_key: Option<PathBuf>,
    pub client_key_data: Option<String>,
    pub token: Option<String>,
    #[serde(rename = "tokenFile")]
    pub token_file: Option<PathBuf>,
    pub username: Option<String>,
    pub password: Option<String>,
    pub exec: Option<Value>,
    pub auth_provider: Option<Value>,
    #[serde(rename = "as")]
    pub impersonated: Option<String>,
    #[serde(rename = "as-uid")]
    pub impersonated_uid: Option<String>,
    #[serde(rename = "as-groups")]
    pub impersonated_groups: Option<Vec<String>>,
    #[serde(rename = "as-user-extra")]
    pub impersonated_extra: Option<BTreeMap<String, Vec<String>>>,
}

impl File {
    /// Reads the text of a file.
    ///
    /// # Errors
    /// It is no kubeconfig. No part of the text, which has secrets, is in the message.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.trim() {
            "" => Ok(File::default()),
            text => {
                serde_saphyr::from_str(text).map_err(|error| error.without_snippet().to_string())
            }
        }
    }
}
