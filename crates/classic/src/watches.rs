//! The watches of the classic kinds.

use allot_framework::claim_plugin::{Sink, Watch};
use allot_reflector::{Collection, Observed, reflect};
use kube::api::DynamicObject;
use kube::core::ApiResource;
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use crate::discovery::Served;
use crate::message::Input;

/// A watch of each kind that the server has.
pub(crate) fn all(client: &Client, served: &Served, shutdown: &CancellationToken) -> Vec<Watch> {
    let watches = Watches { client, shutdown };
    let mut all = vec![
        watches.of(
            served.resource("ResourceClass", "resourceclasses"),
            Input::Class,
        ),
        watches.of(served.scheduling(), Input::Scheduling),
    ];
    if served.structured {
        let slices = served.resource("ResourceSlice", "resourceslices");
        let claims = served.resource("ResourceClaimParameters", "resourceclaimparameters");
        let classes = served.resource("ResourceClassParameters", "resourceclassparameters");
        all.push(watches.of(slices, Input::Slice));
        all.push(watches.of(claims, Input::ClaimParameters));
        all.push(watches.of(classes, Input::ClassParameters));
    }
    if served.alone {
        // Otherwise the watch of the newer claims shows these too.
        all.push(watches.of(served.claims(), Input::Claim));
    }
    all
}

struct Watches<'a> {
    client: &'a Client,
    shutdown: &'a CancellationToken,
}

impl Watches<'_> {
    /// A watch of one kind. Objects that cannot be read are logged and left out.
    fn of<T>(&self, resource: ApiResource, input: fn(Observed<T>) -> Input) -> Watch
    where
        T: DeserializeOwned + 'static,
    {
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let (of, shutdown) = (Collection::new(api, None), self.shutdown.clone());
        Box::new(move |sink: Sink| {
            let sink = move |observed: Observed<DynamicObject>| {
                let observed = observed.filter_map(read);
                observed.is_none_or(|observed| sink(Box::new(input(observed))))
            };
            Box::pin(reflect(of, keep, shutdown, sink))
        })
    }
}

fn read<T: DeserializeOwned>(object: DynamicObject) -> Option<T> {
    let (kind, name) = (object.types.clone(), object.metadata.name.clone());
    serde_json::to_value(object)
        .and_then(serde_json::from_value)
        .inspect_err(|error| tracing::warn!(?kind, ?name, %error, "cannot read"))
        .ok()
}

/// Nothing reads `managedFields`.
fn keep(of: &str, field: &str) -> bool {
    of != "ObjectMeta" || field != "managedFields"
}
