//! The extension API servers: which group versions a service serves instead of this server, and what is known of them.
//!
//! The table follows the APIServices (`aggregator`); requests and discovery read it.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::{ArcSwap, ArcSwapOption};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::object::text;
use crate::pki::Identity;
use crate::remote;
use crate::request::RequestInfo;

mod client;
mod described;
mod discovered;

pub(crate) use client::{Client, Failure};
pub(crate) use described::{Described, Document};
pub(crate) use discovered::{Discovered, of_list, of_resources};

/// The group of APIServices: always this server's own, so that a wrong APIService can be deleted.
pub(crate) const OWN_GROUP: &str = "apiregistration.k8s.io";
/// The port of a service that names none.
const PORT: u16 = 443;

/// A group version that a service serves.
pub(crate) struct Extension {
    /// The name of the APIService.
    pub name: String,
    /// The group; empty for the core group.
    pub group: String,
    /// The version.
    pub version: String,
    /// Namespace and name of the service.
    pub service: (String, String),
    /// `groupPriorityMinimum` and `versionPriority`.
    pub priority: (u32, u32),
    /// Connects to the service.
    pub client: Client,
    available: AtomicBool,
    discovered: ArcSwapOption<Discovered>,
    described: ArcSwapOption<Described>,
}

impl Extension {
    /// The extension that an APIService describes; `None` for one that this server serves itself.
    pub(crate) fn of(object: &Value, own: Option<&Identity>) -> Option<Self> {
        let spec = &object["spec"];
        let (group, version) = (text(spec, &["group"]), text(spec, &["version"]));
        if !spec["service"].is_object() || group == OWN_GROUP {
            return None;
        }
        let part = |key: &str| text(&spec["service"], &[key]).to_owned();
        let service = (part("namespace"), part("name"));
        let port = spec["service"]["port"].as_u64();
        let port = port.and_then(|it| it.try_into().ok()).unwrap_or(PORT);
        let bundle = STANDARD.decode(text(spec, &["caBundle"]));
        let tls = match spec["insecureSkipTLSVerify"] == true {
            true => remote::tls_unverified(own),
            false => remote::tls(&bundle.unwrap_or_default(), own),
        };
        let number = |key: &str| spec[key].as_u64().and_then(|it| it.try_into().ok());
        Some(Extension {
            name: text(object, &["metadata", "name"]).to_owned(),
            group: group.to_owned(),
            version: version.to_owned(),
            client: Client::new(service.clone(), port, tls),
            service,
            priority: (
                number("groupPriorityMinimum").unwrap_or_default(),
                number("versionPriority").unwrap_or_default(),
            ),
            available: AtomicBool::default(),
            discovered: ArcSwapOption::default(),
            described: ArcSwapOption::default(),
        })
    }

    /// The path of the group version.
    pub(crate) fn path(&self) -> String {
        match self.group.as_str() {
            "" => format!("/api/{}", self.version),
            group => format!("/apis/{group}/{}", self.version),
        }
    }

    /// Whether the last check found the service to answer.
    pub(crate) fn is_available(&self) -> bool {
        self.available.load(Ordering::Relaxed)
    }

    pub(crate) fn set_available(&self, available: bool) {
        self.available.store(available, Ordering::Relaxed);
    }

    /// What the service said last about its resources.
    pub(crate) fn discovered(&self) -> Arc<Discovered> {
        self.discovered.load_full().unwrap_or_default()
    }

    /// Its OpenAPI documents; none before the service has answered for the first time.
    pub(crate) fn described(&self) -> Arc<Described> {
        self.described.load_full().unwrap_or_default()
    }

    pub(crate) fn set_described(&self, described: Described) {
        self.described.store(Some(Arc::new(described)));
    }

    pub(crate) fn set_discovered(&self, discovered: Discovered) {
        self.discovered.store(Some(Arc::new(discovered)));
    }
}

/// All extensions by group and version.
pub(crate) struct Extensions {
    table: ArcSwap<BTreeMap<(String, String), Arc<Extension>>>,
    /// The name of this server in `Via` headers, by which it knows requests that it has sent on itself.
    pub own_name: String,
}

