//! DeviceTaintRules, for slices that the server does not accept with taints.

use std::sync::Arc;

use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::core::discovery::ApiResource;
use kube::{Api, Client};

use super::plan;
use crate::Error;
use crate::controller::api::{self, Delete};
use crate::controller::context::Context;
use crate::controller::informer::Informer;
use crate::controller::meta;
use crate::served::Served;
use crate::taints::Rule;

/// The rules of a server that has them.
pub(super) struct Rules {
    client: Client,
    resource: ApiResource,
    cache: Informer<Rule>,
}

impl Rules {
    pub(super) fn new(context: &Context, served: &Served) -> Option<Self> {
        let resource = served.taint_rules()?;
        Some(Self {
            client: context.client.clone(),
            cache: context.informer_with(&resource),
            resource,
        })
    }

    fn api(&self) -> Api<Rule> {
        Api::all_with(self.client.clone(), &self.resource)
    }

    fn of(&self, slice: &ResourceSlice) -> Option<Arc<Rule>> {
        let rule = self.cache.get(&plan::rule_name(meta::name(slice)))?;
        // A rule of that name with another owner is not changed.
        let owners = rule.metadata.owner_references.iter().flatten();
        let ours = owners.map(|o| &o.uid).any(|uid| uid == meta::uid(slice));
        ours.then_some(rule)
    }

    /// Creates the rule of a slice; returns whether it exists now.
    pub(super) async fn make(&self, slice: &ResourceSlice, now: &str) -> Result<bool, Error> {
        if self.of(slice).is_some() {
            return Ok(true);
        }
        let Some(rule) = plan::rule(slice, &self.resource.api_version, now) else {
            return Ok(false);
        };
        match api::create(&self.client, &self.api(), &rule).await {
            Ok(made) => {
                self.cache.assume(made);
                Ok(true)
            }
            // The cache does not have it yet.
            Err(error) if error.is_already_exists() => Ok(true),
            Err(error) if error.is_refused() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes the rule of a slice; whether there was one.
    pub(super) async fn remove(&self, slice: &ResourceSlice) -> Result<bool, Error> {
        let Some(rule) = self.of(slice) else {
            return Ok(false);
        };
        api::delete_cached(&self.cache, &self.api(), &*rule, Delete::default()).await?;
        Ok(true)
    }
}
