//! The five kinds that the page can request, and the fields of their objects that leave the server.

use parking_lot::Mutex;
use serde_json::{Value, json};

/// Versions of the group of devices, best first.
const DEVICES: &[&str] = &["v1", "v1beta2", "v1beta1", "v1alpha3"];

/// A kind that the page can list and watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// ResourceSlices.
    Slices,
    /// ResourceClaims.
    Claims,
    /// DeviceClasses.
    Classes,
    /// DeviceTaintRules.
    TaintRules,
    /// Pods that are not bound to a node, without the details of their containers.
    Pods,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Slices,
        Self::Claims,
        Self::Classes,
        Self::TaintRules,
        Self::Pods,
    ];

    /// The page's name for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Slices => "slices",
            Self::Claims => "claims",
            Self::Classes => "classes",
            Self::TaintRules => "rules",
            Self::Pods => "pods",
        }
    }

    /// The kind of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether its objects are in namespaces.
    pub fn namespaced(self) -> bool {
        matches!(self, Self::Claims | Self::Pods)
    }

    /// Versions of the API that it may have, best first.
    pub(crate) fn versions(self) -> &'static [&'static str] {
        match self {
            Self::Pods => &["v1"],
            _ => DEVICES,
        }
    }

    /// The path and the first parameter of a list. `namespace` has been checked.
    pub(crate) fn url(self, version: &str, namespace: Option<&str>) -> String {
        let root = match self {
            Self::Pods => "/api/",
            _ => "/apis/resource.k8s.io/",
        };
        let within = namespace.filter(|_| self.namespaced());
        let within = within.map_or(String::new(), |name| format!("/namespaces/{name}"));
        let (plural, only) = match self {
            Self::Slices => ("resourceslices", ""),
            Self::Claims => ("resourceclaims", ""),
            Self::Classes => ("deviceclasses", ""),
            Self::TaintRules => ("devicetaintrules", ""),
            // Those on nodes are many, and what they have is written in their claims.
            Self::Pods => ("pods", "fieldSelector=spec.nodeName%3D&"),
        };
        format!("{root}{version}{within}/{plural}?{only}")
    }

    /// Removes the fields of an object that the dashboard does not need.
    ///
    /// Reduces a pod to the fields that the page shows: environment variables and commands may be confidential, and the
    /// page is a larger target than kubectl. The times of writes are kept, the lists of written fields are not.
    pub(crate) fn project(self, object: &mut Value) {
        if self == Self::Pods {
            *object = pod(object);
            return;
        }
        let written = (self == Self::Claims).then(|| written(object));
        let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
            return;
        };
        metadata.remove("managedFields");
        // The last applied manifest, and data of other tools.
        metadata.remove("annotations");
        if let (Some(written), Some(object)) = (written, object.as_object_mut()) {
            object.insert("written".to_owned(), written);
        }
    }
}

/// What the page shows of a pod.
pub(crate) fn pod(pod: &Value) -> Value {
    let (metadata, spec, status) = (&pod["metadata"], &pod["spec"], &pod["status"]);
    let health = |field: &str| {
        let containers = status[field].as_array().into_iter().flatten();
        let containers = containers.map(|container| {
            json!({
                "name": container["name"],
                "startedAt": container["state"]["running"]["startedAt"],
                "resources": container["allocatedResourcesStatus"],
            })
        });
        containers.collect::<Vec<_>>()
    };
    json!({
        "metadata": {
            "name": metadata["name"], "namespace": metadata["namespace"], "uid": metadata["uid"],
            "creationTimestamp": metadata["creationTimestamp"],
            "deletionTimestamp": metadata["deletionTimestamp"],
            "resourceVersion": metadata["resourceVersion"],
        },
        "spec": {
            "nodeName": spec["nodeName"], "schedulerName": spec["schedulerName"],
            "resourceClaims": spec["resourceClaims"], "priority": spec["priority"],
        },
        "status": {
            "phase": status["phase"], "startTime": status["startTime"],
            "conditions": status["conditions"],
            "nominatedNodeName": status["nominatedNodeName"],
            "resourceClaimStatuses": status["resourceClaimStatuses"],
            "extendedResourceClaimStatus": status["extendedResourceClaimStatus"],
        },
        "containers": health("containerStatuses"),
    })
}

