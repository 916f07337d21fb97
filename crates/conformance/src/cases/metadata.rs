//! Files in containers that describe their devices.

use std::collections::BTreeMap;
use std::path::PathBuf;

use allot_cdi::Registry;
use serde_json::{Value, json};

use crate::case::{Case, Observed, Stop, case, ensure, fail, skip};
use crate::fixture::{ClaimRequest, Fixture, text};
use allot_kubelet::{ClaimRef, Device};

const SOURCE: &str = "KEP-5304, device metadata";
/// The directory of all such files in a container.
const DIRECTORY: &str = "/var/run/kubernetes.io/dra-device-attributes/";

pub(crate) const CASES: &[Case] = &[
    case!(content, "metadata-content", process: false, devices: 2,
        rule: "Device metadata is mounted read-only, one file for each request at its path, and names the claim, the request and its devices.",
        source: SOURCE,
        hint: "write the file with the helper of the SDK or of k8s.io/dynamic-resource-allocation"),
    case!(lifetime, "metadata-lifetime", process: true, devices: 1,
        rule: "The files of device metadata are there after kill -9 and a restart, and gone after NodeUnprepareResources.",
        source: SOURCE,
        hint: "remove the files with the claim; at the start write missing ones again"),
];

/// Path in the container, and on the host, of the metadata that the devices of an answer mount.
fn mounted(w: &Fixture, devices: &[Device]) -> Result<BTreeMap<String, PathBuf>, Stop> {
    let ids: Vec<&String> = devices.iter().flat_map(|device| &device.cdi).collect();
    let edits = Registry::load(&[&w.places.cdi]).resolve(&ids);
    let edits = edits.or_else(|error| fail(error.to_string()))?;
    let mut files = BTreeMap::new();
    for mount in edits.mounts {
        if !mount.container_path.starts_with(DIRECTORY) {
            continue;
        }
        let path = mount.container_path;
        ensure!(
            mount.options.iter().any(|option| option == "ro"),
            "{path} is mounted without the option ro"
        );
        files.insert(path, PathBuf::from(mount.host_path));
    }
    match files.is_empty() {
        true => skip("the driver writes no device metadata"),
        false => Ok(files),
    }
}

async fn content(w: &mut Fixture) -> Observed {
    let wanted = w.devices()[..2].to_vec();
    let claim = w
        .make(ClaimRequest {
            devices: wanted.clone(),
            ..ClaimRequest::default()
        })
        .await?;
    let devices = w.prepare(&claim).await?;
    let files = mounted(w, &devices)?;
    for (index, device) in wanted.iter().enumerate() {
        let request = format!("r{index}");
        let path = format!(
            "{DIRECTORY}resourceclaims/{}/{request}/{}-metadata.json",
            claim.name,
            w.driver()
        );
        let Some(host) = files.get(&path) else {
            let found: Vec<&String> = files.keys().collect();
            return fail(format!("nothing is mounted at {path}, but at {found:?}"));
        };
        let expected = json!({"driver": w.driver(), "pool": device.pool, "name": device.name});
        check(host, &claim, &request, &expected)?;
    }
    ensure!(
        files.len() == wanted.len(),
        "{} files for {} requests",
        files.len(),
        wanted.len()
    );
    Ok(format!("{} files", files.len()))
}

/// Checks a file: a stream of objects, one for each version.
fn check(host: &PathBuf, claim: &ClaimRef, request: &str, device: &Value) -> Result<(), Stop> {
    let shown = host.display();
    let bytes = std::fs::read(host).or_else(|error| fail(format!("{shown}: {error}")))?;
    let mut versions = 0;
    for object in serde_json::Deserializer::from_slice(&bytes).into_iter::<Value>() {
        let object = object.or_else(|error| fail(format!("{shown}: {error}")))?;
        versions += 1;
        let version = text(&object["apiVersion"]);
        ensure!(
            version.starts_with("metadata.resource.k8s.io/") && object["kind"] == "DeviceMetadata",
            "{shown} has an object of {version}, kind {}",
            object["kind"]
        );
        let about = &object["metadata"];
        let named = about["name"] == claim.name
            && about["namespace"] == claim.namespace
            && about["uid"] == claim.uid;
        ensure!(named, "{shown} is not about the claim: {about}");
        let requests = object["requests"].as_array().into_iter().flatten();
        let found: Vec<&Value> = requests.collect();
        let [found] = found[..] else {
            return fail(format!("{shown} is about {} requests", found.len()));
        };
        ensure!(
            found["name"] == request,
            "{shown} is about the request {}, not {request:?}",
            found["name"]
        );
        let devices = found["devices"].as_array().into_iter().flatten();
        let same = |other: &&Value| {
            ["driver", "pool", "name"]
                .iter()
                .all(|field| other[*field] == device[*field])
        };
        ensure!(
            devices.filter(same).count() == 1,
            "{shown} does not name the device {device} once"
        );
    }
    ensure!(versions > 0, "{shown} is empty");
    Ok(())
}

async fn lifetime(w: &mut Fixture) -> Observed {
    let before = w.cdi_devices();
    let claim = w.claim(0).await?;
    let devices = w.prepare(&claim).await?;
    let files = mounted(w, &devices)?;
    let read = |path: &PathBuf| {
        std::fs::read(path).or_else(|error| fail(format!("{}: {error}", path.display())))
    };
    let contents: Vec<Vec<u8>> = files.values().map(read).collect::<Result<_, _>>()?;
    w.restart().await?;
    let after: Vec<Vec<u8>> = files.values().map(read).collect::<Result<_, _>>()?;
    ensure!(after == contents, "the content changed over the restart");
    w.unprepare(&claim).await?;
    let left = files.values().find(|path| path.exists());
    if let Some(left) = left {
        return fail(format!(
            "{} is left after NodeUnprepareResources",
            left.display()
        ));
    }
    w.is_clean(&claim, &before)?;
    let again = w.prepare(&claim).await?;
    for path in mounted(w, &again)?.values() {
        read(path)?;
    }
    w.unprepare(&claim).await?;
    Ok("the files come and go with the claim".to_owned())
}
