//! How upstream shows what a change may not change: a unified diff of its internal structs as JSON.
//!
//! The structs differ from those of the API in names, order and a few other places. [`STRUCTS`] describes the
//! differences for the types in pods and PersistentVolumeClaims; unknown structs are shown with API names.

use allot_apimachinery::quote::go_json;
use serde_json::{Map, Value, json};

/// Lines around a change.
const CONTEXT: usize = 3;

/// Limit of compared pairs of lines; beyond it everything is shown as removed and added.
const MAX_CELLS: usize = 1 << 20;

/// One struct on each line: its name, then fields in order. A field is its Go name, a letter for the text of an absent
/// one (`s` text, `i` number, `b` bool, `n` nil, `v` an empty struct, `e` fields of an embedded struct) and the struct
/// of a field or of its elements.
const STRUCTS: &str = "
PodSpec Volumes:n:Volume InitContainers:n:Container Containers:n:Container EphemeralContainers:n:EphemeralContainer RestartPolicy:s TerminationGracePeriodSeconds:n ActiveDeadlineSeconds:n DNSPolicy:s NodeSelector:n ServiceAccountName:s AutomountServiceAccountToken:n NodeName:s SecurityContext:n:PodSecurityContext ImagePullSecrets:n:LocalObjectReference Hostname:s Subdomain:s SetHostnameAsFQDN:n Affinity:n:Affinity SchedulerName:s Tolerations:n:Toleration HostAliases:n:HostAlias PriorityClassName:s Priority:n PreemptionPolicy:n DNSConfig:n:PodDNSConfig ReadinessGates:n:PodReadinessGate RuntimeClassName:n Overhead:n EnableServiceLinks:n TopologySpreadConstraints:n:TopologySpreadConstraint OS:n:PodOS SchedulingGates:n:PodSchedulingGate ResourceClaims:n:PodResourceClaim Resources:n:ResourceRequirements HostnameOverride:n SchedulingGroup:n
Container Name:s Image:s Command:n Args:n WorkingDir:s Ports:n:ContainerPort EnvFrom:n:EnvFromSource Env:n:EnvVar Resources:v:ResourceRequirements ResizePolicy:n:ContainerResizePolicy RestartPolicy:n RestartPolicyRules:n VolumeMounts:n:VolumeMount VolumeDevices:n:VolumeDevice LivenessProbe:n:Probe ReadinessProbe:n:Probe StartupProbe:n:Probe Lifecycle:n:Lifecycle TerminationMessagePath:s TerminationMessagePolicy:s ImagePullPolicy:s SecurityContext:n:SecurityContext Stdin:b StdinOnce:b TTY:b
EphemeralContainer Common:e:Container TargetContainerName:s
ContainerPort Name:s HostPort:i ContainerPort:i Protocol:s HostIP:s
EnvVar Name:s Value:s ValueFrom:n:EnvVarSource
EnvVarSource FieldRef:n:ObjectFieldSelector ResourceFieldRef:n:ResourceFieldSelector ConfigMapKeyRef:n:KeySelector SecretKeyRef:n:KeySelector FileKeyRef:n
ObjectFieldSelector APIVersion:s FieldPath:s
ResourceFieldSelector ContainerName:s Resource:s Divisor:q
KeySelector Name:s Key:s Optional:n
EnvFromSource Prefix:s ConfigMapRef:n:EnvSource SecretRef:n:EnvSource
EnvSource Name:s Optional:n
ResourceRequirements Limits:n Requests:n Claims:n:ResourceClaim
ResourceClaim Name:s Request:s
ContainerResizePolicy ResourceName:s RestartPolicy:s
VolumeMount Name:s ReadOnly:b RecursiveReadOnly:n MountPath:s SubPath:s MountPropagation:n SubPathExpr:s
VolumeDevice Name:s DevicePath:s
Probe Handler:e:ProbeHandler InitialDelaySeconds:i TimeoutSeconds:i PeriodSeconds:i SuccessThreshold:i FailureThreshold:i TerminationGracePeriodSeconds:n
ProbeHandler Exec:n:ExecAction HTTPGet:n:HTTPGetAction TCPSocket:n:TCPSocketAction GRPC:n:GRPCAction
ExecAction Command:n
HTTPGetAction Path:s Port:i Host:s Scheme:s HTTPHeaders:n:HTTPHeader
HTTPHeader Name:s Value:s
TCPSocketAction Port:i Host:s
GRPCAction Port:i Service:n
Lifecycle PostStart:n:LifecycleHandler PreStop:n:LifecycleHandler StopSignal:n
LifecycleHandler Exec:n:ExecAction HTTPGet:n:HTTPGetAction TCPSocket:n:TCPSocketAction Sleep:n:SleepAction
SleepAction Seconds:i
SecurityContext Capabilities:n:Capabilities Privileged:n SELinuxOptions:n:SELinuxOptions WindowsOptions:n RunAsUser:n RunAsGroup:n RunAsNonRoot:n ReadOnlyRootFilesystem:n AllowPrivilegeEscalation:n ProcMount:n SeccompProfile:n:Profile AppArmorProfile:n:Profile
Capabilities Add:n Drop:n
SELinuxOptions User:s Role:s Type:s Level:s
Profile Type:s LocalhostProfile:n
PodSecurityContext HostNetwork:b HostPID:b HostIPC:b ShareProcessNamespace:n HostUsers:n SELinuxOptions:n:SELinuxOptions WindowsOptions:n RunAsUser:n RunAsGroup:n RunAsNonRoot:n SupplementalGroups:n SupplementalGroupsPolicy:n FSGroup:n FSGroupChangePolicy:n Sysctls:n:Sysctl SeccompProfile:n:Profile AppArmorProfile:n:Profile SELinuxChangePolicy:n
Sysctl Name:s Value:s
LocalObjectReference Name:s
Volume Name:s Source:e:VolumeSource
VolumeSource HostPath:n:HostPath EmptyDir:n:EmptyDir GCEPersistentDisk:n AWSElasticBlockStore:n GitRepo:n Secret:n:SecretVolume NFS:n:NFS ISCSI:n Glusterfs:n PersistentVolumeClaim:n:ClaimVolume RBD:n Quobyte:n FlexVolume:n Cinder:n CephFS:n Flocker:n DownwardAPI:n:DownwardVolume FC:n AzureFile:n ConfigMap:n:ConfigMapVolume VsphereVolume:n AzureDisk:n PhotonPersistentDisk:n Projected:n:Projected PortworxVolume:n ScaleIO:n StorageOS:n CSI:n Ephemeral:n Image:n
HostPath Path:s Type:n
EmptyDir Medium:s SizeLimit:n
SecretVolume SecretName:s Items:n:KeyToPath DefaultMode:n Optional:n
ConfigMapVolume Name:s Items:n:KeyToPath DefaultMode:n Optional:n
KeyToPath Key:s Path:s Mode:n
NFS Server:s Path:s ReadOnly:b
ClaimVolume ClaimName:s ReadOnly:b
DownwardVolume Items:n:DownwardFile DefaultMode:n
DownwardFile Path:s FieldRef:n:ObjectFieldSelector ResourceFieldRef:n:ResourceFieldSelector Mode:n
Projected Sources:n:Projection DefaultMode:n
Projection Secret:n:MapProjection DownwardAPI:n:DownwardProjection ConfigMap:n:MapProjection ServiceAccountToken:n:TokenProjection ClusterTrustBundle:n PodCertificate:n
MapProjection Name:s Items:n:KeyToPath Optional:n
DownwardProjection Items:n:DownwardFile
TokenProjection Audience:s ExpirationSeconds:i Path:s
Affinity NodeAffinity:n:NodeAffinity PodAffinity:n:PodAffinity PodAntiAffinity:n:PodAffinity
NodeAffinity RequiredDuringSchedulingIgnoredDuringExecution:n:NodeSelector PreferredDuringSchedulingIgnoredDuringExecution:n:PreferredTerm
NodeSelector NodeSelectorTerms:n:NodeSelectorTerm
NodeSelectorTerm MatchExpressions:n:Requirement MatchFields:n:Requirement
PreferredTerm Weight:i Preference:v:NodeSelectorTerm
Requirement Key:s Operator:s Values:n
Toleration Key:s Operator:s Value:s Effect:s TolerationSeconds:n
HostAlias IP:s Hostnames:n
PodDNSConfig Nameservers:n Searches:n Options:n:DNSOption
DNSOption Name:s Value:n
PodReadinessGate ConditionType:s
PodOS Name:s
PodSchedulingGate Name:s
PodResourceClaim Name:s ResourceClaimName:n ResourceClaimTemplateName:n
PersistentVolumeClaimSpec AccessModes:n Selector:n Resources:v:VolumeResources VolumeName:s StorageClassName:n VolumeMode:n DataSource:n:ObjectReference DataSourceRef:n:NamespacedReference VolumeAttributesClassName:n
PersistentVolumeSource GCEPersistentDisk:n AWSElasticBlockStore:n HostPath:n:HostPath Glusterfs:n NFS:n:NFS RBD:n Quobyte:n ISCSI:n FlexVolume:n Cinder:n CephFS:n FC:n Flocker:n AzureFile:n VsphereVolume:n AzureDisk:n PhotonPersistentDisk:n PortworxVolume:n ScaleIO:n Local:n:LocalVolume StorageOS:n CSI:n:CSIVolume
LocalVolume Path:s FSType:n
CSIVolume Driver:s VolumeHandle:s ReadOnly:b FSType:s VolumeAttributes:n ControllerPublishSecretRef:n:SecretReference NodeStageSecretRef:n:SecretReference NodePublishSecretRef:n:SecretReference ControllerExpandSecretRef:n:SecretReference NodeExpandSecretRef:n:SecretReference
SecretReference Name:s Namespace:s
VolumeResources Limits:n Requests:n
ObjectReference APIGroup:n Kind:s Name:s
NamespacedReference APIGroup:n Kind:s Name:s Namespace:n
";