/// When the parts of a claim's status were last written, as far as the server tracks fields: the only record of when a
/// claim was allocated that every release has.
fn written(claim: &Value) -> Value {
    let entries = claim["metadata"]["managedFields"].as_array();
    let last = |field: &str| {
        let entries = entries.into_iter().flatten();
        let entries = entries.filter(|e| e["fieldsV1"]["f:status"].get(field).is_some());
        let times = entries.filter_map(|entry| entry["time"].as_str());
        // Times in UTC of the same form sort as text.
        times.max()
    };
    json!({
        "allocation": last("f:allocation"), "reservedFor": last("f:reservedFor"), "devices": last("f:devices"),
    })
}

/// Which version of each kind the server serves, as far as it is known. The same for all readers.
#[derive(Default)]
pub(crate) struct Versions(Mutex<[Option<&'static str>; Kind::ALL.len()]>);

impl Versions {
    /// The versions to try: the known one, or all.
    pub fn of(&self, kind: Kind) -> Vec<&'static str> {
        match self.0.lock()[kind as usize] {
            Some(known) => vec![known],
            None => kind.versions().to_vec(),
        }
    }

    /// Remembers that the server has a version, or forgets (the server may have been replaced by a newer one).
    pub fn set(&self, kind: Kind, version: Option<&'static str>) {
        self.0.lock()[kind as usize] = version;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_own_name() {
        for kind in Kind::ALL {
            assert_eq!(Kind::from_name(kind.name()), Some(kind));
        }
        for other in ["secrets", "", "Slices", "../secrets"] {
            assert_eq!(Kind::from_name(other), None);
        }
    }

    #[test]
    fn a_pod_is_shown_without_what_it_runs() {
        let mut object = json!({
            "metadata": {"name": "p", "annotations": {"a": "hidden"}, "labels": {"l": "hidden"}},
            "spec": {"containers": [{"env": [{"name": "PASSWORD", "value": "hidden"}], "command": ["hidden"]}],
                     "resourceClaims": [{"name": "gpu"}]},
            "status": {"phase": "Pending", "containerStatuses": [{"name": "c", "lastState":
                       {"terminated": {"message": "hidden"}}}]},
        });
        Kind::Pods.project(&mut object);
        assert_eq!(object["spec"]["resourceClaims"][0]["name"], "gpu");
        assert!(!object.to_string().contains("hidden"), "{object}");
    }

    #[test]
    fn a_claim_keeps_the_times_of_its_status() {
        let entry = |time: &str, field: &str| json!({"time": time, "fieldsV1": {"f:status": {field: {}}}, "manager": "hidden"});
        let mut object = json!({"metadata": {"annotations": {"a": "hidden"}, "managedFields": [
            entry("2026-01-01T00:00:00Z", "f:allocation"),
            entry("2026-01-02T00:00:00Z", "f:allocation"),
            {"time": "2026-01-03T00:00:00Z", "fieldsV1": {"f:spec": {}}},
        ]}});
        Kind::Claims.project(&mut object);
        assert_eq!(object["written"]["allocation"], "2026-01-02T00:00:00Z");
        assert_eq!(object["written"]["reservedFor"], Value::Null);
        assert!(!object.to_string().contains("hidden"), "{object}");
    }

    #[test]
    fn objects_of_any_shape_are_projected() {
        for kind in Kind::ALL {
            for mut object in [json!(null), json!([]), json!("x"), json!({"metadata": 7})] {
                kind.project(&mut object);
            }
        }
    }
}
