//! The roles and bindings that every cluster starts with, as data.
//!
//! Format of [`ROLES`]: a line without indentation names a cluster role, followed by its labels; an indented line is
//! a rule: `verbs | groups | resources [| names]`, or `verbs | url | paths`. `R` stands for reading, `W` for
//! writing, `-` for the core group. `aggregate LABEL` collects the rules of all roles with that label.

use std::sync::OnceLock;

use serde_json::{Value, json};

use super::index::Rule;
use crate::object::meta;

/// How many default roles collect others.
const AGGREGATED: usize = 3;
const AGGREGATE: &str = "rbac.authorization.k8s.io/aggregate-to-";

/// Default cluster roles.
const ROLES: &str = "\
cluster-admin
  * | * | *
  * | url | *
system:discovery
  get | url | /api /api/* /apis /apis/* /healthz /livez /openapi /openapi/* /readyz /version /version/
system:monitoring
  get | url | /healthz /healthz/* /livez /livez/* /metrics /metrics/slis /readyz /readyz/*
system:basic-user
  create | authorization.k8s.io | selfsubjectaccessreviews selfsubjectrulesreviews
  create | authentication.k8s.io | selfsubjectreviews
system:public-info-viewer
  get | url | /healthz /livez /readyz /version /version/
system:service-account-issuer-discovery
  get | url | /.well-known/openid-configuration /.well-known/openid-configuration/ /openid/v1/jwks /openid/v1/jwks/
admin
  aggregate admin
edit aggregate-to-admin
  aggregate edit
view aggregate-to-edit
  aggregate view
system:aggregate-to-admin aggregate-to-admin
  create | authorization.k8s.io | localsubjectaccessreviews
  RW | rbac.authorization.k8s.io | rolebindings roles
system:aggregate-to-edit aggregate-to-edit
  R | - | pods/attach pods/exec pods/portforward pods/proxy secrets services/proxy
  impersonate | - | serviceaccounts
  W | - | pods pods/attach pods/exec pods/portforward pods/proxy
  create | - | pods/eviction
  W | - | configmaps events persistentvolumeclaims replicationcontrollers replicationcontrollers/scale secrets serviceaccounts services services/proxy
  create | - | serviceaccounts/token
  W | apps | daemonsets deployments deployments/rollback deployments/scale replicasets replicasets/scale statefulsets statefulsets/scale
  W | autoscaling | horizontalpodautoscalers
  W | batch | cronjobs jobs
  W | extensions | daemonsets deployments deployments/rollback deployments/scale ingresses networkpolicies replicasets replicasets/scale replicationcontrollers/scale
  W | policy | poddisruptionbudgets
  W | networking.k8s.io | ingresses networkpolicies
  RW | coordination.k8s.io | leases
  W | resource.k8s.io | resourceclaims resourceclaimtemplates
system:aggregate-to-view aggregate-to-view
  R | - | configmaps endpoints persistentvolumeclaims persistentvolumeclaims/status pods replicationcontrollers replicationcontrollers/scale serviceaccounts services services/status
  R | - | bindings events limitranges namespaces/status pods/log pods/status replicationcontrollers/status resourcequotas resourcequotas/status
  R | - | namespaces
  R | discovery.k8s.io | endpointslices
  R | apps | controllerrevisions daemonsets daemonsets/status deployments deployments/scale deployments/status replicasets replicasets/scale replicasets/status statefulsets statefulsets/scale statefulsets/status
  R | autoscaling | horizontalpodautoscalers horizontalpodautoscalers/status
  R | batch | cronjobs cronjobs/status jobs jobs/status
  R | extensions | daemonsets daemonsets/status deployments deployments/scale deployments/status ingresses ingresses/status networkpolicies replicasets replicasets/scale replicasets/status replicationcontrollers/scale
  R | policy | poddisruptionbudgets poddisruptionbudgets/status
  R | networking.k8s.io | ingresses ingresses/status networkpolicies
  R | resource.k8s.io | resourceclaims resourceclaims/status resourceclaimtemplates
system:node
  create | authentication.k8s.io | tokenreviews
  create | authorization.k8s.io | localsubjectaccessreviews subjectaccessreviews
  R | - | services
  create | - | nodes
  patch update | - | nodes/status
  patch update | - | nodes
  create patch update | - | events
  create delete | - | pods
  patch update | - | pods/status
  create | - | pods/eviction
  R | - | configmaps secrets
  get | - | persistentvolumeclaims persistentvolumes
  get | - | endpoints
  create get list watch | certificates.k8s.io | certificatesigningrequests
  create delete get patch update | coordination.k8s.io | leases
  get | storage.k8s.io | volumeattachments
  create | - | serviceaccounts/token
  get patch update | - | persistentvolumeclaims/status
  R | storage.k8s.io | csidrivers
  create delete get patch update | storage.k8s.io | csinodes
  R | node.k8s.io | runtimeclasses
  get | resource.k8s.io | resourceclaims
  deletecollection | resource.k8s.io | resourceslices
system:node-problem-detector
  get | - | nodes
  patch | - | nodes/status
  create patch update | - events.k8s.io | events
system:kubelet-api-admin
  get list proxy watch | - | nodes
  * | - | nodes/configz nodes/healthz nodes/log nodes/metrics nodes/pods nodes/proxy nodes/stats
system:node-bootstrapper
  create get list watch | certificates.k8s.io | certificatesigningrequests
system:auth-delegator
  create | authentication.k8s.io | tokenreviews
  create | authorization.k8s.io | subjectaccessreviews
system:kube-aggregator
  R | - | endpoints services
system:kube-dns
  R | - | endpoints services
system:node-proxier
  R | - | endpoints services
  R | - | nodes
  create patch update | - events.k8s.io | events
  R | discovery.k8s.io | endpointslices
  R | networking.k8s.io | servicecidrs
system:persistent-volume-provisioner
  create delete get list watch | - | persistentvolumes
  get list update watch | - | persistentvolumeclaims
  R | storage.k8s.io | storageclasses
  watch | - | events
  create patch update | - events.k8s.io | events
system:volume-scheduler
  get list patch update watch | - | persistentvolumes
  R | storage.k8s.io | storageclasses
  get list patch update watch | - | persistentvolumeclaims
system:kube-controller-manager
  create patch update | - events.k8s.io | events
  create | coordination.k8s.io | leases
  get update | coordination.k8s.io | leases | kube-controller-manager
  create | - | secrets serviceaccounts
  delete | - | secrets
  get | - | configmaps namespaces secrets serviceaccounts
  update | - | secrets serviceaccounts
  create | authentication.k8s.io | tokenreviews
  create | authorization.k8s.io | subjectaccessreviews
  list watch | * | *
  create | - | serviceaccounts/token
system:kube-scheduler
  create patch update | - events.k8s.io | events
  create | coordination.k8s.io | leases
  get list watch update | coordination.k8s.io | leases | kube-scheduler
  R | - | nodes
  delete get list watch | - | pods
  create | - | bindings pods/binding
  patch update | - | pods/status
  R | - | replicationcontrollers services
  R | apps extensions | replicasets
  R | apps | statefulsets
  R | policy | poddisruptionbudgets
  R | - | persistentvolumeclaims persistentvolumes
  create | authentication.k8s.io | tokenreviews
  create | authorization.k8s.io | subjectaccessreviews
  R | storage.k8s.io | csinodes csidrivers csistoragecapacities volumeattachments
  R | - | namespaces
  R | resource.k8s.io | deviceclasses
  get list patch update watch | resource.k8s.io | resourceclaims
  get list patch update watch | resource.k8s.io | resourceclaims/status
  patch update | resource.k8s.io | resourceclaims/binding
  R | resource.k8s.io | resourceslices
  create delete | resource.k8s.io | resourceclaims
  R | resource.k8s.io | devicetaintrules
  update | - | pods/finalizers
system:controller:clusterrole-aggregation-controller
  escalate get list patch update watch | rbac.authorization.k8s.io | clusterroles
system:controller:cronjob-controller
  get list update watch | batch | cronjobs
  create delete get list patch update watch | batch | jobs
  update | batch | cronjobs/status cronjobs/finalizers
  delete list | - | pods
  create patch update | - events.k8s.io | events
system:controller:daemon-set-controller
  R | apps extensions | daemonsets
  update | apps extensions | daemonsets/status
  update | apps extensions | daemonsets/finalizers
  list watch | - | nodes
  create delete list patch watch | - | pods
  create | - | pods/binding
  create delete get list patch update watch | apps | controllerrevisions
  create patch update | - events.k8s.io | events
system:controller:deployment-controller
  get list update watch | apps extensions | deployments
  update | apps extensions | deployments/status
  update | apps extensions | deployments/finalizers
  create delete get list patch update watch | apps extensions | replicasets
  get list update watch | - | pods
  create patch update | - events.k8s.io | events
system:controller:device-taint-eviction-controller
  delete get list watch | - | pods
  patch update | - | pods/status
  R | resource.k8s.io | deviceclasses resourceclaims resourceslices
  R | resource.k8s.io | devicetaintrules
  patch update | resource.k8s.io | devicetaintrules/status
  create patch update | - events.k8s.io | events
system:controller:disruption-controller
  R | apps extensions | deployments
  R | apps extensions | replicasets
  R | - | replicationcontrollers
  R | policy | poddisruptionbudgets
  R | apps | statefulsets
  update | policy | poddisruptionbudgets/status
  patch update | - | pods/status
  get | * | */scale
  create patch update | - events.k8s.io | events
