//! The opaque parameters, `gpu.resource.example.com/v1alpha1` `GpuConfig`.

use serde::Deserialize;

/// How containers share a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GpuConfig {
    api_version: String,
    kind: String,
    #[serde(default)]
    sharing: Option<Sharing>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Sharing {
    strategy: Strategy,
    #[serde(default)]
    time_slicing_config: Option<TimeSlicing>,
    #[serde(default)]
    space_partitioning_config: Option<SpacePartitioning>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
enum Strategy {
    TimeSlicing,
    SpacePartitioning,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
enum Interval {
    #[default]
    Default,
    Short,
    Medium,
    Long,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct TimeSlicing {
    #[serde(default)]
    interval: Interval,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SpacePartitioning {
    #[serde(default = "one")]
    partition_count: i64,
}

fn one() -> i64 {
    1
}

/// The environment variable of a device: `GPU_DEVICE_0`, `GPU_DEVICE_0_PARTITION_1`.
pub(crate) fn variable(device: &str) -> String {
    let id = device.strip_prefix("gpu-").unwrap_or(device);
    format!("GPU_DEVICE_{}", id.to_uppercase().replace('-', "_"))
}

const API_VERSION: &str = "gpu.resource.example.com/v1alpha1";
const KIND: &str = "GpuConfig";

/// Parameters that a claim or class must not contain.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The parameters have the wrong structure.
    #[error("error decoding config parameters: {0}")]
    Decode(#[from] serde_json::Error),
    /// The parameters are an object of another kind.
    #[error(
        "error decoding config parameters: no kind {kind:?} is registered for version {version:?}"
    )]
    Kind {
        /// The kind.
        kind: String,
        /// The `apiVersion`.
        version: String,
    },
    /// A value is out of range.
    #[error("error validating GPU config: {0}")]
    Invalid(&'static str),
}

impl Default for GpuConfig {
    fn default() -> Self {
        let sharing = Sharing {
            strategy: Strategy::TimeSlicing,
            time_slicing_config: Some(TimeSlicing::default()),
            space_partitioning_config: None,
        };
        Self {
            api_version: API_VERSION.into(),
            kind: KIND.into(),
            sharing: Some(sharing),
        }
    }
}

impl GpuConfig {
    /// Reads and checks parameters.
    ///
    /// # Errors
    /// The error.
    pub fn parse(parameters: &serde_json::Value) -> Result<Self, ConfigError> {
        let text = |field: &str| parameters[field].as_str().unwrap_or_default().to_owned();
        let (kind, version) = (text("kind"), text("apiVersion"));
        if kind != KIND || version != API_VERSION {
            return Err(ConfigError::Kind { kind, version });
        }
        let mut config = Self::deserialize(parameters)?;
        match config.sharing.as_mut() {
            None => config.sharing = Self::default().sharing,
            Some(sharing) => sharing.normalize()?,
        }
        Ok(config)
    }

    /// The environment variables of a container for the GPU or partition with this name.
    pub(crate) fn environment(&self, device: &str) -> Vec<String> {
        let name = variable(device);
        let mut env = vec![format!("{name}={device}")];
        let Some(sharing) = &self.sharing else {
            return env;
        };
        env.push(format!("{name}_SHARING_STRATEGY={:?}", sharing.strategy));
        match sharing.strategy {
            Strategy::TimeSlicing => {
                let interval = sharing
                    .time_slicing_config
                    .clone()
                    .unwrap_or_default()
                    .interval;
                env.push(format!("{name}_TIMESLICE_INTERVAL={interval:?}"));
            }
            Strategy::SpacePartitioning => {
                let count = sharing
                    .space_partitioning_config
                    .as_ref()
                    .map_or(1, |config| config.partition_count);
                env.push(format!("{name}_PARTITION_COUNT={count}"));
            }
        }
        env
    }
}

impl Sharing {
    fn normalize(&mut self) -> Result<(), ConfigError> {
        match self.strategy {
            Strategy::TimeSlicing if self.space_partitioning_config.is_some() => {
                Err(ConfigError::Invalid(
                    "cannot use spacePartitioningConfig with the TimeSlicing strategy",
                ))
            }
            Strategy::SpacePartitioning if self.time_slicing_config.is_some() => {
                Err(ConfigError::Invalid(
                    "cannot use timeSlicingConfig with the SpacePartitioning strategy",
                ))
            }
            Strategy::SpacePartitioning => {
                let config = self
                    .space_partitioning_config
                    .get_or_insert(SpacePartitioning { partition_count: 1 });
                if config.partition_count < 1 {
                    return Err(ConfigError::Invalid(
                        "invalid partition count: must be at least 1",
                    ));
                }
                Ok(())
            }
            Strategy::TimeSlicing => Ok(()),
        }
    }
}
