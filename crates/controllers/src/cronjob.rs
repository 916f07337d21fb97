//! CronJobs: Jobs at times given by a schedule.

mod schedule;

use std::sync::Arc;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::CronJob;
use kube::Api;
use kube::api::PropagationPolicy;
use serde_json::{Value, json};

use crate::Error;
use crate::controller::api::{self, Delete};
use crate::controller::clock::{Clock, rfc3339, shifted, until};
use crate::controller::context::{Context, Task};
use crate::controller::events::{Level, Recorder, reference};
use crate::controller::informer::{Informer, Key, key, key_of};
use crate::controller::meta;
use crate::controller::queue::{Next, Queue};
use crate::controller::whole::Whole;
use crate::job::Object as Job;
use crate::workload::{BY_CONTROLLER, controller_uid, write_status};

use allot_apimachinery::cron::Schedule;
use schedule::last_between;

type Object = Whole<CronJob>;

/// Annotation of a job: its scheduled time.
const SCHEDULED_AT: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";
/// Number of missed times from which a warning is logged.
const MANY: i64 = 100;

struct CronJobs {
    client: kube::Client,
    clock: Clock,
    events: Recorder,
    crons: Informer<Object>,
    jobs: Informer<Job>,
    queue: Queue<Key>,
}

/// Sets the controller up.
pub(crate) fn build(context: &Context) -> Task {
    let this = Arc::new(CronJobs {
        client: context.client.clone(),
        clock: context.clock.clone(),
        events: context.events.component("cronjob-controller"),
        crons: context.informer::<Object>(),
        jobs: context.informer::<Job>(),
        queue: context.queue("cronjob"),
    });
    this.jobs.index(BY_CONTROLLER, controller_uid);
    let queue = this.queue.clone();
    this.crons
        .on(move |change| queue.add(key_of(&**change.object())));
    let queue = this.queue.clone();
    this.jobs.on(move |change| {
        let job = change.object();
        if let Some(owner) = meta::controller_of(&job.metadata)
            && owner.kind == "CronJob"
        {
            queue.add(key(Some(meta::namespace(&**job)), &owner.name));
        }
    });
    let queue = this.queue.clone();
    context.run_workers(
        queue,
        this,
        |this, key| async move { this.sync(&key).await },
    )
}

/// Whether the job is over, and whether it succeeded.
fn outcome(job: &Job) -> Option<bool> {
    let conditions = job
        .status
        .iter()
        .flat_map(|s| s.conditions.iter().flatten());
    conditions
        .filter(|c| c.status == "True")
        .find_map(|c| match c.type_.as_str() {
            "Complete" => Some(true),
            "Failed" => Some(false),
            _ => None,
        })
}

impl CronJobs {
    fn warn(&self, cron: &Object, reason: &str, message: String) {
        self.events
            .event(reference(&**cron), Level::Warning, reason, message);
    }

    fn record_event(&self, cron: &Object, reason: &str, message: String) {
        self.events
            .event(reference(&**cron), Level::Normal, reason, message);
    }

    async fn sync(&self, key: &str) -> Result<Next, Error> {
        let Some(cron) = self.crons.get(key) else {
            return Ok(Next::Done);
        };
        let mut status = cron.at("/status").clone();
        let mut jobs = self.jobs.by_index(BY_CONTROLLER, meta::uid(&*cron));
        if let Some(at) = last_success(&jobs) {
            let known = status["lastSuccessfulTime"]
                .as_str()
                .and_then(|t| t.parse::<Timestamp>().ok());
            if known.is_none_or(|k| k < at) {
                status["lastSuccessfulTime"] = json!(rfc3339(at));
            }
        }
        let gone = self.clean_up(&cron, &mut jobs).await?;
        self.record_job_events(&cron, &jobs, &gone);
        let mut next = Next::Done;
        if !meta::deleting(&*cron) {
            next = self.schedule(&cron, &mut jobs, &mut status).await?;
        }
        let active: Vec<Value> = jobs
            .iter()
            .filter(|j| outcome(j).is_none())
            .map(|j| {
                json!({
                    "apiVersion": "batch/v1", "kind": "Job", "namespace": meta::namespace(&**j),
                    "name": meta::name(&**j), "uid": meta::uid(&**j),
                    "resourceVersion": j.metadata.resource_version,
                })
            })
            .collect();
        let names = |v: &Value| -> Vec<String> {
            let list = v.as_array().into_iter().flatten();
            list.filter_map(|r| r["uid"].as_str().map(str::to_owned))
                .collect()
        };
        if names(&status["active"]) != names(&json!(active)) {
            status["active"] = if active.is_empty() {
                Value::Null
            } else {
                json!(active)
            };
        }
        let Some(cron) = self.crons.get(key) else {
            return Ok(Next::Done);
        };
        if !status.is_null() {
            let api: Api<Object> = Api::namespaced(self.client.clone(), meta::namespace(&*cron));
            write_status(&api, &self.crons, &*cron, cron.at("/status"), status).await?;
        }
        Ok(next)
    }

