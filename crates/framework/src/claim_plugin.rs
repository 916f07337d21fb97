//! The extension point for ResourceClaims of another generation than `resource.k8s.io/v1`: a plugin that decides and
//! writes beside the plugin DynamicResources.
//!
//! The scheduler knows such claims only through the traits here. [`ClaimPlugin`] is the plugin's state; the scheduler's
//! core owns it and calls it at the extension points of the scheduling framework. What PreFilter prepared for one pod
//! are its [`PodClaims`]. [`ClaimWriter`] writes to the API server and reports outcomes. An [`Extension`] is all of it,
//! with the watches that feed the plugin; discovery makes one if the API server serves the kinds.
//!
//! | extension point | method |
//! |---|---|
//! | PreEnqueue | [`ClaimPlugin::pre_enqueue`] |
//! | PreFilter | [`ClaimPlugin::pre_filter`] |
//! | Filter | [`PodClaims::filter`] |
//! | PostFilter | [`PodClaims::post_filter`], carried out by [`ClaimPlugin::decided`] |
//! | PreScore | [`PodClaims::negotiate`], carried out by [`ClaimPlugin::decided`] |
//! | Reserve | [`PodClaims::reserve`], carried out by [`ClaimPlugin::assume`] |
//! | PreBind | [`ClaimWriter::pre_bind`] |
//! | PostBind, Unreserve | [`ClaimPlugin::binding_ended`] |
//!
//! The plugin is a function of its inputs like the core: it returns [`Effect`]s, which the core carries out in their
//! order. What it passes to itself through the scheduler, such as the outcome of a write, is a [`Message`] that the
//! scheduler does not look into.

use std::any::Any;
use std::borrow::Cow;
use std::fmt::Debug;
use std::sync::Arc;

use allot_reflector::Observed;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::PodResourceClaim;
use k8s_openapi::api::resource::v1::ResourceClaim;

use crate::node::NodeInfo;
use crate::pod::claims::ResolveError;
use crate::pod::{Key, PodInfo, Uid};
use crate::status::Code;

/// What a plugin passes to itself through the scheduler.
pub trait Message: Any + Debug + Send + Sync {
    /// The kind whose complete list this is. The scheduler places no pod before each watch has sent its first list.
    fn list_of(&self) -> Option<&'static str> {
        None
    }
}

/// A [`Message`] that can be copied with the decision that it is part of.
#[derive(Debug, Clone)]
pub struct Shared(Arc<dyn Message>);

impl Shared {
    /// Wraps a message.
    pub fn new(message: impl Message) -> Self {
        Self(Arc::new(message))
    }

    /// The message; `None` if it is of another type, which only happens between two plugins.
    pub fn get<T: Message>(&self) -> Option<&T> {
        let any: &dyn Any = &*self.0;
        any.downcast_ref()
    }
}

/// Returns a message in its own type; `None` if it is of another one.
pub fn unwrap<T: Message>(message: Box<dyn Message>) -> Option<T> {
    let any: Box<dyn Any> = message;
    any.downcast().ok().map(|message| *message)
}

/// Why the plugin rejects a pod or a node. The scheduler adds the name of DynamicResources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginRejection {
    /// Whether preemption can help.
    pub code: Code,
    /// The reason in upstream's words.
    pub reason: Cow<'static, str>,
}

impl PluginRejection {
    /// Rejection that preemption may resolve.
    pub fn unschedulable(reason: impl Into<Cow<'static, str>>) -> Self {
        let (code, reason) = (Code::Unschedulable, reason.into());
        Self { code, reason }
    }

    /// Rejection that preemption cannot resolve.
    pub fn unresolvable(reason: impl Into<Cow<'static, str>>) -> Self {
        let (code, reason) = (Code::Unresolvable, reason.into());
        Self { code, reason }
    }

    /// Failure of the attempt as such.
    pub fn error(reason: impl Into<Cow<'static, str>>) -> Self {
        let (code, reason) = (Code::Error, reason.into());
        Self { code, reason }
    }
}

/// The event for pods that a change of a claim concerns, as upstream's metrics name it.
pub const CLAIM_EVENT: &str = "resource.k8s.io/ResourceClaimUpdate";

