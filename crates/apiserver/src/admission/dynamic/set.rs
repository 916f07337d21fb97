//! All policies and webhooks at one moment, compiled.

use std::collections::BTreeMap;
use std::sync::Arc;

use allot_store::{Entry, ListOptions};
use serde_json::Value;

use super::backend::GROUP;
use super::policy::{Binding, Policy};
use crate::error::Result;
use crate::server::Core;

/// What is installed.
#[derive(Default)]
pub(super) struct Set {
    /// Policies that are bound, by name, with their bindings.
    pub policies: Vec<(Arc<Policy>, Vec<Binding>)>,
}

impl Set {
    /// Reads the store; what has not changed since `before` is taken over as it is.
    pub async fn load(core: &Core, before: &Set) -> Result<Self> {
        let mut bindings: BTreeMap<String, Vec<Binding>> = BTreeMap::new();
        for (_, object) in read(core, "validatingadmissionpolicybindings").await? {
            let binding = Binding::of(&object);
            bindings
                .entry(binding.policy.clone())
                .or_default()
                .push(binding);
        }
        let mut policies = Vec::new();
        for (entry, object) in read(core, "validatingadmissionpolicies").await? {
            let Some(bindings) = bindings.remove(&*entry.key) else {
                continue;
            };
            let known = before.policies.iter().map(|(policy, _)| policy);
            let mut known =
                known.filter(|it| it.name == *entry.key && it.revision == entry.revision);
            let policy = known
                .next()
                .cloned()
                .unwrap_or_else(|| Arc::new(Policy::compile(&object, entry.revision)));
            policies.push((policy, bindings));
        }
        Ok(Set { policies })
    }

    /// Nothing is installed that could have a say.
    pub fn is_empty(&self) -> bool {
        self.policies.is_empty()
    }
}

/// All objects of a resource by name.
async fn read(core: &Core, plural: &str) -> Result<Vec<(Arc<Entry>, Value)>> {
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
