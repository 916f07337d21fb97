use serde_json::json;

use super::*;
use crate::allocated::Claim;
use crate::claim::{ClaimRef, PreparedDevice};
use crate::metadata_writer::{Writer, pod_claim_name};

fn writer(directory: &std::path::Path) -> Writer {
    Writer {
        driver: "gpu.example.com".into(),
        data_dir: directory.join("data"),
        cdi_dir: directory.join("cdi"),
        lock: parking_lot::Mutex::default(),
    }
}

/// A claim of a pod that calls it `pod_claim`, when made from a template.
fn claim(pod_claim: Option<&str>) -> Claim {
    let reference = ClaimRef {
        namespace: "default".into(),
        name: "claim".into(),
        uid: "claim-uid".into(),
    };
    let annotations = pod_claim.map(|name| json!({"resource.kubernetes.io/pod-claim-name": name}));
    Claim {
        reference,
        allocation: Default::default(),
        object: json!({"metadata": {"annotations": annotations}}),
        journal: None,
        read: Default::default(),
    }
}

fn device(request: &str, name: &str, metadata: Value) -> PreparedDevice {
    PreparedDevice {
        requests: vec![request.into()],
        pool: "worker-0".into(),
        device: name.into(),
        metadata: serde_json::from_value(metadata).unwrap(),
        ..PreparedDevice::default()
    }
}

/// All files below a directory, by their path.
fn files(directory: &std::path::Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(next).into_iter().flatten().flatten() {
            match entry.file_type().unwrap().is_dir() {
                true => open.push(entry.path()),
                false => {
                    let path = entry.path();
                    let path = path.strip_prefix(directory).unwrap();
                    found.push(path.display().to_string());
                }
            }
        }
    }
    found.sort();
    found
}

#[test]
fn each_request_has_a_file_and_a_mount() {
    let directory = tempfile::tempdir().unwrap();
    let writer = writer(directory.path());
    let model = json!({"attributes": {"model": {"string": "A"}}});
    let devices = [
        device("gpu/large", "gpu-0", model.clone()),
        device("gpu/large", "gpu-1", Value::Null),
        device("nic", "nic-0", Value::Null),
    ];
    write(&writer, &claim(Some("gpus")), &devices, true).unwrap();
    assert_eq!(
        files(directory.path()),
        [
            "cdi/gpu.example.com_metadata_claim-uid_gpu.json",
            "cdi/gpu.example.com_metadata_claim-uid_nic.json",
            "data/dra-device-metadata/default_claim/gpu/metadata.json",
            "data/dra-device-metadata/default_claim/nic/metadata.json",
        ]
    );
    let file = directory
        .path()
        .join("data/dra-device-metadata/default_claim/gpu/metadata.json");
    let content = std::fs::read(&file).unwrap();
    let objects: Vec<Value> = serde_json::Deserializer::from_slice(&content)
        .into_iter()
        .collect::<Result<_, _>>()
        .unwrap();
    let expected = |version: &str| {
        json!({
            "kind": "DeviceMetadata",
            "apiVersion": format!("metadata.resource.k8s.io/{version}"),
            "metadata": {"name": "claim", "namespace": "default", "uid": "claim-uid", "generation": 1},
            "podClaimName": "gpus",
            "requests": [{
                "name": "gpu/large",
                "devices": [
                    {"driver": "gpu.example.com", "pool": "worker-0", "name": "gpu-0",
                     "attributes": {"model": {"string": "A"}}},
                    {"driver": "gpu.example.com", "pool": "worker-0", "name": "gpu-1"},
                ],
            }],
        })
    };
    assert_eq!(objects, [expected("v1beta1"), expected("v1alpha1")]);
    let spec = directory
        .path()
        .join("cdi/gpu.example.com_metadata_claim-uid_gpu.json");
    let spec: Value = serde_json::from_slice(&std::fs::read(spec).unwrap()).unwrap();
    assert_eq!(spec["kind"], "gpu.example.com/metadata");
    assert_eq!(spec["devices"][0]["name"], "claim-uid_gpu");
    assert_eq!(
        spec["devices"][0]["containerEdits"]["mounts"][0],
        json!({
            "hostPath": file,
            "containerPath": "/var/run/kubernetes.io/dra-device-attributes/resourceclaimtemplates/gpus/gpu/gpu.example.com-metadata.json",
            "options": ["ro", "bind"],
        })
    );
    assert_eq!(
        claim_file("d", "c", "r"),
        std::path::Path::new(
            "/var/run/kubernetes.io/dra-device-attributes/resourceclaims/c/r/d-metadata.json"
        )
    );
    writer.remove(&claim(None).reference).unwrap();
    assert_eq!(files(directory.path()), [""; 0]);
    // Giving back twice is fine.
    writer.remove(&claim(None).reference).unwrap();
}

