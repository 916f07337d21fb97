//! The objects that are written.

use serde_json::{Value, json};

/// A kind of object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// Pods with one claim, which no scheduler takes
    Pods,
    /// Resource claims
    Claims,
    /// Config maps of one kilobyte
    Configmaps,
    /// Custom resources of a CRD that the benchmark creates
    Custom,
}

/// Group of the custom resources.
const GROUP: &str = "bench.allot";

impl Kind {
    /// Plural name.
    pub fn plural(self) -> &'static str {
        match self {
            Kind::Pods => "pods",
            Kind::Claims => "resourceclaims",
            Kind::Configmaps => "configmaps",
            Kind::Custom => "gadgets",
        }
    }

    /// The definition that the objects need.
    pub fn definition(self) -> Option<Value> {
        let text = json!({"type": "string"});
        let spec = json!({"type": "object", "properties": {
            "model": {"type": "string", "maxLength": 63},
            "count": {"type": "integer", "minimum": 0, "default": 1},
            "selectors": {
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": {
                    "type": "object", "required": ["name"],
                    "properties": {"name": &text, "expression": &text},
                },
            },
            "parameters": {"type": "object", "additionalProperties": &text},
        }});
        (self == Kind::Custom).then(|| {
            json!({
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": {"name": format!("{}.{GROUP}", self.plural())},
                "spec": {
                    "group": GROUP, "scope": "Namespaced",
                    "names": {"plural": self.plural(), "kind": "Gadget"},
                    "versions": [{
                        "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                        "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                            "spec": spec,
                            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                        }}},
                    }],
                },
            })
        })
    }

    /// Path of the collection in a namespace.
    pub fn path(self, namespace: &str) -> String {
        let version = match self {
            Kind::Claims => "/apis/resource.k8s.io/v1".to_owned(),
            Kind::Pods | Kind::Configmaps => "/api/v1".to_owned(),
            Kind::Custom => format!("/apis/{GROUP}/v1"),
        };
        format!("{version}/namespaces/{namespace}/{}", self.plural())
    }

    /// Name of object number `i`.
    pub fn name_of(i: usize) -> String {
        format!("bench-{i:06}")
    }

    /// Object number `i`.
    pub fn object(self, i: usize) -> Value {
        let metadata = json!({
            "name": Self::name_of(i),
            "labels": {"app": "bench", "group": format!("g{}", i % 10)},
        });
        match self {
            Kind::Pods => json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": metadata,
                "spec": {
                    "schedulerName": "bench.allot",
                    "containers": [{
                        "name": "main", "image": "registry.example/pause:3.10",
                        "env": [{"name": "MODE", "value": "bench"}],
                        "ports": [{"containerPort": 80}],
                        "resources": {
                            "requests": {"cpu": "10m", "memory": "16Mi"},
                            "claims": [{"name": "gpu"}],
                        },
                    }],
                    "resourceClaims": [{"name": "gpu", "resourceClaimName": Self::name_of(i)}],
                },
            }),
            Kind::Claims => json!({
                "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata,
                "spec": {"devices": {"requests": [{
                    "name": "gpu",
                    "exactly": {
                        "deviceClassName": "gpu.example.com",
                        "selectors": [{"cel": {"expression": "device.attributes[\"gpu.example.com\"].model == \"a100\""}}],
                    },
                }]}},
            }),
            Kind::Custom => json!({
                "apiVersion": format!("{GROUP}/v1"), "kind": "Gadget", "metadata": metadata,
                "spec": {
                    "model": "a100",
                    "selectors": [
                        {"name": "memory", "expression": "device.capacity.memory >= quantity(\"40Gi\")"},
                        {"name": "zone", "expression": "device.attributes.zone == \"a\""},
                    ],
                    "parameters": {"mode": "shared", "text": "x".repeat(512)},
                },
            }),
            Kind::Configmaps => json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata,
                "data": {"text": "x".repeat(1024)},
            }),
        }
    }
}
