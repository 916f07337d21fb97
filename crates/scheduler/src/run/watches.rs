//! The watches of a scheduler: which kinds the API server has, and what becomes an input of the core.

use std::sync::Arc;
use std::time::Duration;

use allot_client::discovery::{Group, resource, resources};
use allot_framework::claim_plugin::{Extension, Message, Sink};
use allot_model::GROUP;
use allot_reflector::{Collection, Observed, Readable as _, everything, reflect};
use k8s_openapi::api::core::v1::Pod;
use kube::api::DynamicObject;
use kube::core::ApiResource;
use kube::{Api, Client};
use tokio::sync::mpsc::UnboundedSender;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{Error, claim_plugins};
use crate::core::Input;
use crate::observe::Observe;
use crate::pod::PodInfo;
use crate::podgroups::claims::PodGroup;
use crate::taint_rules::DeviceTaintRule;
use crate::watched::{self, Plain, Visitor, Watched};

/// What a server has of the group `resource.k8s.io`.
#[derive(Default)]
pub(super) struct Found {
    /// The kinds since 1.34.
    pub(super) v1: bool,
    /// Those of another generation, with the plugin for them.
    pub(super) extension: Option<Extension>,
}

async fn discover_once(
    client: &Client,
    shutdown: &CancellationToken,
) -> Result<Found, kube::Error> {
    let group = Group::discover(client, GROUP).await?;
    if group == Group::default() {
        return Ok(Found::default());
    }
    let v1 = group.has("v1") || reaches_v1(client).await?;
    let extension = claim_plugins::discover(client, &group, v1, shutdown).await?;
    if !v1 && extension.is_none() {
        tracing::warn!(
            "the API server has {GROUP} in no version that this build knows: pods with claims stay pending"
        );
    }
    Ok(Found { v1, extension })
}

/// Whether v1 can be used although discovery does not list it: the embedded server allows that to its own components.
async fn reaches_v1(client: &Client) -> Result<bool, kube::Error> {
    match resources(client, &format!("{GROUP}/v1")).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Repeats discovery until it succeeds; `None` on shutdown.
pub(super) async fn discover(client: &Client, shutdown: &CancellationToken) -> Option<Found> {
    let mut pause = Duration::from_millis(50);
    loop {
        let found = tokio::select! {
            biased;
            () = shutdown.cancelled() => return None,
            found = discover_once(client, shutdown) => found,
        };
        match found {
            Ok(found) => return Some(found),
            Err(error) => tracing::warn!(%error, ?pause, "cannot discover the API"),
        }
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return None,
            () = tokio::time::sleep(pause) => {}
        }
        pause = (pause * 2).min(Duration::from_secs(5));
    }
}

/// The newest version in which the server has a kind.
pub(super) async fn find(client: &Client, wanted: &Watched) -> Result<Option<ApiResource>, Error> {
    let group = Group::discover(client, wanted.group)
        .await
        .map_err(Error::Discovery)?;
    for version in wanted.versions.iter().filter(|v| group.has(v)) {
        let resource = resource(wanted.group, version, wanted.kind, wanted.plural);
        let served = resources(client, &resource.api_version)
            .await
            .map_err(Error::Discovery)?;
        if served.contains(&resource.plural) {
            return Ok(Some(resource));
        }
    }
    tracing::warn!(
        kind = wanted.kind,
        "a feature is on whose kind the API server does not have"
    );
    Ok(None)
}

/// Starts the watches; each sends what it observes as inputs.
pub(super) struct Watches {
    pub(super) client: Client,
    pub(super) sender: UnboundedSender<Input>,
    pub(super) tasks: TaskTracker,
    pub(super) shutdown: CancellationToken,
}

impl Watches {
    /// Starts all watches. Returns how many lists must arrive before the first pod is tried.
    pub(super) fn start(
        &self,
        found: &mut Found,
        rules: Option<ApiResource>,
        groups: Option<ApiResource>,
    ) -> usize {
        // Finished pods use no resources and are never scheduled.
        let unfinished = Some("status.phase!=Succeeded,status.phase!=Failed");
        let mut started = Started {
            watches: self,
            count: 1,
        };
        watched::everywhere(&mut started);
        if found.v1 {
            watched::of_devices(&mut started);
        }
        let mut count = started.count;
        match &mut found.extension {
            Some(extension) => {
                self.converted_pods(unfinished, extension.convert_pod);
                count += self.extension(extension);
            }
            None => self.watch(Api::all(self.client.clone()), unfinished, |o| {
                Some(Input::Pod(o.map(|pod| PodInfo::observed(pod).into())))
            }),
        }
        if let Some(resource) = rules {
            self.read(&resource, DeviceTaintRule::read, Input::TaintRule);
            count += 1;
        }
        if let Some(resource) = groups {
            self.read(&resource, PodGroup::read, Input::PodGroup);
            count += 1;
        }
        count
    }

    /// A kind of which only a part is read.
    fn read<T: 'static>(
        &self,
        resource: &ApiResource,
        read: fn(&DynamicObject) -> Option<T>,
        input: fn(Observed<T>) -> Input,
    ) {
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), resource);
        self.watch(api, None, move |o: Observed<DynamicObject>| {
            o.filter_map(|object| read(&object)).map(input)
        });
    }

    /// Pods of a server that may have them in another form than the newest release.
    fn converted_pods(&self, fields: Option<&str>, convert: fn(&mut serde_json::Value)) {
        let resource = ApiResource::erase::<Pod>(&());
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        self.watch(api, fields, move |o: Observed<DynamicObject>| {
            o.filter_map(|object| {
                let mut value = serde_json::to_value(object).ok()?;
                convert(&mut value);
                let pod = Pod::read(&value.to_string(), everything).ok()?;
                Some(PodInfo::observed(pod).into())
            })
            .map(Input::Pod)
        });
    }

    /// Starts the watches of a plugin. Returns their number.
    fn extension(&self, extension: &mut Extension) -> usize {
        let sender = self.sender.clone();
        let send =
            move |message: Box<dyn Message>| sender.send(Input::ClaimPlugin(message)).is_ok();
        let sink: Sink = Arc::new(send);
        let watches = std::mem::take(&mut extension.watches);
        let count = watches.len();
        for watch in watches {
            self.tasks.spawn(watch(sink.clone()));
        }
        count
    }

    fn watch<K: Observe>(
        &self,
        api: Api<K>,
        fields: Option<&str>,
        input: impl Fn(Observed<K>) -> Option<Input> + Send + Sync + 'static,
    ) {
        self.follow::<K>(Collection::new(api, fields), input);
    }

    fn follow<K: Observe>(
        &self,
        of: Collection,
        input: impl Fn(Observed<K>) -> Option<Input> + Send + Sync + 'static,
    ) {
        let sender = self.sender.clone();
        let sink = move |observed| input(observed).is_none_or(|input| sender.send(input).is_ok());
        self.tasks
            .spawn(reflect::<K, _>(of, K::keep, self.shutdown.clone(), sink));
    }
}

/// Starts a watch of each kind.
struct Started<'a> {
    watches: &'a Watches,
    count: usize,
}

impl Visitor for Started<'_> {
    fn visit<K: Plain>(&mut self, input: fn(Observed<K>) -> Input) {
        let api: Api<K> = Api::all(self.watches.client.clone());
        let of = Collection::new(api, None);
        let of = match K::OPTIONAL {
            true => of.optional(),
            false => of,
        };
        self.watches.follow(of, move |o| Some(input(o)));
        self.count += 1;
    }
}
