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
/// The work after which the search stops, in bytes of paths that are compared. The paths of a pod with thousands of
/// files need a fraction of it.
const MOST_WORK: usize = 16 << 20;

/// The search in one pod.
struct Search<'a> {
    found: &'a mut Vec<String>,
    /// The work that may still be done.
    left: usize,
}

impl Search<'_> {
    fn is_over(&self) -> bool {
        self.left == 0 || self.found.len() >= ENOUGH
    }

    /// Accounts for the comparison of a path and of each of its parents with others.
    fn take(&mut self, path: &str) {
        let parts = path.split('/').count();
        self.left = self
            .left
            .saturating_sub(parts.saturating_mul(path.len() + 1));
    }

    /// The first of the paths, in order, that equals the path, or is a parent or a child of it.
    fn first_overlap<'a>(&mut self, seen: &BTreeSet<&'a str>, path: &str) -> Option<&'a str> {
        if path.is_empty() || path.len() > LONGEST {
            return None;
        }
        self.take(path);
        let above = path.match_indices('/').map(|(at, _)| &path[..at]);
        let known = |path: &str| seen.get(path).copied().filter(|it| !it.is_empty());
        above.chain([path]).find_map(known).or_else(|| {
            let below = format!("{path}/");
            let from = (Bound::Included(below.as_str()), Bound::Unbounded);
            let next = seen.range::<str, _>(from).next().copied();
            next.filter(|it| it.starts_with(&below))
        })
    }

    fn collisions(&mut self, paths: &[&str], volume: &str) {
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        for path in paths {
            let path = path.trim_end_matches('/');
            if self.is_over() {
                return;
            }
            if let Some(other) = self.first_overlap(&seen, path) {
                self.found.push(format!(
                    "{volume}: overlapping paths: {path:?} with {other:?}"
                ));
            }
            seen.insert(path);
        }
    }
}

fn projected(volume: &Value, name: &str, search: &mut Search<'_>) {
    let (mut all, mut together) = (BTreeSet::new(), BTreeSet::new());
    let mut fits = true;
    for (_, source) in list(&volume["projected"], "sources") {
        let mut kinds = source.as_object().into_iter().flatten();
        let Some((kind, of)) = kinds.find(|(_, of)| of.is_object()) else {
            let found = &mut search.found;
            if found.len() < ENOUGH {
                found.push(format!(
                    "volume {name:?} (Projected) has no sources provided"
                ));
            }
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
            "podCertificate" => {
                let keys = ["certificateChainPath", "keyPath", "credentialBundlePath"];
                let paths = keys.into_iter().map(|key| text(of, key));
                let paths = paths.filter(|path| !path.is_empty()).collect();
                (Some(paths), "PodCertificate".to_owned())
            }
            _ => continue,
        };
        let Some(paths) = paths.filter(|paths| !paths.is_empty()) else {
            continue;
        };
        let place = format!("volume {name:?} (Projected {what})");
        if search.is_over() {
            return;
        }
        let before = search.found.len();
        search.collisions(&paths, &place);
        // Compares the paths of a source again, with those of the previous sources. There may be thousands of
        // sources: without overlaps they are not all compared again for each source.
        let own: BTreeSet<&str> = paths.into_iter().collect();
        fits &= search.found.len() == before
            && own.iter().all(|path| {
                let path = path.trim_end_matches('/');
                !search.is_over() && search.first_overlap(&together, path).is_none()
            });
        together.extend(own.iter().map(|path| path.trim_end_matches('/')));
        if !fits && !search.is_over() {
            let mut sorted: Vec<&str> = own.iter().chain(&all).copied().collect();
            sorted.sort_unstable();
            search.collisions(&sorted, &place);
        }
        all.extend(own);
    }
}

/// Warnings about the volumes of a pod's spec.
pub(super) fn warnings(spec: &Value, found: &mut Vec<String>) {
    let mut search = Search {
        found,
        left: MOST_WORK,
    };
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
                search.collisions(&paths, &format!("volume {name:?} ({what})"));
            }
        }
        projected(volume, name, &mut search);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn searched(spec: &Value) -> (Vec<String>, usize) {
        let mut found = Vec::new();
        let mut search = Search {
            found: &mut found,
            left: MOST_WORK,
        };
        for (_, volume) in list(spec, "volumes") {
            projected(volume, "v", &mut search);
        }
        let left = search.left;
        (found, left)
    }

    fn of_sources(paths: impl Iterator<Item = String>) -> Value {
        let sources: Vec<Value> = paths
            .map(|path| json!({"secret": {"name": "s", "items": [{"key": "k", "path": path}]}}))
            .collect();
        json!({"volumes": [{"name": "v", "projected": {"sources": sources}}]})
    }

    /// After one overlap every further source was compared with all those before it, whether or not it overlapped.
    #[test]
    fn many_sources_after_an_overlap_cost_a_bounded_amount_of_work() {
        let paths = ["same", "same"].map(str::to_owned).into_iter();
        let spec = of_sources(paths.chain((0..30_000).map(|at| format!("file-{at}"))));
        let (found, left) = searched(&spec);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(left, 0);
    }

    #[test]
    fn deep_paths_cost_a_bounded_amount_of_work() {
        let deep = "a/".repeat(LONGEST / 2 - 8);
        let (found, left) = searched(&of_sources((0..700).map(|at| format!("{deep}{at}"))));
        assert!(found.is_empty(), "{found:?}");
        assert_eq!(left, 0);
    }

    #[test]
    fn an_ordinary_pod_is_searched_whole() {
        let spec = of_sources((0..1000).map(|at| format!("etc/config/directory/file-{at}.yaml")));
        let (found, left) = searched(&spec);
        assert!(found.is_empty(), "{found:?}");
        assert!(left > MOST_WORK * 9 / 10, "{left}");
    }
}
