//! Ports that services open on every node.

use std::collections::{BTreeMap, BTreeSet};

use allot_apimachinery::Status;
use allot_apimachinery::field::{Error, ErrorList, Path};
use serde_json::Value;

use super::{invalid, kind, list, pick, static_band};
use crate::config::NodePorts;
use crate::error::{ApiError, Result};

/// The free ports.
struct Free<'a> {
    range: &'a NodePorts,
    taken: BTreeSet<i64>,
}

impl Free<'_> {
    /// Takes a port that the service names.
    fn take(&mut self, port: i64) -> Result<(), String> {
        if !u16::try_from(port).is_ok_and(|port| self.range.0.contains(&port)) {
            return Err(format!(
                "provided port is not in the valid range. The range of valid ports is {}",
                self.range
            ));
        }
        if !self.taken.insert(port) {
            return Err("provided port is already allocated".to_owned());
        }
        Ok(())
    }

    /// Takes any port, of the lower end only when no other is free.
    fn any(&mut self) -> Option<i64> {
        let (first, last) = (*self.range.0.start(), *self.range.0.end());
        let all = u128::from(first)..=u128::from(last);
        let size = u128::try_from(self.range.0.len()).unwrap_or_default();
        let upper = all.start() + static_band(size, 32, 128)..=*all.end();
        let taken = |port| i64::try_from(port).is_ok_and(|port| self.taken.contains(&port));
        let port = i64::try_from(pick(upper, all, taken)?).ok()?;
        self.taken.insert(port);
        Some(port)
    }
}

/// Gives node ports to a service whose type has them.
pub(super) fn give(
    range: &NodePorts,
    service: &mut Value,
    old: Option<&Value>,
    others: &[Value],
) -> Result<()> {
    let mut free = Free {
        range,
        taken: others.iter().flat_map(ports).collect(),
    };
    if exposed(service) {
        match old {
            None => give_new(service, &mut free)?,
            Some(old) => give_changed(service, old, &mut free)?,
        }
    }
    let known = old.map(health_check).unwrap_or_default();
    if checks_health(service) && !old.is_some_and(checks_health) {
        let port = match health_check(service) {
            0 => free.any().ok_or_else(|| {
                "failed to allocate a HealthCheck NodePort 0: range is full".to_owned()
            }),
            port => free.take(port).map(|()| port).map_err(|why| {
                format!("failed to allocate requested HealthCheck NodePort {port}: {why}")
            }),
        };
        let port = port.map_err(|why| ApiError::from(Status::internal(&why)))?;
        service["spec"]["healthCheckNodePort"] = port.into();
    } else if checks_health(service) && health_check(service) == 0 {
        service["spec"]["healthCheckNodePort"] = known.into();
    }
    Ok(())
}

fn give_new(service: &mut Value, free: &mut Free<'_>) -> Result<()> {
    let allocates = allocates(service);
    let mut by_port: BTreeMap<i64, i64> = BTreeMap::new();
    for index in 0..list(service, "ports").len() {
        let port = &list(service, "ports")[index];
        let (number, named) = (number(port, "port"), number(port, "nodePort"));
        if named == 0 && !allocates {
            continue;
        }
        // Ports of one number in several protocols share a node port.
        let given = match by_port.get(&number) {
            Some(known) if named == 0 || named == *known => *known,
            Some(_) => take(service, index, named, free)?,
            None => {
                let same = |port: &&Value| self::number(port, "port") == number;
                let asked = list(service, "ports").iter().filter(same);
                let asked = asked.map(|port| self::number(port, "nodePort"));
                match asked.into_iter().find(|port| *port != 0) {
                    Some(port) => take(service, index, port, free)?,
                    None => any(free)?,
                }
            }
        };
        by_port.entry(number).or_insert(given);
        service["spec"]["ports"][index]["nodePort"] = given.into();
    }
    Ok(())
}

fn give_changed(service: &mut Value, old: &Value, free: &mut Free<'_>) -> Result<()> {
    keep_known(service, old);
    let allocates = allocates(service);
    let before: BTreeSet<i64> = node_ports(old).collect();
    // The service may keep its ports, but must not use a port twice.
    free.taken.extend(&before);
    let mut mine = BTreeSet::new();
    let mut seen = BTreeSet::new();
    for index in 0..list(service, "ports").len() {
        let port = &list(service, "ports")[index];
        let protocol = port["protocol"].as_str().unwrap_or("TCP").to_owned();
        let mut node_port = number(port, "nodePort");
        if node_port == 0 && !allocates {
            continue;
        }
        if node_port == 0 {
            node_port = any(free)?;
            service["spec"]["ports"][index]["nodePort"] = node_port.into();
        } else if !before.contains(&node_port) && mine.insert(node_port) {
            take(service, index, node_port, free)?;
        }
        let shown = format!("duplicate nodePort: {{{protocol} {node_port}}}");
        if !seen.insert((protocol, node_port)) {
            return Err(ApiError::unknown(shown));
        }
    }
    Ok(())
}

