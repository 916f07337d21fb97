//! Nodes with modelled hardware.

use std::collections::BTreeSet;

use allot_hardware::Fleet;
use anyhow::ensure;
use serde_json::{Value, json};

use crate::bounds;

/// Size of a node where its model does not name one.
const USUAL: [(&str, &str); 3] = [("cpu", "64"), ("memory", "512Gi"), ("pods", "110")];

/// Adds the nodes of a list such as `h100-mig=4,mi300x=2`, with the slices that their drivers publish, and the classes of
/// these drivers unless there are some of these names.
///
/// # Errors
/// The list cannot be read, names no number of nodes or too many, or a name of a node is taken.
pub fn add(objects: &mut Vec<Value>, list: &[String]) -> anyhow::Result<()> {
    if list.is_empty() {
        return Ok(());
    }
    let fleet = Fleet::parse(list)?;
    let (counted, most) = (fleet.counted(), *bounds::NODES.end());
    ensure!(
        fleet.of(counted).is_none(),
        "{}: it has to say how many nodes, such as {}=4",
        list.join(","),
        fleet.name(counted)
    );
    ensure!(counted <= most, "{counted} nodes, {most} are possible");
    let names = |objects: &[Value], kind: &str| -> BTreeSet<String> {
        let of_kind = objects.iter().filter(|object| object["kind"] == kind);
        let names = of_kind.filter_map(|object| object["metadata"]["name"].as_str());
        names.map(str::to_owned).collect()
    };
    let (nodes, mut classes) = (names(objects, "Node"), names(objects, "DeviceClass"));
    for class in fleet.models().into_iter().flat_map(|model| &model.classes) {
        if classes.insert(class.name.clone()) {
            objects.push(json!({
                "apiVersion": "resource.k8s.io/v1",
                "kind": "DeviceClass",
                "metadata": {"name": class.name},
                "spec": class.spec,
            }));
        }
    }
    for number in 0..counted {
        let name = format!("{}-{number}", fleet.name(number));
        ensure!(!nodes.contains(&name), "there is a node {name} already");
        let expanded = fleet.expand(&name, number)?;
        let mut node = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": expanded.labels},
            "spec": {},
        });
        node["metadata"]["labels"]["kubernetes.io/hostname"] = json!(name);
        let mut size = json!({});
        for (resource, quantity) in USUAL {
            size[resource] = json!(quantity);
        }
        for (resource, quantity) in &expanded.capacity {
            size[resource] = json!(quantity);
        }
        node["status"] = json!({"capacity": size, "allocatable": size});
        objects.push(node);
        objects.extend(expanded.slices.iter().map(|slice| slice.object(None)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> Vec<String> {
        vec![text.to_owned()]
    }

    fn of<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
        objects.iter().filter(|o| o["kind"] == kind).collect()
    }

    #[test]
    fn nodes_have_what_their_models_have() {
        let mut objects = vec![json!({"kind": "DeviceClass", "metadata": {"name": "gpu.amd.com"}})];
        add(&mut objects, &list("h100=1,mi300x=2")).expect("added");
        let nodes = of(&objects, "Node");
        let names: Vec<_> = (nodes.iter())
            .map(|node| node["metadata"]["name"].as_str())
            .collect();
        assert_eq!(names, ["h100-0", "mi300x-1", "mi300x-2"].map(Some));
        let size = &nodes[0]["status"]["allocatable"];
        assert_eq!(
            (&size["cpu"], &size["pods"]),
            (&json!("224"), &json!("110"))
        );
        let slices = of(&objects, "ResourceSlice").into_iter();
        let on_nodes = slices.map(|slice| slice["spec"]["nodeName"].to_string());
        assert_eq!(on_nodes.collect::<BTreeSet<_>>().len(), 3);
        let classes = of(&objects, "DeviceClass").into_iter();
        let classes = classes.filter(|class| class["metadata"]["name"] == "gpu.amd.com");
        assert_eq!(classes.count(), 1);
        let error = add(&mut objects, &list("h100=1")).expect_err("taken");
        assert_eq!(error.to_string(), "there is a node h100-0 already");
    }

    #[test]
    fn a_list_that_cannot_be_followed_is_refused() {
        for (text, expected) in [
            ("h100", "h100: it has to say how many nodes, such as h100=4"),
            ("h10=4", "unknown hardware \"h10\""),
            ("h100=5001", "5001 nodes, 5000 are possible"),
        ] {
            let error = add(&mut Vec::new(), &list(text)).expect_err(text);
            assert!(error.to_string().starts_with(expected), "{text}: {error}");
        }
    }
}