/// The change of a pod's spec as upstream shows it, line by line.
pub(crate) fn diff(before: &Value, after: &Value) -> String {
    of("PodSpec", &pod_spec(before), &pod_spec(after))
}

/// The change of one of [`STRUCTS`].
pub(crate) fn of(name: &str, before: &Value, after: &Value) -> String {
    unified(&lines(name, before), &lines(name, after))
}

/// A pod template in one line: its metadata, which is part of it in Go, as in the API, and its spec in the internal
/// form.
pub(crate) fn template(template: &Value) -> String {
    let mut out = "{".to_owned();
    for (name, value) in template["metadata"].as_object().into_iter().flatten() {
        out.push_str(&format!(
            "{}:{},",
            Value::from(name.as_str()),
            go_json(value)
        ));
    }
    out.push_str("\"Spec\":");
    for line in lines("PodSpec", &pod_spec(&template["spec"])) {
        let line = line.trim_start();
        // A member has a space behind its name.
        match line.split_once("\": ") {
            Some((name, value)) if line.starts_with('"') => {
                out.push_str(name);
                out.push_str("\":");
                out.push_str(value);
            }
            _ => out.push_str(line),
        }
    }
    out.push('}');
    out
}

fn lines(name: &str, value: &Value) -> Vec<String> {
    let mut out = String::new();
    structure(&mut out, 0, name, value);
    out.lines().map(str::to_owned).collect()
}