/// What the core is to do for the plugin.
#[derive(Debug)]
pub enum Effect {
    /// Pods that use this claim may continue.
    ClaimProgressed(Key),
    /// Devices were freed: pods that DynamicResources rejected may fit.
    DevicesFreed,
    /// The devices that exist, or the parameters of requests, changed.
    DevicesChanged,
    /// A class was added or changed.
    ClassChanged,
    /// Try a pod again, if it is in the queue; with the event for the metrics.
    Activate(Arc<PodInfo>, &'static str),
    /// The attempt of a pod failed with this error, after it was back in the queue.
    Fail(Uid, String),
    /// A write, for [`ClaimWriter::start`].
    Write(Shared),
}

/// A pod in the scheduling queue.
#[derive(Debug, Clone, Copy)]
pub struct Queued<'a> {
    /// The pod as it was last observed.
    pub pod: &'a Arc<PodInfo>,
    /// How often it was tried.
    pub attempts: u32,
    /// Whether its last attempt ended with [`PodClaims::negotiate`].
    pub pending: bool,
}

/// What the plugin may read of the scheduler's state, as `framework.Handle` upstream.
pub trait Handle {
    /// The nodes of the snapshot.
    fn nodes(&self) -> &[Arc<NodeInfo>];
    /// Whether the first list of pods has arrived.
    fn pods_are_listed(&self) -> bool;
    /// A pod that exists and is not finished.
    fn pod(&self, key: &Key) -> Option<&Arc<PodInfo>>;
    /// A pod in any part of the queue.
    fn queued(&self, uid: &Uid) -> Option<Queued<'_>>;
    /// A pod in activeQ or backoffQ.
    fn ready(&self, uid: &Uid) -> Option<Queued<'_>>;
    /// The pods in activeQ or backoffQ that use a claim, in the order in which they were added.
    fn ready_users_of_claim(&self, claim: &Key) -> Vec<Queued<'_>>;
}

/// The state of a plugin for claims of another generation.
pub trait ClaimPlugin: Debug + Send + Sync {
    /// Whether an entry of a pod's `spec.resourceClaims` refers to a claim of the plugin. All others are left to
    /// DynamicResources.
    fn owns(&self, pod: &PodInfo, entry: &PodResourceClaim) -> bool;

    /// Adds to a pending pod what its API server leaves out of its status.
    fn complete(&self, pod: Arc<PodInfo>) -> Arc<PodInfo>;

    /// Checks that the pod's claims of the plugin exist, belong to it and are not being deleted.
    ///
    /// # Errors
    /// The first claim for which that is not so.
    fn pre_enqueue(&self, pod: &PodInfo) -> Result<(), ResolveError>;

    /// Looks up and checks the claims of a pod; `None` if it has none of the plugin.
    ///
    /// # Errors
    /// No node is feasible at present.
    fn pre_filter<'a>(
        &'a self,
        pod: &'a PodInfo,
    ) -> Result<Option<Box<dyn PodClaims + 'a>>, PluginRejection>;

    /// An observation of the plugin's own watches, or the outcome of a write.
    fn handle(&mut self, message: Box<dyn Message>, handle: &dyn Handle) -> Vec<Effect>;

    /// Takes the plugin's claims out of what the watch of `resource.k8s.io/v1` shows: a server that serves both
    /// generations lists both. Returns the rest, unless there is none.
    fn split(
        &mut self,
        observed: Observed<ResourceClaim>,
    ) -> (Option<Observed<ResourceClaim>>, Vec<Effect>);

    /// Carries out what [`PodClaims::negotiate`] or [`PodClaims::post_filter`] decided for a pod.
    fn decided(&mut self, pod: &Arc<PodInfo>, decision: &Shared) -> Vec<Effect>;

    /// The claims are about to be written for a pod, as [`PodClaims::reserve`] decided.
    fn assume(&mut self, pod: &PodInfo, writes: &Shared);

    /// The binding of a pod with these claims has ended. If the pod was not bound, its reservations are released.
    fn binding_ended(
        &mut self,
        pod: &Arc<PodInfo>,
        claims: &[(Key, Uid)],
        bound: bool,
    ) -> Vec<Effect>;

    /// The pod is finished or does not exist any longer.
    fn pod_removed(&mut self, pod: &Arc<PodInfo>) -> Vec<Effect>;

    /// Called after each input and each attempt: the queue may have changed.
    fn queue_changed(&mut self, handle: &dyn Handle) -> Vec<Effect>;
}

