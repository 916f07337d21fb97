//! The number of watches that receive a change: it determines the width of a mutating request.

use std::sync::Arc;

use allot_apimachinery::fields::FieldSelector;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::request::Incoming;
use crate::request::RequestInfo;

/// The scope of a watch: group, resource, and optionally namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Followed {
    group: String,
    resource: String,
    namespace: String,
    name: String,
}

/// The watches that are open.
#[derive(Debug, Default)]
pub(super) struct Watches(Mutex<FxHashMap<Followed, usize>>);

/// A watch that counts as long as it lives.
#[derive(Debug)]
pub struct Watching {
    all: Arc<Watches>,
    followed: Followed,
}

impl Drop for Watching {
    fn drop(&mut self) {
        let mut all = self.all.0.lock();
        if let Some(count) = all.get_mut(&self.followed) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.followed);
            }
        }
    }
}

impl Watches {
    /// Counts a watch. A watch for the pods of a node is not counted: a change is for one node, and other such watches
    /// skip it.
    pub(super) fn open(self: &Arc<Self>, request: &Incoming) -> Option<Watching> {
        let info = &request.info;
        if info.resource == "pods" && exact(request, "spec.nodeName").is_some() {
            return None;
        }
        let name = match info.name.as_str() {
            "" => exact(request, "metadata.name").unwrap_or_default(),
            name => name.to_owned(),
        };
        let followed = followed(info, &info.namespace, &name);
        *self.0.lock().entry(followed.clone()).or_default() += 1;
        let all = self.clone();
        Some(Watching { all, followed })
    }

    /// How many watches may receive the changes of a request.
    pub(super) fn interested(&self, info: &RequestInfo) -> usize {
        let mut followed = followed(info, "", "");
        let all = self.0.lock();
        let count = |followed: &Followed| all.get(followed).copied().unwrap_or_default();
        let mut interested = count(&followed);
        if !info.namespace.is_empty() {
            followed.namespace.clone_from(&info.namespace);
            interested += count(&followed);
        }
        if !info.name.is_empty() {
            followed.name.clone_from(&info.name);
            interested += count(&followed);
        }
        interested
    }
}

fn followed(info: &RequestInfo, namespace: &str, name: &str) -> Followed {
    Followed {
        group: info.group.clone(),
        resource: info.resource.clone(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

/// The one value that the field selector of a request demands of a field, unless that is empty.
pub(super) fn exact(request: &Incoming, field: &str) -> Option<String> {
    let fields = FieldSelector::parse(request.query.text("fieldSelector")?).ok()?;
    let value = fields.exact(field).filter(|value| !value.is_empty())?;
    Some(value.to_owned())
}