fn pod_spec(spec: &Value) -> Value {
    let mut spec = spec.clone();
    // Upstream's structs have these fields in the security context.
    for key in [
        "hostNetwork",
        "hostPID",
        "hostIPC",
        "shareProcessNamespace",
        "hostUsers",
    ] {
        let value = spec.as_object_mut().and_then(|map| map.remove(key));
        if let (Some(value), Value::Object(context)) = (value, &mut spec["securityContext"]) {
            context.insert(key.to_owned(), value);
        }
    }
    spec
}

fn fields(name: &str) -> Option<&'static str> {
    let mut lines = STRUCTS.lines();
    lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
}

/// The JSON name of a field: its first letters are small, up to the last capital letter before a small one.
fn json_name(go: &str) -> String {
    match go {
        "CephFS" | "StorageOS" => go.to_ascii_lowercase(),
        _ => {
            let capitals = go.bytes().take_while(u8::is_ascii_uppercase).count();
            let small = if capitals == go.len() || capitals == 1 {
                capitals
            } else {
                capitals - 1
            };
            format!("{}{}", go[..small].to_ascii_lowercase(), &go[small..])
        }
    }
}

fn structure(out: &mut String, depth: usize, name: &str, value: &Value) {
    let mut members = Vec::new();
    collect(&mut members, name, value);
    open(out, depth, '{', members.len(), |out, index| {
        let (go, rule, kind, value) = &members[index];
        out.push_str(&format!("{}: ", json!(go)));
        match (value, *rule) {
            (Value::Null, "s") => out.push_str("\"\""),
            (Value::Null, "i") => out.push('0'),
            (Value::Null, "q") => out.push_str("\"0\""),
            (Value::Null, "b") => out.push_str("false"),
            (Value::Null, "v") => structure(out, depth + 1, kind, &Value::Null),
            (value, _) => shown(out, depth + 1, kind, value),
        }
    });
}

