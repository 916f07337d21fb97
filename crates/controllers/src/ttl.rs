//! Deletes finished Jobs when their `ttlSecondsAfterFinished` has passed.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use kube::Api;
use kube::api::PropagationPolicy;

use crate::Error;
use crate::controller::api::{self, Delete};
use crate::controller::clock::{Clock, shifted, until};
use crate::controller::context::{Context, Task};
use crate::controller::informer::{Informer, Key, key_of};
use crate::controller::meta;
use crate::controller::queue::{Next, Queue};
use crate::job::Object;

struct Ttl {
    client: kube::Client,
    clock: Clock,
    jobs: Informer<Object>,
}

/// Sets the controller up.
pub(crate) fn build(context: &Context) -> Task {
    let this = Arc::new(Ttl {
        client: context.client.clone(),
        clock: context.clock.clone(),
        jobs: context.informer::<Object>(),
    });
    let queue: Queue<Key> = context.queue("ttl_jobs_to_delete");
    let adds = queue.clone();
    this.jobs.on(move |change| {
        if !change.is_delete() && expires(change.object()).is_some() {
            adds.add(key_of(&**change.object()));
        }
    });
    context.run_workers(
        queue,
        this,
        |this, key| async move { this.sync(&key).await },
    )
}

/// When the job is to be deleted; `None` if it is not finished or has no time to live.
fn expires(job: &Job) -> Option<Timestamp> {
    let ttl = job.spec.as_ref()?.ttl_seconds_after_finished?;
    if meta::deleting(job) {
        return None;
    }
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    let done = conditions
        .iter()
        .find(|c| c.status == "True" && matches!(c.type_.as_str(), "Complete" | "Failed"))?;
    let done = done.last_transition_time.as_ref()?.0;
    Some(shifted(done, SignedDuration::from_secs(i64::from(ttl))))
}

impl Ttl {
    async fn sync(&self, key: &str) -> Result<Next, Error> {
        let Some(job) = self.jobs.get(key) else {
            return Ok(Next::Done);
        };
        let Some(at) = expires(&job) else {
            return Ok(Next::Done);
        };
        let now = self.clock.now();
        if at > now {
            return Ok(Next::After(until(now, at)));
        }
        let api: Api<Object> = Api::namespaced(self.client.clone(), meta::namespace(&*job));
        // The time to live may have been changed: delete only the state that was judged.
        let options = Delete {
            propagation: Some(PropagationPolicy::Foreground),
            resource_version: job.metadata.resource_version.clone(),
            ..Delete::default()
        };
        api::delete(&api, meta::name(&*job), meta::uid(&*job), options).await?;
        Ok(Next::Done)
    }
}
