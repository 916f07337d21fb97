//! Drivers of modelled hardware: they publish what the real driver would, and prepare claims without doing anything.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use allot_apimachinery::Quantity;
use allot_driver::{
    Boot, Claim, ContainerEdits, DeviceMetadata, Driver, Failure, KUBELET_TIMEOUT, Plugin, Pool,
    Prepared, PreparedClaim, PreparedDevice, Resources, Slice,
};
use allot_hardware::{Model, Prepare};
use anyhow::Context as _;
use k8s_openapi::api::resource::v1::{Device, DeviceAttribute, DeviceRequestAllocationResult};
use kube::Client;
use tokio_util::sync::CancellationToken;

use self::cpus::Cpus;

mod cpus;

/// One driver of a node's hardware.
pub struct Modelled {
    driver: String,
    slices: Vec<Slice>,
    prepare: Prepare,
    /// How long to wait for the kubelet's directory at the start.
    pub kubelet_timeout: Duration,
}

impl Modelled {
    /// The driver of a model on a node, of which `index` others with the same hardware come before it.
    pub fn new(model: &Model, driver: &str, node: &str, index: usize) -> anyhow::Result<Self> {
        let expanded = model.expand(node, index)?;
        let mut slices = Vec::new();
        for slice in expanded
            .slices
            .into_iter()
            .filter(|slice| slice.driver == driver)
        {
            let typed = |values, what| {
                serde_json::from_value(serde_json::Value::Array(values))
                    .with_context(|| format!("{what} of {}", model.name))
            };
            slices.push(Slice {
                devices: typed(slice.devices, "devices")?,
                shared_counters: serde_json::from_value(slice.counters.into())
                    .with_context(|| format!("counters of {}", model.name))?,
                ..Slice::default()
            });
        }
        Ok(Self {
            driver: driver.to_owned(),
            slices,
            prepare: model.prepare(driver).cloned().unwrap_or_default(),
            kubelet_timeout: KUBELET_TIMEOUT,
        })
    }

    /// Runs until `stop`. Devices fail as `allot hardware fail` says.
    pub async fn run(
        self,
        client: Client,
        node: &str,
        kubelet_dir: &Path,
        cdi_dir: &Path,
        stop: CancellationToken,
    ) -> anyhow::Result<()> {
        let devices = self.slices.iter().flat_map(|slice| &slice.devices);
        let devices = devices
            .map(|device| (device.name.clone(), device.clone()))
            .collect();
        let environment = self.prepare.set.iter();
        let environment = environment
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let devices = Devices {
            driver: self.driver.clone(),
            devices,
            cpus: self.prepare.cpus.clone().map(Cpus::new),
            prepare: self.prepare,
        };
        let builder = Plugin::builder(&self.driver, devices)
            .client(client)
            .node_name(node)
            .kubelet_dir(kubelet_dir)
            .cdi_dir(cdi_dir)
            .cdi_kind(format!("{}/device", self.driver))
            .device_metadata(true)
            .injected_failures(true)
            .cdi_common(ContainerEdits {
                env: environment,
                ..ContainerEdits::default()
            })
            .kubelet_timeout(self.kubelet_timeout);
        let plugin = tokio::select! {
            started = builder.start() => started?,
            () = stop.cancelled() => return Ok(()),
        };
        let pool = Pool {
            slices: self.slices,
            ..Pool::default()
        };
        plugin.publish(Resources::pool(node, pool))?;
        Ok(plugin.wait_until(stop.cancelled()).await?)
    }
}

/// Devices that exist as attributes and environment variables only.
#[derive(Debug)]
struct Devices {
    driver: String,
    devices: BTreeMap<String, Device>,
    /// How devices are prepared: the variables of each device and request.
    prepare: Prepare,
    cpus: Option<Cpus>,
}

