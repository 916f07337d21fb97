//! All policies and webhooks at one moment, compiled.

use std::collections::BTreeMap;
use std::sync::Arc;

use allot_store::ListOptions;
use serde_json::Value;

use super::backend::GROUP;
use super::definition::{Binding, Definition};
use super::manifests::Objects;
use super::mutator::Mutator;
use super::policy::Policy;
use super::request::Request;
use super::webhook::{Configuration, Webhook};
use crate::admission::Admission;
use crate::config::Credentials;
use crate::error::Result;
use crate::object::meta;

const VALIDATING: &str = "validatingwebhookconfigurations";
const MUTATING: &str = "mutatingwebhookconfigurations";

/// A policy with its bindings.
pub(super) type Bound<P> = (Arc<P>, Vec<Binding>);

/// Policies or webhooks: those from files, and after them those in the API.
pub(super) struct Layers<T> {
    all: Vec<T>,
    /// How many are from files.
    fixed: usize,
}

impl<T> Default for Layers<T> {
    fn default() -> Self {
        Layers {
            all: Vec::new(),
            fixed: 0,
        }
    }
}

impl<T> Layers<T> {
    fn new(mut fixed: Vec<T>, of_api: Vec<T>) -> Self {
        let count = fixed.len();
        fixed.extend(of_api);
        Layers {
            all: fixed,
            fixed: count,
        }
    }

    fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Those that apply to a request: only those from files if the ones in the API do not.
    pub fn of_request<'a>(
        &self,
        request: &Request<'a>,
        is_exempt: fn(&Request<'a>) -> bool,
    ) -> &[T] {
        match is_exempt(request) {
            true => &self.all[..self.fixed],
            false => &self.all,
        }
    }
}

/// The configured policies and webhooks.
#[derive(Default)]
pub(super) struct Set {
    /// Policies that are bound, by name, with their bindings.
    pub policies: Layers<Bound<Policy>>,
    /// The mutating policies.
    pub mutators: Layers<Bound<Mutator>>,
    /// Webhooks that may refuse.
    pub validating: Layers<Arc<Configuration>>,
    /// Webhooks that may change the object, too.
    pub mutating: Layers<Arc<Configuration>>,
}

impl Set {
    /// Reads the store; what has not changed since `before` is taken over as it is.
    pub async fn load(core: &Admission, before: &Set) -> Result<Self> {
        let known = &before.policies;
        let policies = bound(
            core,
            "validating",
            known,
            |it| &it.definition,
            Policy::compile,
        );
        let known = &before.mutators;
        let mutators = bound(
            core,
            "mutating",
            known,
            |it| &it.definition,
            Mutator::compile,
        );
        let options = &core.config.admission;
        let validating = &options.validating_webhooks.credentials;
        let mutating = &options.mutating_webhooks.credentials;
        Ok(Set {
            policies: policies.await?,
            mutators: mutators.await?,
            validating: configurations(core, VALIDATING, &before.validating, validating).await?,
            mutating: configurations(core, MUTATING, &before.mutating, mutating).await?,
        })
    }

    /// No policy or webhook is configured.
    pub fn is_empty(&self) -> bool {
        self.policies.is_empty()
            && self.mutators.is_empty()
            && self.validating.is_empty()
            && self.mutating.is_empty()
    }
}

/// The webhooks in the order of their calls, with the names of their configurations.
pub(super) fn webhooks(
    configurations: &[Arc<Configuration>],
) -> impl Iterator<Item = (&str, &Webhook)> {
    configurations.iter().flat_map(|configuration| {
        let webhooks = configuration.webhooks.iter();
        webhooks.map(|webhook| (configuration.name.as_str(), webhook))
    })
}

/// The policies of a kind that have bindings; unchanged ones are not compiled again.
async fn bound<P>(
    core: &Admission,
    kind: &str,
    before: &Layers<Bound<P>>,
    definition: fn(&P) -> &Definition,
    compile: fn(&Value, u64) -> P,
) -> Result<Layers<Bound<P>>> {
    let (bindings, policies) = (
        format!("{kind}admissionpolicybindings"),
        format!("{kind}admissionpolicies"),
    );
    let join = |bindings: Objects, policies: Objects| {
        let mut by_policy: BTreeMap<String, Vec<Binding>> = BTreeMap::new();
        for (object, _) in &bindings {
            let binding = Binding::of(object);
            let of_policy = by_policy.entry(binding.policy.clone()).or_default();
            of_policy.push(binding);
        }
        let mut joined = Vec::new();
        for (object, revision) in &policies {
            let name = meta(object, "name");
            let Some(bindings) = by_policy.remove(name) else {
                continue;
            };
            let mut known = before.all.iter().map(|(policy, _)| policy);
            let known = known.find(|policy| {
                let definition = definition(policy);
                definition.name == name && definition.revision == *revision
            });
            let policy = known.cloned();
            let policy = policy.unwrap_or_else(|| Arc::new(compile(object, *revision)));
            joined.push((policy, bindings));
        }
        joined
    };
    let fixed = join(fixed(core, &bindings), fixed(core, &policies));
    let of_api = join(read(core, &bindings).await?, read(core, &policies).await?);
    Ok(Layers::new(fixed, of_api))
}

/// The configurations of a resource; unchanged ones keep their connections.
async fn configurations(
    core: &Admission,
    plural: &str,
    before: &Layers<Arc<Configuration>>,
    credentials: &Credentials,
) -> Result<Layers<Arc<Configuration>>> {
    let made = |objects: Objects| -> Vec<Arc<Configuration>> {
        let all = objects.iter().map(|(object, revision)| {
            let mut known = before.all.iter();
            let name = meta(object, "name");
            let known = known.find(|it| it.name == name && it.revision == *revision);
            known.cloned().unwrap_or_else(|| {
                let configuration = Configuration::of(object, *revision, credentials);
                Arc::new(configuration)
            })
        });
        all.filter(|it| !it.webhooks.is_empty()).collect()
    };
    let fixed = made(fixed(core, plural));
    Ok(Layers::new(fixed, made(read(core, plural).await?)))
}

/// The objects of a resource from files.
fn fixed(core: &Admission, plural: &str) -> Objects {
    let manifests = core.dynamic.manifests.lock();
    manifests.get(plural).cloned().unwrap_or_default()
}

/// All objects of a resource in the API by name.
async fn read(core: &Admission, plural: &str) -> Result<Objects> {
    let collection = format!("{GROUP}/{plural}");
    let page = core
        .backend
        .list(&collection, ListOptions::default())
        .await?;
    let entries = page.entries.into_iter().filter_map(|entry| {
        // What the store holds was written by this server as JSON.
        let object = serde_json::from_slice(&entry.value).ok()?;
        Some((object, entry.revision))
    });
    Ok(entries.collect())
}
