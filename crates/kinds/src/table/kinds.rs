//! Which columns each built-in resource has: titles, types and priorities are upstream's.

use serde_json::Value;

use super::{cluster, control, network, pod, storage, workloads};

/// Creates the cells of a row.
pub(super) type Row = fn(&Value) -> Vec<Value>;

/// Group, plural, columns (see `parse_columns`), row.
const KINDS: &[(&str, &str, &str, Row)] = &[
    (
        "",
        "pods",
        "Name|Ready|Status|Restarts|Age|IP::1|Node::1|Nominated Node::1|Readiness Gates::1",
        pod::row,
    ),
    (
        "",
        "podtemplates",
        "Name|Containers|Images|Pod Labels",
        workloads::pod_template,
    ),
    (
        "",
        "replicationcontrollers",
        "Name|Desired:integer|Current:integer|Ready:integer|Age|Containers::1|Images::1|Selector::1",
        workloads::replication_controller,
    ),
    (
        "",
        "nodes",
        "Name|Status|Roles|Age|Version|Internal-IP::1|External-IP::1|OS-Image::1|Kernel-Version::1|Container-Runtime::1",
        cluster::node,
    ),
    ("", "namespaces", "Name|Status|Age", cluster::namespace),
    (
        "",
        "componentstatuses",
        "Name|Status|Message|Error",
        cluster::component_status,
    ),
    (
        "",
        "events",
        "Last Seen|Type|Reason|Object|Subobject::1|Source::1|Message|First Seen::1|Count::1|Name::1",
        cluster::event,
    ),
    (
        "events.k8s.io",
        "events",
        "Last Seen|Type|Reason|Object|Subobject::1|Source::1|Message|First Seen::1|Count::1|Name::1",
        cluster::event,
    ),
    ("", "secrets", "Name|Type|Data|Age", cluster::secret),
    ("", "configmaps", "Name|Data|Age", cluster::config_map),
    ("", "serviceaccounts", "Name|Age", cluster::service_account),
    (
        "",
        "services",
        "Name|Type|Cluster-IP|External-IP|Port(s)|Age|Selector::1",
        network::service,
    ),
    ("", "endpoints", "Name|Endpoints|Age", network::endpoints),
    (
        "",
        "resourcequotas",
        "Name|Request|Limit|Age",
        cluster::quota,
    ),
    (
        "",
        "persistentvolumes",
        "Name|Capacity|Access Modes|Reclaim Policy|Status|Claim|StorageClass|VolumeAttributesClass|Reason|Age|VolumeMode::1",
        storage::volume,
    ),
    (
        "",
        "persistentvolumeclaims",
        "Name|Status|Volume|Capacity|Access Modes|StorageClass|VolumeAttributesClass|Age|VolumeMode::1",
        storage::volume_claim,
    ),
    (
        "apps",
        "deployments",
        "Name|Ready|Up-to-date|Available|Age|Containers::1|Images::1|Selector::1",
        workloads::deployment,
    ),
    (
        "apps",
        "replicasets",
        "Name|Desired:integer|Current:integer|Ready:integer|Age|Containers::1|Images::1|Selector::1",
        workloads::replica_set,
    ),
    (
        "apps",
        "daemonsets",
        "Name|Desired:integer|Current:integer|Ready:integer|Up-to-date:integer|Available:integer|Node Selector|Age|\
         Containers::1|Images::1|Selector::1",
        workloads::daemon_set,
    ),
    (
        "apps",
        "statefulsets",
        "Name|Ready|Age|Containers::1|Images::1",
        workloads::stateful_set,
    ),
    (
        "apps",
        "controllerrevisions",
        "Name|Controller|Revision|Age",
        workloads::controller_revision,
    ),
    (
        "autoscaling",
        "horizontalpodautoscalers",
        "Name|Reference|Targets|MinPods|MaxPods|Replicas|Age",
        workloads::autoscaler,
    ),
    (
        "batch",
        "jobs",
        "Name|Status|Completions|Duration|Age|Containers::1|Images::1|Selector::1",
        workloads::job,
    ),
    (
        "batch",
        "cronjobs",
        "Name|Schedule|Timezone|Suspend:boolean|Active:integer|Last Schedule|Age|Containers::1|Images::1|Selector::1",
        workloads::cron_job,
    ),
    (
        "policy",
        "poddisruptionbudgets",
        "Name|Min Available|Max Unavailable|Allowed Disruptions:integer|Age",
        workloads::disruption_budget,
    ),
    (
        "rbac.authorization.k8s.io",
        "rolebindings",
        "Name|Role|Age|Users::1|Groups::1|ServiceAccounts::1",
        control::role_binding,
    ),
    (
        "rbac.authorization.k8s.io",
        "clusterrolebindings",
        "Name|Role|Age|Users::1|Groups::1|ServiceAccounts::1",
        control::role_binding,
    ),
    (
        "coordination.k8s.io",
        "leases",
        "Name|Holder|Age",
        cluster::lease,
    ),
    (
        "scheduling.k8s.io",
        "priorityclasses",
        "Name|Value:integer|Global-Default:boolean|Age|PreemptionPolicy",
        cluster::priority_class,
    ),
    (
        "storage.k8s.io",
        "storageclasses",
        "Name|Provisioner|ReclaimPolicy|VolumeBindingMode|AllowVolumeExpansion|Age",
        storage::storage_class,
    ),
    (
        "storage.k8s.io",
        "volumeattachments",
        "Name|Attacher|PV|Node|Attached:boolean|Age",
        storage::volume_attachment,
    ),
    (
        "storage.k8s.io",
        "volumeattributesclasses",
        "Name|DriverName|Age",
        storage::volume_attributes_class,
    ),
    (
        "storage.k8s.io",
        "csinodes",
        "Name|Drivers:integer|Age",
        storage::csi_node,
    ),
    (
        "storage.k8s.io",
        "csidrivers",
        "Name|AttachRequired:boolean|PodInfoOnMount:boolean|StorageCapacity:boolean|TokenRequests|\
         RequiresRepublish:boolean|Modes|Age",
        storage::csi_driver,
    ),
    (
        "discovery.k8s.io",
        "endpointslices",
        "Name|AddressType|Ports|Endpoints|Age",
        network::endpoint_slice,
    ),
    (
        "certificates.k8s.io",
        "certificatesigningrequests",
        "Name|Age|SignerName|Requestor|RequestedDuration|Condition",
        control::csr,
    ),
    (
        "networking.k8s.io",
        "ingresses",
        "Name|Class|Hosts|Address|Ports|Age",
        network::ingress,
    ),
    (
        "networking.k8s.io",
        "ingressclasses",
        "Name|Controller|Parameters|Age",
        network::ingress_class,
    ),
    (
        "networking.k8s.io",
        "networkpolicies",
        "Name|Pod-Selector|Age",
        network::network_policy,
    ),
    (
        "networking.k8s.io",
        "servicecidrs",
        "Name|CIDRs|Age",
        network::service_cidr,
    ),
    (
        "networking.k8s.io",
        "ipaddresses",
        "Name|ParentRef",
        network::ip_address,
    ),
    (
        "node.k8s.io",
        "runtimeclasses",
        "Name|Handler|Age",
        cluster::runtime_class,
    ),
    (
        "admissionregistration.k8s.io",
        "mutatingwebhookconfigurations",
        "Name|Webhooks:integer|Age",
        control::webhooks,
    ),
    (
        "admissionregistration.k8s.io",
        "validatingwebhookconfigurations",
        "Name|Webhooks:integer|Age",
        control::webhooks,
    ),
    (
        "admissionregistration.k8s.io",
        "validatingadmissionpolicies",
        "Name|Validations:integer|ParamKind|Age",
        control::admission_policy,
    ),
    (
        "admissionregistration.k8s.io",
        "validatingadmissionpolicybindings",
        "Name|PolicyName|ParamRef|Age",
        control::admission_binding,
    ),
    (
        "admissionregistration.k8s.io",
        "mutatingadmissionpolicies",
        "Name|Mutations:integer|ParamKind|Age",
        control::admission_policy,
    ),
    (
        "admissionregistration.k8s.io",
        "mutatingadmissionpolicybindings",
        "Name|PolicyName|ParamRef|Age",
        control::admission_binding,
    ),
    (
        "flowcontrol.apiserver.k8s.io",
        "flowschemas",
        "Name|PriorityLevel|MatchingPrecedence|DistinguisherMethod|Age|MissingPL",
        control::flow_schema,
    ),
    (
        "flowcontrol.apiserver.k8s.io",
        "prioritylevelconfigurations",
        "Name|Type|NominalConcurrencyShares|Queues|HandSize|QueueLengthLimit|Age",
        control::priority_level,
    ),
    (
        "apiregistration.k8s.io",
        "apiservices",
        "Name|Service|Available|Age",
        control::api_service,
    ),
];

/// Columns and row of a resource that has its own.
pub(super) fn find(group: &str, plural: &str) -> Option<(&'static str, Row)> {
    KINDS
        .iter()
        .find(|(g, p, ..)| *g == group && *p == plural)
        .map(|(_, _, columns, row)| (*columns, *row))
}
