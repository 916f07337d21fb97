//! Device classes, and the extended resources they provide.

use std::sync::Arc;

use k8s_openapi::api::resource::v1::DeviceClass;
use rustc_hash::FxHashMap;

/// Prefix of the resource name that every class has without saying so.
pub const IMPLICIT_PREFIX: &str = "deviceclass.resource.kubernetes.io/";

/// The DeviceClasses by name, and by the extended resource that they provide (KEP 5004).
#[derive(Debug, Clone, Default)]
pub struct Classes {
    classes: FxHashMap<String, Arc<DeviceClass>>,
    explicit: FxHashMap<String, String>,
}

impl Classes {
    /// The class with a name.
    pub fn get(&self, name: &str) -> Option<&Arc<DeviceClass>> {
        self.classes.get(name)
    }

    /// Adds or replaces a class.
    pub fn set(&mut self, class: Arc<DeviceClass>) {
        self.classes
            .insert(class.metadata.name.clone().unwrap_or_default(), class);
        self.index();
    }

    /// Takes over a whole list.
    pub fn replace(&mut self, classes: Vec<DeviceClass>) {
        self.classes = classes
            .into_iter()
            .map(|c| (c.metadata.name.clone().unwrap_or_default(), Arc::new(c)))
            .collect();
        self.index();
    }

    /// Forgets a class.
    pub fn remove(&mut self, name: &str) {
        self.classes.remove(name);
        self.index();
    }

    /// The names of the DeviceClasses, in no particular order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.classes.keys().map(String::as_str)
    }

    /// The class that provides an extended resource.
    pub fn for_resource(&self, resource: &str) -> Option<&str> {
        if let Some(name) = resource.strip_prefix(IMPLICIT_PREFIX) {
            return self.classes.get_key_value(name).map(|(k, _)| k.as_str());
        }
        self.explicit.get(resource).map(String::as_str)
    }

    /// Of several classes with one resource name the newest wins, then the one with the smallest name.
    fn index(&mut self) {
        let mut best: FxHashMap<&str, &DeviceClass> = FxHashMap::default();
        for class in self.classes.values() {
            let Some(resource) = class.spec.extended_resource_name.as_deref() else {
                continue;
            };
            let rank = |c: &DeviceClass| {
                (
                    std::cmp::Reverse(c.metadata.creation_timestamp.as_ref().map(|t| t.0)),
                    c.metadata.name.clone(),
                )
            };
            let current = best.entry(resource).or_insert(class);
            if rank(class) < rank(current) {
                *current = class;
            }
        }
        self.explicit = best
            .into_iter()
            .map(|(resource, class)| {
                (
                    resource.to_owned(),
                    class.metadata.name.clone().unwrap_or_default(),
                )
            })
            .collect();
    }
}

impl allot_allocator::Classes for Classes {
    fn class(&self, name: &str) -> Option<&DeviceClass> {
        self.classes.get(name).map(|class| &**class)
    }
}
