//! The versions for which upstream has types, also those that it no longer serves. The error about a body in such a version says
//! that the version differs from that of the path, not that it is unknown.

use std::sync::OnceLock;

use crate::object::split_api_version;

static SOURCE: &str = include_str!("registered.txt");

/// Group, version, and the kinds of a version that is not served by default.
type Entry = (&'static str, &'static str, Vec<&'static str>);

fn entries() -> &'static [Entry] {
    static ENTRIES: OnceLock<Vec<Entry>> = OnceLock::new();
    ENTRIES.get_or_init(|| {
        let lines = SOURCE.lines().filter(|line| !line.starts_with('#'));
        let entry = |line: &'static str| {
            let mut words = line.split(' ');
            let (group, version) = split_api_version(words.next().unwrap_or_default());
            (group, version, words.collect())
        };
        lines.map(entry).collect()
    })
}

/// All groups and versions.
pub(crate) fn versions() -> impl Iterator<Item = (&'static str, &'static str)> {
    entries()
        .iter()
        .map(|(group, version, _)| (*group, *version))
}

/// Whether the version has the kind though it is not served by default.
pub(crate) fn has(group: &str, version: &str, kind: &str) -> bool {
    let mut entries = entries().iter();
    let found = entries.find(|entry| entry.0 == group && entry.1 == version);
    found.is_some_and(|(.., kinds)| kinds.contains(&kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regression_extensions_has_the_kinds_that_it_had() {
        for kind in ["Deployment", "DaemonSet", "Ingress", "Scale"] {
            assert!(has("extensions", "v1beta1", kind), "{kind}");
        }
        assert!(!has("extensions", "v1beta1", "Pod"));
        assert!(!has("extensions", "v1", "Deployment"));
        assert!(has("apps", "v1beta2", "DaemonSet") && !has("apps", "v1beta1", "DaemonSet"));
        assert!(versions().any(|it| it == ("", "v1")));
    }
}