system:controller:endpoint-controller
  R | - | pods services
  create delete get list update | - | endpoints
  create | - | endpoints/restricted
  create patch update | - events.k8s.io | events
system:controller:endpointslice-controller
  R | - | nodes pods services
  update | - | services/finalizers
  create delete get list update | discovery.k8s.io | endpointslices
  create patch update | - events.k8s.io | events
system:controller:ephemeral-volume-controller
  update | - | pods/finalizers
  R | - | pods
  create get list watch | - | persistentvolumeclaims
  create patch update | - events.k8s.io | events
system:controller:generic-garbage-collector
  delete get list patch update watch | * | *
  create patch update | - events.k8s.io | events
system:controller:horizontal-pod-autoscaler
  R | autoscaling | horizontalpodautoscalers
  update | autoscaling | horizontalpodautoscalers/status
  get update | * | */scale
  list | - | pods
  list | metrics.k8s.io | pods
  get list | custom.metrics.k8s.io external.metrics.k8s.io | *
  create patch update | - events.k8s.io | events
system:controller:job-controller
  get list patch update watch | batch | jobs
  update | batch | jobs/status jobs/finalizers
  create delete list patch watch | - | pods
  create patch update | - events.k8s.io | events
system:controller:namespace-controller
  delete get list watch | - | namespaces
  update | - | namespaces/finalize namespaces/status
  delete deletecollection get list | * | *
