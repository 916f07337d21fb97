//! The memory of the machine, and what containers may use of it.

use allot_apimachinery::quantity::Quantity;
use k8s_openapi::api::core::v1::Container;

/// What the kernel says, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) total: u64,
    /// What programs could get without swapping.
    pub(crate) available: u64,
    /// Swap space in use.
    pub(crate) swap: u64,
}

impl Memory {
    /// Reads `/proc/meminfo`.
    pub(crate) fn read() -> Option<Self> {
        Self::parse(&std::fs::read_to_string("/proc/meminfo").ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let bytes = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
            kibibytes.checked_mul(1024)
        };
        Some(Self {
            total: bytes("MemTotal:")?,
            available: bytes("MemAvailable:")?,
            // A kernel without swap does not tell it.
            swap: bytes("SwapTotal:")
                .unwrap_or(0)
                .saturating_sub(bytes("SwapFree:").unwrap_or(0)),
        })
    }
}

/// The limit of a container's memory in bytes; `None` without one.
pub(crate) fn limit_of(container: &Container) -> Option<u64> {
    let limits = container.resources.as_ref()?.limits.as_ref()?;
    let limit: Quantity = limits.get("memory")?.0.parse().ok()?;
    u64::try_from(limit.value()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_figures_are_bytes() {
        let text = "MemTotal:  100 kB\nMemFree:  20 kB\nMemAvailable:  40 kB\nSwapTotal:  9 kB\nSwapFree:  4 kB\n";
        let expected = Memory {
            total: 100 << 10,
            available: 40 << 10,
            swap: 5 << 10,
        };
        assert_eq!(Memory::parse(text), Some(expected));
        assert_eq!(Memory::parse(""), None);
        assert!(Memory::read().is_some_and(|it| it.total >= it.available && it.available > 0));
    }
}
