//! Which driver runs, and what must exist in the API server before it starts.

use allot_driver::classic::ClassicVersion;
use allot_hardware::Fleet;
use anyhow::{Context, bail, ensure};
use k8s_openapi::api::resource::v1::DeviceClass;
use kube::api::PostParams;
use kube::{Api, Client};

use super::{Args, Driver, children};
use crate::gpus;

/// The class of the example driver's devices, as in `examples/`.
const DEVICE_CLASS: &str = include_str!("../../../../examples/deviceclass.yaml");

/// Checks that flags of a driver are given together with that driver.
///
/// # Errors
/// A message with the flag that is missing.
pub(super) fn check_flags(args: &Args, hardware: bool) -> anyhow::Result<()> {
    ensure!(
        args.drivername.is_none() || args.driver == Some(Driver::Test),
        "--drivername is the name of the test driver: give --driver test as well"
    );
    let gpu = match args.driver {
        // The GPU driver is the default where no hardware is modelled.
        None => !args.no_driver && !hardware,
        Some(driver) => driver == Driver::Gpu,
    };
    ensure!(
        gpu || args.gpus == gpus::Flags::default(),
        "--num-devices, --gpu-partitions, --gpu-allow-multiple-allocations, --binding-conditions and \
         --gpu-device-status are for the GPU driver: give --driver gpu as well"
    );
    Ok(())
}

/// The requested driver, or else the one for the kinds that the API server serves, unless hardware is modelled; creates
/// the objects it needs.
pub(super) async fn choose(
    client: &Client,
    args: &Args,
    hardware: Option<Fleet>,
) -> anyhow::Result<(Option<children::Driver>, Option<Fleet>)> {
    let asked = !args.hardware.is_empty();
    let hardware = match hardware {
        Some(_) if serves_devices(client).await? => hardware,
        Some(_) if asked => bail!(
            "this release does not serve the kinds that modelled hardware needs; pass --dra, with --emulated-version \
             1.31 or newer"
        ),
        _ => None,
    };
    if let Some(fleet) = &hardware {
        super::hardware::create_classes(client, fleet).await?;
    }
    let driver = match args.driver {
        _ if args.no_driver => Driver::None,
        Some(Driver::Gpu) if !serves_devices(client).await? => bail!(
            "this release does not serve the kinds that the GPU driver needs; pass --dra, with --emulated-version \
             1.31 or newer"
        ),
        Some(driver) => driver,
        // Modelled hardware has its own drivers.
        None if hardware.is_some() => Driver::None,
        None if serves_devices(client).await? => Driver::Gpu,
        None => {
            tracing::warn!(
                "the GPU driver is not started: this release does not serve the kinds it needs unless asked to, \
                 see --dra"
            );
            Driver::None
        }
    };
    let driver = match driver {
        Driver::None => None,
        Driver::Gpu => {
            create_device_class(client).await?;
            Some(children::Driver::Gpu(args.gpus.clone()))
        }
        Driver::Test => {
            let name = args.drivername.as_deref();
            let name = name.unwrap_or(allot_driver_test::DRIVER_NAME);
            Some(test_driver(client, name.to_owned()).await?)
        }
        Driver::Net => Some(net_driver(client).await?),
    };
    Ok((driver, hardware))
}

/// Whether the API server has the kinds that the example driver needs.
///
/// Releases before 1.31 do not serve devices, and until 1.34 only if enabled.
async fn serves_devices(client: &Client) -> anyhow::Result<bool> {
    match client.list_api_group_resources("resource.k8s.io/v1").await {
        Ok(_) => Ok(true),
        // The answer is plain text, so only its code is conclusive.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
        Err(error) => Err(error).context("cannot ask the API server what it serves"),
    }
}

/// Instances per node of the test driver with allocation by the scheduler (1.30).
const INSTANCES: usize = 8;

/// The test driver, for the classic kinds that the API server has.
async fn test_driver(client: &Client, name: String) -> anyhow::Result<children::Driver> {
    let version = allot_driver::classic::discover(client)
        .await
        .context("cannot ask the API server what it serves")?
        .context("the test driver needs the classic kinds; pass --dra, with --emulated-version 1.26 to 1.30 or none")?;
    let kinds = client
        .list_api_group_resources(&version.claims().api_version)
        .await?;
    let structured = kinds
        .resources
        .iter()
        .any(|kind| kind.name == "resourceslices");
    let instances = if structured { INSTANCES } else { 0 };
    Ok(children::Driver::Test { name, instances })
}

/// The network driver for the API that the server offers. Its kinds are created first, so that clients can use them.
async fn net_driver(client: &Client) -> anyhow::Result<children::Driver> {
    let version = allot_driver::classic::discover(client)
        .await
        .context("cannot ask the API server what it serves")?;
    if version != Some(ClassicVersion::V1alpha2) && serves_devices(client).await? {
        allot_driver_net::install_v1(client)
            .await
            .context("cannot install what the network driver needs")?;
        return Ok(children::Driver::Interfaces);
    }
    ensure!(
        version == Some(ClassicVersion::V1alpha2),
        "the network drivers need resource.k8s.io/v1 or v1alpha2; pass --dra, with --emulated-version 1.27 or newer, or none"
    );
    allot_driver_net::install(client)
        .await
        .context("cannot install the kinds of the network driver")?;
    Ok(children::Driver::Net)
}

/// Creates the example driver's class unless it exists.
async fn create_device_class(client: &Client) -> anyhow::Result<()> {
    let class: DeviceClass = serde_saphyr::from_str(DEVICE_CLASS)?;
    let created = Api::all(client.clone())
        .create(&PostParams::default(), &class)
        .await;
    match created {
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        other => other
            .map(|_| ())
            .context("cannot create the example driver's device class"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_class_selects_the_example_driver() {
        let class: DeviceClass = serde_saphyr::from_str(DEVICE_CLASS).expect("YAML");
        assert_eq!(class.metadata.name.as_deref(), Some("gpu.example.com"));
    }
}