system:controller:node-controller
  delete get list patch update watch | - | nodes
  patch update | - | nodes/status
  patch update | - | pods/status
  delete list watch get | - | pods
  create patch update | - events.k8s.io | events
system:controller:persistent-volume-binder
  create delete get list update watch | - | persistentvolumes
  update | - | persistentvolumes/status
  get list update watch | - | persistentvolumeclaims
  update | - | persistentvolumeclaims/status
  create delete get list watch | - | pods
  R | storage.k8s.io | storageclasses
  get list watch | - | nodes
  create patch update watch | - events.k8s.io | events
system:controller:pod-garbage-collector
  delete list watch | - | pods
  get list | - | nodes
  patch | - | pods/status
system:controller:replicaset-controller
  get list update watch | apps extensions | replicasets
  update | apps extensions | replicasets/status
  update | apps extensions | replicasets/finalizers
  create delete list patch watch | - | pods
  create patch update | - events.k8s.io | events
system:controller:replication-controller
  get list update watch | - | replicationcontrollers
  update | - | replicationcontrollers/status
  update | - | replicationcontrollers/finalizers
  create delete list patch watch | - | pods
  create patch update | - events.k8s.io | events
system:controller:resource-claim-controller
  R | - | pods
  update | - | pods/finalizers
  create delete get list watch | resource.k8s.io | resourceclaims
  patch update | resource.k8s.io | resourceclaims resourceclaims/status
  patch update | resource.k8s.io | resourceclaims/binding
  R | resource.k8s.io | resourceclaimtemplates
  patch update | - | pods/status
  create patch update | - events.k8s.io | events
