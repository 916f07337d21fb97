//! The kinds that scheduling depends on: what the scheduler watches, and what a snapshot of a cluster must contain.

use std::any::TypeId;

use allot_reflector::Observed;
use allot_resourceclaim::{POD_GROUP_API_GROUP, POD_GROUP_RESOURCE};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Pod;

use crate::core::Input;
use crate::observe::Observe;

/// A kind of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watched {
    /// API group; empty for the core.
    pub group: &'static str,
    /// Versions that may be served, best first.
    pub versions: &'static [&'static str],
    /// Name of the kind.
    pub kind: &'static str,
    /// Name in paths.
    pub plural: &'static str,
    /// Whether the kind is namespaced.
    pub namespaced: bool,
}

impl Watched {
    /// The kind of a type.
    pub fn of<K: k8s_openapi::Resource<Scope: 'static>>() -> Self {
        Self {
            group: K::GROUP,
            versions: const { &[K::VERSION] },
            kind: K::KIND,
            plural: K::URL_PATH_SEGMENT,
            namespaced: TypeId::of::<K::Scope>() == TypeId::of::<NamespaceResourceScope>(),
        }
    }
}

/// A kind of which the scheduler takes objects as they are.
pub trait Plain:
    Observe + kube::Resource<DynamicType = ()> + k8s_openapi::Resource<Scope: 'static>
{
}

impl<K> Plain for K where
    K: Observe + kube::Resource<DynamicType = ()> + k8s_openapi::Resource<Scope: 'static>
{
}

/// A visitor of the kinds.
pub trait Visitor {
    /// Visits a kind; `input` is how the scheduler is shown its objects.
    fn visit<K: Plain>(&mut self, input: fn(Observed<K>) -> Input);
}

/// Visits the kinds that every server has, without pods, which are taken in another form.
pub fn everywhere(visitor: &mut impl Visitor) {
    visitor.visit(Input::Node);
    visitor.visit(Input::Budget);
    visitor.visit(Input::Namespace);
    visitor.visit(Input::VolumeClaim);
    visitor.visit(Input::Volume);
    visitor.visit(Input::StorageClass);
    visitor.visit(Input::CsiNode);
    visitor.visit(Input::VolumeAttachment);
    visitor.visit(Input::CsiDriver);
    visitor.visit(Input::StorageCapacity);
    visitor.visit(Input::Quota);
}

/// Visits the kinds of devices that servers have since Kubernetes 1.34.
pub fn of_devices(visitor: &mut impl Visitor) {
    visitor.visit(Input::Claim);
    visitor.visit(Input::Slice);
    visitor.visit(Input::Class);
}

/// Rules that taint devices; not every server has them.
pub const TAINT_RULES: Watched = Watched {
    group: "resource.k8s.io",
    versions: &["v1", "v1beta2", "v1alpha3"],
    kind: "DeviceTaintRule",
    plural: "devicetaintrules",
    namespaced: false,
};

/// Groups of pods; not every server has them.
pub const POD_GROUPS: Watched = Watched {
    group: POD_GROUP_API_GROUP,
    versions: &["v1", "v1beta1", "v1alpha3", "v1alpha2"],
    kind: "PodGroup",
    plural: POD_GROUP_RESOURCE,
    namespaced: true,
};

/// All kinds, those of devices first. The classic kinds before 1.31 are not included.
pub fn kinds() -> Vec<Watched> {
    struct List(Vec<Watched>);
    impl Visitor for List {
        fn visit<K: Plain>(&mut self, _: fn(Observed<K>) -> Input) {
            self.0.push(Watched::of::<K>());
        }
    }
    let mut list = List(Vec::new());
    of_devices(&mut list);
    list.0.extend([TAINT_RULES, Watched::of::<Pod>()]);
    everywhere(&mut list);
    list.0.push(POD_GROUPS);
    list.0
}