impl Default for Extensions {
    fn default() -> Self {
        Extensions {
            table: ArcSwap::default(),
            own_name: format!("allot-{:032x}", rand::random::<u128>()),
        }
    }
}

impl Extensions {
    /// Replaces the table.
    pub(crate) fn set(&self, all: impl Iterator<Item = Arc<Extension>>) {
        let keyed = all.map(|it| ((it.group.clone(), it.version.clone()), it));
        self.table.store(Arc::new(keyed.collect()));
    }

    /// All of them at one moment.
    pub(crate) fn all(&self) -> Vec<Arc<Extension>> {
        self.table.load().values().cloned().collect()
    }

    /// All of them in the order of their priorities, the highest first.
    pub(crate) fn by_priority(&self) -> Vec<Arc<Extension>> {
        let mut all = self.all();
        let mut groups: BTreeMap<String, u32> = BTreeMap::new();
        for extension in &all {
            let known = groups.entry(extension.group.clone()).or_default();
            *known = extension.priority.0.max(*known);
        }
        all.sort_by_cached_key(|it| {
            let group = groups.get(&it.group).copied().unwrap_or_default();
            (Reverse((group, it.priority.1)), it.name.clone())
        });
        all
    }

    /// The extension of a group version.
    pub(crate) fn get(&self, group: &str, version: &str) -> Option<Arc<Extension>> {
        let all = self.table.load();
        if all.is_empty() {
            return None;
        }
        all.get(&(group.to_owned(), version.to_owned())).cloned()
    }

    /// The extension that answers a request: for all paths of its group version, discovery included.
    pub(crate) fn of(&self, info: &RequestInfo) -> Option<Arc<Extension>> {
        if self.table.load().is_empty() {
            return None;
        }
        // With exactly one slash before it: what the service is sent must not be read as another path than was authorized.
        let mut parts = info.path.strip_prefix('/')?.split('/');
        match (parts.next()?, parts.next(), parts.next()) {
            ("api", _, _) => self.get("", "v1"),
            ("apis", Some(group), Some(version)) if !group.is_empty() => self.get(group, version),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Method;
    use serde_json::json;

    use super::*;
    use crate::request::Query;

    fn extension(group: &str, version: &str) -> Option<Extension> {
        let object = json!({
            "metadata": {"name": format!("{version}.{group}")},
            "spec": {
                "group": group, "version": version, "groupPriorityMinimum": 2000, "versionPriority": 10,
                "insecureSkipTLSVerify": true, "service": {"namespace": "n", "name": "s"},
            },
        });
        Extension::of(&object, None)
    }

    #[test]
    fn all_paths_of_a_group_version_belong_to_its_extension_and_no_others() {
        let all = Extensions::default();
        all.set(extension("ext.example.com", "v1").map(Arc::new).into_iter());
        let answers = |path: &str| {
            let info = RequestInfo::parse(&Method::GET, path, &Query::default());
            all.of(&info).is_some()
        };
        for path in [
            "/apis/ext.example.com/v1",
            "/apis/ext.example.com/v1/",
            "/apis/ext.example.com/v1/things",
            "/apis/ext.example.com/v1/namespaces/a/things/b/exec",
            "/apis/ext%2eexample.com/v1/things",
            "/apis/ext.example.com%2fv1",
        ] {
            assert!(answers(path), "{path}");
        }
        for path in [
            "/",
            "/apis",
            "/apis/ext.example.com",
            "/apis/ext.example.com/",
            "//apis/ext.example.com/v1/things",
            "/apis//ext.example.com/v1/things",
            "/apis/ext.example.com/v1beta1/things",
            "/apis/ext.example.com/v10/things",
            "/api/v1/pods",
            "/openapi/v3/apis/ext.example.com/v1",
        ] {
            assert!(!answers(path), "{path}");
        }
    }

    /// Otherwise the APIService that does so could not be deleted.
    #[test]
    fn no_service_takes_the_group_of_apiservices() {
        assert!(extension(OWN_GROUP, "v1").is_none());
        assert!(extension("ext.example.com", "v1").is_some());
    }
}
