//! What an API server has: versions of a group, resources of a version, and its release.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIGroupList;
use kube::Client;
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::Value;

/// The versions of an API group that a server lists.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Group {
    versions: Vec<String>,
}

impl Group {
    /// Reads the server's list of groups. A group that the server does not have has no versions.
    ///
    /// # Errors
    /// The server does not answer, or answers with an error.
    pub async fn discover(client: &Client, name: &str) -> Result<Self, kube::Error> {
        Ok(Self::among(&client.list_api_groups().await?, name))
    }

    /// The group in a list of groups.
    pub fn among(list: &APIGroupList, name: &str) -> Self {
        let group = list.groups.iter().find(|group| group.name == name);
        let versions = group.into_iter().flat_map(|group| &group.versions);
        Self {
            versions: versions.map(|v| v.version.clone()).collect(),
        }
    }

    /// Whether the server lists a version, such as `v1beta2`.
    pub fn has(&self, version: &str) -> bool {
        self.versions.iter().any(|served| served == version)
    }

    /// The first of the versions that the server lists. The caller's order counts, not the server's.
    pub fn first_of<'v>(&self, wanted: &[&'v str]) -> Option<&'v str> {
        wanted.iter().copied().find(|version| self.has(version))
    }
}

/// The names of the resources in a group version, such as `resource.k8s.io/v1`; subresources as `pods/status`.
///
/// # Errors
/// The server does not answer, or has no such group version.
pub async fn resources(client: &Client, group_version: &str) -> Result<Vec<String>, kube::Error> {
    let list = client.list_api_group_resources(group_version).await?;
    Ok(list.resources.into_iter().map(|r| r.name).collect())
}

/// A resource of a group with a name, for requests on objects of any shape.
pub fn resource(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

/// The minor release of the server, or the one that it emulates; [`u32::MAX`] if it does not report one.
///
/// # Errors
/// The server does not answer.
pub async fn server_minor(client: &Client) -> Result<u32, kube::Error> {
    let request = http::Request::get("/version")
        .body(Vec::new())
        .map_err(kube::Error::HttpError)?;
    let version: Value = client.request(request).await?;
    let number = |field: &str| {
        let text = version[field].as_str()?;
        // Some providers append a plus sign.
        let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
        digits.parse().ok()
    };
    let minor = number("emulationMinor").or_else(|| number("minor"));
    Ok(minor.unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_first_wanted_version_that_is_served_is_chosen() {
        let versions = ["v1beta1", "v1"].map(
            |version| json!({"groupVersion": format!("resource.k8s.io/{version}"), "version": version}),
        );
        let list = serde_json::from_value(json!({"groups": [
            {"name": "apps", "versions": [{"groupVersion": "apps/v2", "version": "v2"}]},
            {"name": "resource.k8s.io", "versions": versions},
        ]}));
        let list: APIGroupList = list.expect("a list of groups");
        let group = Group::among(&list, "resource.k8s.io");
        assert_eq!(group.first_of(&["v2", "v1", "v1beta1"]), Some("v1"));
        assert_eq!(group.first_of(&["v2"]), None);
        assert_eq!(Group::among(&list, "batch"), Group::default());
    }
}
