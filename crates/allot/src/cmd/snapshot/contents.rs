//! The state of a cluster: its objects, their time, its features, and what was hidden.

use std::collections::BTreeMap;
use std::path::Path;

use allot_model::features::{Feature, Features, Release};
use allot_model::table::human_duration;
use anyhow::Context as _;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::version::Info;
use kube::Client;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::current::current;
use super::read::{Kinds, Read, api_error, read};
use super::watch::Watching;

/// The metric with which Kubernetes components report their feature gates.
const GATES: &str = "kubernetes_feature_enabled{";

/// A cluster at one moment.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// Objects, each with its `apiVersion` and `kind`.
    pub objects: Vec<Value>,
    /// Further information.
    pub about: About,
    /// The default namespace.
    pub namespace: String,
    /// It was read from a file.
    pub stored: bool,
    /// Where watches of the objects continue; empty for a file.
    pub watching: Vec<Watching>,
}

/// Information about a snapshot, beside its objects. Older files and those of kubectl have none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct About {
    /// When it was taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Timestamp>,
    /// The release of the API server, `1.36`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release: Option<String>,
    /// The feature gates that the API server reported.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub feature_gates: BTreeMap<String, bool>,
    /// Kinds that were not shown, or not in the whole cluster.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hidden: Vec<Hidden>,
}

/// A kind that the API server does not show in the whole cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hidden {
    /// The resource that may not be listed, `pods` or `resourceslices.resource.k8s.io`.
    pub resource: String,
    /// The kind of its objects.
    pub kind: String,
    /// The one namespace in which it is shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seen_in: Option<String>,
}

impl Hidden {
    /// A kind that is shown in one namespace, or in none.
    pub fn new(resource: impl Into<String>, kind: &str, seen_in: Option<&str>) -> Self {
        Self {
            resource: resource.into(),
            kind: kind.to_owned(),
            seen_in: seen_in.map(str::to_owned),
        }
    }

    /// Whether objects of a kind in a namespace are not shown; the namespace of cluster-scoped objects is empty.
    pub fn hides(&self, kind: &str, namespace: &str) -> bool {
        self.kind == kind && self.seen_in.as_deref() != Some(namespace)
    }
}

/// The resources in a sentence.
pub fn names(hidden: &[Hidden]) -> String {
    let names: Vec<&str> = hidden.iter().map(|h| &*h.resource).collect();
    names.join(", ")
}

impl Snapshot {
    /// The current state of the cluster. If a kind cannot be listed in the whole cluster, only `namespace` is listed.
    ///
    /// # Errors
    /// The server does not answer, does not serve a required kind, or permits no access at all.
    pub async fn take(
        client: &Client,
        kinds: Kinds,
        namespace: Option<&str>,
    ) -> anyhow::Result<Self> {
        let version = client.apiserver_version().await.map_err(api_error)?;
        let namespace = namespace.unwrap_or(client.default_namespace()).to_owned();
        let time = Timestamp::now();
        let Read {
            objects,
            hidden,
            watching,
        } = read(client, kinds, &namespace).await?;
        let snapshot = Self {
            objects,
            about: About {
                // Fractions of a second are not useful to readers.
                time: Timestamp::from_second(time.as_second()).ok(),
                release: Some(release(&version)),
                feature_gates: gates(client).await,
                hidden,
            },
            namespace,
            stored: false,
            watching,
        };
        snapshot.warn();
        Ok(snapshot)
    }

    /// Reports missing permissions.
    fn warn(&self) {
        let (partly, wholly): (Vec<Hidden>, Vec<Hidden>) =
            (self.about.hidden.iter().cloned()).partition(|hidden| hidden.seen_in.is_some());
        if !wholly.is_empty() {
            let wholly = names(&wholly);
            eprintln!("warning: no right to list {wholly}: left out");
        }
        if let Some(namespace) = partly.first().and_then(|hidden| hidden.seen_in.as_ref()) {
            let partly = names(&partly);
            eprintln!(
                "warning: no right to list {partly} in all namespaces: only those of {namespace}"
            );
        }
    }

