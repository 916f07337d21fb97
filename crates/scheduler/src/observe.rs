//! What the scheduler reads of each kind.
//!
//! Fields that are skipped read as unset. For pods and nodes the fields to read are listed, since most of their fields are
//! not used; for the kinds of DRA, the fields to skip.

use allot_reflector::Readable;
use k8s_openapi::api::core::v1::{
    Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, ResourceQuota,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};
use k8s_openapi::api::storage::v1::{
    CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment,
};
use kube::api::DynamicObject;
use kube::{Api, Client, Error, ResourceExt};

/// A kind that the scheduler watches.
pub trait Observe: Readable + ResourceExt + Clone + Send + 'static {
    /// Whether a field of a struct inside of the object is read.
    fn keep(of: &str, field: &str) -> bool {
        of != "ObjectMeta" || field != "managedFields"
    }

    /// Whether the scheduler works without the objects where it may not read them.
    const OPTIONAL: bool = false;
}

/// Gets one object; `None` if it does not exist.
///
/// # Errors
/// The server does not answer, or answers with an error.
pub async fn get<K: Observe>(api: &Api<K>, name: &str) -> Result<Option<K>, Error> {
    allot_reflector::get(api, name, K::keep).await
}

/// Sends a request that is answered with an object.
///
/// # Errors
/// The server does not answer, or answers with an error.
pub async fn request<K: Observe>(
    client: &Client,
    request: http::Request<Vec<u8>>,
) -> Result<K, Error> {
    allot_reflector::request(client, request, K::keep).await
}

fn keep_metadata(field: &str) -> bool {
    matches!(
        field,
        "name"
            | "namespace"
            | "uid"
            | "resourceVersion"
            | "generation"
            | "labels"
            | "deletionTimestamp"
            | "ownerReferences"
    )
}

impl Observe for Pod {
    fn keep(of: &str, field: &str) -> bool {
        match of {
            "ObjectMeta" => keep_metadata(field),
            "PodSpec" => matches!(
                field,
                "affinity"
                    | "containers"
                    | "hostNetwork"
                    | "hostUsers"
                    | "initContainers"
                    | "nodeName"
                    | "nodeSelector"
                    | "overhead"
                    | "preemptionPolicy"
                    | "priority"
                    | "resourceClaims"
                    | "resources"
                    | "schedulerName"
                    | "schedulingGates"
                    | "schedulingGroup"
                    | "tolerations"
                    | "topologySpreadConstraints"
                    | "volumes"
            ),
            "Volume" => matches!(
                field,
                "name"
                    | "awsElasticBlockStore"
                    | "ephemeral"
                    | "gcePersistentDisk"
                    | "image"
                    | "iscsi"
                    | "persistentVolumeClaim"
                    | "rbd"
            ),
            "Container" => matches!(
                field,
                "name" | "image" | "ports" | "resources" | "restartPolicy" | "restartPolicyRules"
            ),
            "PodStatus" => matches!(
                field,
                "allocatedResources"
                    | "conditions"
                    | "containerStatuses"
                    | "initContainerStatuses"
                    | "nodeAllocatableResourceClaimStatuses"
                    | "nominatedNodeName"
                    | "phase"
                    | "resourceClaimStatuses"
                    | "resources"
                    | "startTime"
            ),
            "ContainerStatus" => matches!(field, "name" | "allocatedResources" | "resources"),
            _ => true,
        }
    }
}

impl Observe for Node {
    fn keep(of: &str, field: &str) -> bool {
        match of {
            "ObjectMeta" => keep_metadata(field),
            "NodeSpec" => matches!(field, "taints" | "unschedulable"),
            "NodeStatus" => matches!(field, "allocatable" | "declaredFeatures" | "images"),
            _ => true,
        }
    }
}

impl Observe for ResourceClaim {
    fn keep(of: &str, field: &str) -> bool {
        match of {
            "ObjectMeta" => field != "managedFields",
            // What drivers report about devices is for others; their conditions are not.
            "AllocatedDeviceStatus" => field != "data" && field != "networkData",
            _ => true,
        }
    }
}

impl Observe for PersistentVolumeClaim {
    fn keep(of: &str, field: &str) -> bool {
        match of {
            "ObjectMeta" => keep_metadata(field) || field == "annotations",
            "PersistentVolumeClaimStatus" => field == "phase",
            _ => true,
        }
    }
}

impl Observe for PersistentVolume {
    fn keep(of: &str, field: &str) -> bool {
        match of {
            "ObjectMeta" => keep_metadata(field) || field == "annotations",
            "PersistentVolumeSpec" => matches!(
                field,
                "accessModes"
                    | "capacity"
                    | "claimRef"
                    | "csi"
                    | "nodeAffinity"
                    | "storageClassName"
                    | "volumeMode"
            ),
            "CSIPersistentVolumeSource" => matches!(field, "driver" | "volumeHandle"),
            "PersistentVolumeStatus" => field == "phase",
            _ => true,
        }
    }
}

impl Observe for ResourceQuota {
    // Roles that were made for kube-scheduler do not let it read quotas.
    const OPTIONAL: bool = true;

    fn keep(of: &str, field: &str) -> bool {
        match of {
            // They tell when the limits changed.
            "ObjectMeta" => keep_metadata(field) || field == "managedFields",
            // The scheduler counts itself.
            _ => field != "status",
        }
    }
}

impl Observe for ResourceSlice {}
impl Observe for DeviceClass {}
impl Observe for PodDisruptionBudget {}
impl Observe for Namespace {}
impl Observe for StorageClass {}
impl Observe for CSINode {}
impl Observe for VolumeAttachment {
    fn keep(of: &str, field: &str) -> bool {
        match of {
            "ObjectMeta" => keep_metadata(field),
            "VolumeAttachmentSource" => field == "persistentVolumeName",
            _ => field != "status",
        }
    }
}

impl Observe for CSIDriver {}
impl Observe for CSIStorageCapacity {}
impl Observe for DynamicObject {}
