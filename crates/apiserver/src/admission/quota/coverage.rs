//! Resources that are limited by configuration: what may be consumed only where a quota says how much.

use std::collections::BTreeSet;

use allot_apimachinery::Status;
use allot_model::quota::{self, ScopeTerm, Usage};
use serde_json::Value;

use super::Change;
use crate::admission::{Attributes, forbidden};
use crate::config::LimitedResource;
use crate::error::Result;

/// What a write needs quotas for, less what the quotas of its namespace limit.
pub(super) struct Coverage<'a> {
    /// Names of amounts that no quota limits so far.
    names: BTreeSet<&'a str>,
    /// Scopes that no quota has so far.
    scopes: Vec<&'a ScopeTerm>,
    /// Whether a quota that is about the object gets more to count.
    is_charged: bool,
}

impl<'a> Coverage<'a> {
    /// Of a write, before the quotas are looked at.
    pub fn new(
        limited: &'a [LimitedResource],
        attributes: &Attributes<'_>,
        object: &Value,
        change: &'a Change,
    ) -> Self {
        let (group, resource) = (&attributes.resource.group, &attributes.resource.plural);
        let scopes = limited.iter().flat_map(|it| &it.match_scopes);
        let scopes = scopes.filter(|term| term.matches(group, resource, object));
        let parts = limited
            .iter()
            .filter(|it| it.api_group == *group && it.resource == *resource)
            .flat_map(|it| &it.match_contains);
        let consumed = change.whole.iter();
        let consumed = consumed.filter(|(_, amount)| amount.signum() > 0);
        let names = consumed.map(|(name, _)| name.as_str());
        let parts: Vec<&String> = parts.collect();
        let names = names.filter(|name| parts.iter().any(|part| name.contains(part.as_str())));
        Coverage {
            names: names.collect(),
            scopes: scopes.collect(),
            is_charged: false,
        }
    }

    /// A quota of the namespace, whatever it limits: its scopes.
    pub fn add_scopes(&mut self, quota: &Value, object: &Value) {
        // Most servers limit nothing by scope.
        if !self.scopes.is_empty() {
            let has = quota::matching_scopes(quota, object);
            self.scopes
                .retain(|term| !has.contains(term.scope_name.as_str()));
        }
    }

    /// A quota that is about the object: what it limits.
    pub fn add_limits(&mut self, quota: &Value, attributes: &Attributes<'_>, delta: &Usage) {
        let (group, resource) = (&attributes.resource.group, &attributes.resource.plural);
        self.is_charged |= delta.values().any(|amount| !amount.is_zero());
        if !self.names.is_empty() {
            for name in quota::restricted(quota, group, resource) {
                self.names.remove(name);
            }
        }
    }

    /// Refuses what no quota limits. `is_alone` says that no quota is about the object.
    ///
    /// # Errors
    /// 403 with the names of amounts, 500 with scopes.
    pub fn check(self, attributes: &Attributes<'_>, is_alone: bool, change: &Change) -> Result<()> {
        let more = || change.more.values().any(|amount| !amount.is_zero());
        // What uses no more than before needs no quota.
        if !(self.is_charged || is_alone && more()) {
            return Ok(());
        }
        if !self.names.is_empty() {
            let names: Vec<&str> = self.names.into_iter().collect();
            let why = format!("insufficient quota to consume: {}", names.join(","));
            return Err(forbidden(attributes, &why));
        }
        if self.scopes.is_empty() {
            return Ok(());
        }
        let scopes: Vec<String> = self.scopes.iter().map(ToString::to_string).collect();
        let scopes = scopes.join(" ");
        let why = format!("insufficient quota to match these scopes: [{scopes}]");
        // As upstream, whose error has no status.
        Err(Status::failure(500, "", why).into())
    }
}