    /// Starts the job of the latest start time that was missed, if its policy permits it. Returns when to look again.
    async fn schedule(
        &self,
        cron: &Object,
        jobs: &mut Vec<Arc<Job>>,
        status: &mut Value,
    ) -> Result<Next, Error> {
        let spec = &cron.spec;
        let now = self.clock.now();
        let Some(zone) = self.time_zone_of(cron) else {
            return Ok(Next::Done);
        };
        if spec.suspend == Some(true) {
            return Ok(Next::Done);
        }
        let Some(schedule) = self.schedule_of(cron) else {
            return Ok(Next::Done);
        };
        let upcoming = schedule.next_after(now, &zone);
        let wait = upcoming.map_or(Next::Done, |at| Next::After(until(now, at)));
        let last = status["lastScheduleTime"]
            .as_str()
            .and_then(|t| t.parse::<Timestamp>().ok());
        let created = cron
            .metadata
            .creation_timestamp
            .as_ref()
            .map_or(now, |t| t.0);
        let mut since = last.unwrap_or(created);
        let deadline = spec
            .starting_deadline_seconds
            .map(SignedDuration::from_secs);
        if let Some(deadline) = deadline {
            since = since.max(shifted(now, -deadline));
        }
        let Some(first) = schedule.next_after(since, &zone) else {
            let why = "time difference between two schedules is less than 1 second";
            let message = format!("invalid schedule: {} : {why}", spec.schedule);
            self.warn(cron, "InvalidSchedule", message);
            return Ok(Next::Done);
        };
        let Some(due) = last_between(&schedule, since, now, &zone) else {
            return Ok(wait);
        };
        if schedule.next_after(first, &zone).is_some_and(|second| {
            // Estimated from the distance of the first two.
            let distance = second.duration_since(first).as_secs().max(1);
            now.duration_since(first).as_secs() / distance >= MANY
        }) {
            let what = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
            self.warn(cron, "TooManyMissedTimes", what.to_owned());
        }
        let name = format!("{}-{}", meta::name(cron), due.as_second() / 60);
        if jobs.iter().any(|j| meta::name(&**j) == name) {
            status["lastScheduleTime"] = json!(rfc3339(due));
            return Ok(wait);
        }
        let running: Vec<Arc<Job>> = jobs
            .iter()
            .filter(|j| outcome(j).is_none())
            .cloned()
            .collect();
        match spec.concurrency_policy.as_deref() {
            Some("Forbid") if !running.is_empty() => {
                self.record_event(cron, "JobAlreadyActive", "Not starting job because prior execution is running and concurrency policy is Forbid".to_owned());
                return Ok(wait);
            }
            Some("Replace") => {
                for job in running {
                    self.delete(cron, &job).await?;
                    jobs.retain(|j| meta::uid(&**j) != meta::uid(&*job));
                }
            }
            _ => {}
        }
        let scheduled = scheduled_at(due, spec.time_zone.as_deref(), &zone);
        if !self.start_job(cron, &name, &scheduled, jobs).await? {
            return Ok(Next::Done);
        }
        status["lastScheduleTime"] = json!(rfc3339(due));
        Ok(wait)
    }

    /// The time zone of the schedule; records an event if it is unknown.
    fn time_zone_of(&self, cron: &Object) -> Option<TimeZone> {
        let Some(name) = cron.spec.time_zone.as_deref() else {
            return Some(TimeZone::system());
        };
        let zone = TimeZone::get(name).map_err(|error| {
            let message = format!("invalid timeZone: {name:?}: {error}");
            self.warn(cron, "UnknownTimeZone", message);
        });
        zone.ok()
    }

    /// The parsed schedule; records an event if it is invalid.
    fn schedule_of(&self, cron: &Object) -> Option<Schedule> {
        let text = &cron.spec.schedule;
        let schedule: Result<Schedule, _> = text.parse();
        let schedule = schedule.map_err(|error| {
            let message = format!("unparseable schedule: {text:?} : {error}");
            self.warn(cron, "UnparseableSchedule", message);
        });
        schedule.ok()
    }

    /// Creates the job of a start time and adds it to `jobs`. Returns false if the namespace is being deleted.
    async fn start_job(
        &self,
        cron: &Object,
        name: &str,
        scheduled: &str,
        jobs: &mut Vec<Arc<Job>>,
    ) -> Result<bool, Error> {
        let body = new_job(cron, name, scheduled);
        let api: Api<Job> = Api::namespaced(self.client.clone(), meta::namespace(cron));
        match api::create(&self.client, &api, &body).await {
            Ok(job) => {
                self.record_event(cron, "SuccessfulCreate", format!("Created job {name}"));
                self.jobs.assume(job.clone());
                jobs.push(Arc::new(job));
            }
            // Created before a restart; the informer will show it.
            Err(error) if error.is_already_exists() => {}
            Err(error) if error.is_namespace_terminating() => return Ok(false),
            Err(error) => {
                self.warn(cron, "FailedCreate", format!("Error creating job: {error}"));
                return Err(error);
            }
        }
        Ok(true)
    }

