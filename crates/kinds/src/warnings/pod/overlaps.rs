//! Files of a volume that lie on or in one another.

use std::collections::BTreeSet;
use std::ops::Bound;

use serde_json::Value;

use super::{list, text};

fn paths(source: &Value) -> Option<Vec<&str>> {
    let items = source["items"].as_array()?;
    Some(items.iter().map(|item| text(item, "path")).collect())
}

/// The maximum length of compared paths; longer paths exceed the limit of file systems.
const LONGEST: usize = 4096;
/// The number of warnings after which the search stops, since only a few are returned.
const ENOUGH: usize = 1000;

/// The first of the paths, in order, that equals the path, or is a parent or a child of it.
fn first_overlap<'a>(seen: &BTreeSet<&'a str>, path: &str) -> Option<&'a str> {
    if path.is_empty() || path.len() > LONGEST {
        return None;
    }
    let above = path.match_indices('/').map(|(at, _)| &path[..at]);
    let known = |path: &str| seen.get(path).copied().filter(|it| !it.is_empty());
    above.chain([path]).find_map(known).or_else(|| {
        let below = format!("{path}/");
        let from = (Bound::Included(below.as_str()), Bound::Unbounded);
        let next = seen.range::<str, _>(from).next().copied();
        next.filter(|it| it.starts_with(&below))
    })
}

fn collisions(paths: &[&str], volume: &str, found: &mut Vec<String>) {
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for path in paths {
        let path = path.trim_end_matches('/');
        if found.len() >= ENOUGH {
            return;
        }
        if let Some(other) = first_overlap(&seen, path) {
            found.push(format!(
                "{volume}: overlapping paths: {path:?} with {other:?}"
            ));
        }
        seen.insert(path);
    }
}

fn projected(volume: &Value, name: &str, found: &mut Vec<String>) {
    let (mut all, mut together) = (BTreeSet::new(), BTreeSet::new());
    let mut fits = true;
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
        let before = found.len();
        collisions(&paths, &place, found);
        // Compares the paths of a source again, with those of the previous sources. There may be thousands of
        // sources: without overlaps they are not all compared again for each source.
        let own: BTreeSet<&str> = paths.into_iter().collect();
        fits &= found.len() == before
            && own
                .iter()
                .all(|path| first_overlap(&together, path.trim_end_matches('/')).is_none());
        together.extend(own.iter().map(|path| path.trim_end_matches('/')));
        if !fits && found.len() < ENOUGH {
            let mut sorted: Vec<&str> = own.iter().chain(&all).copied().collect();
            sorted.sort_unstable();
            collisions(&sorted, &place, found);
        }
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
