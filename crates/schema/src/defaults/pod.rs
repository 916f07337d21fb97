//! Pods and pod templates.

use allot_apimachinery::amounts::{self, Amounts};
use serde_json::{Value, json};

use super::{Object, child, set, text};

/// Defaults of pods that templates of pods do not have.
pub(super) fn whole(map: &mut Object) {
    addresses(map);
    let Some(Value::Object(spec)) = map.get_mut("spec") else {
        return;
    };
    set(spec, "enableServiceLinks", true);
    each_container(spec, |container| {
        if let Some(Value::Object(resources)) = container.get_mut("resources") {
            requests_from_limits(resources);
        }
    });
    if spec.get("hostNetwork") == Some(&Value::Bool(true)) {
        host_ports(spec);
    }
    pod_level_amounts(spec);
}

/// Calls `change` with each container and init container of a pod spec.
fn each_container(spec: &mut Object, mut change: impl FnMut(&mut Value)) {
    for list in ["containers", "initContainers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        containers.into_iter().flatten().for_each(&mut change);
    }
}

/// Makes `podIP` and the first of `podIPs` equal; if they differ, `podIP` counts.
fn addresses(map: &mut Object) {
    let Some(Value::Object(status)) = map.get_mut("status") else {
        return;
    };
    let address = text(status, "podIP").to_owned();
    let first = status
        .get("podIPs")
        .and_then(|all| all.get(0))
        .and_then(|it| it.get("ip"))
        .and_then(Value::as_str)
        .map(str::to_owned);
    match first {
        Some(first) if address.is_empty() => {
            status.insert("podIP".to_owned(), first.into());
        }
        first if !address.is_empty() && first.as_ref() != Some(&address) => {
            status.insert("podIPs".to_owned(), json!([{ "ip": address }]));
        }
        _ => {}
    }
}

/// A limit without a request is the request as well.
fn requests_from_limits(resources: &mut Object) {
    let Some(Value::Object(limits)) = resources.get("limits").cloned() else {
        return;
    };
    let Some(requests) = child(resources, "requests") else {
        return;
    };
    for (name, limit) in limits {
        requests.entry(name).or_insert(limit);
    }
}

/// A port of a pod in the host's network is the host's port as well.
fn host_ports(spec: &mut Object) {
    each_container(spec, |container| {
        let ports = container.get_mut("ports").and_then(Value::as_array_mut);
        for port in ports.into_iter().flatten() {
            let host_port = port.get("hostPort").and_then(Value::as_i64);
            if host_port.unwrap_or_default() == 0
                && let (Some(number), Value::Object(port)) =
                    (port.get("containerPort").cloned(), port)
            {
                port.insert("hostPort".to_owned(), number);
            }
        }
    });
}

/// What the containers of a pod have at once of a field of their resources.
fn of_containers(spec: &Object, field: &str) -> Amounts {
    let containers = |key: &str| {
        spec.get(key)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
    };
    let amounts = |container: &Value| amounts::from_json(&container["resources"][field]);
    let sidecar = |container: &Value| container["restartPolicy"] == "Always";
    amounts::at_once(
        containers("containers").map(amounts),
        containers("initContainers").map(|it| (amounts(it), sidecar(it))),
    )
}

/// Pod-level limits of huge pages that are left open follow from those of the containers, and pod-level requests, where
/// there are limits, from those of the containers or from the limits.
fn pod_level_amounts(spec: &mut Object) {
    let Some(Value::Object(resources)) = spec.get("resources") else {
        return;
    };
    let part = |key: &str| {
        let part = resources.get(key).and_then(Value::as_object);
        part.cloned().unwrap_or_default()
    };
    let (mut limits, mut requests) = (part("limits"), part("requests"));
    if limits.is_empty() && requests.is_empty() {
        return;
    }
    let is_page = |name: &str| name.starts_with("hugepages-");
    for (name, sum) in of_containers(spec, "limits") {
        // A request of them says what is wanted.
        if is_page(&name) && !requests.contains_key(&name) {
            limits.entry(name).or_insert_with(|| sum.to_string().into());
        }
    }
    let supported = |name: &str| matches!(name, "cpu" | "memory");
    if !limits.is_empty() {
        for (name, sum) in of_containers(spec, "requests") {
            if supported(&name) {
                requests
                    .entry(name)
                    .or_insert_with(|| sum.to_string().into());
            }
        }
        for (name, limit) in &limits {
            if supported(name) || is_page(name) {
                requests
                    .entry(name.clone())
                    .or_insert_with(|| limit.clone());
            }
        }
    }
    if let Some(Value::Object(resources)) = spec.get_mut("resources") {
        for (key, amounts) in [("limits", limits), ("requests", requests)] {
            if !amounts.is_empty() {
                resources.insert(key.to_owned(), Value::Object(amounts));
            }
        }
    }
}