impl Devices {
    /// What an environment variable says about a device.
    fn value(&self, device: &str, attribute: &str) -> String {
        let attributes = self.devices.get(device).and_then(|d| d.attributes.as_ref());
        let found = attributes.and_then(|attributes| attributes.get(attribute));
        match found {
            Some(DeviceAttribute {
                string: Some(text), ..
            })
            | Some(DeviceAttribute {
                version: Some(text),
                ..
            }) => text.clone(),
            Some(DeviceAttribute {
                int: Some(number), ..
            }) => number.to_string(),
            Some(DeviceAttribute {
                bool: Some(flag), ..
            }) => flag.to_string(),
            _ => device.to_owned(),
        }
    }

    /// The name of a variable for a device: attributes in braces are replaced by their values.
    fn variable(&self, name: &str, device: &str) -> String {
        let mut parts = name.split('{');
        let mut all = parts.next().unwrap_or_default().to_owned();
        for (attribute, rest) in parts.filter_map(|part| part.split_once('}')) {
            let value = self.value(device, attribute);
            let value = value.chars().map(|c| match c.is_ascii_alphanumeric() {
                true => c.to_ascii_uppercase(),
                false => '_',
            });
            all.extend(value);
            all += rest;
        }
        all
    }

    /// The variables with the amounts that a claim consumes of a device: whole numbers in digits, so that programs need
    /// not know the notation of quantities.
    fn consumed(&self, result: &DeviceRequestAllocationResult) -> impl Iterator<Item = String> {
        self.prepare.consumed.iter().filter_map(|(name, capacity)| {
            let amount = &result.consumed_capacity.as_ref()?.get(capacity)?.0;
            let number = amount.parse::<Quantity>().ok().and_then(|it| it.as_i64());
            let amount = number.map_or_else(|| amount.clone(), |number| number.to_string());
            Some(format!("{}={amount}", self.variable(name, &result.device)))
        })
    }
}

impl Driver for Devices {
    async fn prepare(&self, claim: &Claim) -> Result<Prepared, Failure> {
        let mut results = Vec::new();
        for result in claim.results(&self.driver) {
            let device = self.devices.get(&result.device);
            let device = device
                .ok_or_else(|| format!("requested device is not allocatable: {}", result.device))?;
            for parameters in claim.configs(&self.driver, result) {
                self.prepare.accepts(parameters)?;
            }
            results.push((device, result));
        }
        let uid = &claim.reference().uid;
        let cpus = match &self.cpus {
            Some(cpus) => Some((cpus, cpus.take(uid, results.iter().copied())?)),
            None => None,
        };
        let mut prepared = Vec::new();
        for (device, result) in &results {
            let same = results
                .iter()
                .filter(|(_, other)| other.request == result.request);
            let names: Vec<&str> = same.map(|(_, other)| other.device.as_str()).collect();
            let env = self.prepare.env.iter().map(|(name, attribute)| {
                if name.contains('{') {
                    let value = self.value(&result.device, attribute);
                    return format!("{}={value}", self.variable(name, &result.device));
                }
                let values = names.iter().map(|device| self.value(device, attribute));
                format!("{name}={}", values.collect::<Vec<_>>().join(","))
            });
            let of_claim = cpus.iter().map(|(all, own)| all.variable(uid, own));
            let edits = ContainerEdits {
                env: env.chain(of_claim).chain(self.consumed(result)).collect(),
                ..Default::default()
            };
            let metadata = DeviceMetadata {
                attributes: device.attributes.clone().unwrap_or_default(),
                ..Default::default()
            };
            prepared.push(
                PreparedDevice::from_result(result)
                    .edits(edits)
                    .metadata(metadata),
            );
        }
        let prepared = Prepared::from(prepared);
        match &cpus {
            Some((_, own)) => prepared.with_state(own),
            None => Ok(prepared),
        }
    }

    async fn unprepare(&self, claim: &PreparedClaim) -> Result<(), Failure> {
        if let Some(cpus) = &self.cpus {
            cpus.release(&claim.reference().uid);
        }
        Ok(())
    }

    async fn restore(&self, claims: &[PreparedClaim], _: Boot) -> Result<(), Failure> {
        match &self.cpus {
            Some(cpus) => cpus.restore(claims),
            None => Ok(()),
        }
    }
}
