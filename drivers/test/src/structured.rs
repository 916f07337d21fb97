//! Structured parameters (1.30) for claims whose parameters are custom resources: the scheduler allocates those of
//! classes that say so, by what is generated here.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use allot_driver::classic::{
    Claim, ClaimParameters, Class, ClassicVersion, DriverRequests, ResourceRequest, Selector,
    generate_claim_parameters,
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

/// Group and kind.
type Kind = (String, String);

/// Generates parameters for every custom resource of a kind that some claim of a structured class of this driver
/// refers to. Never ends; nothing happens where the API server has no such parameters.
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
                if let Some(kind) = kind_of(&claim, &classes, &driver_name).await {
                    kinds.entry(kind).or_insert(false);
                }
            }
            () = tokio::time::sleep(RETRY), if waiting => {}
        }
        for ((group, name), found) in kinds.iter_mut().filter(|(_, found)| !**found) {
            if let Some(kind) = find(&client, group, name).await {
                *found = true;
                tracing::info!(group, kind = name, "generating parameters");
                tasks.spawn(one_kind(
                    client.clone(),
                    driver_name.clone(),
                    kind,
                    shutdown.clone(),
                ));
            }
        }
    }
}

/// The kind of the claim's parameters, if they have to be converted.
async fn kind_of(claim: &Claim, classes: &Api<DynamicObject>, driver: &str) -> Option<Kind> {
    let reference = claim.parameters()?;
    let group = reference.api_group;
    if group.is_empty() || group == "resource.k8s.io" {
        return None;
    }
    let class = classes.get_opt(claim.class_name()).await.ok()??;
    let class = Class::from(std::sync::Arc::new(class));
    let ours = class.is_structured() && class.driver_name() == driver;
    ours.then_some((group, reference.kind))
}

async fn find(client: &Client, group: &str, kind: &str) -> Option<ApiResource> {
    let group = discovery::group(client, group).await.ok()?;
    group.recommended_kind(kind).map(|(kind, _)| kind)
}

async fn one_kind(client: Client, driver: String, kind: ApiResource, shutdown: CancellationToken) {
    let convert = |object: &DynamicObject| {
        let any = Selector {
            selector: "true".into(),
        };
        let request = ResourceRequest {
            named_resources: Some(any),
            ..ResourceRequest::default()
        };
        Ok(ClaimParameters {
            driver_requests: vec![DriverRequests {
                driver_name: driver.clone(),
                vendor_parameters: json!(flat(&object.data["spec"])),
                requests: vec![request],
            }],
            ..ClaimParameters::default()
        })
    };
    generate_claim_parameters(client, &driver, kind, convert, shutdown).await;
}
