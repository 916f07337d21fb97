//! Number of a class's devices that a node can access, for scoring nodes.

use std::sync::Arc;

use k8s_openapi::api::resource::v1 as api;

use super::Cluster;
use crate::features::Features;
use crate::node::{Node, NodeSelectorError};
use crate::selector::{Device, Selector, SelectorCache, SelectorError};

/// What a device class selects, compiled.
#[derive(Debug, Clone)]
pub struct ClassSelectors(Vec<Arc<Selector>>);

impl ClassSelectors {
    /// Compiles the selectors of a class.
    pub fn new(features: &Features, cache: &SelectorCache, class: &api::DeviceClass) -> Self {
        let selectors = class.spec.selectors.iter().flatten();
        let expressions = selectors.filter_map(|s| s.cel.as_ref());
        Self(
            expressions
                .map(|cel| cache.compile(features, &cel.expression))
                .collect(),
        )
    }

    /// Whether all of them select a device.
    ///
    /// # Errors
    /// When one cannot be evaluated for it.
    pub(super) fn select(&self, device: &Device) -> Result<bool, SelectorError> {
        for selector in &self.0 {
            if !selector.matches(device)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Devices of a class on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeviceCount {
    /// Number of devices, including those of unusable pools.
    pub all: i64,
    /// How many of them claims have, or shares of them.
    pub in_use: i64,
}

/// Why the devices of a class on a node cannot be counted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CountError {
    /// A selector of the class has no answer for a device.
    #[error(transparent)]
    Selector(#[from] SelectorError),
    /// The selector for the nodes of a slice or device cannot be compiled.
    #[error(transparent)]
    NodeSelector(#[from] NodeSelectorError),
}

impl Cluster {
    /// Counts the devices that a node sees and a class selects. Takes time in proportion to the devices on the node.
    ///
    /// # Errors
    /// See [`CountError`]; the first problem ends the count.
    pub fn count(&self, node: &Node, class: &ClassSelectors) -> Result<DeviceCount, CountError> {
        let mut count = DeviceCount::default();
        self.each_pool(node, |pool| {
            for slot in 0..pool.info.slots() as u32 {
                let (slice, device) = (pool.info.slice(slot), pool.info.device(slot));
                let scope = if slice.per_device {
                    &device.scope
                } else {
                    &slice.scope
                };
                if slice.ignored || !scope.matches(node).map_err(NodeSelectorError::clone)? {
                    continue;
                }
                if class.select(&device.cel)? {
                    count.all += 1;
                    count.in_use += i64::from(pool.usage.device(&device.name).is_some());
                }
            }
            Ok::<(), CountError>(())
        })?;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::Holder;

    fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).expect("fixture")
    }

    fn slice(name: &str, scope: Value, devices: Value) -> api::ResourceSlice {
        let mut spec = json!({
            "driver": "d",
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            "devices": devices,
        });
        for (field, value) in scope.as_object().into_iter().flatten() {
            spec[field] = value.clone();
        }
        read(json!({"metadata": {"name": name}, "spec": spec}))
    }

    fn cluster() -> Cluster {
        let mut cluster = Cluster::new(Features::default());
        let size = |n: i64| json!({"size": {"int": n}});
        let device = |name: &str, n: i64| json!({"name": name, "attributes": size(n)});
        cluster.apply(&slice(
            "local",
            json!({"nodeName": "n"}),
            json!([device("a", 1), device("b", 2)]),
        ));
        cluster.apply(&slice(
            "zone",
            json!({"nodeSelector": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "zone", "operator": "Exists"}]},
            ]}}),
            json!([device("a", 1)]),
        ));
        let mut far = device("far", 1);
        far["nodeName"] = json!("other");
        let mut near = device("near", 2);
        near["nodeName"] = json!("n");
        cluster.apply(&slice(
            "mixed",
            json!({"perDeviceNodeSelection": true}),
            json!([far, near]),
        ));
        let result = json!({"request": "r", "driver": "d", "pool": "local", "device": "b"});
        let allocation = json!({"devices": {"results": [result]}});
        cluster.claim_allocated(&Holder::default(), &read(allocation));
        cluster
    }

    fn check(node: &Node, selector: Option<&str>, expected: Result<(i64, i64), ()>) {
        let selectors: Vec<Value> = selector
            .map(|expression| json!({"cel": {"expression": expression}}))
            .into_iter()
            .collect();
        let class = read(json!({"metadata": {"name": "c"}, "spec": {"selectors": selectors}}));
        let class = ClassSelectors::new(&Features::default(), &SelectorCache::new(), &class);
        let got = cluster().count(node, &class);
        let got = got.map(|c| (c.all, c.in_use)).map_err(|_| ());
        assert_eq!(got, expected, "{selector:?} on {}", node.name());
    }

    #[test]
    fn devices_are_counted_where_they_can_be_used() {
        let none: [(&str, &str); 0] = [];
        let (alone, zoned) = (Node::new("n", none), Node::new("n", [("zone", "1")]));
        check(&alone, None, Ok((3, 1)));
        check(&zoned, None, Ok((4, 1)));
        check(&Node::new("other", none), None, Ok((1, 0)));
        let size = |n: i64| format!("device.attributes['d'].size == {n}");
        check(&zoned, Some(&size(1)), Ok((2, 0)));
        check(&zoned, Some(&size(2)), Ok((2, 1)));
        check(&zoned, Some("device.driver == 'other'"), Ok((0, 0)));
        check(&zoned, Some("no expression"), Err(()));
    }
}
