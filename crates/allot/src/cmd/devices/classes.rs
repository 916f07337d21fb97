//! Which device classes a device is in.

use allot_allocator::Features;
use allot_cel::device::{self, Options, Selector, compile};
use k8s_openapi::api::resource::v1 as api;
use serde_json::Value;

/// The compiled classes of a cluster.
pub struct Classes {
    /// Name and selectors; `None` for a class with a selector that does not compile, which has no devices.
    list: Vec<(String, Vec<Selector>)>,
}

impl Classes {
    /// Those among the objects, by name.
    pub fn new(objects: &[Value], features: Features) -> Self {
        let options = Options {
            consumable_capacity: features.consumable_capacity,
            list_type_attributes: features.list_type_attributes,
            stored: true,
            ..Options::default()
        };
        let classes = objects.iter().filter(|o| o["kind"] == "DeviceClass");
        let mut list: Vec<(String, Vec<Selector>)> = classes
            .filter_map(|class| {
                let name = class.pointer("/metadata/name")?.as_str()?.to_owned();
                let selectors = class.pointer("/spec/selectors").and_then(Value::as_array);
                let expressions = selectors.into_iter().flatten().map(|selector| {
                    let expression = selector.pointer("/cel/expression")?.as_str()?;
                    compile(expression, &options).ok()
                });
                Some((name, expressions.collect::<Option<Vec<_>>>()?))
            })
            .collect();
        list.sort_by(|a, b| a.0.cmp(&b.0));
        Self { list }
    }

    /// The classes that a device of a driver is in.
    pub fn of(&self, driver: &str, device: &api::Device) -> Vec<String> {
        if self.list.is_empty() {
            return Vec::new();
        }
        let json = serde_json::to_value(device).unwrap_or_default();
        let device = device::Device::from_json(driver, &json);
        let is_in = |selectors: &[Selector]| {
            let mut selectors = selectors.iter();
            selectors.all(|selector| selector.matches(&device).unwrap_or_default())
        };
        let found = self.list.iter().filter(|(_, selectors)| is_in(selectors));
        found.map(|(name, _)| name.clone()).collect()
    }
}
