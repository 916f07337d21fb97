//! Which versions of a group an API server has, by discovery.

use std::collections::{HashMap, HashSet};

use http::Request;
use kube::Client;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The groups and versions that a server has.
#[derive(Debug, Default)]
pub struct Served {
    /// By group; `None` if discovery is not available.
    groups: HashMap<String, Option<Vec<Version>>>,
}

#[derive(Debug)]
struct Version {
    name: String,
    plurals: HashSet<String>,
}

#[derive(Deserialize)]
struct Group {
    #[serde(default)]
    versions: Vec<GroupVersion>,
}

#[derive(Deserialize)]
struct GroupVersion {
    version: String,
}

#[derive(Deserialize)]
struct Resources {
    #[serde(default)]
    resources: Vec<Resource>,
}

#[derive(Deserialize)]
struct Resource {
    name: String,
}

impl Served {
    /// The versions, in their order, in which the server has a resource: all of them if discovery is not available.
    ///
    /// # Errors
    /// The server does not answer.
    pub async fn of<'a>(
        &mut self,
        client: &Client,
        group: &str,
        plural: &str,
        versions: Vec<&'a str>,
    ) -> anyhow::Result<Vec<&'a str>> {
        // Every server has the core, and a group with one version has it or not.
        if group.is_empty() || versions.len() < 2 {
            return Ok(versions);
        }
        if !self.groups.contains_key(group) {
            let found = discover(client, group).await?;
            self.groups.insert(group.to_owned(), found);
        }
        let Some(Some(known)) = self.groups.get(group) else {
            return Ok(versions);
        };
        let has = |wanted: &&str| {
            let mut same = known.iter().filter(|v| v.name == **wanted);
            same.any(|v| v.plurals.contains(plural))
        };
        Ok(versions.into_iter().filter(has).collect())
    }

    /// The versions of a group that a server has; none if discovery is not available.
    ///
    /// # Errors
    /// The server does not answer.
    pub async fn versions(client: &Client, group: &str) -> anyhow::Result<Vec<String>> {
        let found = discover(client, group).await?;
        let versions = found.into_iter().flatten();
        Ok(versions.map(|version| version.name).collect())
    }
}

/// The versions of a group; `None` if discovery is not available.
async fn discover(client: &Client, group: &str) -> anyhow::Result<Option<Vec<Version>>> {
    let path = format!("/apis/{group}");
    let found: Group = match get(client, &path).await? {
        Answer::Found(found) => found,
        Answer::Absent => return Ok(Some(Vec::new())),
        Answer::Refused => return Ok(None),
    };
    let mut versions = Vec::new();
    for GroupVersion { version } in found.versions {
        let resources: Resources = match get(client, &format!("{path}/{version}")).await? {
            Answer::Found(found) => found,
            Answer::Absent => continue,
            Answer::Refused => return Ok(None),
        };
        versions.push(Version {
            name: version,
            plurals: resources.resources.into_iter().map(|r| r.name).collect(),
        });
    }
    Ok(Some(versions))
}

enum Answer<T> {
    Found(T),
    Absent,
    Refused,
}

async fn get<T: DeserializeOwned>(client: &Client, path: &str) -> anyhow::Result<Answer<T>> {
    let request = Request::get(path).body(Vec::new())?;
    match client.request(request).await {
        Ok(found) => Ok(Answer::Found(found)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Answer::Absent),
        // Discovery may be forbidden, or broken by an aggregated API, although lists work.
        Err(kube::Error::Api(_)) => Ok(Answer::Refused),
        Err(error) => Err(super::read::api_error(error)),
    }
}