    async fn delete(&self, cron: &Object, job: &Arc<Job>) -> Result<(), Error> {
        let api: Api<Job> = Api::namespaced(self.client.clone(), meta::namespace(cron));
        let options = Delete {
            propagation: Some(PropagationPolicy::Background),
            ..Delete::default()
        };
        api::delete_cached(&self.jobs, &api, &**job, options).await?;
        self.record_event(
            cron,
            "SuccessfulDelete",
            format!("Deleted job {}", meta::name(&**job)),
        );
        Ok(())
    }

    /// Deletes the oldest finished jobs beyond the history limits; their UIDs.
    async fn clean_up(
        &self,
        cron: &Object,
        jobs: &mut Vec<Arc<Job>>,
    ) -> Result<Vec<String>, Error> {
        let mut gone = Vec::new();
        let spec = &cron.spec;
        let limits = [
            (true, spec.successful_jobs_history_limit.unwrap_or(3)),
            (false, spec.failed_jobs_history_limit.unwrap_or(1)),
        ];
        for (succeeded, limit) in limits {
            let mut old: Vec<Arc<Job>> = jobs
                .iter()
                .filter(|j| outcome(j) == Some(succeeded))
                .cloned()
                .collect();
            old.sort_by_key(|j| {
                let start = j.status.as_ref().and_then(|s| s.start_time.clone());
                (start, j.metadata.name.clone())
            });
            let surplus = old
                .len()
                .saturating_sub(usize::try_from(limit).unwrap_or(usize::MAX));
            for job in old.into_iter().take(surplus) {
                self.delete(cron, &job).await?;
                gone.push(meta::uid(&*job).to_owned());
                jobs.retain(|j| meta::uid(&**j) != meta::uid(&*job));
            }
        }
        Ok(gone)
    }

    /// Records events for jobs that finished or disappeared since the status was written, and for unexpected ones.
    /// `gone` are the UIDs of jobs that were just deleted.
    fn record_job_events(&self, cron: &Object, jobs: &[Arc<Job>], gone: &[String]) {
        let active = cron.at("/status/active").as_array();
        let active: Vec<(&str, &str)> = (active.into_iter().flatten())
            .filter_map(|job| Some((job["uid"].as_str()?, job["name"].as_str()?)))
            .collect();
        for job in jobs {
            let name = meta::name(&**job);
            let known = active.iter().any(|(uid, _)| *uid == meta::uid(&**job));
            match outcome(job) {
                Some(success) if known => {
                    let condition = if success { "Complete" } else { "Failed" };
                    let message = format!("Saw completed job: {name}, condition: {condition}");
                    self.record_event(cron, "SawCompletedJob", message);
                }
                None if !known && !meta::deleting(&**job) => {
                    let message =
                        format!("Saw a job that the controller did not create or forgot: {name}");
                    self.warn(cron, "UnexpectedJob", message);
                }
                _ => {}
            }
        }
        for (uid, name) in active {
            let there = jobs.iter().any(|job| meta::uid(&**job) == uid);
            if !there && !gone.iter().any(|g| g == uid) {
                self.record_event(
                    cron,
                    "MissingJob",
                    format!("Active job went missing: {name}"),
                );
            }
        }
    }
}

/// When a job of them was completed last.
fn last_success(jobs: &[Arc<Job>]) -> Option<Timestamp> {
    let done = jobs.iter().filter(|job| outcome(job) == Some(true));
    done.filter_map(|job| job.status.as_ref()?.completion_time.as_ref().map(|t| t.0))
        .max()
}

/// A time as the annotation writes it: in the zone of the schedule, if it names one.
fn scheduled_at(at: Timestamp, named: Option<&str>, zone: &TimeZone) -> String {
    let zoned = at.to_zoned(zone.clone());
    match named {
        Some(_) if !zoned.offset().is_zero() => zoned.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string(),
        _ => rfc3339(at),
    }
}

fn new_job(cron: &Object, name: &str, at: &str) -> Value {
    let template = cron.at("/spec/jobTemplate");
    let mut annotations = template["metadata"]["annotations"].clone();
    if !annotations.is_object() {
        annotations = json!({});
    }
    annotations[SCHEDULED_AT] = json!(at);
    let mut metadata = json!({
        "name": name,
        "namespace": meta::namespace(cron),
        "annotations": annotations,
        "ownerReferences": [meta::controller_ref(&**cron)],
    });
    if template["metadata"]["labels"].is_object() {
        metadata["labels"] = template["metadata"]["labels"].clone();
    }
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": template["spec"],
    })
}
