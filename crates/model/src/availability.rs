//! Which kinds a release of Kubernetes has, in which versions, and whether it serves them unasked.

use crate::features::Release;

/// Whether a release serves a kind in some version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// By default.
    ByDefault,
    /// With `--runtime-config=resource.k8s.io/<version>=true`. The feature gate does not matter here: without it, claims are served and pods lose theirs.
    OnRequest,
    /// Not at all.
    Never,
}

struct Row {
    version: &'static str,
    kinds: &'static [&'static str],
    first: u8,
    last: u8,
    served: Served,
}

const fn row(version: &'static str, first: u8, last: u8, kinds: &'static [&'static str]) -> Row {
    Row {
        version,
        kinds,
        first,
        last,
        served: Served::OnRequest,
    }
}

const STABLE: &[&str] = &[
    "DeviceClass",
    "ResourceClaim",
    "ResourceClaimTemplate",
    "ResourceSlice",
];

const NEWEST: u8 = Release::NEWEST.minor();

static ROWS: &[Row] = &[
    Row {
        version: "v1",
        kinds: STABLE,
        first: 34,
        last: NEWEST,
        served: Served::ByDefault,
    },
    Row {
        version: "v1",
        kinds: &["DeviceTaintRule"],
        first: 37,
        last: NEWEST,
        served: Served::ByDefault,
    },
    row("v1beta2", 33, NEWEST, STABLE),
    row("v1beta2", 36, NEWEST, &["DeviceTaintRule"]),
    row("v1beta1", 32, NEWEST, STABLE),
    row("v1alpha3", 31, 33, STABLE),
    row("v1alpha3", 31, 31, &["PodSchedulingContext"]),
    row("v1alpha3", 33, NEWEST, &["DeviceTaintRule"]),
    row("v1alpha3", 36, NEWEST, &["ResourcePoolStatusRequest"]),
    row(
        "v1alpha2",
        27,
        30,
        &[
            "ResourceClass",
            "ResourceClaim",
            "ResourceClaimTemplate",
            "PodSchedulingContext",
        ],
    ),
    row(
        "v1alpha2",
        30,
        30,
        &[
            "ResourceSlice",
            "ResourceClaimParameters",
            "ResourceClassParameters",
        ],
    ),
    row(
        "v1alpha1",
        26,
        26,
        &[
            "ResourceClass",
            "ResourceClaim",
            "ResourceClaimTemplate",
            "PodScheduling",
        ],
    ),
];

/// Whether `release` serves `kind` in `version` (without the group).
pub fn served(release: Release, version: &str, kind: &str) -> Served {
    rows(release)
        .find(|row| row.version == version && row.kinds.contains(&kind))
        .map_or(Served::Never, |row| row.served)
}

/// The versions in which `release` has `kind`, newest first.
pub fn versions(release: Release, kind: &str) -> Vec<&'static str> {
    rows(release)
        .filter(|row| row.kinds.contains(&kind))
        .map(|row| row.version)
        .collect()
}

/// The kinds that `release` has in `version`.
pub fn kinds(release: Release, version: &str) -> Vec<&'static str> {
    rows(release)
        .filter(|row| row.version == version)
        .flat_map(|row| row.kinds.iter().copied())
        .collect()
}

fn rows(release: Release) -> impl Iterator<Item = &'static Row> {
    ROWS.iter()
        .filter(move |row| (row.first..=row.last).contains(&release.minor()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::Kind;

    #[test]
    fn each_release_has_its_versions() {
        let at = |minor, kind| versions(Release::new(minor), kind);
        assert_eq!(at(26, "ResourceClaim"), ["v1alpha1"]);
        assert_eq!(at(29, "ResourceClaim"), ["v1alpha2"]);
        assert_eq!(at(31, "ResourceClaim"), ["v1alpha3"]);
        assert_eq!(at(32, "ResourceClaim"), ["v1beta1", "v1alpha3"]);
        assert_eq!(at(36, "ResourceClaim"), ["v1", "v1beta2", "v1beta1"]);
        assert_eq!(at(29, "ResourceSlice"), [""; 0]);
        assert_eq!(at(30, "ResourceSlice"), ["v1alpha2"]);
    }

    #[test]
    fn only_v1_is_served_unasked() {
        assert_eq!(
            served(Release::new(34), "v1", "DeviceClass"),
            Served::ByDefault
        );
        assert_eq!(served(Release::new(33), "v1", "DeviceClass"), Served::Never);
        assert_eq!(
            served(Release::new(36), "v1beta1", "DeviceClass"),
            Served::OnRequest
        );
    }

    #[test]
    fn the_newest_release_agrees_with_the_kinds() {
        for kind in Kind::ALL {
            let names: Vec<_> = kind
                .versions()
                .iter()
                .map(|version| version.name())
                .collect();
            assert_eq!(versions(Release::NEWEST, kind.name()), names);
        }
    }
}