    /// The content of a file that `allot snapshot` or `kubectl get` wrote, with `-o json` or `-o yaml`.
    ///
    /// # Errors
    /// The file cannot be read, or has another format; the message names it.
    pub fn load(file: &Path) -> anyhow::Result<Self> {
        let bytes = crate::cmd::allocate::read(Some(file))?;
        let name = file.display();
        let mut list = parse(&bytes, &name.to_string())?;
        // The items of a typed list have no kind.
        let of = list.get("kind").and_then(Value::as_str).unwrap_or_default();
        let of = of.strip_suffix("List").filter(|kind| !kind.is_empty());
        let of = Value::from(of);
        // The version of a typed list is that of its items.
        let api = match of.is_null() {
            false => list.get("apiVersion").cloned().unwrap_or_default(),
            true => Value::Null,
        };
        let items = list.get_mut("items").map(Value::take);
        let Some(Value::Array(mut objects)) = items else {
            anyhow::bail!("{name} is no list of objects");
        };
        let now = Timestamp::now();
        for item in &mut objects {
            anyhow::ensure!(item.is_object(), "{name} is no list of objects");
            if item["kind"].is_null() {
                item["kind"] = of.clone();
            }
            if item["apiVersion"].is_null() && !api.is_null() {
                item["apiVersion"] = api.clone();
            }
            *item = current(item.take(), now)?;
        }
        let about = match list.get_mut("snapshot").map(Value::take) {
            None => About::default(),
            Some(about) => serde_json::from_value(about)
                .with_context(|| format!("{name}: snapshot cannot be read"))?,
        };
        let snapshot = Self {
            objects,
            about,
            namespace: "default".to_owned(),
            stored: true,
            watching: Vec::new(),
        };
        snapshot.warn();
        Ok(snapshot)
    }

    /// The features of the cluster: those of its release, with the gates that it reported.
    pub fn features(&self) -> Features {
        let mut features = Features::of(self.release());
        for (name, on) in &self.about.feature_gates {
            if let Some(feature) = Feature::from_name(name) {
                features = features.with(feature, *on);
            }
        }
        features
    }

    /// The release of the cluster; the default one if it is unknown.
    pub fn release(&self) -> Release {
        let known = self.about.release.as_deref();
        // A release that is newer than all known ones is treated as the newest of them.
        known
            .and_then(|release| release.parse().ok())
            .unwrap_or(Release::DEFAULT)
    }

    /// Whether all objects of a kind are included.
    pub fn has_all(&self, kind: &str) -> bool {
        self.about.hidden.iter().all(|hidden| hidden.kind != kind)
    }

    /// The resource of a kind of which nothing is shown in a namespace; without one, anywhere.
    pub fn unseen(&self, kind: &str, namespace: Option<&str>) -> Option<&str> {
        let lacks = |hidden: &&Hidden| match namespace {
            Some(namespace) => hidden.hides(kind, namespace),
            None => hidden.kind == kind && hidden.seen_in.is_none(),
        };
        let found = self.about.hidden.iter().find(lacks);
        found.map(|hidden| &*hidden.resource)
    }

    /// `as of 2026-01-01T00:00:00Z, 3d ago`, for a file with a time.
    pub fn age(&self) -> Option<String> {
        let time = self.about.time.filter(|_| self.stored)?;
        let seconds = Timestamp::now().as_second() - time.as_second();
        Some(format!("as of {time}, {} ago", human_duration(seconds)))
    }
}

/// The release whose API a server has, `1.36`: the one that it emulates if it says so.
fn release(version: &Info) -> String {
    let emulated = (&version.emulation_major, &version.emulation_minor);
    let (major, minor) = match emulated {
        (Some(major), Some(minor)) if !minor.is_empty() => (major, minor),
        _ => (&version.major, &version.minor),
    };
    // Some providers write `36+`.
    let minor = minor.trim_end_matches(|c: char| !c.is_ascii_digit());
    format!("{major}.{minor}")
}

/// A list of objects from JSON, or from YAML of one or several documents.
fn parse(bytes: &[u8], name: &str) -> anyhow::Result<Value> {
    let text = String::from_utf8_lossy(bytes);
    let error = match serde_json::from_str(&text) {
        Ok(list) => return Ok(list),
        Err(error) => error,
    };
    if !error.is_eof()
        && let Ok(documents) = serde_saphyr::from_multiple::<Value>(&text)
    {
        let mut documents: Vec<Value> = documents.into_iter().filter(|d| !d.is_null()).collect();
        return Ok(match documents.len() {
            1 if documents[0].get("items").is_some() => documents.remove(0),
            _ if documents
                .iter()
                .all(|d| d.get("kind").is_some_and(Value::is_string)) =>
            {
                serde_json::json!({"kind": "List", "items": documents})
            }
            _ => Value::Null,
        });
    }
    let cut = match error.is_eof() {
        true => ": it ends in the middle",
        false => "",
    };
    Err(anyhow::Error::new(error).context(format!("{name} is no JSON{cut}, and no YAML")))
}

/// The gates in the API server's metrics; empty without permission to read them.
async fn gates(client: &Client) -> BTreeMap<String, bool> {
    let Ok(request) = http::Request::get("/metrics").body(Vec::new()) else {
        return BTreeMap::new();
    };
    let metrics = client.request_text(request).await.unwrap_or_default();
    metrics.lines().filter_map(gate).collect()
}

