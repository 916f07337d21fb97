//! Whether devices go together.

use k8s_openapi::api::resource::v1 as api;

use super::Reachable;

pub fn covers(constraint: &api::DeviceConstraint, request: &str) -> bool {
    let base = request.split('/').next().unwrap();
    let names = constraint.requests.as_deref().unwrap_or_default();
    names.is_empty() || names.iter().any(|n| n == request || n == base)
}

/// Whether devices of a claim, each with its request, satisfy a constraint. Attributes have type and value in their text form.
pub fn satisfied(
    constraint: &api::DeviceConstraint,
    picks: &[(&str, &Reachable)],
    lists: bool,
) -> bool {
    let (name, same) = match (&constraint.match_attribute, &constraint.distinct_attribute) {
        (Some(name), _) => (name, true),
        (_, Some(name)) => (name, false),
        _ => return false,
    };
    let mut sets = Vec::new();
    for (_, device) in picks
        .iter()
        .filter(|(request, _)| covers(constraint, request))
    {
        let attributes = device.device.attributes.clone().unwrap_or_default();
        let bare = name.strip_prefix("gpu.example.com/").unwrap_or(name);
        let Some(attribute) = attributes.get(name).or_else(|| attributes.get(bare)) else {
            return false;
        };
        let set = match attribute {
            api::DeviceAttribute { int: Some(v), .. } => vec![format!("int {v}")],
            api::DeviceAttribute {
                string: Some(v), ..
            } => vec![format!("string {v}")],
            api::DeviceAttribute {
                ints: Some(list), ..
            } => list.iter().map(|v| format!("int {v}")).collect(),
            other => panic!("not generated: {other:?}"),
        };
        if lists && set.is_empty() {
            return false;
        }
        sets.push(set);
    }
    if same {
        let Some(first) = sets.first() else {
            return true;
        };
        sets.len() == 1 || first.iter().any(|v| sets.iter().all(|s| s.contains(v)))
    } else {
        let disjoint = |a: &[String], b: &[String]| a.iter().all(|v| !b.contains(v));
        (0..sets.len()).all(|i| (0..i).all(|j| disjoint(&sets[i], &sets[j])))
    }
}