/// An update that omits node ports keeps those of the ports with the same names.
fn keep_known(service: &mut Value, old: &Value) {
    // A service of type LoadBalancer that no longer needs node ports releases those that it does not name.
    if ![old, &*service]
        .iter()
        .all(|it| exposed(it) && allocates(it))
    {
        return;
    }
    let now: BTreeSet<i64> = node_ports(service).collect();
    let mut used: BTreeSet<i64> = node_ports(old).filter(|port| now.contains(port)).collect();
    let name = |port: &Value| port["name"].as_str().unwrap_or_default().to_owned();
    let known: BTreeMap<String, i64> = list(old, "ports")
        .iter()
        .map(|port| (name(port), number(port, "nodePort")))
        .collect();
    for port in service["spec"]["ports"]
        .as_array_mut()
        .into_iter()
        .flatten()
    {
        if number(port, "nodePort") != 0 {
            continue;
        }
        if let Some(before) = known.get(&name(port)).filter(|before| **before != 0)
            && used.insert(*before)
        {
            port["nodePort"] = (*before).into();
        }
    }
}

fn take(service: &Value, index: usize, port: i64, free: &mut Free<'_>) -> Result<i64> {
    free.take(port).map(|()| port).map_err(|why| {
        let at = Path::new("spec")
            .child("ports")
            .index(index)
            .child("nodePort");
        invalid(service, ErrorList::from([Error::invalid(&at, port, why)]))
    })
}

fn any(free: &mut Free<'_>) -> Result<i64> {
    let full = || Status::internal("failed to allocate a nodePort: range is full").into();
    free.any().ok_or_else(full)
}

fn number(port: &Value, key: &str) -> i64 {
    port[key].as_i64().unwrap_or_default()
}

fn exposed(service: &Value) -> bool {
    matches!(kind(service), "NodePort" | "LoadBalancer")
}

/// Ports that name no node port get one.
fn allocates(service: &Value) -> bool {
    kind(service) == "NodePort" || service["spec"]["allocateLoadBalancerNodePorts"] != false
}

fn checks_health(service: &Value) -> bool {
    kind(service) == "LoadBalancer" && service["spec"]["externalTrafficPolicy"] == "Local"
}

fn health_check(service: &Value) -> i64 {
    number(&service["spec"], "healthCheckNodePort")
}

fn node_ports(service: &Value) -> impl Iterator<Item = i64> {
    let ports = list(service, "ports").iter();
    ports
        .map(|port| number(port, "nodePort"))
        .filter(|port| *port != 0)
}

/// Everything that a service has opened on nodes.
fn ports(service: &Value) -> Vec<i64> {
    node_ports(service)
        .chain(Some(health_check(service)).filter(|port| *port != 0))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A service that names a port of the lower end was refused when the server had given it to another one before.
    #[test]
    fn regression_ports_of_the_lower_end_are_left_to_users() {
        let range = NodePorts::default();
        let (first, last) = (i64::from(*range.0.start()), i64::from(*range.0.end()));
        let mut taken = Free {
            range: &range,
            taken: BTreeSet::new(),
        };
        // As upstream's: a part of 32 of 2768 ports.
        let upper = first + 86..=last;
        for _ in upper.clone() {
            let port = taken.any().unwrap();
            assert!(upper.contains(&port), "{port}");
        }
        let mut service =
            json!({"spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": first}]}});
        assert!(give(&range, &mut service, None, &[]).is_ok());
        for _ in first..*upper.start() {
            assert!(taken.any().is_some());
        }
        assert_eq!(taken.any(), None);
    }

    #[test]
    fn a_small_range_has_no_lower_end() {
        let range = NodePorts(30000..=30015);
        let mut free = Free {
            range: &range,
            taken: BTreeSet::new(),
        };
        let given: BTreeSet<i64> = std::iter::from_fn(|| free.any()).collect();
        assert_eq!(given, (30000..=30015).collect());
    }
}
