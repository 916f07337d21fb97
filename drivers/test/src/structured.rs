//! Structured parameters (1.30) for claims and classes whose parameters are custom resources: the scheduler allocates
//! by what is generated here.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use allot_driver::classic::{
    Claim, ClaimParameters, Class, ClassParameters, ClassicVersion, DriverRequests,
    ParametersReference, ResourceRequest, Selector, VendorParameters, generate_parameters,
};
use kube::api::{ApiResource, DynamicObject};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, discovery};
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::parameters::flat;

/// How often kinds that were not there yet are looked for.
const RETRY: Duration = Duration::from_secs(1);

/// Whose parameters objects of a kind are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Of {
    Claims,
    Classes,
}

/// Group, kind, and what refers to it.
type Kind = (String, String, Of);

/// Generates parameters for every custom resource of a kind that some claim of a structured class of this driver, or
/// the class, refers to. Never ends; nothing happens where the API server has no such parameters.
pub(crate) async fn generate(
    client: Client,
    driver_name: String,
    shutdown: CancellationToken,
) -> Infallible {
    let version = ClassicVersion::V1alpha2;
    let generated = version.claim_parameters();
    let served = client
        .list_api_group_resources(&generated.api_version)
        .await;
    let served =
        served.is_ok_and(|list| list.resources.iter().any(|it| it.name == generated.plural));
    if !served {
        return std::future::pending().await;
    }
    let classes: Api<DynamicObject> = Api::all_with(client.clone(), &version.classes());
    let claims: Api<DynamicObject> = Api::all_with(client.clone(), &version.claims());
    let stream = watcher(claims, watcher::Config::default()).default_backoff();
    let mut stream = std::pin::pin!(stream);
    let mut tasks = JoinSet::new();
    // False: not found yet.
    let mut kinds: BTreeMap<Kind, bool> = BTreeMap::new();
    loop {
        let waiting = kinds.values().any(|found| !found);
        tokio::select! {
            Some(event) = futures::StreamExt::next(&mut stream) => {
                let (Ok(watcher::Event::Apply(claim)) | Ok(watcher::Event::InitApply(claim))) = event
                else {
                    continue;
                };
                let claim = Claim::from(std::sync::Arc::new(claim));
                for kind in kinds_of(&claim, &classes, &driver_name).await {
                    kinds.entry(kind).or_insert(false);
                }
            }
            () = tokio::time::sleep(RETRY), if waiting => {}
        }
        for ((group, name, of), found) in kinds.iter_mut().filter(|(_, found)| !**found) {
            if let Some(kind) = find(&client, group, name).await {
                *found = true;
                tracing::info!(group, kind = name, "generating parameters");
                tasks.spawn(one_kind(
                    client.clone(),
                    driver_name.clone(),
                    kind,
                    *of,
                    shutdown.clone(),
                ));
            }
        }
    }
}

/// The kinds of the claim's and its class's parameters, those that have to be converted.
async fn kinds_of(claim: &Claim, classes: &Api<DynamicObject>, driver: &str) -> Vec<Kind> {
    let Ok(Some(class)) = classes.get_opt(claim.class_name()).await else {
        return Vec::new();
    };
    let class = Class::from(std::sync::Arc::new(class));
    if !class.is_structured() || class.driver_name() != driver {
        return Vec::new();
    }
    let custom = |reference: Option<ParametersReference>, of| {
        let ParametersReference {
            api_group, kind, ..
        } = reference?;
        let custom = !api_group.is_empty() && api_group != "resource.k8s.io";
        custom.then_some((api_group, kind, of))
    };
    let kinds = [
        custom(claim.parameters(), Of::Claims),
        custom(class.parameters(), Of::Classes),
    ];
    kinds.into_iter().flatten().collect()
}

async fn find(client: &Client, group: &str, kind: &str) -> Option<ApiResource> {
    let group = discovery::group(client, group).await.ok()?;
    group.recommended_kind(kind).map(|(kind, _)| kind)
}

async fn one_kind(
    client: Client,
    driver: String,
    kind: ApiResource,
    of: Of,
    shutdown: CancellationToken,
) {
    match of {
        Of::Claims => {
            let convert = |object: &DynamicObject| Ok(claim_parameters(&driver, object));
            generate_parameters(client, &driver, kind, convert, shutdown).await;
        }
        Of::Classes => {
            let convert = |object: &DynamicObject| Ok(class_parameters(&driver, object));
            generate_parameters(client, &driver, kind, convert, shutdown).await;
        }
    }
}

/// Any instance, with the object's fields for the plugin.
fn claim_parameters(driver: &str, object: &DynamicObject) -> ClaimParameters {
    let any = Selector {
        selector: "true".into(),
    };
    let request = ResourceRequest {
        named_resources: Some(any),
        ..ResourceRequest::default()
    };
    ClaimParameters {
        driver_requests: vec![DriverRequests {
            driver_name: driver.to_owned(),
            vendor_parameters: json!(flat(&object.data["spec"])),
            requests: vec![request],
        }],
        ..ClaimParameters::default()
    }
}

/// The object's fields for the plugin.
fn class_parameters(driver: &str, object: &DynamicObject) -> ClassParameters {
    ClassParameters {
        vendor_parameters: vec![VendorParameters {
            driver_name: driver.to_owned(),
            parameters: json!(flat(&object.data["spec"])),
        }],
        ..ClassParameters::default()
    }
}
