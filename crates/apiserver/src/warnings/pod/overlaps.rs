//! Files of a volume that lie on or in one another.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{list, text};

fn paths(source: &Value) -> Option<Vec<&str>> {
    let items = source["items"].as_array()?;
    Some(items.iter().map(|item| text(item, "path")).collect())
}

/// Whether one path is the other or leads into it.
fn overlap(one: &str, two: &str) -> bool {
    let within = |inner: &str, outer: &str| {
        inner
            .strip_prefix(outer)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    !one.is_empty() && !two.is_empty() && (within(one, two) || within(two, one))
}

fn collisions(paths: &[&str], volume: &str, found: &mut Vec<String>) {
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for path in paths {
        let path = path.trim_end_matches('/');
        if let Some(other) = seen.iter().find(|other| overlap(other, path)) {
            found.push(format!(
                "{volume}: overlapping paths: {path:?} with {other:?}"
            ));
        }
        seen.insert(path);
    }
}

fn projected(volume: &Value, name: &str, found: &mut Vec<String>) {
    let mut all = BTreeSet::new();
    for (_, source) in list(&volume["projected"], "sources") {
        let mut kinds = source.as_object().into_iter().flatten();
        let Some((kind, of)) = kinds.find(|(_, of)| of.is_object()) else {
            found.push(format!(
                "volume {name:?} (Projected) has no sources provided"
            ));
            continue;
        };
        let (paths, what) = match kind.as_str() {
            "configMap" => (paths(of), format!("ConfigMap {:?}", text(of, "name"))),
            "secret" => (paths(of), format!("Secret {:?}", text(of, "name"))),
            "downwardAPI" => (paths(of), "DownwardAPI".to_owned()),
            "serviceAccountToken" => {
                let path = vec![text(of, "path")];
                (Some(path), "ServiceAccountToken".to_owned())
            }
            "clusterTrustBundle" => {
                let named = of["name"].as_str().unwrap_or(text(of, "signerName"));
                let what = format!("ClusterTrustBundle {named:?}");
                (Some(vec![text(of, "path")]), what)
            }
            _ => continue,
        };
        let Some(paths) = paths.filter(|paths| !paths.is_empty()) else {
            continue;
        };
        let place = format!("volume {name:?} (Projected {what})");
        collisions(&paths, &place, found);
        // Its own again, with those of the sources before it.
        let own: BTreeSet<&str> = paths.into_iter().collect();
        let mut together: Vec<&str> = own.iter().chain(&all).copied().collect();
        together.sort_unstable();
        collisions(&together, &place, found);
        all.extend(own);
    }
}

/// Warnings about the volumes of a pod's spec.
pub(super) fn warnings(spec: &Value, found: &mut Vec<String>) {
    for (_, volume) in list(spec, "volumes") {
        let name = text(volume, "name");
        for (key, what) in [
            (
                "configMap",
                format!("ConfigMap {:?}", text(&volume["configMap"], "name")),
            ),
            (
                "secret",
                format!("Secret {:?}", text(&volume["secret"], "secretName")),
            ),
            ("downwardAPI", "DownwardAPI".to_owned()),
        ] {
            if let Some(paths) = paths(&volume[key]) {
                collisions(&paths, &format!("volume {name:?} ({what})"), found);
            }
        }
        projected(volume, name, found);
    }
}
