//! Which driver runs, and what must exist in the API server before it starts.

use allot_driver::classic::ClassicVersion;
use allot_hardware::Fleet;
use allot_node::is_refused_by_admission;
use anyhow::{Context, bail, ensure};
use k8s_openapi::api::resource::v1::DeviceClass;
use kube::api::PostParams;
use kube::{Api, Client, Resource, ResourceExt as _};

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
        unless_refused(allot_driver_net::install_v1(client).await, "network driver")
            .context("cannot install what the network driver needs")?;
        return Ok(children::Driver::Interfaces);
    }
    ensure!(
        version == Some(ClassicVersion::V1alpha2),
        "the network drivers need resource.k8s.io/v1 or v1alpha2; pass --dra, with --emulated-version 1.27 or newer, or none"
    );
    unless_refused(allot_driver_net::install(client).await, "network driver")
        .context("cannot install the kinds of the network driver")?;
    Ok(children::Driver::Net)
}

/// Creates the example driver's class unless it exists.
async fn create_device_class(client: &Client) -> anyhow::Result<()> {
    let class: DeviceClass = serde_saphyr::from_str(DEVICE_CLASS)?;
    create_missing(&Api::all(client.clone()), &class)
        .await
        .context("cannot create the example driver's device class")
}

/// Creates an object unless it is there. A webhook, a policy or a priority level that refuses it does not keep the cluster
/// from starting: only a cluster that runs lets users correct them.
///
/// # Errors
/// The object is invalid.
pub(super) async fn create_missing<K>(api: &Api<K>, object: &K) -> Result<(), kube::Error>
where
    K: Clone + std::fmt::Debug + Resource + serde::Serialize + serde::de::DeserializeOwned,
{
    let name = object.name_any();
    let created = async {
        // A webhook refuses to create also what is there.
        if api.get_opt(&name).await?.is_none() {
            api.create(&PostParams::default(), object).await?;
        }
        Ok::<_, kube::Error>(())
    };
    unless_refused(created.await, &name)
}

/// Lets the cluster start although the API server refuses an object, unless the object is invalid.
fn unless_refused(result: Result<(), kube::Error>, what: &str) -> Result<(), kube::Error> {
    match result {
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        Err(kube::Error::Api(status))
            if !status.is_invalid() || is_refused_by_admission(&status) =>
        {
            let why = status.message;
            tracing::error!(what, why, "an object of the cluster is refused");
            Ok(())
        }
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use allot_apiserver::Server;
    use allot_apiserver::identity::User;
    use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;

    use super::*;

    /// The cluster ended at its start, and only a cluster that runs can delete the webhook.
    #[tokio::test]
    async fn regression_a_webhook_that_refuses_the_class_does_not_keep_the_cluster_from_starting() {
        let server = Server::in_memory().await.expect("a server");
        let client = Client::new(server.client_service(User::admin()), "default");
        let hooks = Api::<ValidatingWebhookConfiguration>::all(client.clone());
        let refuses: ValidatingWebhookConfiguration = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "refuses"},
            "webhooks": [{
                "name": "refuses.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
                "clientConfig": {"service": {"namespace": "default", "name": "none"}},
                "rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "operations": ["*"]}],
            }],
        }))
        .expect("a configuration");
        let created = hooks.create(&PostParams::default(), &refuses).await;
        created.expect("the configuration");
        let classes = Api::<DeviceClass>::all(client.clone());
        let count = async || {
            let list = classes.list(&Default::default()).await;
            list.expect("a list").items.len()
        };
        create_device_class(&client).await.expect("no error");
        assert_eq!(count().await, 0);
        let deleted = hooks.delete("refuses", &Default::default()).await;
        assert!(deleted.is_ok(), "{deleted:?}");
        create_device_class(&client).await.expect("the class");
        assert_eq!(count().await, 1);
        let mut wrong: DeviceClass = serde_saphyr::from_str(DEVICE_CLASS).expect("YAML");
        wrong.metadata.name = Some("Wrong".to_owned());
        let refused = create_missing(&classes, &wrong).await;
        assert!(matches!(refused, Err(kube::Error::Api(status)) if status.is_invalid()));
    }

    #[test]
    fn the_example_class_selects_the_example_driver() {
        let class: DeviceClass = serde_saphyr::from_str(DEVICE_CLASS).expect("YAML");
        assert_eq!(class.metadata.name.as_deref(), Some("gpu.example.com"));
    }
}