system:controller:resourcepoolstatusrequest-controller
  delete get list watch | resource.k8s.io | resourcepoolstatusrequests
  patch update | resource.k8s.io | resourcepoolstatusrequests/status
  R | resource.k8s.io | resourceclaims resourceslices
  create patch update | - events.k8s.io | events
system:controller:resourcequota-controller
  list watch | * | *
  update | - | resourcequotas/status
  create patch update | - events.k8s.io | events
system:controller:root-ca-cert-publisher
  create update | - | configmaps
  create patch update | - events.k8s.io | events
system:controller:service-account-controller
  create | - | serviceaccounts
  create patch update | - events.k8s.io | events
system:controller:statefulset-controller
  list watch | - | pods
  R | apps | statefulsets
  update | apps | statefulsets/status
  update | apps | statefulsets/finalizers
  create delete get patch update | - | pods
  create delete get list patch update watch | apps | controllerrevisions
  create get list watch | - | persistentvolumeclaims
  create patch update | - events.k8s.io | events
system:controller:ttl-after-finished-controller
  delete get list watch | batch | jobs
  create patch update | - events.k8s.io | events
";

/// Default cluster role bindings: role (and name of the binding), then `Kind:name` subjects.
const BINDINGS: &[(&str, &[(&str, &str)])] = &[
    ("cluster-admin", &[("Group", "system:masters")]),
    ("system:monitoring", &[("Group", "system:monitoring")]),
    ("system:discovery", &[("Group", "system:authenticated")]),
    ("system:basic-user", &[("Group", "system:authenticated")]),
    (
        "system:public-info-viewer",
        &[
            ("Group", "system:authenticated"),
            ("Group", "system:unauthenticated"),
        ],
    ),
    ("system:node-proxier", &[("User", "system:kube-proxy")]),
    (
        "system:kube-controller-manager",
        &[("User", "system:kube-controller-manager")],
    ),
    ("system:kube-dns", &[("ServiceAccount", "kube-dns")]),
    (
        "system:kube-scheduler",
        &[("User", "system:kube-scheduler")],
    ),
    (
        "system:volume-scheduler",
        &[("User", "system:kube-scheduler")],
    ),
    ("system:node", &[]),
    (
        "system:service-account-issuer-discovery",
        &[("Group", "system:serviceaccounts")],
    ),
];

/// A default role before it gets its metadata.
struct Role {
    name: &'static str,
    labels: Vec<&'static str>,
    rules: Vec<Rule>,
    aggregate: Option<&'static str>,
}

fn expand_verbs(text: &str) -> Vec<String> {
    const READ: [&str; 3] = ["get", "list", "watch"];
    const WRITE: [&str; 5] = ["create", "delete", "deletecollection", "patch", "update"];
    let mut verbs: Vec<String> = match text.trim() {
        "R" => READ.iter().map(|verb| (*verb).to_owned()).collect(),
        "W" => WRITE.iter().map(|verb| (*verb).to_owned()).collect(),
        "RW" => READ
            .iter()
            .chain(&WRITE)
            .map(|verb| (*verb).to_owned())
            .collect(),
        other => other.split_whitespace().map(str::to_owned).collect(),
    };
    verbs.sort();
    verbs
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace()
        .map(|word| {
            if word == "-" {
                String::new()
            } else {
                word.to_owned()
            }
        })
        .collect()
}

fn parse() -> Vec<Role> {
    let mut roles: Vec<Role> = Vec::new();
    for line in ROLES.lines() {
        let Some(rule) = line.strip_prefix("  ") else {
            let mut parts = line.split_whitespace();
            let Some(name) = parts.next() else { continue };
            roles.push(Role {
                name,
                labels: parts.collect(),
                rules: Vec::new(),
                aggregate: None,
            });
            continue;
        };
        let Some(role) = roles.last_mut() else {
            continue;
        };
        if let Some(label) = rule.strip_prefix("aggregate ") {
            role.aggregate = Some(label);
            continue;
        }
        let parts: Vec<&str> = rule.split('|').collect();
        let [verbs, groups, resources, names @ ..] = parts.as_slice() else {
            continue;
        };
        let verbs = expand_verbs(verbs);
        role.rules.push(if groups.trim() == "url" {
            Rule {
                verbs,
                urls: words(resources),
                ..Rule::default()
            }
        } else {
            Rule {
                verbs,
                api_groups: words(groups),
                resources: words(resources),
                resource_names: names.first().map(|names| words(names)).unwrap_or_default(),
                ..Rule::default()
            }
        });
    }
    roles
}

