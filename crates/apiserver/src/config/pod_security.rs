//! Levels of pod security, and what the administrator configures about them: what counts where a namespace has no labels, and what is
//! exempt (`pod-security.admission.config.k8s.io`).

use allot_apimachinery::field::{Error, ErrorList, Path, aggregate};
use allot_apimachinery::names;
use serde::Deserialize;

use super::decode::{Document, Fields, Kind};

const KIND: Kind = Kind {
    types: &[
        (
            "pod-security.admission.config.k8s.io/v1",
            "PodSecurityConfiguration",
        ),
        (
            "pod-security.admission.config.k8s.io/v1beta1",
            "PodSecurityConfiguration",
        ),
        (
            "pod-security.admission.config.k8s.io/v1alpha1",
            "PodSecurityConfiguration",
        ),
    ],
    fields: Some(Fields::Object(&[
        (
            "defaults",
            Fields::Object(&[
                ("enforce", Fields::Any),
                ("enforce-version", Fields::Any),
                ("audit", Fields::Any),
                ("audit-version", Fields::Any),
                ("warn", Fields::Any),
                ("warn-version", Fields::Any),
            ]),
        ),
        (
            "exemptions",
            Fields::Object(&[
                ("usernames", Fields::Any),
                ("namespaces", Fields::Any),
                ("runtimeClasses", Fields::Any),
            ]),
        ),
    ])),
};

/// How strict a namespace is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Everything is allowed.
    Privileged,
    /// No known way to more privileges.
    Baseline,
    /// What is recommended today.
    Restricted,
}

impl Level {
    pub(crate) fn parse(name: &str) -> Option<Level> {
        match name {
            "privileged" => Some(Level::Privileged),
            "baseline" => Some(Level::Baseline),
            "restricted" => Some(Level::Restricted),
            _ => None,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Level::Privileged => "privileged",
            Level::Baseline => "baseline",
            Level::Restricted => "restricted",
        }
    }
}

/// A level as a version of Kubernetes has it; none is the latest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standard {
    /// How strict it is.
    pub level: Level,
    /// The minor version.
    pub minor: Option<u32>,
}

impl Standard {
    const NONE: Standard = Standard {
        level: Level::Privileged,
        minor: None,
    };
}

impl std::fmt::Display for Standard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.minor {
            Some(minor) => write!(f, "{}:v1.{minor}", self.level.name()),
            None => write!(f, "{}:latest", self.level.name()),
        }
    }
}

/// The levels that a namespace enforces, has noted in the audit log, and warns about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Pods that violate it are refused.
    pub enforce: Standard,
    /// Pods that violate it are noted.
    pub audit: Standard,
    /// Who creates pods that violate it is warned.
    pub warn: Standard,
}

/// The minor version that a text names; the inner none is the latest, the outer one a text that is no version.
pub(crate) fn version(text: &str) -> Option<Option<u32>> {
    if text == "latest" {
        return Some(None);
    }
    let minor = text.strip_prefix("v1.")?;
    let digits = !minor.is_empty() && minor.bytes().all(|it| it.is_ascii_digit());
    let plain = digits && (minor == "0" || !minor.starts_with('0'));
    plain.then(|| minor.parse().ok()).flatten().map(Some)
}

/// What is configured for the plugin PodSecurity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodSecurity {
    /// What counts where labels say nothing.
    pub defaults: Policy,
    /// Users whose pods are not judged.
    pub users: Vec<String>,
    /// Namespaces in which pods are not judged.
    pub namespaces: Vec<String>,
    /// Runtime classes whose pods are not judged.
    pub runtime_classes: Vec<String>,
}

impl Default for PodSecurity {
    fn default() -> Self {
        PodSecurity {
            defaults: Policy {
                enforce: Standard::NONE,
                audit: Standard::NONE,
                warn: Standard::NONE,
            },
            users: Vec::new(),
            namespaces: Vec::new(),
            runtime_classes: Vec::new(),
        }
    }
}

