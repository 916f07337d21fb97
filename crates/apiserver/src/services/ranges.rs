//! The ranges that services get addresses from: those of the ServiceCIDRs.

use std::sync::Arc;
use std::time::Duration;

use allot_store::{Entry, Expect, ListOptions, Write};
use serde_json::{Value, json};

use super::CIDRS;
use crate::config::ServiceRange;
use crate::error::Result;
use crate::object::{self, strings, text};
use crate::own_objects::{self, ensure};
use crate::state::ServerState;
use crate::storage;

/// The ServiceCIDR of the server's own ranges.
const DEFAULT: &str = "kubernetes";

/// The namespace of events about objects that have none.
const NAMESPACE: &str = "default";
/// The name under which the server tells about it.
const CONTROLLER: &str = "kubernetes-service-cidr-controller";

/// How often it is looked for, as by kube-apiserver: it is made again if it was deleted.
const SYNC_EVERY: Duration = Duration::from_secs(10);

/// The ranges that are in use, the server's own first; a range that is about to be deleted gives no addresses any more.
pub(super) async fn current(core: &ServerState) -> Result<Vec<ServiceRange>> {
    let page = core.backend.list(CIDRS, ListOptions::default()).await?;
    let own: Vec<ServiceRange> = core.config.service_addresses.ranges().collect();
    let mut ranges = Vec::new();
    if page.entries.iter().all(|entry| &*entry.key != DEFAULT) {
        ranges.extend(&own);
    }
    let ready = page.entries.iter().map(|it| stored(it));
    ranges.extend(ready.filter(is_ready).flat_map(|it| of(&it)));
    ranges.sort_by_key(|range| !own.contains(range));
    ranges.dedup();
    Ok(ranges)
}

/// The ranges of all ServiceCIDRs, whether they give addresses or not.
pub(super) async fn all(core: &ServerState) -> Result<Vec<ServiceRange>> {
    let page = core.backend.list(CIDRS, ListOptions::default()).await?;
    Ok(page.entries.iter().flat_map(|it| of(&stored(it))).collect())
}

fn stored(entry: &Entry) -> Value {
    // What the store holds was written by this server as JSON.
    serde_json::from_slice(&entry.value).unwrap_or_default()
}

/// The ranges of a ServiceCIDR. One that is too large gives no addresses, as for kube-apiserver.
fn of(cidr: &Value) -> Vec<ServiceRange> {
    let networks = strings(&cidr["spec"]["cidrs"]);
    networks.iter().filter_map(|it| it.parse().ok()).collect()
}

/// The condition Ready of a ServiceCIDR.
fn ready(cidr: &Value) -> Option<&Value> {
    let conditions = cidr["status"]["conditions"].as_array()?;
    conditions.iter().find(|it| it["type"] == "Ready")
}

/// Whether a ServiceCIDR gives addresses. One without a condition does: its controller may not run.
fn is_ready(cidr: &Value) -> bool {
    cidr["metadata"]["deletionTimestamp"].is_null()
        && ready(cidr).is_none_or(|it| it["status"] == "True")
}

/// Makes the ServiceCIDR of the server's own ranges, or brings it up to date: one of a single family gets the second. Other
/// ranges stay as they are, for their addresses are in use; an administrator replaces them. What is wrong is reported in events, each
/// of them once.
pub(super) async fn sync_default(core: &ServerState, told: &mut Told) -> Result<()> {
    let ranges = core.config.service_addresses.ranges();
    let wanted: Vec<String> = ranges.map(|it| it.to_string()).collect();
    let Some(entry) = core.backend.get(CIDRS, DEFAULT).await? else {
        let applied = own_objects::applied_condition(
            "networking.k8s.io/v1",
            CONTROLLER,
            "Ready",
            &["lastTransitionTime", "message", "status", "type"],
        );
        let cidr = json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR",
            "metadata": {"name": DEFAULT, "managedFields": [applied]},
            "spec": {"cidrs": wanted}, "status": {"conditions": [readiness()]},
        });
        return ensure(&*core.backend, CIDRS, DEFAULT, cidr, own_objects::SERVER).await;
    };
    let old = stored(&entry);
    let known = strings(&old["spec"]["cidrs"]);
    let mut new = old.clone();
    if wanted.len() == 2 && known.len() == 1 && known[0] == wanted[0] {
        new["spec"]["cidrs"] = json!(wanted);
    } else if !old["metadata"]["deletionTimestamp"].is_null() {
        // The controller that removes it has the say.
    } else if known != wanted {
        if !std::mem::replace(&mut told.mismatch, true) {
            let (known, wanted) = (known.join(" "), wanted.join(" "));
            let why = format!(
                "The default ServiceCIDR [{known}] does not match the controller flag configurations [{wanted}]"
            );
            warn(
                core,
                &entry,
                "KubernetesDefaultServiceCIDRInconsistent",
                &why,
            )
            .await?;
        }
    } else if let Some(condition) = ready(&old).filter(|it| it["status"] == "False") {
        if !std::mem::replace(&mut told.not_ready, true) {
            let [reason, message] = ["reason", "message"].map(|key| text(condition, &[key]));
            let why = format!("Configuration matches, but {message}");
            warn(core, &entry, reason, &why).await?;
        }
    } else if ready(&old).is_none_or(|it| it["status"] != "True") {
        new["status"]["conditions"] = with_readiness(&old);
    }
    if new != old {
        let expect = Expect::Revision(entry.revision);
        let write = Write::put(CIDRS, DEFAULT, expect, storage::draft(&new));
        core.backend.commit(write).await?;
    }
    Ok(())
}

/// What has been told in events.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// It has other ranges than the server.
    mismatch: bool,
    /// It is not ready.
    not_ready: bool,
}

/// Writes an event about the default ServiceCIDR.
async fn warn(core: &ServerState, cidr: &Entry, reason: &str, message: &str) -> Result<()> {
    tracing::warn!(reason, "{message}");
    let (now, old) = (jiff::Timestamp::now(), stored(cidr));
    let name = format!("{DEFAULT}.{:x}", now.as_nanosecond());
    let seconds = object::now();
    let event = json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "involvedObject": {
            "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "name": DEFAULT,
            "uid": old["metadata"]["uid"], "resourceVersion": cidr.revision.to_string(),
        },
        "type": "Warning", "reason": reason, "message": message, "count": 1,
        "firstTimestamp": seconds, "lastTimestamp": seconds, "eventTime": null,
        "source": {"component": CONTROLLER},
        "reportingComponent": CONTROLLER, "reportingInstance": "",
    });
    let key = format!("{NAMESPACE}/{name}");
    ensure(&*core.backend, "events", key, event, own_objects::SERVER).await
}

/// The conditions of a ServiceCIDR, which is ready.
fn with_readiness(cidr: &Value) -> Value {
    let conditions = cidr["status"]["conditions"].as_array();
    let others = conditions.into_iter().flatten();
    let others = others.filter(|it| it["type"] != "Ready").cloned();
    others.chain([readiness()]).collect()
}

fn readiness() -> Value {
    json!({
        "type": "Ready", "status": "True", "lastTransitionTime": object::now(), "reason": "",
        "message": "Kubernetes default Service CIDR is ready",
    })
}

/// Keeps the ServiceCIDR of the server's own ranges until the server stops.
pub(super) fn keep_default(core: Arc<ServerState>, mut told: Told) {
    tokio::spawn(async move {
        while core.pause(SYNC_EVERY).await {
            if let Err(error) = sync_default(&core, &mut told).await {
                tracing::warn!(error = %error.0.message, "the default ServiceCIDR is not kept");
            }
        }
    });
}
