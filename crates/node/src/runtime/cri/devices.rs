//! Detects whether the runtime applies CDI devices, and suggests a remedy if it does not. A runtime silently ignores the
//! devices if CDI is disabled, or if its version predates the CRI field for them. Such a container is kept waiting, because
//! running it without its devices would be worse.

use std::path::{Path, PathBuf};

use allot_protos::cri_v1 as v1;
use serde_json::Value;

/// Minimum runtime versions that support the CRI field for CDI devices.
const OLDEST: [(&str, (u64, u64)); 2] = [("containerd", (1, 7)), ("cri-o", (1, 28))];

/// The runtime's name, version and CDI configuration, as it reports them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Devices {
    name: String,
    version: String,
    /// Whether CDI is enabled, if the runtime reports it.
    enabled: Option<bool>,
    /// Directories from which the runtime reads CDI specs, if it reports them.
    dirs: Option<Vec<PathBuf>>,
}

/// The reason why a container with devices is not started, and its remedy.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) text: String,
    pub(super) remedy: String,
}

/// Major and minor number of a version such as `v2.2.9` or `1.30.0-dev`.
fn numbers(version: &str) -> Option<(u64, u64)> {
    let mut parts = version.trim_start_matches('v').split(['.', '-', '+']);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

impl Devices {
    /// Parses the runtime's version and status responses, which include its configuration as JSON: that of containerd, or that of
    /// CRI-O in a member `crio`, by the names that it has in the source.
    pub(super) fn of(version: &v1::VersionResponse, status: &v1::StatusResponse) -> Self {
        let config = status.info.get("config");
        let config: Option<Value> = config.and_then(|text| serde_json::from_str(text).ok());
        let get = |name: &str| config.as_ref().and_then(|config| config.get(name));
        let of_crio = || get("crio")?.get("CDISpecDirs");
        let dirs = get("cdiSpecDirs").or_else(of_crio);
        let dirs = dirs.and_then(Value::as_array);
        let paths = |dirs: &Vec<Value>| {
            let dirs = dirs.iter().filter_map(Value::as_str);
            dirs.map(PathBuf::from).collect()
        };
        Self {
            name: version.runtime_name.clone(),
            version: version.runtime_version.clone(),
            enabled: get("enableCDI").and_then(Value::as_bool),
            dirs: dirs.map(paths),
        }
    }

    /// The reason why the runtime would not apply `devices`, if one is known.
    pub(super) fn problem(&self, devices: &[String]) -> Option<Problem> {
        if devices.is_empty() {
            return None;
        }
        let (name, version) = (&self.name, &self.version);
        let unresolvable = format!("unresolvable CDI devices {}", devices.join(", "));
        let oldest = OLDEST.iter().find(|(known, _)| known == name);
        if let (Some((_, oldest)), Some(have)) = (oldest, numbers(version))
            && have < *oldest
        {
            let (major, minor) = oldest;
            return Some(Problem {
                text: format!("{unresolvable}: {name} {version} does not know CDI devices"),
                remedy: format!("Devices need {name} {major}.{minor} or newer: update {name}"),
            });
        }
        (self.enabled == Some(false)).then(|| Problem {
            text: format!("{unresolvable}: CDI is switched off in {name}"),
            remedy: format!(
                "CDI is switched off in {name}: set enable_cdi = true in {} of its configuration, and restart it",
                self.section()
            ),
        })
    }

    /// Remedy for a container that the runtime has rejected because of its devices; `dirs` are the node's CDI directories.
    pub(super) fn remedy(&self, message: &str, dirs: &[PathBuf]) -> Option<String> {
        if !message.contains("unresolvable CDI devices") {
            return None;
        }
        let name = match self.name.as_str() {
            "" => "the container runtime",
            name => name,
        };
        let shown = |dirs: &[PathBuf]| {
            let dirs = dirs.iter().map(|dir| dir.display().to_string());
            dirs.collect::<Vec<_>>().join(", ")
        };
        let own = shown(dirs);
        let Some(read) = &self.dirs else {
            return Some(format!(
                "Drivers of this node put CDI files into {own}: {name} has to read them there, see cdi_spec_dirs in {} of its \
                 configuration; if it does, restart the driver, which writes its files again",
                self.section()
            ));
        };
        let same = |a: &Path, b: &Path| {
            let canonical = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
            canonical(a) == canonical(b)
        };
        if dirs.iter().any(|own| read.iter().any(|it| same(own, it))) {
            return Some(format!(
                "{name} reads CDI files in {}, and a file there is missing or cannot be read: restart the driver, which writes \
                 its files again",
                shown(read)
            ));
        }
        let reads = match read.is_empty() {
            true => format!("{name} reads no CDI files"),
            false => format!("{name} reads CDI files in {}", shown(read)),
        };
        Some(format!(
            "{reads}, and those of this node's drivers are in {own}: add that to cdi_spec_dirs in {} of its configuration and \
             restart it, or start the node with --cdi-dir",
            self.section()
        ))
    }

    /// Section of the runtime's configuration file that contains the CDI settings.
    fn section(&self) -> &'static str {
        match (self.name.as_str(), numbers(&self.version)) {
            ("cri-o", _) => "[crio.runtime]",
            (_, Some((1, _))) => "[plugins.\"io.containerd.grpc.v1.cri\"]",
            _ => "[plugins.\"io.containerd.cri.v1.runtime\"]",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(name: &str, version: &str, config: &str) -> Devices {
        let version = v1::VersionResponse {
            runtime_name: name.into(),
            runtime_version: version.into(),
            ..Default::default()
        };
        let status = v1::StatusResponse {
            info: [("config".to_owned(), config.to_owned())].into(),
            ..Default::default()
        };
        Devices::of(&version, &status)
    }

    #[test]
    fn devices_are_not_left_out_in_silence() {
        let check = |name: &str, version: &str, config: &str, text: &str, remedy: &str| {
            let devices = told(name, version, config);
            assert_eq!(devices.problem(&[]), None, "{name} {version}");
            let problem = devices.problem(&["a/b=c".into(), "a/b=d".into()]);
            let problem = problem.map(|it| (it.text, it.remedy)).unwrap_or_default();
            let expected = match text {
                "" => String::new(),
                text => format!("unresolvable CDI devices a/b=c, a/b=d: {text}"),
            };
            assert_eq!(problem.0, expected, "{name} {version}");
            assert!(problem.1.contains(remedy), "{}", problem.1);
        };
        let off = r#"{"enableCDI": false, "cdiSpecDirs": ["/etc/cdi"]}"#;
        let on = r#"{"enableCDI": true}"#;
        let text = "CDI is switched off in containerd";
        check(
            "containerd",
            "v2.2.9",
            off,
            text,
            "io.containerd.cri.v1.runtime",
        );
        check(
            "containerd",
            "1.7.27",
            off,
            text,
            "io.containerd.grpc.v1.cri",
        );
        check("containerd", "v2.2.9", on, "", "");
        check("containerd", "v2.2.9", "no JSON", "", "");
        check("cri-o", "1.34.0", "{}", "", "");
        let old = "containerd 1.6.20~ds1 does not know CDI devices";
        check("containerd", "1.6.20~ds1", "{}", old, "containerd 1.7");
        let old = "cri-o 1.27.1 does not know CDI devices";
        check("cri-o", "1.27.1", "{}", old, "cri-o 1.28");
    }

    #[test]
    fn a_refusal_comes_with_what_to_change() {
        let check = |config: &str, own: &str, expected: &str| {
            let devices = told("containerd", "v2.2.9", config);
            let message = "rpc error: CDI device injection failed: unresolvable CDI devices a/b=c";
            let remedy = devices.remedy(message, &[own.into()]).unwrap_or_default();
            assert!(remedy.contains(expected), "{remedy}");
            assert_eq!(devices.remedy("no space left", &[own.into()]), None);
        };
        let config = r#"{"enableCDI": true, "cdiSpecDirs": ["/etc/cdi", "/var/run/cdi"]}"#;
        check(config, "/srv/cdi", "add that to cdi_spec_dirs");
        check(config, "/etc/cdi", "restart the driver");
        check("{}", "/srv/cdi", "has to read them there");
        let config = r#"{"sandboxImage": "pause", "crio": {"CDISpecDirs": ["/etc/cdi"]}}"#;
        check(config, "/srv/cdi", "reads CDI files in /etc/cdi, and those");
        check(config, "/etc/cdi", "restart the driver");
        let config = r#"{"crio": {"CDISpecDirs": []}}"#;
        check(
            config,
            "/srv/cdi",
            "containerd reads no CDI files, and those",
        );
    }
}
