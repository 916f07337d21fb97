//! What Multus reads of a SpiderMultusConfig: the NetworkAttachmentDefinition with its CNI configuration.

use serde_json::{Map, Value, json};

use crate::objects::{Function, Link, MultusConfig, MultusConfigSpec};

/// Annotation of a SpiderMultusConfig: the name of its NetworkAttachmentDefinition, if another.
const NAME: &str = "multus.spidernet.io/cr-name";
/// Annotation of a SpiderMultusConfig: the version of the CNI configuration.
const CNI_VERSION: &str = "multus.spidernet.io/cni-version";
const DEFAULT_CNI_VERSION: &str = "0.3.1";
/// Annotation of a NetworkAttachmentDefinition: the extended resource that its pods take.
const RESOURCE_NAME: &str = "k8s.v1.cni.cncf.io/resourceName";

/// The definition for a network, to be applied.
///
/// # Errors
/// The section of its type is missing or incomplete; the text names the field.
pub(crate) fn definition(config: &MultusConfig) -> Result<Value, String> {
    let metadata = &config.metadata;
    let annotations = metadata.annotations.clone().unwrap_or_default();
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let own = text(&metadata.name);
    let name = annotations
        .get(NAME)
        .filter(|n| !n.is_empty())
        .unwrap_or(&own);
    let version = annotations.get(CNI_VERSION);
    let version = version.map_or(DEFAULT_CNI_VERSION, String::as_str);
    let cni = configuration(&config.spec, name, version)?;
    // The driver's own annotations are not copied, and kubectl's would revert what is applied here.
    let mut copied: Map<String, Value> = annotations
        .iter()
        .filter(|(key, _)| *key != NAME && *key != CNI_VERSION)
        .filter(|(key, _)| !key.starts_with("kubectl.kubernetes.io/"))
        .map(|(key, value)| (key.clone(), json!(value)))
        .collect();
    if let Some(function) = config.spec.function() {
        copied.insert(RESOURCE_NAME.to_owned(), json!(function.resource_name));
    }
    Ok(json!({
        "apiVersion": "k8s.cni.cncf.io/v1",
        "kind": "NetworkAttachmentDefinition",
        "metadata": {
            "name": name,
            "namespace": metadata.namespace,
            "annotations": copied,
            "ownerReferences": [{
                "apiVersion": "spiderpool.spidernet.io/v2beta1", "kind": "SpiderMultusConfig",
                "name": own, "uid": metadata.uid, "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {"config": cni},
    }))
}

/// The CNI configuration, as text.
fn configuration(spec: &MultusConfigSpec, name: &str, version: &str) -> Result<String, String> {
    if spec.cni_type == "custom" {
        let text = spec.custom_cni.clone().unwrap_or_default();
        return match serde_json::from_str::<Map<String, Value>>(&text) {
            _ if text.is_empty() => Ok(text),
            Ok(_) => Ok(text),
            Err(error) => Err(format!("spec.customCNI is no JSON object: {error}")),
        };
    }
    let mut plugins = plugins(spec)?;
    if spec.enable_coordinator != Some(false) {
        plugins.push(json!({"type": "coordinator"}));
    }
    for text in &spec.chain {
        let plugin = serde_json::from_str(text);
        plugins.push(plugin.map_err(|e| format!("spec.chainCNIJsonData is no JSON: {e}"))?);
    }
    // In the customary order.
    let quoted = |value: &Value| value.to_string();
    let plugins: Vec<String> = plugins.iter().map(quoted).collect();
    Ok(format!(
        "{{\"cniVersion\":{},\"name\":{},\"plugins\":[{}]}}",
        json!(version),
        json!(name),
        plugins.join(",")
    ))
}

/// The plugins of the network's type.
fn plugins(spec: &MultusConfigSpec) -> Result<Vec<Value>, String> {
    let kind = spec.cni_type.as_str();
    let missing = |field: &str| format!("spec.{field} is missing for cniType {kind}");
    let ipam = |plugin: Value| with_ipam(spec, plugin);
    match kind {
        "macvlan" | "ipvlan" | "vlan" => {
            let link = spec.link().ok_or_else(|| missing(kind))?;
            let master = link.master.first();
            let master = master.ok_or_else(|| missing(&format!("{kind}.master")))?;
            if kind == "vlan" && link.vlan_id.is_none() {
                return Err(missing("vlan.vlanID"));
            }
            Ok(of_link(spec, kind, link, master))
        }
        "sriov" | "ib-sriov" => {
            let function = spec.function().ok_or_else(|| missing(kind))?;
            Ok(vec![ipam(of_function(kind, function))])
        }
        "ipoib" => {
            let section = spec.ipoib.as_ref().ok_or_else(|| missing(kind))?;
            Ok(vec![ipam(
                json!({"type": "ipoib", "master": section.master}),
            )])
        }
        "ovs" => {
            let section = spec.ovs.as_ref().ok_or_else(|| missing(kind))?;
            let mut plugin = json!({"type": "ovs", "bridge": section.bridge});
            if let Some(vlan) = section.vlan {
                plugin["vlan"] = json!(vlan);
            }
            Ok(vec![ipam(plugin)])
        }
        other => Err(format!("spec.cniType {other:?} is not known")),
    }
}

fn of_link(spec: &MultusConfigSpec, kind: &str, link: &Link, first: &str) -> Vec<Value> {
    // The plugin vlan creates the VLAN itself; the others are put on top of one.
    let vlan = link.vlan_id.filter(|id| *id != 0 && kind != "vlan");
    let bond = link.bond.as_ref().filter(|_| link.master.len() > 1);
    let base = bond.and_then(|b| b["name"].as_str()).unwrap_or(first);
    let master = vlan.map_or(base.to_owned(), |id| format!("{base}.{id}"));
    let mut plugins = Vec::new();
    // Bonds and VLANs must be created on the node before something can be put on top.
    if vlan.is_some() || bond.is_some() {
        let mut ifacer = json!({"type": "ifacer", "interfaces": link.master});
        if let Some(vlan) = vlan {
            ifacer["vlanID"] = json!(vlan);
        }
        if let Some(bond) = bond {
            ifacer["bond"] = bond.clone();
        }
        plugins.push(ifacer);
    }
    let mut plugin = json!({"type": kind, "master": master});
    if let Some(mode) = match kind {
        "macvlan" => Some("bridge"),
        "ipvlan" => Some("l2"),
        _ => None,
    } {
        plugin["mode"] = json!(mode);
    }
    if kind == "vlan" {
        plugin["vlanId"] = json!(link.vlan_id);
    }
    if let Some(mtu) = link.mtu.filter(|mtu| *mtu > 0) {
        plugin["mtu"] = json!(mtu);
    }
    plugins.push(with_ipam(spec, plugin));
    plugins
}

fn of_function(kind: &str, function: &Function) -> Value {
    let mut plugin = json!({"type": kind});
    if let Some(vlan) = function.vlan_id.filter(|id| *id != 0) {
        plugin["vlan"] = json!(vlan);
    }
    if let Some(pkey) = &function.pkey {
        plugin["pkey"] = json!(pkey);
    }
    if let Some(state) = &function.link_state {
        plugin["link_state"] = json!(state);
    }
    plugin
}

fn with_ipam(spec: &MultusConfigSpec, mut plugin: Value) -> Value {
    if spec.disable_ipam == Some(true) {
        return plugin;
    }
    let mut ipam = json!({"type": "spiderpool"});
    if let Some(pools) = spec.pools() {
        for (family, names) in [("ipv4", &pools.ipv4), ("ipv6", &pools.ipv6)] {
            if !names.is_empty() {
                ipam[format!("default_{family}_ippool")] = json!(names);
            }
        }
    }
    plugin["ipam"] = ipam;
    plugin
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(spec: Value, expected: &str) {
        let config: MultusConfig = serde_json::from_value(json!({
            "apiVersion": "spiderpool.spidernet.io/v2beta1", "kind": "SpiderMultusConfig",
            "metadata": {"name": "n", "namespace": "kube-system", "uid": "1"}, "spec": spec,
        }))
        .expect("a config");
        let found = match definition(&config) {
            Ok(definition) => definition["spec"]["config"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            Err(error) => error,
        };
        let parsed = |text: &str| serde_json::from_str::<Value>(text).unwrap_or(json!(text));
        assert_eq!(parsed(&found), parsed(expected), "{found}");
    }

    #[test]
    fn networks_become_cni_configurations() {
        check(
            json!({"cniType": "macvlan", "macvlan": {"master": ["eth0"]}}),
            r#"{"cniVersion":"0.3.1","name":"n","plugins":[{"type":"macvlan","master":"eth0","mode":"bridge","ipam":{"type":"spiderpool"}},{"type":"coordinator"}]}"#,
        );
        check(
            json!({"cniType": "ipvlan", "enableCoordinator": false, "ipvlan": {
                "master": ["eth0", "eth1"], "vlanID": 100, "bond": {"name": "b", "mode": 1}, "ippools": {"ipv4": ["p"]}}}),
            r#"{"cniVersion":"0.3.1","name":"n","plugins":[
                {"type":"ifacer","interfaces":["eth0","eth1"],"vlanID":100,"bond":{"name":"b","mode":1}},
                {"type":"ipvlan","master":"b.100","mode":"l2","ipam":{"type":"spiderpool","default_ipv4_ippool":["p"]}}]}"#,
        );
        check(
            json!({"cniType": "sriov", "disableIPAM": true, "sriov": {"resourceName": "x/y", "vlanID": 7}}),
            r#"{"cniVersion":"0.3.1","name":"n","plugins":[{"type":"sriov","vlan":7},{"type":"coordinator"}]}"#,
        );
        // regression: the plugin had no vlanId, and a VLAN below itself
        check(
            json!({"cniType": "vlan", "enableCoordinator": false, "vlan": {"master": ["eth0"], "vlanID": 5, "mtu": 1400}}),
            r#"{"cniVersion":"0.3.1","name":"n","plugins":[{"type":"vlan","master":"eth0","vlanId":5,"mtu":1400,"ipam":{"type":"spiderpool"}}]}"#,
        );
        check(
            json!({"cniType": "vlan", "enableCoordinator": false, "disableIPAM": true, "vlan": {
                "master": ["eth0", "eth1"], "vlanID": 5, "bond": {"name": "b", "mode": 1}}}),
            r#"{"cniVersion":"0.3.1","name":"n","plugins":[
                {"type":"ifacer","interfaces":["eth0","eth1"],"bond":{"name":"b","mode":1}},
                {"type":"vlan","master":"b","vlanId":5}]}"#,
        );
        check(
            json!({"cniType": "vlan", "vlan": {"master": ["eth0"]}}),
            "spec.vlan.vlanID is missing for cniType vlan",
        );
        check(
            json!({"cniType": "custom", "customCNI": "{\"a\":1}"}),
            r#"{"a":1}"#,
        );
        check(
            json!({"cniType": "custom", "customCNI": "{"}),
            "spec.customCNI is no JSON object: EOF while parsing an object at line 1 column 1",
        );
        check(
            json!({"cniType": "custom", "customCNI": "7"}),
            "spec.customCNI is no JSON object: invalid type: integer `7`, expected a map at line 1 column 1",
        );
        check(
            json!({"cniType": "macvlan"}),
            "spec.macvlan is missing for cniType macvlan",
        );
        check(
            json!({"cniType": "macvlan", "macvlan": {}}),
            "spec.macvlan.master is missing for cniType macvlan",
        );
    }
}
