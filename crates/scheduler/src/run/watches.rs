//! The watches of a scheduler: which kinds the API server has, and what becomes an input of the core.

use std::time::Duration;

use allot_client::discovery::{Group, resource, resources};
use allot_reflector::{Collection, Observed, Readable as _, everything, reflect};
use k8s_openapi::api::core::v1::Pod;
use kube::api::DynamicObject;
use kube::core::ApiResource;
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::UnboundedSender;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Error;
use crate::classic::discovery::{self, Found};
use crate::classic::{self, Served};
use crate::core::Input;
use crate::observe::Observe;
use crate::pod::PodInfo;
use crate::podgroups::claims::PodGroup;
use crate::taint_rules::DeviceTaintRule;
use crate::watched::{self, Plain, Visitor, Watched};

/// Repeats discovery until it succeeds; `None` on shutdown.
pub(super) async fn discover(client: &Client, shutdown: &CancellationToken) -> Option<Found> {
    let mut pause = Duration::from_millis(50);
    loop {
        let found = tokio::select! {
            biased;
            () = shutdown.cancelled() => return None,
            found = discovery::discover(client) => found,
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
        found: &Found,
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
        match &found.classic {
            Some(classic) => {
                self.pods_with_source(unfinished);
                count += self.classic(classic);
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

    /// Pods of a server that may have the claims of a pod in their older form.
    fn pods_with_source(&self, fields: Option<&str>) {
        let resource = ApiResource::erase::<Pod>(&());
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        self.watch(api, fields, |o: Observed<DynamicObject>| {
            o.filter_map(|object| {
                let mut value = serde_json::to_value(object).ok()?;
                allot_model::migrate::pod::flatten_claims(&mut value);
                let pod = Pod::read(&value.to_string(), everything).ok()?;
                Some(PodInfo::observed(pod).into())
            })
            .map(Input::Pod)
        });
    }

    /// Starts the watches of the classic kinds. Returns their number.
    fn classic(&self, served: &Served) -> usize {
        use classic::Input as C;
        let mut count = 2;
        self.dynamic(
            served.resource("ResourceClass", "resourceclasses"),
            C::Class,
        );
        self.dynamic(served.scheduling(), C::Scheduling);
        if served.structured {
            self.dynamic(served.resource("ResourceSlice", "resourceslices"), C::Slice);
            let parameters = served.resource("ResourceClaimParameters", "resourceclaimparameters");
            self.dynamic(parameters, C::ClaimParameters);
            let parameters = served.resource("ResourceClassParameters", "resourceclassparameters");
            self.dynamic(parameters, C::ClassParameters);
            count += 3;
        }
        if served.alone {
            // Otherwise the watch of the newer claims shows these too.
            self.dynamic(served.claims(), C::Claim);
            count += 1;
        }
        count
    }

    fn dynamic<T>(&self, resource: ApiResource, input: fn(Observed<T>) -> classic::Input)
    where
        T: DeserializeOwned + 'static,
    {
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        self.watch(api, None, move |o: Observed<DynamicObject>| {
            o.filter_map(|object| {
                let (kind, name) = (object.types.clone(), object.metadata.name.clone());
                serde_json::to_value(object)
                    .and_then(serde_json::from_value)
                    .inspect_err(|error| tracing::warn!(?kind, ?name, %error, "cannot read"))
                    .ok()
            })
            .map(|o| Input::Classic(Box::new(input(o))))
        });
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