#[test]
fn an_update_is_kept_when_the_claim_is_prepared_again() {
    let directory = tempfile::tempdir().unwrap();
    let (writer, claim) = (writer(directory.path()), claim(None));
    let network = |ip: &str| json!({"networkData": {"interfaceName": "eth1", "ips": [ip]}});
    let read = || {
        let path = "data/dra-device-metadata/default_claim/nic/metadata.json";
        let file = decode(&std::fs::read(directory.path().join(path)).unwrap()).unwrap();
        let ips = file.requests[0].devices[0].about.network_data.clone();
        let ips = ips.and_then(|data| data.ips).unwrap_or_default();
        (file.metadata.generation, ips)
    };
    let first = [device("nic", "nic-0", Value::Null)];
    write(&writer, &claim, &first, true).unwrap();
    assert_eq!(read(), (Some(1), vec![]));
    let known = [device("nic", "nic-0", network("10.0.0.1/24"))];
    writer.update(&claim.reference, "nic", &known).unwrap();
    assert_eq!(read(), (Some(2), vec!["10.0.0.1/24".to_owned()]));
    write(&writer, &claim, &first, false).unwrap();
    assert_eq!(read(), (Some(2), vec!["10.0.0.1/24".to_owned()]));
    let error = writer.update(&claim.reference, "gpu", &known).unwrap_err();
    assert_eq!(
        error.to_string(),
        "request \"gpu\" not found in prepared claim default/claim"
    );
    // A claim of the same name that came later is another one.
    let mut other = claim.clone();
    other.reference.uid = "other".into();
    assert!(writer.update(&other.reference, "nic", &known).is_err());
    write(&writer, &other, &first, false).unwrap();
    assert_eq!(read(), (Some(1), vec![]));
}

#[test]
fn the_first_known_version_is_read() {
    let object = |version: &str, name: &str| {
        json!({"apiVersion": version, "kind": "DeviceMetadata", "metadata": {"name": name}})
            .to_string()
    };
    let check = |content: &str, expected: Result<&str, &str>| {
        let found = decode(content.as_bytes())
            .map(|file| file.metadata.name.unwrap_or_default())
            .map_err(|error| error.to_string());
        match expected {
            Ok(name) => assert_eq!(found.as_deref(), Ok(name)),
            Err(part) => assert!(found.as_ref().is_err_and(|e| e.contains(part)), "{found:?}"),
        }
    };
    let (new, old) = (
        object("metadata.resource.k8s.io/v2", "new"),
        object("metadata.resource.k8s.io/v1alpha1", "old"),
    );
    check(&format!("{new}\n{old}"), Ok("old"));
    check(&format!("{old}{new}"), Ok("old"));
    check(
        &format!("{new}{}", object("other/v1", "x")),
        Err("(unknown versions: metadata.resource.k8s.io/v2, other/v1)"),
    );
    check("", Err("no metadata objects found in stream"));
    check("{}", Err("decode metadata object"));
    check("{", Err("decode metadata object"));
}

fn write(
    writer: &Writer,
    claim: &Claim,
    devices: &[PreparedDevice],
    new: bool,
) -> Result<(), crate::Error> {
    writer.write(claim.reference(), pod_claim_name(claim), devices, new)
}
