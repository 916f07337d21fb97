//! Flags of the example GPU driver, which `allot driver gpu` and `allot up` share.

use std::ffi::OsString;

use allot_driver_gpu::Profile;

use crate::bounds;

/// The GPUs of a node, and how they can be allocated.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
#[group(id = "gpus")]
pub struct Flags {
    /// GPU driver: how many GPUs a node has
    #[arg(long, value_name = "N", default_value_t = Flags::default().num_devices, value_parser = bounds::within(bounds::DEVICES))]
    num_devices: usize,
    /// GPU driver: number of partitions of each GPU, which share its counters; 0: whole GPUs only
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = bounds::within(0..=80_usize))]
    gpu_partitions: usize,
    /// GPU driver: let several claims share a GPU, each with the memory and compute that it requests
    #[arg(long)]
    gpu_allow_multiple_allocations: bool,
    /// GPU driver: bind pods when the driver has reported their devices ready; it needs permission to watch claims
    #[arg(long)]
    binding_conditions: bool,
    /// GPU driver: report model, UUID and driver version of GPUs in the status of their claims
    #[arg(long)]
    gpu_device_status: bool,
}

impl Default for Flags {
    fn default() -> Self {
        Self {
            num_devices: 8,
            gpu_partitions: 0,
            gpu_allow_multiple_allocations: false,
            binding_conditions: false,
            gpu_device_status: false,
        }
    }
}

impl Flags {
    /// Whether nodes have GPUs at all.
    pub fn any(&self) -> bool {
        self.num_devices > 0
    }

    /// Writes them into the configuration of a driver in this process.
    pub fn configure(&self, config: &mut allot_driver_gpu::Config) {
        config.profile = Profile {
            gpus: self.num_devices,
            partitions: self.gpu_partitions,
            shared: self.gpu_allow_multiple_allocations,
            binding_conditions: self.binding_conditions,
        };
        config.device_status = self.gpu_device_status;
    }

    /// The same as arguments of a driver in another process.
    pub fn arguments(&self) -> Vec<OsString> {
        let mut arguments = vec![
            format!("--num-devices={}", self.num_devices),
            format!("--gpu-partitions={}", self.gpu_partitions),
        ];
        let switches = [
            (
                self.gpu_allow_multiple_allocations,
                "--gpu-allow-multiple-allocations",
            ),
            (self.binding_conditions, "--binding-conditions"),
            (self.gpu_device_status, "--gpu-device-status"),
        ];
        let on = switches.iter().filter(|(on, _)| *on);
        arguments.extend(on.map(|(_, flag)| (*flag).to_owned()));
        arguments.into_iter().map(OsString::from).collect()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Parsed {
        #[command(flatten)]
        flags: Flags,
    }

    /// Checks that a driver in another process gets the flags that were given.
    fn check(given: &str) {
        let parse = |arguments: Vec<OsString>| {
            let all = [OsString::from("allot")].into_iter().chain(arguments);
            Parsed::try_parse_from(all).expect("flags").flags
        };
        let given = parse(given.split_whitespace().map(OsString::from).collect());
        assert_eq!(parse(given.arguments()), given);
    }

    #[test]
    fn a_driver_in_another_process_gets_the_same_flags() {
        assert_eq!(
            Parsed::try_parse_from(["allot"]).expect("flags").flags,
            Flags::default()
        );
        check("");
        check("--num-devices 2 --gpu-partitions 4");
        check("--gpu-allow-multiple-allocations");
        check("--binding-conditions --gpu-device-status");
    }
}
