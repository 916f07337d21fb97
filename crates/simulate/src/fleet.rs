//! Other nodes than the cluster has: more like one of them, or fewer.

use allot_apimachinery::well_known::is_terminal_phase;
use anyhow::Context as _;
use rustc_hash::FxHashSet;
use serde_json::{Value, json};

use crate::prepare::{text, title};

/// Most nodes that can be added at once.
const MOST_NODES: usize = 100_000;

/// `NAME=N`.
///
/// # Errors
/// The text is something else, or so many nodes are too many.
pub fn name_and_count(text: &str) -> anyhow::Result<(String, usize)> {
    let (name, count) = text
        .rsplit_once('=')
        .with_context(|| format!("{text:?} is not NAME=NUMBER"))?;
    let count = count.parse::<usize>().ok();
    let count = count.filter(|count| *count <= MOST_NODES);
    let count = count.with_context(|| {
        format!("{text:?}: the number of nodes has to be one of 0 to {MOST_NODES}")
    })?;
    anyhow::ensure!(!name.is_empty(), "{text:?} is not NAME=NUMBER");
    Ok((name.to_owned(), count))
}

/// Adds nodes like one that exists, with its labels, size and devices, and without its pods. Pools and slices that are
/// local to the node get names of their own.
///
/// # Errors
/// There is no such node, or its copies would have names that are taken.
pub fn add_like(objects: &mut Vec<Value>, like: &str, count: usize) -> anyhow::Result<()> {
    let node = find(objects, like).with_context(|| format!("there is no node {like}"))?;
    let node = node.clone();
    let slices = local_slices(objects, like);
    let csi = objects
        .iter()
        .find(|o| o["kind"] == "CSINode" && o["metadata"]["name"] == like)
        .cloned();
    // The names of the copies differ, so that only what was there before can be in the way.
    let taken = node_names(objects);
    for number in 0..count {
        let name = format!("{like}-copy-{number}");
        anyhow::ensure!(!taken.contains(&name), "there is a node {name} already");
        let mut copy = renamed(&node, &name);
        let hostname = &mut copy["metadata"]["labels"]["kubernetes.io/hostname"];
        if !hostname.is_null() {
            *hostname = json!(name);
        }
        for (field, value) in [("spec", "unschedulable"), ("spec", "providerID")] {
            if let Some(fields) = copy[field].as_object_mut() {
                fields.remove(value);
            }
        }
        objects.push(copy);
        for slice in &slices {
            let of = text(slice, "/metadata/name");
            let mut copy = renamed(slice, &format!("{of}-copy-{number}"));
            copy["spec"]["nodeName"] = json!(name);
            let pool = &mut copy["spec"]["pool"]["name"];
            // Pools are usually named after their node.
            let own = pool.as_str().unwrap_or_default();
            *pool = match own.contains(like) {
                true => json!(own.replace(like, &name)),
                false => json!(format!("{own}-copy-{number}")),
            };
            objects.push(copy);
        }
        if let Some(csi) = &csi {
            objects.push(renamed(csi, &name));
        }
    }
    Ok(())
}

/// Takes nodes away with their devices and pods: the one of the name, or all that a pattern with `*` at its end means. Pods
/// whose controller makes new ones wait for another node then. Returns how many nodes.
///
/// # Errors
/// There is no such node.
pub fn remove(objects: &mut Vec<Value>, pattern: &str) -> anyhow::Result<usize> {
    let matches = |name: &str| match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == pattern,
    };
    let mut gone = node_names(objects);
    gone.retain(|name| matches(name));
    anyhow::ensure!(!gone.is_empty(), "there is no node {pattern}");
    objects.retain_mut(|object| {
        let node = match text(object, "/kind") {
            "Node" | "CSINode" => "/metadata/name",
            "ResourceSlice" | "Pod" => "/spec/nodeName",
            _ => return true,
        };
        !gone.contains(text(object, node)) || replace(object)
    });
    Ok(gone.len())
}

/// Makes a pod the one that its controller makes in its place. Says whether it does.
fn replace(object: &mut Value) -> bool {
    let owners = object["metadata"]["ownerReferences"].as_array();
    let mut owners = owners.into_iter().flatten();
    let controller = owners.find(|owner| owner["controller"] == true);
    let again = controller.is_some_and(|owner| owner["kind"] != "DaemonSet");
    let finished = is_terminal_phase(text(object, "/status/phase"));
    if object["kind"] != "Pod" || !again || finished {
        return false;
    }
    for (fields, gone) in [
        (
            "metadata",
            &["uid", "resourceVersion", "deletionTimestamp"][..],
        ),
        ("spec", &["nodeName"]),
    ] {
        if let Some(fields) = object[fields].as_object_mut() {
            gone.iter().for_each(|field| {
                fields.remove(*field);
            });
        }
    }
    object["status"] = json!({});
    true
}

