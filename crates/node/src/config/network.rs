//! The networks of pods.

use std::path::PathBuf;

/// Which network pods have that do not ask for the host's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PodNetwork {
    /// [`PodNetwork::Cni`] if the agent runs as root and there is a configuration when it starts; otherwise
    /// [`PodNetwork::Host`].
    Auto,
    /// That of the host.
    #[default]
    Host,
    /// A network namespace for each pod, through CNI plugins. Without root that of the host.
    Cni,
}

impl std::str::FromStr for PodNetwork {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "host" => Ok(Self::Host),
            "cni" => Ok(Self::Cni),
            _ => Err(format!(
                "unknown network {text:?}: expected auto, host or cni"
            )),
        }
    }
}

/// Where configurations of CNI are looked for.
pub const CNI_CONF_DIR: &str = "/etc/cni/net.d";
/// Where plugins of CNI are looked for: upstream's directory, and those of distributions' packages.
pub const CNI_BIN_DIRS: [&str; 3] = ["/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni"];

/// The networks of pods, for runtimes that have none of their own.
#[derive(Debug, Clone)]
pub struct NetworkSettings {
    /// Which network pods have.
    pub mode: PodNetwork,
    /// Directory of CNI configurations, of which the first counts.
    pub conf_dir: PathBuf,
    /// Directories of CNI plugins; the first that has one counts.
    pub bin_dirs: Vec<PathBuf>,
    /// `spec.podCIDRs` of the Node: at most one of each family.
    pub pod_cidrs: Vec<String>,
    /// Why pods share the network of the host in spite of the mode; shown in the Node's conditions.
    pub unavailable: Option<String>,
}

impl Default for NetworkSettings {
    fn default() -> Self {
        Self {
            mode: PodNetwork::default(),
            conf_dir: CNI_CONF_DIR.into(),
            bin_dirs: CNI_BIN_DIRS.map(PathBuf::from).to_vec(),
            pod_cidrs: Vec::new(),
            unavailable: None,
        }
    }
}