type Member<'a> = (&'static str, &'static str, &'static str, &'a Value);

fn collect<'a>(members: &mut Vec<Member<'a>>, name: &str, value: &'a Value) {
    for field in fields(name).unwrap_or_default().split(' ') {
        let mut parts = field.split(':');
        let (Some(go), Some(rule)) = (parts.next(), parts.next()) else {
            continue;
        };
        let kind = parts.next().unwrap_or_default();
        if rule == "e" {
            collect(members, kind, value);
        } else {
            members.push((go, rule, kind, &value[&json_name(go)]));
        }
    }
}

fn shown(out: &mut String, depth: usize, kind: &str, value: &Value) {
    match value {
        Value::Object(_) if fields(kind).is_some() => structure(out, depth, kind, value),
        Value::Object(map) => plain(out, depth, map),
        Value::Array(list) => open(out, depth, '[', list.len(), |out, index| {
            shown(out, depth + 1, kind, &list[index]);
        }),
        other => out.push_str(&escaped(other)),
    }
}

fn plain(out: &mut String, depth: usize, map: &Map<String, Value>) {
    let members: Vec<_> = map.iter().collect();
    open(out, depth, '{', members.len(), |out, index| {
        let (key, value) = members[index];
        out.push_str(&format!("{}: ", escaped(&json!(key))));
        shown(out, depth + 1, "", value);
    });
}

/// Brackets with one item on each line between them.
fn open(
    out: &mut String,
    depth: usize,
    bracket: char,
    count: usize,
    item: impl Fn(&mut String, usize),
) {
    let close = if bracket == '{' { '}' } else { ']' };
    out.push(bracket);
    for index in 0..count {
        out.push('\n');
        out.push_str(&" ".repeat(depth + 1));
        item(out, index);
        if index + 1 < count {
            out.push(',');
        }
    }
    if count > 0 {
        out.push('\n');
        out.push_str(&" ".repeat(depth));
    }
    out.push(close);
}

/// A scalar as Go writes it: with HTML escapes.
fn escaped(value: &Value) -> String {
    value
        .to_string()
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
}

/// Lines that stay, are removed or added.
#[derive(Clone, Copy, PartialEq)]
enum Edit {
    Keep(usize, usize),
    Remove(usize),
    Add(usize),
}