fn find<'a>(objects: &'a [Value], name: &str) -> Option<&'a Value> {
    objects
        .iter()
        .find(|o| o["kind"] == "Node" && o["metadata"]["name"] == name)
}

fn node_names(objects: &[Value]) -> FxHashSet<String> {
    let nodes = objects.iter().filter(|o| o["kind"] == "Node");
    nodes
        .map(|o| text(o, "/metadata/name").to_owned())
        .collect()
}

fn local_slices(objects: &[Value], node: &str) -> Vec<Value> {
    let local = objects
        .iter()
        .filter(|o| o["kind"] == "ResourceSlice" && o["spec"]["nodeName"] == node);
    local.cloned().collect()
}

/// A copy under another name, as if it were new.
fn renamed(object: &Value, name: &str) -> Value {
    let mut copy = object.clone();
    copy["metadata"]["name"] = json!(name);
    if let Some(metadata) = copy["metadata"].as_object_mut() {
        for field in [
            "uid",
            "resourceVersion",
            "creationTimestamp",
            "ownerReferences",
        ] {
            metadata.remove(field);
        }
    }
    debug_assert_eq!(
        title(&copy).split(' ').next(),
        title(object).split(' ').next()
    );
    copy
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster() -> Vec<Value> {
        vec![
            json!({"kind": "Node", "metadata": {"name": "n1", "uid": "u", "labels": {"kubernetes.io/hostname": "n1", "zone": "a"}}}),
            json!({"kind": "ResourceSlice", "metadata": {"name": "n1-gpu"}, "spec": {"nodeName": "n1", "pool": {"name": "n1"}}}),
            json!({"kind": "Pod", "metadata": {"name": "p"}, "spec": {"nodeName": "n1"}}),
            json!({"kind": "Node", "metadata": {"name": "n2"}}),
        ]
    }

    fn names(objects: &[Value], kind: &str) -> Vec<String> {
        let of_kind = objects.iter().filter(|o| o["kind"] == kind);
        of_kind
            .map(|o| text(o, "/metadata/name").to_owned())
            .collect()
    }

    #[test]
    fn copies_have_devices_and_no_pods() {
        let mut objects = cluster();
        add_like(&mut objects, "n1", 2).expect("added");
        assert_eq!(
            names(&objects, "Node"),
            ["n1", "n2", "n1-copy-0", "n1-copy-1"]
        );
        assert_eq!(names(&objects, "Pod"), ["p"]);
        let slice = objects
            .iter()
            .find(|o| o["metadata"]["name"] == "n1-gpu-copy-1")
            .expect("a slice");
        assert_eq!(slice["spec"]["pool"]["name"], "n1-copy-1");
        assert_eq!(slice["spec"]["nodeName"], "n1-copy-1");
        let node = find(&objects, "n1-copy-0").expect("a node");
        assert_eq!(
            node["metadata"]["labels"],
            json!({"kubernetes.io/hostname": "n1-copy-0", "zone": "a"})
        );
        assert!(node["metadata"]["uid"].is_null());
        assert!(add_like(&mut objects, "n1", 1).is_err());
        assert!(add_like(&mut objects, "missing", 1).is_err());
    }

    #[test]
    fn a_node_goes_with_everything_on_it() {
        let mut objects = cluster();
        assert_eq!(remove(&mut objects, "n1").expect("removed"), 1);
        assert_eq!(objects.len(), 1);
        let mut objects = cluster();
        objects[2]["metadata"]["ownerReferences"] = json!([{"kind": "Job", "controller": true}]);
        remove(&mut objects, "n1").expect("removed");
        assert_eq!(names(&objects, "Pod"), ["p"]);
        assert!(objects[0]["spec"]["nodeName"].is_null());
        let mut objects = cluster();
        assert_eq!(remove(&mut objects, "n*").expect("removed"), 2);
        assert!(objects.is_empty());
        assert!(remove(&mut objects, "n1").is_err());
    }

    #[test]
    fn names_and_numbers_are_read() {
        assert_eq!(
            name_and_count("a=b=3").expect("read"),
            ("a=b".to_owned(), 3)
        );
        for wrong in ["a", "=3", "a=", "a=-1", "a=9999999"] {
            assert!(name_and_count(wrong).is_err(), "{wrong}");
        }
    }
}
