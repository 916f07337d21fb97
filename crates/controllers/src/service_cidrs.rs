//! ServiceCIDRs say that they are ready, and are kept while services have addresses of them alone.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use jiff::Timestamp;
use k8s_openapi::api::networking::v1::{IPAddress, ServiceCIDR};
use kube::{Api, Client};
use serde_json::json;

use crate::Error;
use crate::controller::api::{self, Part};
use crate::controller::clock::{Clock, rfc3339};
use crate::controller::context::{Context, Task};
use crate::controller::informer::{Informer, Key, key_of};
use crate::controller::meta;
use crate::controller::queue::{Next, Queue};
use crate::protection::{release, waits};

#[cfg(test)]
mod tests;

const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";
/// The label of addresses that API servers have given to services, and its value.
const MANAGED_BY: (&str, &str) = ("ipaddress.kubernetes.io/managed-by", "ipallocator.k8s.io");
/// API servers learn of a deletion with a delay, and may give addresses of the range until then.
const GRACE: Duration = Duration::from_secs(10);

/// What a ServiceCIDR says about itself.
struct Readiness {
    status: &'static str,
    reason: &'static str,
    message: &'static str,
}

const READY: Readiness = Readiness {
    status: "True",
    reason: "",
    message: "Kubernetes Service CIDR is ready",
};
const BLOCKED: Readiness = Readiness {
    status: "False",
    reason: "Terminating",
    message: "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR",
};

struct ServiceCidrs {
    client: Client,
    clock: Clock,
    cidrs: Informer<ServiceCIDR>,
    addresses: Informer<IPAddress>,
}

/// Sets the controller up.
pub(crate) fn build(context: &Context) -> Task {
    let this = Arc::new(ServiceCidrs {
        client: context.client.clone(),
        clock: context.clock.clone(),
        cidrs: context.informer::<ServiceCIDR>(),
        addresses: context.informer::<IPAddress>(),
    });
    let queue: Queue<Key> = context.queue("servicecidrs");
    let (cidrs, adds) = (this.cidrs.clone(), queue.clone());
    this.cidrs.on(move |change| {
        adds.add(key_of(&**change.object()));
        // Another range may have the addresses of those that are being deleted, or leaves them to them.
        for cidr in cidrs.list().iter().filter(|it| waits(&***it, FINALIZER)) {
            adds.add(key_of(&**cidr));
        }
    });
    let (cidrs, adds) = (this.cidrs.clone(), queue.clone());
    this.addresses.on(move |change| {
        if change.is_delete() {
            for cidr in cidrs.list().iter().filter(|it| waits(&***it, FINALIZER)) {
                adds.add(key_of(&**cidr));
            }
        }
    });
    context.run_workers(
        queue,
        this,
        |this, key| async move { this.sync(&key).await },
    )
}

impl ServiceCidrs {
    async fn sync(&self, name: &str) -> Result<Next, Error> {
        let Some(cidr) = self.cidrs.get(name) else {
            return Ok(Next::Done);
        };
        let api: Api<ServiceCIDR> = Api::all(self.client.clone());
        if meta::deleting(&*cidr) {
            if !waits(&*cidr, FINALIZER) {
                return Ok(Next::Done);
            }
            if is_needed(&cidr, &self.cidrs.list(), &self.addresses.list()) {
                // The end of an address, or another range, brings it back.
                return self.tell(&api, &cidr, &BLOCKED).await;
            }
            let left = grace_left(&cidr, self.clock.now());
            if !left.is_zero() {
                return Ok(Next::After(left));
            }
            return release(&api, &self.cidrs, &cidr, FINALIZER).await;
        }
        let mut finalizers = cidr.metadata.finalizers.clone().unwrap_or_default();
        if !finalizers.iter().any(|known| known == FINALIZER) {
            finalizers.push(FINALIZER.to_owned());
            let mut body = json!({"metadata": api::unchanged(&*cidr)});
            body["metadata"]["finalizers"] = json!(finalizers);
            // Its change brings it back.
            return self.write(&api, &cidr, Part::Main, body).await;
        }
        self.tell(&api, &cidr, &READY).await
    }

    /// Sets the condition Ready, if it is another one.
    async fn tell(
        &self,
        api: &Api<ServiceCIDR>,
        cidr: &ServiceCIDR,
        readiness: &Readiness,
    ) -> Result<Next, Error> {
        let Readiness {
            status,
            reason,
            message,
        } = *readiness;
        if says(cidr, readiness) {
            return Ok(Next::Done);
        }
        let condition = json!({
            "type": "Ready", "status": status, "reason": reason, "message": message,
            "lastTransitionTime": rfc3339(self.clock.now()),
        });
        let mut body = json!({"metadata": api::unchanged(cidr)});
        body["status"]["conditions"] = json!([condition]);
        self.write(api, cidr, Part::Status, body).await
    }

    async fn write(
        &self,
        api: &Api<ServiceCIDR>,
        cidr: &ServiceCIDR,
        part: Part,
        body: serde_json::Value,
    ) -> Result<Next, Error> {
        match api::patch_strategic(api, meta::name(cidr), part, &body).await {
            Ok(changed) => self.cidrs.assume(changed),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
        Ok(Next::Done)
    }
}

/// Whether the condition Ready is already that one.
fn says(cidr: &ServiceCIDR, readiness: &Readiness) -> bool {
    let conditions = cidr.status.as_ref().and_then(|it| it.conditions.as_ref());
    let mut known = conditions.into_iter().flatten();
    known.any(|it| {
        it.type_ == "Ready"
            && it.status == readiness.status
            && it.reason == readiness.reason
            && it.message == readiness.message
    })
}

/// For how long a range that was deleted is kept in any case.
fn grace_left(cidr: &ServiceCIDR, now: Timestamp) -> Duration {
    let Some(deleted) = &cidr.metadata.deletion_timestamp else {
        return GRACE;
    };
    let since = Duration::try_from(now.duration_since(deleted.0)).unwrap_or_default();
    GRACE.saturating_sub(since)
}

/// Whether services have addresses of the range that no other one has. Ranges that are being deleted as well do not count:
/// each would leave the addresses to the other.
fn is_needed(cidr: &ServiceCIDR, all: &[Arc<ServiceCIDR>], addresses: &[Arc<IPAddress>]) -> bool {
    let others = all.iter().filter(|it| !meta::deleting(&***it));
    let others: Vec<IpNet> = others.flat_map(|it| networks(it)).collect();
    let own = networks(cidr);
    addresses.iter().filter_map(|it| given(it)).any(|address| {
        own.iter().any(|network| network.contains(&address))
            && !others.iter().any(|network| network.contains(&address))
    })
}

/// The address of an object, if an API server has given it to a service.
fn given(address: &IPAddress) -> Option<IpAddr> {
    let labels = address.metadata.labels.as_ref()?;
    let is_given = labels
        .get(MANAGED_BY.0)
        .is_some_and(|it| it == MANAGED_BY.1);
    is_given.then(|| meta::name(address).parse().ok()).flatten()
}

fn networks(cidr: &ServiceCIDR) -> Vec<IpNet> {
    let cidrs = cidr
        .spec
        .iter()
        .flat_map(|spec| spec.cidrs.iter().flatten());
    cidrs.filter_map(|network| network.parse().ok()).collect()
}
