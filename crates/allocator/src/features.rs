//! The feature gates of the allocator.

/// The feature gates that change what an allocation may do.
///
/// Every combination uses the same code. The fields follow the gates of Kubernetes 1.37; `binding_conditions` means
/// `DRADeviceBindingConditions` together with `DRAResourceClaimDeviceStatus`, because the first needs the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Features {
    /// `DRAAdminAccess`: a request may ask for devices that are in use.
    pub admin_access: bool,
    /// `DRAPrioritizedList`: a request may list alternatives in `firstAvailable`.
    pub prioritized_list: bool,
    /// `DRAPartitionableDevices`: shared counters and node selection per device.
    pub partitionable_devices: bool,
    /// `DRADeviceTaints`: taints keep devices from being allocated.
    pub device_taints: bool,
    /// `DRADeviceBindingConditions+DRAResourceClaimDeviceStatus`.
    pub binding_conditions: bool,
    /// `DRAConsumableCapacity`: devices that serve several claims at once.
    pub consumable_capacity: bool,
    /// `DRAFractionalCapacityRange`: the range of a request policy may have fractions of a unit.
    pub fractional_capacity_range: bool,
    /// `DRAListTypeAttributes`: constraints compare attribute values as sets.
    pub list_type_attributes: bool,
    /// Not a gate: repeat what Kubernetes 1.36 does wrong with shared counters and "all", so that
    /// results can be compared with it. `docs/DIVERGENCES.md` lists the errors.
    pub upstream_errors: bool,
}

impl Features {
    /// Everything off: what Kubernetes 1.34 calls the stable core.
    pub const NONE: Self = Self {
        admin_access: false,
        prioritized_list: false,
        partitionable_devices: false,
        device_taints: false,
        binding_conditions: false,
        consumable_capacity: false,
        fractional_capacity_range: false,
        list_type_attributes: false,
        upstream_errors: false,
    };

    /// Every gate on.
    pub const ALL: Self = Self {
        admin_access: true,
        prioritized_list: true,
        partitionable_devices: true,
        device_taints: true,
        binding_conditions: true,
        consumable_capacity: true,
        fractional_capacity_range: true,
        list_type_attributes: true,
        upstream_errors: false,
    };

    /// Enables the feature with this gate name. Returns `false` for an unknown name.
    pub fn enable(&mut self, name: &str) -> bool {
        let flag = match name {
            "DRAAdminAccess" => &mut self.admin_access,
            "DRAPrioritizedList" => &mut self.prioritized_list,
            "DRAPartitionableDevices" => &mut self.partitionable_devices,
            "DRADeviceTaints" => &mut self.device_taints,
            "DRADeviceBindingConditions"
            | "DRADeviceBindingConditions+DRAResourceClaimDeviceStatus" => {
                &mut self.binding_conditions
            }
            "DRAConsumableCapacity" => &mut self.consumable_capacity,
            "DRAFractionalCapacityRange" => &mut self.fractional_capacity_range,
            "DRAListTypeAttributes" => &mut self.list_type_attributes,
            _ => return false,
        };
        *flag = true;
        true
    }
}

impl Default for Features {
    /// The defaults of Kubernetes 1.36: everything that is GA or beta there.
    fn default() -> Self {
        Self {
            fractional_capacity_range: false,
            list_type_attributes: false,
            ..Self::ALL
        }
    }
}
