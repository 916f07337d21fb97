//! What a server lists by discovery, also while some of its extension API servers do not answer.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIGroupList;
use kube::Client;
use kube::discovery::Discovery;

/// The groups that could be read, and the errors of the others.
pub(super) struct Discovered {
    pub(super) discovery: Discovery,
    /// By name of the group.
    pub(super) failed: BTreeMap<String, String>,
}

impl Discovered {
    /// Discovers everything. Groups that cannot be read, those of extension API servers that do not answer, are left out.
    ///
    /// # Errors
    /// All groups fail, or their list cannot be read.
    pub(super) async fn read(client: &Client) -> Result<Self, kube::Error> {
        let error = match Discovery::new(client.clone()).run().await {
            Ok(discovery) => {
                return Ok(Self {
                    discovery,
                    failed: BTreeMap::new(),
                });
            }
            Err(error) => error,
        };
        let groups = client.list_api_groups().await?;
        let mut failed = BTreeMap::new();
        for group in &groups.groups {
            for version in &group.versions {
                let name = &version.group_version;
                if let Err(error) = client.list_api_group_resources(name).await {
                    failed.insert(group.name.clone(), format!("{name}: {error}"));
                }
            }
        }
        if failed.is_empty() || failed.len() == groups.groups.len() {
            return Err(error);
        }
        let names: Vec<&str> = failed.keys().map(String::as_str).collect();
        let rest = Discovery::new(client.clone()).exclude(&names);
        Ok(Self {
            discovery: rest.run().await?,
            failed,
        })
    }

    /// Upstream's error for the groups that could not be read, if there are any.
    pub(super) fn error(&self) -> Option<String> {
        if self.failed.is_empty() {
            return None;
        }
        let errors: Vec<&str> = self.failed.values().map(String::as_str).collect();
        let errors = errors.join(", ");
        Some(format!(
            "unable to retrieve the complete list of server APIs: {errors}"
        ))
    }
}

/// All group versions in a list of groups.
pub(super) fn versions_of(groups: &APIGroupList) -> BTreeSet<String> {
    let versions = groups.groups.iter().flat_map(|group| &group.versions);
    versions.map(|it| it.group_version.clone()).collect()
}