/// The claims of one pod, prepared for one scheduling cycle.
pub trait PodClaims: Debug + Send + Sync {
    /// Whether drivers have to allocate claims before the pod can be placed: then [`PodClaims::negotiate`] takes the
    /// place of [`PodClaims::reserve`].
    fn is_pending(&self) -> bool;

    /// Judges a node. It may be called in several threads.
    ///
    /// # Errors
    /// A claim cannot be used or allocated there.
    fn filter(&self, node: &NodeInfo) -> Result<(), PluginRejection>;

    /// The feasible node that the pod is to get instead of the one with the best score.
    fn preferred(&self, nodes: &[Arc<NodeInfo>], feasible: &[usize]) -> Option<usize>;

    /// What to tell the drivers, when `feasible` are the feasible nodes, of which `best` is the best. `others` says
    /// whether the scheduler allocates claims of the pod as well.
    fn negotiate(&self, feasible: &[&str], best: &str, others: bool) -> Negotiation;

    /// What has to be written before the pod can be bound to a node.
    ///
    /// # Errors
    /// The node does not fit after all.
    fn reserve(&self, node: &str) -> Result<Reservation, PluginRejection>;

    /// What to do when no node is feasible: `rejected` are the nodes that fit but for a claim that is not available there,
    /// `attempts` is how often the pod was tried before.
    fn post_filter(&self, rejected: &[&NodeInfo], attempts: u32, handle: &dyn Handle)
    -> PostFilter;
}

/// A pod waits for drivers.
#[derive(Debug, Clone)]
pub struct Negotiation {
    /// What the pod waits for, for its condition.
    pub message: &'static str,
    /// What to do, for [`ClaimPlugin::decided`].
    pub decision: Option<Shared>,
}

/// The claims of a pod that is to be bound.
#[derive(Debug, Clone, Default)]
pub struct Reservation {
    /// What to write first, for [`ClaimPlugin::assume`] and [`ClaimWriter::pre_bind`].
    pub writes: Option<Shared>,
    /// All claims of the plugin that the pod needs, with their UIDs.
    pub claims: Vec<(Key, Uid)>,
}

/// What to do about claims of a pod that fits nowhere.
#[derive(Debug, Clone, Default)]
pub struct PostFilter {
    /// Whether a claim is deallocated: then no pod is preempted.
    pub deallocates: bool,
    /// What to do, for [`ClaimPlugin::decided`].
    pub decision: Option<Shared>,
}

/// What the writer may use of the scheduler's.
pub trait WriterHandle: Send + Sync {
    /// Passes a message to [`ClaimPlugin::handle`].
    fn report(&self, message: Box<dyn Message>);
    /// Counts a write of a claim that got a conflict.
    fn count_conflict(&self);
}

/// Why the writes before a binding failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PreBindError {
    /// The binding cycle was canceled before all writes had begun.
    Canceled,
    /// The text for the pod's condition and event.
    Failed(String),
}

/// Carries the plugin's decisions out.
pub trait ClaimWriter: Send + Sync {
    /// Begins a write. Returns what remains to be done, to run in the background until the scheduler stops.
    fn start(
        self: Arc<Self>,
        write: Shared,
        handle: Arc<dyn WriterHandle>,
    ) -> Option<BoxFuture<'static, ()>>;

    /// Writes what [`PodClaims::reserve`] decided. Writes that have begun run to their end; no other write begins as soon
    /// as `is_canceled` says so.
    fn pre_bind<'a>(
        &'a self,
        pod: &'a PodInfo,
        writes: &'a Shared,
        is_canceled: &'a (dyn Fn() -> bool + Sync),
        handle: &'a dyn WriterHandle,
    ) -> BoxFuture<'a, Result<(), PreBindError>>;
}

/// Where a watch sends its messages; `false` when nothing receives them any longer.
pub type Sink = Arc<dyn Fn(Box<dyn Message>) -> bool + Send + Sync>;

/// A watch: it runs until it is canceled from outside.
pub type Watch = Box<dyn FnOnce(Sink) -> BoxFuture<'static, ()> + Send>;

/// A plugin whose kinds an API server serves.
pub struct Extension {
    /// The state before any list.
    pub plugin: Box<dyn ClaimPlugin>,
    /// Writes to that API server.
    pub writer: Arc<dyn ClaimWriter>,
    /// The watches; each sends one kind.
    pub watches: Vec<Watch>,
    /// Brings a pod as that API server returns it into the form of the newest release.
    pub convert_pod: fn(&mut serde_json::Value),
}