/// The rules of `system:node`, which the node authorizer grants to all node agents.
pub fn node_rules() -> &'static [Rule] {
    static RULES: OnceLock<Vec<Rule>> = OnceLock::new();
    RULES.get_or_init(|| {
        parse()
            .into_iter()
            .find(|role| role.name == "system:node")
            .map(|role| role.rules)
            .unwrap_or_default()
    })
}

fn default_meta(name: &str) -> Value {
    json!({
        "name": name,
        "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
    })
}

/// All default objects, as (plural, object).
pub fn objects() -> Vec<(&'static str, Value)> {
    const GROUP: &str = "rbac.authorization.k8s.io";
    let mut objects = Vec::new();
    let mut controllers = Vec::new();
    for role in parse() {
        let mut object = json!({"metadata": default_meta(role.name), "rules": null});
        for label in &role.labels {
            let kind = label.strip_prefix("aggregate-to-").unwrap_or(label);
            object["metadata"]["labels"][format!("{AGGREGATE}{kind}")] = "true".into();
        }
        if !role.rules.is_empty() {
            object["rules"] = role.rules.iter().map(Rule::to_json).collect();
        }
        if let Some(label) = role.aggregate {
            object["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {format!("{AGGREGATE}{label}"): "true"}}]});
        }
        if let Some(account) = role.name.strip_prefix("system:controller:") {
            controllers.push((role.name, account));
        }
        objects.push(("clusterroles", object));
    }
    aggregate(&mut objects);
    let binding = |role: &str, subjects: Vec<Value>| {
        let mut object = json!({
            "metadata": default_meta(role),
            "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
        });
        if !subjects.is_empty() {
            object["subjects"] = subjects.into();
        }
        ("clusterrolebindings", object)
    };
    let account =
        |name: &str| json!({"kind": "ServiceAccount", "name": name, "namespace": "kube-system"});
    for (role, subjects) in BINDINGS {
        let subjects = subjects
            .iter()
            .map(|(kind, name)| match *kind {
                "ServiceAccount" => account(name),
                kind => json!({"kind": kind, "apiGroup": GROUP, "name": name}),
            })
            .collect();
        objects.push(binding(role, subjects));
    }
    for (role, name) in controllers {
        objects.push(binding(role, vec![account(name)]));
    }
    objects
}

/// Writes into the roles that collect others what those hold, so that a server without controllers has them whole. From
/// then on the controller of cluster roles does it.
fn aggregate(roles: &mut [(&'static str, Value)]) {
    let collected = |roles: &[(&str, Value)], role: &Value| -> Option<Value> {
        let selector = &role["aggregationRule"]["clusterRoleSelectors"][0]["matchLabels"];
        let (label, _) = selector.as_object()?.iter().next()?;
        let mut parts: Vec<&Value> = roles
            .iter()
            .map(|(_, other)| other)
            .filter(|other| other["metadata"]["labels"][label] == "true")
            .filter(|other| meta(other, "name") != meta(role, "name"))
            .collect();
        parts.sort_by_key(|other| meta(other, "name"));
        let mut rules: Vec<Value> = Vec::new();
        for rule in parts
            .iter()
            .filter_map(|part| part["rules"].as_array())
            .flatten()
        {
            if !rules.contains(rule) {
                rules.push(rule.clone());
            }
        }
        Some(rules.into())
    };
    // `admin` collects `edit`, which collects `view`: a round settles one of them more.
    for _ in 0..AGGREGATED {
        for at in 0..roles.len() {
            if let Some(rules) = collected(roles, &roles[at].1) {
                roles[at].1["rules"] = rules;
            }
        }
    }
}
