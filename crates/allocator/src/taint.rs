//! Device taints and what tolerates them.

use k8s_openapi::api::resource::v1 as api;
use smol_str::SmolStr;

/// A taint that can prevent the allocation of a device.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Taint {
    key: SmolStr,
    value: SmolStr,
    effect: SmolStr,
}

impl Taint {
    pub(crate) fn new(taint: &api::DeviceTaint) -> Self {
        Self {
            key: SmolStr::new(&taint.key),
            value: SmolStr::new(taint.value.as_deref().unwrap_or_default()),
            effect: SmolStr::new(&taint.effect),
        }
    }

    /// Only these effects matter for allocation; `None` and those of later releases do not.
    pub(crate) fn blocks(&self) -> bool {
        self.effect == "NoSchedule" || self.effect == "NoExecute"
    }

    /// Whether none of the tolerations covers the taint, so that the device must not be used.
    pub(crate) fn prevents(&self, tolerations: &[api::DeviceToleration]) -> bool {
        self.blocks() && !tolerations.iter().any(|t| self.tolerated(t))
    }

    /// `tolerationSeconds` has no effect on allocation: it delays eviction.
    fn tolerated(&self, toleration: &api::DeviceToleration) -> bool {
        let covers = |wanted: &Option<String>, own: &str| {
            wanted.as_deref().is_none_or(|w| w.is_empty() || w == own)
        };
        covers(&toleration.effect, &self.effect)
            && covers(&toleration.key, &self.key)
            && match toleration.operator.as_deref().unwrap_or_default() {
                "" | "Equal" => toleration.value.as_deref().unwrap_or_default() == self.value,
                "Exists" => true,
                _ => false,
            }
    }
}

impl std::fmt::Display for Taint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.value.as_str() {
            "" => write!(f, "{}:{}", self.key, self.effect),
            value => write!(f, "{}={value}:{}", self.key, self.effect),
        }
    }
}

/// A taint for all matching devices, as a `DeviceTaintRule` adds it to those of the slices.
#[derive(Debug, Clone, PartialEq)]
pub struct TaintRule {
    /// Selects devices of this driver; `None` for any driver.
    pub driver: Option<String>,
    /// Selects devices of pools with this name; `None` for any pool.
    pub pool: Option<String>,
    /// Selects devices with this name; `None` for any device.
    pub device: Option<String>,
    /// The taint. `timeAdded` has no effect on allocation.
    pub taint: api::DeviceTaint,
}

impl TaintRule {
    pub(crate) fn covers_pool(&self, driver: &str, pool: &str) -> bool {
        self.driver.as_deref().is_none_or(|d| d == driver)
            && self.pool.as_deref().is_none_or(|p| p == pool)
    }

    pub(crate) fn covers_device(&self, device: &str) -> bool {
        self.device.as_deref().is_none_or(|d| d == device)
    }
}

#[cfg(test)]
mod tests;
