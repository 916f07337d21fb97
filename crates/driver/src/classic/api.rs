//! The classic kinds on an API server, in the version that it has.

use std::sync::Arc;

use allot_client::discovery::{self, Group};
use kube::api::{ApiResource, DynamicObject, PostParams};
use kube::{Api, Client};

use super::objects::{Claim, Negotiation};

/// A version with the classic kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClassicVersion {
    /// Of 1.26.
    V1alpha1,
    /// Of 1.27 to 1.30.
    V1alpha2,
}

impl ClassicVersion {
    /// The version as in `apiVersion`, without the group.
    pub fn name(self) -> &'static str {
        match self {
            Self::V1alpha1 => "v1alpha1",
            Self::V1alpha2 => "v1alpha2",
        }
    }

    fn resource(self, kind: &str, plural: &str) -> ApiResource {
        discovery::resource(allot_model::GROUP, self.name(), kind, plural)
    }

    /// ResourceClass.
    pub fn classes(self) -> ApiResource {
        self.resource("ResourceClass", "resourceclasses")
    }

    /// ResourceClaim.
    pub fn claims(self) -> ApiResource {
        self.resource("ResourceClaim", "resourceclaims")
    }

    /// ResourceClaimParameters, which v1alpha2 has since 1.30.
    pub fn claim_parameters(self) -> ApiResource {
        self.resource("ResourceClaimParameters", "resourceclaimparameters")
    }

    /// ResourceClassParameters, which v1alpha2 has since 1.30.
    pub fn class_parameters(self) -> ApiResource {
        self.resource("ResourceClassParameters", "resourceclassparameters")
    }

    /// PodScheduling, which is PodSchedulingContext in v1alpha2.
    pub fn negotiations(self) -> ApiResource {
        match self {
            Self::V1alpha1 => self.resource("PodScheduling", "podschedulings"),
            Self::V1alpha2 => self.resource("PodSchedulingContext", "podschedulingcontexts"),
        }
    }
}

/// The version in which an API server has the classic kinds; `None` if it has none of them.
///
/// # Errors
/// When the API server does not answer.
pub async fn discover(client: &Client) -> Result<Option<ClassicVersion>, kube::Error> {
    let group = Group::discover(client, allot_model::GROUP).await?;
    let known = [ClassicVersion::V1alpha2, ClassicVersion::V1alpha1];
    Ok(known.into_iter().find(|version| group.has(version.name())))
}

/// A client for the classic kinds.
#[derive(Clone)]
pub(super) struct ClassicApi {
    pub(super) client: Client,
    pub(super) version: ClassicVersion,
}

impl ClassicApi {
    fn claims(&self, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, &self.version.claims())
    }

    /// Reads the current claim.
    pub(super) async fn claim(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Claim>, kube::Error> {
        let found = self.claims(namespace).get_opt(name).await?;
        Ok(found.map(|object| Claim(Arc::new(object))))
    }

    /// Stores everything but the status.
    pub(super) async fn update_claim(&self, object: &DynamicObject) -> Result<Claim, kube::Error> {
        let (namespace, name) = names(object);
        let api = self.claims(namespace);
        let stored = api.replace(name, &PostParams::default(), object).await?;
        Ok(Claim(Arc::new(stored)))
    }

    /// Stores the status.
    pub(super) async fn update_claim_status(
        &self,
        object: &DynamicObject,
    ) -> Result<Claim, kube::Error> {
        let (namespace, name) = names(object);
        let api = self.claims(namespace);
        let params = PostParams::default();
        let stored = api.replace_status(name, &params, object).await?;
        Ok(Claim(Arc::new(stored)))
    }

    /// Stores the status of a negotiation.
    pub(super) async fn update_negotiation_status(
        &self,
        object: &DynamicObject,
    ) -> Result<Negotiation, kube::Error> {
        let (namespace, name) = names(object);
        let kind = self.version.negotiations();
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, &kind);
        let params = PostParams::default();
        let stored = api.replace_status(name, &params, object).await?;
        Ok(Negotiation(Arc::new(stored)))
    }

    /// A pod with everything that the API server sent: releases differ in how a pod names its claims.
    pub(super) async fn pod(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<DynamicObject, kube::Error> {
        let kind = ApiResource::erase::<k8s_openapi::api::core::v1::Pod>(&());
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, &kind);
        api.get(name).await
    }
}

fn names(object: &DynamicObject) -> (&str, &str) {
    let metadata = &object.metadata;
    (
        metadata.namespace.as_deref().unwrap_or_default(),
        metadata.name.as_deref().unwrap_or_default(),
    )
}