/// A line such as `kubernetes_feature_enabled{name="DRAAdminAccess",stage="BETA"} 1`, if the gate is known.
fn gate(line: &str) -> Option<(String, bool)> {
    let (labels, value) = line.strip_prefix(GATES)?.rsplit_once("} ")?;
    let name = labels.split("name=\"").nth(1)?.split('"').next()?;
    Feature::from_name(name)?;
    Some((name.to_owned(), value.trim() == "1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(content: &str) -> anyhow::Result<Snapshot> {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("file.json");
        std::fs::write(&file, content).expect("written");
        Snapshot::load(&file)
    }

    #[test]
    fn items_of_typed_lists_are_of_their_kind() {
        let snapshot = load(r#"{"kind": "PodList", "items": [{}]}"#).expect("a list");
        assert_eq!(snapshot.objects, [serde_json::json!({"kind": "Pod"})]);
    }

    #[test]
    fn what_kubectl_writes_as_yaml_is_read() {
        let list = "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Pod}\n";
        let documents = "apiVersion: v1\nkind: Pod\n---\n";
        for content in [list, documents] {
            let snapshot = load(content).expect("a list");
            let pod = serde_json::json!({"apiVersion": "v1", "kind": "Pod"});
            assert_eq!(snapshot.objects, [pod], "{content}");
        }
    }

    #[test]
    fn files_without_time_and_gates_are_read_as_before() {
        let snapshot = load(r#"{"kind": "List", "items": []}"#).expect("a list");
        assert_eq!(snapshot.about, About::default());
        assert_eq!(snapshot.features(), Features::default());
        assert_eq!(snapshot.age(), None);
        assert!(snapshot.has_all("Pod"));
    }

    #[test]
    fn a_file_says_when_and_with_which_gates_it_was_taken() {
        let snapshot = load(
            r#"{"kind": "List", "items": [], "snapshot": {
                "time": "2026-01-01T00:00:00Z", "release": "1.34",
                "featureGates": {"DRADeviceTaints": true, "OfALaterRelease": true},
                "hidden": [{"resource": "pods", "kind": "Pod", "seenIn": "team"}]}}"#,
        )
        .expect("a list");
        let features = snapshot.features();
        assert!(features.enabled(Feature::DRADeviceTaints));
        assert!(!features.enabled(Feature::DRAConsumableCapacity));
        let age = snapshot.age().expect("a time");
        assert!(age.starts_with("as of 2026-01-01T00:00:00Z, "), "{age}");
        assert!(!snapshot.has_all("Pod") && snapshot.has_all("Node"));
    }

    #[test]
    fn regression_a_file_that_is_cut_off_or_no_list_is_named() {
        for (content, expected) in [
            (
                r#"{"kind": "List", "items": [{"ki"#,
                "is no JSON: it ends in the middle, and no YAML",
            ),
            ("", "is no JSON: it ends in the middle, and no YAML"),
            ("a: [", "is no JSON, and no YAML"),
            ("name: List", "is no list of objects"),
            ("[]", "is no list of objects"),
            (r#"{"items": [7]}"#, "is no list of objects"),
        ] {
            let error = load(content).expect_err("no snapshot").to_string();
            assert!(error.ends_with(expected), "{content}: {error}");
        }
    }

    #[test]
    fn an_emulated_release_counts() {
        let own = Info {
            major: "1".to_owned(),
            minor: "36+".to_owned(),
            ..Info::default()
        };
        assert_eq!(release(&own), "1.36");
        let emulated = Info {
            emulation_major: Some("1".to_owned()),
            emulation_minor: Some("31".to_owned()),
            ..own
        };
        assert_eq!(release(&emulated), "1.31");
    }

    #[test]
    fn what_is_shown_in_one_namespace_is_not_shown_in_others() {
        let snapshot = load(
            r#"{"kind": "List", "items": [], "snapshot": {"hidden": [
                {"resource": "pods", "kind": "Pod", "seenIn": "team"},
                {"resource": "nodes", "kind": "Node"}]}}"#,
        )
        .expect("a list");
        assert_eq!(snapshot.unseen("Pod", Some("team")), None);
        assert_eq!(snapshot.unseen("Pod", Some("other")), Some("pods"));
        assert_eq!(snapshot.unseen("Pod", None), None);
        assert_eq!(snapshot.unseen("Node", None), Some("nodes"));
        assert_eq!(snapshot.unseen("Node", Some("team")), Some("nodes"));
        assert_eq!(snapshot.unseen("ResourceClaim", None), None);
    }

    #[test]
    fn gates_are_read_from_metrics() {
        let on = "kubernetes_feature_enabled{name=\"DRAAdminAccess\",stage=\"BETA\"} 1";
        assert_eq!(gate(on), Some(("DRAAdminAccess".to_owned(), true)));
        let off = "kubernetes_feature_enabled{name=\"DRADeviceTaints\",stage=\"\"} 0";
        assert_eq!(gate(off), Some(("DRADeviceTaints".to_owned(), false)));
        for other in [
            "# HELP x",
            "kubernetes_feature_enabled{name=\"Other\",stage=\"\"} 1",
        ] {
            assert_eq!(gate(other), None, "{other}");
        }
    }
}
