//! Feature gates as data: the gates of each release, their stages and their dependencies.
//!
//! [`Features`] is a plain value: the state of all gates for one emulated release. Nothing is global; every function
//! whose behaviour depends on a gate takes `&Features`. The texts of errors are those of kube-apiserver.
//!
//! ```
//! use allot_model::features::{Feature, Features, Release};
//!
//! let mut features = Features::default();
//! assert!(features.enabled(Feature::DRADeviceTaints));
//! assert!(!Features::of(Release::new(34)).enabled(Feature::DRADeviceTaints));
//!
//! features.set("DRADeviceTaintRules=true").unwrap();
//! assert_eq!(
//!     features.set("DynamicResourceAllocation=false").unwrap_err().to_string(),
//!     "cannot set feature gate DynamicResourceAllocation to false, feature is locked to true",
//! );
//! ```

mod history;
mod release;
mod settled;
mod unbuilt;

use std::collections::BTreeMap;
use std::fmt;

use allot_apimachinery::strconv::parse_bool;

use settled::Setting;

pub use history::Feature;
pub use release::{Release, ReleaseError};
pub use unbuilt::is_unbuilt;

/// How mature a feature is in a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Not available yet.
    PreAlpha,
    /// Off by default.
    Alpha,
    /// Feature complete.
    Beta,
    /// Stable.
    Stable,
    /// Deprecated, and removed later.
    Deprecated,
}

/// The state of a feature in a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// The stage: alpha, beta, GA or deprecated.
    pub stage: Stage,
    /// Whether the feature is on by default.
    pub default: bool,
    /// Whether the default can be changed.
    pub locked: bool,
}

impl Feature {
    /// The name in `--feature-gates`.
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// Finds a feature by its name.
    pub fn from_name(name: &str) -> Option<Feature> {
        Feature::ALL
            .iter()
            .copied()
            .find(|feature| feature.name() == name)
    }

    /// The features that must be on for this one to work.
    pub const fn dependencies(self) -> &'static [Feature] {
        self.row().needs
    }

    /// The state of the feature in the newest release that changed it.
    fn last_spec(self) -> Option<Spec> {
        self.row().history.last().map(|since| since.spec)
    }

    /// The state of the feature in `release`; `None` when the release no longer has it.
    pub fn spec(self, release: Release) -> Option<Spec> {
        let row = self.row();
        if row.removed.is_some_and(|removed| release.minor >= removed) {
            return None;
        }
        let since = row
            .history
            .iter()
            .rev()
            .find(|since| since.minor <= release.minor);
        Some(since.map_or(
            Spec {
                stage: Stage::PreAlpha,
                default: false,
                locked: false,
            },
            |since| since.spec,
        ))
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An error in a `--feature-gates` value; the texts are kube-apiserver's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// An entry without `=`.
    #[error("missing bool value for {0}")]
    MissingValue(String),
    /// A value that is not a Go boolean.
    #[error(
        "invalid value of {name}={value}, err: strconv.ParseBool: parsing {value:?}: invalid syntax"
    )]
    NotABool {
        /// The gate.
        name: String,
        /// The given value.
        value: String,
    },
    /// A gate of a component that is not this one.
    #[error("component not registered: {0}")]
    Component(String),
    /// No such gate.
    #[error("unrecognized feature gate: {0}")]
    Unrecognized(String),
    /// The gate is locked to its default.
    #[error("cannot set feature gate {feature} to {value}, feature is locked to {locked}", locked = !.value)]
    Locked {
        /// The gate.
        feature: &'static str,
        /// The requested value.
        value: bool,
    },
    /// The emulated release does not have the feature yet.
    #[error(
        "cannot set feature gate {feature} to {value}, feature is PreAlpha at emulated version {release}, min compatibility version 1.{}",
        .release.minor().saturating_sub(1)
    )]
    PreAlpha {
        /// The gate.
        feature: &'static str,
        /// The requested value.
        value: bool,
        /// The emulated release.
        release: Release,
    },
    /// A feature is on while one that it needs is off.
    #[error("{feature} is enabled, but depends on features that are disabled: [{}]", join(.missing))]
    Dependency {
        /// The feature that is on.
        feature: Feature,
        /// The missing dependencies.
        missing: Vec<Feature>,
    },
    /// Several errors.
    #[error("[{}]", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    Several(Vec<Error>),
}

fn join(features: &[Feature]) -> String {
    features
        .iter()
        .map(|feature| feature.name())
        .collect::<Vec<_>>()
        .join(" ")
}

/// The state of all gates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Features {
    release: Release,
    enabled: [bool; Feature::COUNT],
}

impl Default for Features {
    /// The defaults of [`Release::DEFAULT`].
    fn default() -> Features {
        Features::of(Release::DEFAULT)
    }
}

impl Features {
    /// The defaults of a release.
    pub fn of(release: Release) -> Features {
        let mut enabled = [false; Feature::COUNT];
        for feature in Feature::ALL {
            // A feature whose gate was removed stays as it was in the last release with the gate.
            let spec = feature.spec(release).or_else(|| feature.last_spec());
            enabled[*feature as usize] = spec.is_some_and(|spec| spec.default);
        }
        Features { release, enabled }
    }

    /// The emulated release.
    pub fn release(&self) -> Release {
        self.release
    }

    /// Whether the gate of a feature is on, by its stage in the release or by an option.
    pub fn enabled(&self, feature: Feature) -> bool {
        self.enabled[feature as usize]
    }

    /// Whether PodGroups have a priority and a disruption mode, and preempt pods as a whole (KEP 5710). `GenericWorkload`
    /// covers that since 1.37.
    pub fn has_workload_aware_preemption(&self) -> bool {
        match Feature::WorkloadAwarePreemption.spec(self.release) {
            Some(_) => self.enabled(Feature::WorkloadAwarePreemption),
            None => self.enabled(Feature::GenericWorkload),
        }
    }

