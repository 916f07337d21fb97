//! All policies and webhooks at one moment, compiled.

use std::collections::BTreeMap;
use std::sync::Arc;

use allot_store::{Entry, ListOptions};
use serde_json::Value;

use super::backend::GROUP;
use super::definition::{Binding, Definition};
use super::mutator::Mutator;
use super::policy::Policy;
use super::webhook::{Configuration, Webhook};
use crate::admission::Admission;
use crate::error::Result;

const VALIDATING: &str = "validatingwebhookconfigurations";
const MUTATING: &str = "mutatingwebhookconfigurations";

/// Policies with their bindings.
pub(super) type Bound<P> = Vec<(Arc<P>, Vec<Binding>)>;

/// The configured policies and webhooks.
#[derive(Default)]
pub(super) struct Set {
    /// Policies that are bound, by name, with their bindings.
    pub policies: Bound<Policy>,
    /// The mutating policies.
    pub mutators: Bound<Mutator>,
    /// Webhooks that may refuse.
    pub validating: Vec<Arc<Configuration>>,
    /// Webhooks that may change the object, too.
    pub mutating: Vec<Arc<Configuration>>,
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
        Ok(Set {
            policies: policies.await?,
            mutators: mutators.await?,
            validating: configurations(core, VALIDATING, &before.validating).await?,
            mutating: configurations(core, MUTATING, &before.mutating).await?,
        })
    }

    /// The webhooks in the order of their calls, with the names of their configurations.
    pub fn webhooks(
        configurations: &[Arc<Configuration>],
    ) -> impl Iterator<Item = (&str, &Webhook)> {
        configurations.iter().flat_map(|configuration| {
            let webhooks = configuration.webhooks.iter();
            webhooks.map(|webhook| (configuration.name.as_str(), webhook))
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

/// The policies of a kind that have bindings; unchanged ones are not compiled again.
async fn bound<P>(
    core: &Admission,
    kind: &str,
    before: &Bound<P>,
    definition: fn(&P) -> &Definition,
    compile: fn(&Value, u64) -> P,
) -> Result<Bound<P>> {
    let mut bindings: BTreeMap<String, Vec<Binding>> = BTreeMap::new();
    for (_, object) in read(core, &format!("{kind}admissionpolicybindings")).await? {
        let binding = Binding::of(&object);
        let of_policy = bindings.entry(binding.policy.clone()).or_default();
        of_policy.push(binding);
    }
    let mut policies = Vec::new();
    for (entry, object) in read(core, &format!("{kind}admissionpolicies")).await? {
        let Some(bindings) = bindings.remove(&*entry.key) else {
            continue;
        };
        let mut known = before.iter().map(|(policy, _)| policy);
        let known = known.find(|policy| {
            let definition = definition(policy);
            definition.name == *entry.key && definition.revision == entry.revision
        });
        let policy = known.cloned();
        let policy = policy.unwrap_or_else(|| Arc::new(compile(&object, entry.revision)));
        policies.push((policy, bindings));
    }
    Ok(policies)
}

/// The configurations of a resource; unchanged ones keep their connections.
async fn configurations(
    core: &Admission,
    plural: &str,
    before: &[Arc<Configuration>],
) -> Result<Vec<Arc<Configuration>>> {
    let all = read(core, plural)
        .await?
        .into_iter()
        .map(|(entry, object)| {
            let mut known = before.iter();
            let known = known.find(|it| it.name == *entry.key && it.revision == entry.revision);
            known
                .cloned()
                .unwrap_or_else(|| Arc::new(Configuration::of(&object, entry.revision)))
        });
    Ok(all.filter(|it| !it.webhooks.is_empty()).collect())
}

/// All objects of a resource by name.
async fn read(core: &Admission, plural: &str) -> Result<Vec<(Arc<Entry>, Value)>> {
    let collection = format!("{GROUP}/{plural}");
    let page = core
        .backend
        .list(&collection, ListOptions::default())
        .await?;
    let entries = page.entries.into_iter().filter_map(|entry| {
        // What the store holds was written by this server as JSON.
        let object = serde_json::from_slice(&entry.value).ok()?;
        Some((entry, object))
    });
    Ok(entries.collect())
}
