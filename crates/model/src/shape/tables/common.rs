//! The structure of types that other API groups have as well: metadata, conditions, node selectors, claims of pods.

use super::{TEXTS, f, plain, tagged};
use crate::shape::Presence::{Keep, Omit, Pointer};
use crate::shape::Struct;
use crate::shape::Ty::{self, Bool, Int, List, Map, Raw, Text, Time};

pub(super) static CONDITION: Struct = tagged(&[
    f("type", Text, Keep),
    f("status", Text, Keep),
    f("observedGeneration", Int, Omit),
    f("lastTransitionTime", Time, Keep),
    f("reason", Text, Keep),
    f("message", Text, Keep),
]);

pub(crate) static NODE_SELECTOR: Struct =
    plain(&[f("nodeSelectorTerms", NODE_SELECTOR_TERMS, Keep)]);
pub(crate) const NODE_SELECTOR_TERMS: Ty = List(&Ty::Struct(&NODE_SELECTOR_TERM));
pub(crate) static NODE_SELECTOR_TERM: Struct = plain(&[
    f(
        "matchExpressions",
        List(&Ty::Struct(&NODE_SELECTOR_REQUIREMENT)),
        Omit,
    ),
    f(
        "matchFields",
        List(&Ty::Struct(&NODE_SELECTOR_REQUIREMENT)),
        Omit,
    ),
]);
static NODE_SELECTOR_REQUIREMENT: Struct = plain(&[
    f("key", Text, Keep),
    f("operator", Text, Keep),
    f("values", TEXTS, Omit),
]);

pub(crate) static OBJECT_META: Struct = tagged(&[
    f("name", Text, Omit),
    f("generateName", Text, Omit),
    f("namespace", Text, Omit),
    f("selfLink", Text, Omit),
    f("uid", Text, Omit),
    f("resourceVersion", Text, Omit),
    f("generation", Int, Omit),
    f("creationTimestamp", Time, Omit),
    f("deletionTimestamp", Time, Pointer),
    f("deletionGracePeriodSeconds", Int, Pointer),
    f("labels", Map(&Text), Omit),
    f("annotations", Map(&Text), Omit),
    f("ownerReferences", OWNERS, Omit),
    f("finalizers", TEXTS, Omit),
    f("managedFields", List(&Raw), Omit),
]);
pub(crate) const OWNER: Ty = Ty::Struct(&OWNER_REFERENCE);
pub(crate) const OWNERS: Ty = List(&OWNER);
static OWNER_REFERENCE: Struct = tagged(&[
    f("apiVersion", Text, Keep),
    f("kind", Text, Keep),
    f("name", Text, Keep),
    f("uid", Text, Keep),
    f("controller", Bool, Pointer),
    f("blockOwnerDeletion", Bool, Pointer),
]);

pub(crate) const POD_RESOURCE_CLAIM: Ty = Ty::Struct(&POD_CLAIM);
static POD_CLAIM: Struct = plain(&[
    f("name", Text, Keep),
    f("resourceClaimName", Text, Pointer),
    f("resourceClaimTemplateName", Text, Pointer),
]);