pub(super) fn spec(map: &mut Object) {
    set(map, "dnsPolicy", "ClusterFirst");
    set(map, "restartPolicy", "Always");
    child(map, "securityContext");
    set(map, "terminationGracePeriodSeconds", 30);
    set(map, "schedulerName", "default-scheduler");
    // The old name of the field is served beside the new one.
    let account = match text(map, "serviceAccountName") {
        "" => text(map, "serviceAccount").to_owned(),
        name => name.to_owned(),
    };
    if !account.is_empty() {
        map.insert("serviceAccountName".to_owned(), account.clone().into());
        map.insert("serviceAccount".to_owned(), account.into());
    }
}

/// `Always` where the image has the tag `latest` or neither tag nor digest; what is no name of an image has none either.
fn pull_policy(image: &str) -> &'static str {
    let (rest, digest) = match image.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (image, None),
    };
    let last = rest.rfind('/').map_or(0, |at| at + 1);
    let (name, tag) = match rest[last..].split_once(':') {
        Some((name, tag)) => (&rest[..last + name.len()], Some(tag)),
        None => (rest, None),
    };
    if tag != Some("latest") && (tag.is_some() || digest.is_some()) {
        return "IfNotPresent";
    }
    match is_image_name(name) {
        true => "Always",
        false => "IfNotPresent",
    }
}

/// The most characters of the path of an image's name.
const MAX_IMAGE_PATH: usize = 255;

/// Whether this is a path of lower-case parts, perhaps after a host.
fn is_image_name(name: &str) -> bool {
    let path = match name.split_once('/') {
        Some((host, path))
            if host.contains(['.', ':'])
                || host == "localhost"
                || host.bytes().any(|b| b.is_ascii_uppercase()) =>
        {
            let (host, port) = host.split_once(':').unwrap_or((host, "0"));
            let label = |part: &str| {
                let inner = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
                let edge = |c: char| c.is_ascii_alphanumeric();
                part.bytes().all(inner) && part.starts_with(edge) && part.ends_with(edge)
            };
            let is_port = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
            if !host.split('.').all(label) || !is_port {
                return false;
            }
            path
        }
        _ => name,
    };
    // An id of an image looks like its name, but is none.
    let is_id = name.len() == 64 && name.bytes().all(|b| b.is_ascii_hexdigit());
    // A path of one part alone is below `library` of the default registry.
    let below = if name.contains('/') { "" } else { "library/" };
    let length = below.len() + path.len();
    !is_id && length <= MAX_IMAGE_PATH && path.split('/').all(is_image_part)
}

/// Lower-case letters and digits with single dots, up to two underscores, or dashes between them.
fn is_image_part(part: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let mut separators = part.split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    part.bytes().next().is_some_and(plain)
        && part.bytes().last().is_some_and(plain)
        && separators.all(|between| {
            matches!(between, "" | "." | "_" | "__") || between.bytes().all(|b| b == b'-')
        })
}

pub(super) fn container(map: &mut Object) {
    let policy = pull_policy(text(map, "image"));
    set(map, "imagePullPolicy", policy);
    set(map, "terminationMessagePath", "/dev/termination-log");
    set(map, "terminationMessagePolicy", "File");
}

pub(super) fn probe(map: &mut Object) {
    for (key, value) in [
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ] {
        if map.get(key).and_then(Value::as_i64).unwrap_or_default() == 0 {
            map.insert(key.to_owned(), value.into());
        }
    }
}

pub(super) fn volume(map: &mut Object) {
    if map.keys().all(|key| key == "name") {
        map.insert("emptyDir".to_owned(), Value::Object(Object::new()));
    }
    if let Some(Value::Object(image)) = map.get_mut("image") {
        let policy = pull_policy(text(image, "reference"));
        set(image, "pullPolicy", policy);
    }
}
