//! Which networks and address pools a pod requests.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::SYSTEM_NAMESPACE;
use crate::objects::{ClaimParameterSpec, NetworkName, PoolNames};

/// Annotation of pods: the network of the first interface.
const DEFAULT_NETWORK: &str = "v1.multus-cni.io/default-network";
/// Annotation of pods: further networks, names with commas in between or a JSON list.
const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";
/// Annotation of pods: pools of addresses for one interface.
const POOL: &str = "ipam.spidernet.io/ippool";
/// Annotation of pods: pools of addresses for each interface.
const POOLS: &str = "ipam.spidernet.io/ippools";

type Annotations = BTreeMap<String, String>;

/// The networks of a pod: those of its claim's parameters, else those of its annotations.
///
/// # Errors
/// An annotation is neither a list of names nor JSON; the text names it.
pub(crate) fn networks(
    parameters: &ClaimParameterSpec,
    annotations: &Annotations,
    namespace: &str,
) -> Result<Vec<NetworkName>, String> {
    let named = parameters.networks(namespace);
    if !named.is_empty() {
        return Ok(named);
    }
    let first = annotations.get(DEFAULT_NETWORK);
    let first = first.map(|text| NetworkName::read(interface_of(text).0, SYSTEM_NAMESPACE));
    let mut networks: Vec<NetworkName> = first.into_iter().collect();
    let Some(text) = annotations.get(NETWORKS) else {
        return Ok(networks);
    };
    if text.trim_start().starts_with('[') {
        let list: Vec<Selection> = serde_json::from_str(text)
            .map_err(|error| format!("annotation {NETWORKS} of the pod: {error}"))?;
        networks.extend(list.into_iter().map(|s| NetworkName {
            namespace: s.namespace.unwrap_or(namespace.to_owned()),
            name: s.name,
        }));
    } else {
        let names = text.split(',').map(str::trim).filter(|n| !n.is_empty());
        networks.extend(names.map(|n| NetworkName::read(interface_of(n).0, namespace)));
    }
    Ok(networks)
}

/// An element of the annotation in its long form.
#[derive(Deserialize)]
struct Selection {
    name: String,
    namespace: Option<String>,
}

/// `network@interface` in two.
fn interface_of(text: &str) -> (&str, Option<&str>) {
    match text.trim().split_once('@') {
        Some((network, interface)) => (network, Some(interface)),
        None => (text.trim(), None),
    }
}

/// The pools that annotations of the pod name.
///
/// # Errors
/// An annotation is no JSON of the form that Spiderpool reads; the text names it.
pub(crate) fn pools(annotations: &Annotations) -> Result<Vec<String>, String> {
    let mut pools = Vec::new();
    for name in [POOL, POOLS] {
        let Some(text) = annotations.get(name) else {
            continue;
        };
        let wrong = |error: serde_json::Error| format!("annotation {name} of the pod: {error}");
        let value: Value = serde_json::from_str(text).map_err(wrong)?;
        let each = match value {
            Value::Array(each) => each,
            one => vec![one],
        };
        for one in each {
            pools.extend(
                serde_json::from_value::<PoolNames>(one)
                    .map_err(wrong)?
                    .all(),
            );
        }
    }
    Ok(pools)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(parameters: Value, annotations: &[(&str, &str)], expected: &str) {
        let parameters = serde_json::from_value(parameters).expect("parameters");
        let annotations = annotations.iter();
        let annotations = annotations
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        let found = match networks(&parameters, &annotations, "team") {
            Ok(networks) => networks.iter().map(ToString::to_string).collect::<Vec<_>>(),
            Err(error) => vec![error],
        };
        assert_eq!(found.join(" "), expected);
    }

    #[test]
    fn networks_come_from_parameters_or_annotations() {
        let annotations = [
            (DEFAULT_NETWORK, "macvlan-conf"),
            (NETWORKS, "a, other/b@net7"),
        ];
        check(
            json!({}),
            &annotations,
            "kube-system/macvlan-conf team/a other/b",
        );
        check(
            json!({
                "defaultNic": {"multusName": "x"},
                "secondaryNics": [{"multusConfigName": "y", "namespace": "ns"}],
                "staticNics": ["z", "ns/w"],
            }),
            &annotations,
            "team/x ns/y team/z ns/w",
        );
        let long = r#"[{"name": "a"}, {"name": "b", "namespace": "ns", "interface": "net7"}]"#;
        check(json!({}), &[(NETWORKS, long)], "team/a ns/b");
        check(json!({}), &[], "");
        let wrong = "annotation k8s.v1.cni.cncf.io/networks of the pod: EOF while parsing a list at line 1 column 1";
        check(json!({}), &[(NETWORKS, "[")], wrong);
    }

    #[test]
    fn pools_come_from_both_annotations() {
        let annotations = [
            (POOL, r#"{"ipv4": ["a"]}"#),
            (
                POOLS,
                r#"[{"interface": "eth0", "ipv4": ["b"], "ipv6": ["c"]}]"#,
            ),
        ];
        let annotations = annotations.map(|(k, v)| (k.to_owned(), v.to_owned()));
        let found = pools(&annotations.into_iter().collect()).expect("pools");
        assert_eq!(found, ["a", "b", "c"]);
        let wrong = [(POOL.to_owned(), "pool-1".to_owned())];
        assert!(pools(&wrong.into_iter().collect()).is_err());
    }
}