fn unified(before: &[String], after: &[String]) -> String {
    let edits = edits(before, after);
    let changed = |edit: &Edit| !matches!(edit, Edit::Keep(..));
    let mut out = String::new();
    let mut start = 0;
    while let Some(first) = edits[start..].iter().position(changed).map(|at| at + start) {
        // A group continues while changes are near each other.
        let (from, mut last) = (first.saturating_sub(CONTEXT).max(start), first);
        while let Some(next) = edits[last + 1..].iter().position(changed) {
            if next > 2 * CONTEXT {
                break;
            }
            last += 1 + next;
        }
        let until = (last + 1 + CONTEXT).min(edits.len());
        hunk(&mut out, &edits, from..until, before, after);
        start = until;
    }
    out
}

fn hunk(
    out: &mut String,
    edits: &[Edit],
    range: std::ops::Range<usize>,
    before: &[String],
    after: &[String],
) {
    let old = |edit: &&Edit| !matches!(edit, Edit::Add(_));
    let new = |edit: &&Edit| !matches!(edit, Edit::Remove(_));
    let place = |skipped: usize, length: usize| match length {
        1 => format!("{}", skipped + 1),
        0 => format!("{skipped},0"),
        length => format!("{},{length}", skipped + 1),
    };
    let (head, part) = (&edits[..range.start], &edits[range.clone()]);
    out.push_str(&format!(
        "@@ -{} +{} @@\n",
        place(
            head.iter().filter(old).count(),
            part.iter().filter(old).count()
        ),
        place(
            head.iter().filter(new).count(),
            part.iter().filter(new).count()
        ),
    ));
    for edit in part {
        let (mark, line) = match *edit {
            Edit::Keep(at, _) => (' ', &before[at]),
            Edit::Remove(at) => ('-', &before[at]),
            Edit::Add(at) => ('+', &after[at]),
        };
        out.push_str(&format!("{mark}{line}\n"));
    }
}

/// From one text to the other, by what both have in common.
fn edits(before: &[String], after: &[String]) -> Vec<Edit> {
    let head = before.iter().zip(after).take_while(|(a, b)| a == b).count();
    let (old, new) = (&before[head..], &after[head..]);
    let tail = old
        .iter()
        .rev()
        .zip(new.iter().rev())
        .take_while(|(a, b)| a == b)
        .count();
    let (old, new) = (&old[..old.len() - tail], &new[..new.len() - tail]);
    if old.len() * new.len() > MAX_CELLS {
        let mut edits: Vec<Edit> = (0..head).map(|at| Edit::Keep(at, at)).collect();
        edits.extend((0..old.len()).map(|at| Edit::Remove(head + at)));
        edits.extend((0..new.len()).map(|at| Edit::Add(head + at)));
        let (from, to) = (before.len() - tail, after.len() - tail);
        edits.extend((0..tail).map(|at| Edit::Keep(from + at, to + at)));
        return edits;
    }
    // Length of the longest common subsequence of the rest of both, from each position on.
    let width = new.len() + 1;
    let mut common = vec![0u32; (old.len() + 1) * width];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            common[i * width + j] = if old[i] == new[j] {
                common[(i + 1) * width + j + 1] + 1
            } else {
                common[(i + 1) * width + j].max(common[i * width + j + 1])
            };
        }
    }
    let mut edits: Vec<Edit> = (0..head).map(|at| Edit::Keep(at, at)).collect();
    let (mut i, mut j) = (0, 0);
    let mut added = Vec::new();
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            edits.append(&mut added);
            edits.push(Edit::Keep(head + i, head + j));
            (i, j) = (i + 1, j + 1);
        } else if j == new.len()
            || (i < old.len() && common[(i + 1) * width + j] >= common[i * width + j + 1])
        {
            edits.push(Edit::Remove(head + i));
            i += 1;
        } else {
            // Added lines are shown after removed ones.
            added.push(Edit::Add(head + j));
            j += 1;
        }
    }
    edits.append(&mut added);
    let (from, to) = (before.len() - tail, after.len() - tail);
    edits.extend((0..tail).map(|at| Edit::Keep(from + at, to + at)));
    edits
}