/// The configuration as it is written.
#[derive(Debug, Deserialize)]
struct Written {
    #[serde(default)]
    defaults: Option<Defaults>,
    #[serde(default)]
    exemptions: Option<Exemptions>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Defaults {
    #[serde(default)]
    enforce: Option<String>,
    #[serde(default)]
    enforce_version: Option<String>,
    #[serde(default)]
    audit: Option<String>,
    #[serde(default)]
    audit_version: Option<String>,
    #[serde(default)]
    warn: Option<String>,
    #[serde(default)]
    warn_version: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Exemptions {
    #[serde(default)]
    usernames: Option<Vec<String>>,
    #[serde(default)]
    namespaces: Option<Vec<String>>,
    #[serde(default)]
    runtime_classes: Option<Vec<String>>,
}

impl PodSecurity {
    /// Reads a configuration.
    ///
    /// # Errors
    /// An unknown version or field, or kube-apiserver's errors about levels, versions and names.
    pub(super) fn read(document: Document) -> Result<Self, String> {
        let written: Written = KIND.decode(document)?;
        let (defaults, mut errors) = written.defaults.unwrap_or_default().read();
        let exemptions = written.exemptions.unwrap_or_default();
        let mut listed = |key: &str, list: Option<Vec<String>>, check: fn(&str) -> Vec<String>| {
            let list = list.unwrap_or_default();
            let path = Path::new("exemptions").child(key);
            for (index, name) in list.iter().enumerate() {
                let why = check(name);
                if !why.is_empty() {
                    errors.push(Error::invalid(
                        &path.index(index),
                        name.as_str(),
                        why.join(", "),
                    ));
                } else if list[..index].contains(name) {
                    errors.push(Error::duplicate(&path.index(index), name.as_str()));
                }
            }
            list
        };
        let named: fn(&str) -> Vec<String> = |name| match name.is_empty() {
            true => vec!["username must not be empty".to_owned()],
            false => Vec::new(),
        };
        let namespaces = listed("namespaces", exemptions.namespaces, names::dns1123_label);
        let classes = exemptions.runtime_classes;
        let runtime_classes = listed("runtimeClasses", classes, names::dns1123_subdomain);
        let users = listed("usernames", exemptions.usernames, named);
        if let Some(why) = aggregate(&errors) {
            return Err(why);
        }
        Ok(PodSecurity {
            defaults,
            users,
            namespaces,
            runtime_classes,
        })
    }
}

impl Defaults {
    fn read(self) -> (Policy, ErrorList) {
        let mut errors = ErrorList::new();
        let mut standard = |mode: &str, level: Option<String>, minor: Option<String>| {
            let level = level.filter(|level| !level.is_empty());
            let level = level.unwrap_or_else(|| Level::Privileged.name().to_owned());
            let path = Path::new("defaults");
            let known = Level::parse(&level).unwrap_or_else(|| {
                let detail = "must be one of privileged, baseline, restricted";
                errors.push(Error::invalid(&path.child(mode), level.as_str(), detail));
                Level::Restricted
            });
            let minor = minor.filter(|minor| !minor.is_empty());
            let minor = minor.unwrap_or_else(|| "latest".to_owned());
            let minor = version(&minor).unwrap_or_else(|| {
                let at = path.child(&format!("{mode}-version"));
                let detail = "must be \"latest\" or \"v1.x\"";
                errors.push(Error::invalid(&at, minor.as_str(), detail));
                None
            });
            Standard {
                level: known,
                minor,
            }
        };
        let enforce = standard("enforce", self.enforce, self.enforce_version);
        let warn = standard("warn", self.warn, self.warn_version);
        let audit = standard("audit", self.audit, self.audit_version);
        let policy = Policy {
            enforce,
            audit,
            warn,
        };
        (policy, errors)
    }
}