    /// The same gates with one of them changed, without any check: for tests, and for callers that keep the set consistent.
    #[must_use]
    pub fn with(mut self, feature: Feature, on: bool) -> Features {
        self.enabled[feature as usize] = on;
        self
    }

    /// Applies the value of a `--feature-gates` flag: `Name=true,kube:Other=false`, also `AllAlpha` and `AllBeta`.
    ///
    /// # Errors
    /// The first malformed or unknown entry, or all entries that cannot be set, or all features whose dependencies are
    /// off. Nothing is changed then.
    pub fn set(&mut self, flag: &str) -> Result<(), Error> {
        let mut wanted = BTreeMap::new();
        for entry in flag.split(',').filter(|entry| !entry.is_empty()) {
            let (name, value) = match entry.split_once('=') {
                Some((name, value)) => (name.trim(), value.trim()),
                None => return Err(Error::MissingValue(entry.trim().to_owned())),
            };
            let value = parse_bool(value).ok_or_else(|| Error::NotABool {
                name: name.to_owned(),
                value: value.to_owned(),
            })?;
            let name = match name.split_once(':') {
                None | Some(("" | COMPONENT, _)) => gate_name(name),
                Some((component, _)) => return Err(Error::Component(component.to_owned())),
            };
            wanted.insert(name.to_owned(), value);
        }
        self.set_all(wanted)
    }

    /// Applies gates given by name.
    ///
    /// # Errors
    /// As [`Features::set`].
    pub fn set_all(
        &mut self,
        wanted: impl IntoIterator<Item = (String, bool)>,
    ) -> Result<(), Error> {
        let mut next = self.clone();
        let mut errors = Vec::new();
        let mut single = Vec::new();
        for (name, value) in wanted {
            match name.as_str() {
                "AllAlpha" => next.set_stage(Stage::Alpha, value),
                "AllBeta" => next.set_stage(Stage::Beta, value),
                _ => single.push((name, value)),
            }
        }
        // Explicit settings take precedence over those of a whole stage, in any order.
        for (name, value) in single {
            let known = Feature::from_name(&name)
                .and_then(|feature| Some((feature, feature.spec(self.release)?)));
            let Some((feature, spec)) = known else {
                match settled::setting(&name, value, self.release) {
                    Some((gate, setting)) => errors.extend(self.refusal(gate, value, setting)),
                    None if is_unbuilt(&name, self.release) => {}
                    None => return Err(Error::Unrecognized(name)),
                }
                continue;
            };
            let setting = if spec.locked && spec.default != value {
                Setting::Locked
            } else if spec.stage == Stage::PreAlpha {
                Setting::PreAlpha
            } else {
                next.enabled[feature as usize] = value;
                Setting::Accepted
            };
            errors.extend(self.refusal(feature.name(), value, setting));
        }
        if errors.is_empty() {
            errors = next.broken_dependencies();
        }
        match errors.len() {
            0 => {
                *self = next;
                Ok(())
            }
            1 => Err(errors.swap_remove(0)),
            _ => Err(Error::Several(errors)),
        }
    }

    /// The error of a setting that the release does not accept.
    fn refusal(&self, feature: &'static str, value: bool, setting: Setting) -> Option<Error> {
        let release = self.release;
        match setting {
            Setting::Accepted => None,
            Setting::Locked => Some(Error::Locked { feature, value }),
            Setting::PreAlpha => Some(Error::PreAlpha {
                feature,
                value,
                release,
            }),
        }
    }

    fn set_stage(&mut self, stage: Stage, value: bool) {
        for feature in Feature::ALL {
            if feature
                .spec(self.release)
                .is_some_and(|spec| spec.stage == stage && !spec.locked)
            {
                self.enabled[*feature as usize] = value;
            }
        }
    }

    fn broken_dependencies(&self) -> Vec<Error> {
        let mut errors = Vec::new();
        for feature in Feature::ALL
            .iter()
            .copied()
            .filter(|feature| self.enabled(*feature))
        {
            let missing: Vec<_> = feature
                .dependencies()
                .iter()
                .copied()
                .filter(|needed| needed.spec(self.release).is_some() && !self.enabled(*needed))
                .collect();
            if !missing.is_empty() {
                errors.push(Error::Dependency { feature, missing });
            }
        }
        errors
    }

    /// One line per gate for `--help`, as kube-apiserver prints them: stable features are not listed.
    pub fn help(&self) -> Vec<String> {
        let mut lines = vec![
            "AllAlpha=true|false (ALPHA - default=false)".to_owned(),
            "AllBeta=true|false (BETA - default=false)".to_owned(),
        ];
        for feature in Feature::ALL {
            let Some(spec) = feature.spec(self.release) else {
                continue;
            };
            let stage = match spec.stage {
                Stage::Alpha => "ALPHA",
                Stage::Beta => "BETA",
                Stage::PreAlpha | Stage::Stable | Stage::Deprecated => continue,
            };
            lines.push(format!(
                "{feature}=true|false ({stage} - default={})",
                spec.default
            ));
        }
        lines.sort();
        lines
    }
}

/// The component that the gates and the emulated version are those of, where several can be named.
pub const COMPONENT: &str = "kube";

/// The gate that an entry of `--feature-gates` names, without value and component: `kube:Name=true`.
pub fn gate_name(entry: &str) -> &str {
    let name = entry.split('=').next().unwrap_or_default().trim();
    name.split_once(':').map_or(name, |(_, gate)| gate).trim()
}

#[cfg(test)]
mod tests;
