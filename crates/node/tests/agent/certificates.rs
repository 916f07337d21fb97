//! Certificates in volumes of pods: those of authorities, and those that a signer issues for a pod.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use allot_model::features::Feature;
use allot_testing::wait::until_true;
use futures::StreamExt as _;
use http::Method;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::certificates::v1beta1::PodCertificateRequest;
use kube::api::{WatchEvent, WatchParams};
use kube::{Api, Client, ResourceExt};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, IsCa, Issuer, KeyPair,
    PublicKeyData as _,
};
use serde_json::{Value, json};
use tokio_util::task::AbortOnDropHandle;

use super::harness::{Cluster, has_isolation, pod_path, shell, with};

const GROUP: &str = "/apis/certificates.k8s.io/v1beta1";
const SIGNER: &str = "example.com/ca";

/// A certificate authority.
struct Authority {
    params: CertificateParams,
    key: KeyPair,
    text: String,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let text = params.self_signed(&key).expect("a certificate").pem();
        Self { params, key, text }
    }

    /// The status of a request: what the authority issues, or why not.
    fn answer(&self, request: &PodCertificateRequest) -> Value {
        let now = Timestamp::from_second(Timestamp::now().as_second()).expect("a time");
        let condition = |kind: &str, message: &str| json!([{"type": kind, "status": "True", "reason": "Because", "message": message, "lastTransitionTime": now}]);
        match request.spec.signer_name.as_str() {
            "example.com/denies" => {
                return json!({"conditions": condition("Denied", "not \"you\"")});
            }
            "example.com/fails" => return json!({"conditions": condition("Failed", "no ink")}),
            _ => {}
        }
        let der = request.spec.stub_pkc_s10_request.0.clone().into();
        let mut stub = CertificateSigningRequestParams::from_der(&der).expect("a signed request");
        let end = now + SignedDuration::from_hours(2);
        let time = |at: Timestamp| std::time::SystemTime::from(at).into();
        (stub.params.not_before, stub.params.not_after) = (time(now), time(end));
        let issuer = Issuer::from_params(&self.params, &self.key);
        let leaf = stub.signed_by(&issuer).expect("a certificate").pem();
        json!({
            "certificateChain": format!("text between\n{leaf}and more\n{}", self.text),
            "notBefore": now, "notAfter": end, "beginRefreshAt": now + SignedDuration::from_hours(1),
            "conditions": condition("Issued", ""),
        })
    }
}

/// Answers all requests.
fn sign(client: Client) -> (String, AbortOnDropHandle<()>) {
    let authority = Authority::new();
    let text = authority.text.clone();
    let signer = async move {
        let api = Api::<PodCertificateRequest>::all(client.clone());
        let events = api.watch(&WatchParams::default(), "0").await;
        let mut events = std::pin::pin!(events.expect("a watch"));
        while let Some(event) = events.next().await {
            let Ok(WatchEvent::Added(request)) = event else {
                continue;
            };
            let namespace = request.namespace().unwrap_or_default();
            let api = Api::<PodCertificateRequest>::namespaced(client.clone(), &namespace);
            let status = json!({"status": authority.answer(&request)});
            let patch = kube::api::Patch::Merge(status);
            let (name, params) = (request.name_any(), Default::default());
            let patched = api.patch_status(&name, &params, &patch).await;
            patched.expect("signed");
        }
    };
    (text, AbortOnDropHandle::new(tokio::spawn(signer)))
}

/// A volume with a certificate of a signer.
fn volume(signer: &str, more: Value) -> Value {
    let mut source = json!({"signerName": signer, "keyType": "ECDSAP256"});
    for (key, value) in more.as_object().into_iter().flatten() {
        source[key] = value.clone();
    }
    json!({"name": "v", "projected": {"defaultMode": 0o400, "sources": [{"podCertificate": source}]}})
}

fn paths() -> Value {
    json!({"credentialBundlePath": "bundle.pem", "keyPath": "own/key.pem", "certificateChainPath": "own/chain.pem"})
}

fn of_volume(cluster: &Cluster, uid: &str) -> PathBuf {
    cluster.root().join("pods").join(uid).join("volumes/v")
}

fn read(directory: &Path, name: &str) -> String {
    std::fs::read_to_string(directory.join(name)).unwrap_or_default()
}

fn mounted(directory: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("mounts");
    let wanted = directory.to_str().expect("UTF-8");
    let mut mounts = mounts
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>());
    mounts.any(|mount| mount[1] == wanted && mount[2] == "tmpfs")
}

/// Whether the agent can keep private keys in memory, which needs root.
async fn keeps_keys_in_memory(cluster: &Cluster) -> bool {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: not root");
        return false;
    }
    has_isolation(cluster).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_gets_a_certificate_and_after_a_restart_a_new_one() {
    let mut cluster = Cluster::with_certificates(&[Feature::PodCertificateRequest]).await;
    if !keeps_keys_in_memory(&cluster).await {
        return;
    }
    let (authority, _signer) = sign(cluster.client.clone());
    let script = "cd /mnt/v; [ \"$(cat own/key.pem own/chain.pem)\" = \"$(cat bundle.pem)\" ] && echo same; exec sleep 1000";
    let mount = json!({"volumeMounts": [{"name": "v", "mountPath": "/mnt/v"}]});
    let mut source = paths();
    source["maxExpirationSeconds"] = json!(7200);
    source["userAnnotations"] = json!({"example.com/any": "thing"});
    let spec = json!({
        "containers": [with(shell(script), "c", mount)],
        "volumes": [volume(SIGNER, source)],
        "securityContext": {"fsGroup": 1234},
    });
    let uid = cluster.pod("p", spec).await;
    cluster.wait_for_logs("p", &["c"]).await;
    assert_eq!(cluster.log("p", "c", 0), "same\n");

    let list = format!("{GROUP}/namespaces/default/podcertificaterequests");
    let requests = cluster.get(&list).await;
    let request = &requests["items"][0];
    assert_eq!(requests["items"].as_array().map(Vec::len), Some(1));
    let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid}]);
    assert_eq!(request["metadata"]["ownerReferences"], owner);
    let spec = &request["spec"];
    for (key, expected) in [
        ("podName", json!("p")),
        ("podUID", json!(uid)),
        ("nodeName", json!("n1")),
        ("serviceAccountName", json!("default")),
        ("maxExpirationSeconds", json!(7200)),
        (
            "unverifiedUserAnnotations",
            json!({"example.com/any": "thing"}),
        ),
    ] {
        assert_eq!(spec[key], expected, "{key}");
    }

    let directory = of_volume(&cluster, &uid);
    assert!(mounted(&directory), "keys are in memory");
    let check = |directory: &Path| {
        let (key, chain) = (
            read(directory, "own/key.pem"),
            read(directory, "own/chain.pem"),
        );
        assert_eq!(read(directory, "bundle.pem"), format!("{key}{chain}"));
        assert!(
            !chain.contains("text between") && chain.ends_with(&authority),
            "{chain}"
        );
        let public = KeyPair::from_pem(&key)
            .expect("a key")
            .subject_public_key_info();
        let leaf = pem_data(&chain);
        assert!(leaf.windows(public.len()).any(|part| part == public));
        for name in ["own/key.pem", "bundle.pem"] {
            let found = std::fs::metadata(directory.join(name)).expect("a file");
            let mode = found.permissions().mode() & 0o777;
            assert_eq!((found.uid(), found.gid(), mode), (0, 1234, 0o640), "{name}");
        }
        key
    };
    let first = check(&directory);

    // Keys are in the memory of the agent alone: the next one asks at once for a new certificate.
    cluster.stop_agent().await;
    cluster.start_agent_as_node().await;
    until_true("a new key", || {
        let key = read(&directory, "own/key.pem");
        !key.is_empty() && key != first
    })
    .await;
    assert_ne!(check(&directory), first);
    let pod = cluster.get(&pod_path("p")).await;
    assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 0);

    cluster
        .delete(&format!("{}?gracePeriodSeconds=0", pod_path("p")))
        .await;
    let gone = || !mounted(&directory) && !directory.exists();
    until_true("no key is left", gone).await;
}

/// The bytes of the first block.
fn pem_data(text: &str) -> Vec<u8> {
    use rustls_pki_types::CertificateDer;
    use rustls_pki_types::pem::PemObject as _;
    let found = CertificateDer::from_pem_slice(text.as_bytes());
    found.expect("a certificate").to_vec()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_words_of_a_signer_that_issues_none_reach_the_pod() {
    let cluster = Cluster::with_certificates(&[Feature::PodCertificateRequest]).await;
    let (_, _signer) = sign(cluster.client.clone());
    for (name, signer, reason, said, error) in [
        (
            "denied",
            "example.com/denies",
            "Denied",
            "was denied, reason=\"Because\", message=\"not \\\"you\\\"\"",
            "PodCertificateRequest was permanently denied: reason=\"Because\" message=\"not \\\"you\\\"\"",
        ),
        (
            "failed",
            "example.com/fails",
            "Failed",
            "failed, reason=\"Because\", message=\"no ink\"",
            "PodCertificateRequest was permanently failed: reason=\"Because\" message=\"no ink\"",
        ),
    ] {
        let spec = json!({
            "containers": [shell("true")],
            "volumes": [volume(signer, json!({"keyType": "ED25519", "keyPath": "key"}))],
        });
        cluster.pod(name, spec).await;
        let message = cluster.wait_for_event(name, reason).await;
        let begin = "PodCertificateRequest default/req-";
        assert!(
            message.starts_with(begin) && message.ends_with(said),
            "{message}"
        );
        let failed = format!("MountVolume.SetUp failed for volume \"v\" : {error}");
        cluster
            .wait_until("/api/v1/namespaces/default/events", &failed, |events| {
                let mut items = events["items"].as_array().into_iter().flatten();
                items.any(|it| it["reason"] == "FailedMount" && it["message"] == failed.as_str())
            })
            .await;
        let pod = cluster.get(&pod_path(name)).await;
        assert_eq!(pod["status"]["phase"], "Pending");
    }
    // Neither is asked again.
    let list = format!("{GROUP}/namespaces/default/podcertificaterequests");
    let requests = cluster.get(&list).await;
    assert_eq!(requests["items"].as_array().map(Vec::len), Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn trust_bundles_follow_their_objects() {
    let features = [
        Feature::ClusterTrustBundle,
        Feature::ClusterTrustBundleProjection,
    ];
    let cluster = Cluster::with_certificates(&features).await;
    let path = format!("{GROUP}/clustertrustbundles");
    let [one, two] = [(); 2].map(|()| Authority::new().text);
    let bundle = |name: &str, signer: &str, text: &str| {
        let metadata = json!({"name": name, "labels": {"live": "yes"}});
        let spec = json!({"signerName": signer, "trustBundle": format!("# {name}\n{text}")});
        json!({"metadata": metadata, "spec": spec})
    };
    cluster
        .post(&path, bundle("example.com:ca:one", SIGNER, &one))
        .await;
    let by_signer = json!({"signerName": SIGNER, "labelSelector": {"matchLabels": {"live": "yes"}}, "path": "signer.pem"});
    let sources = [
        by_signer,
        json!({"name": "missing", "optional": true, "path": "missing.pem"}),
        json!({"name": "later", "path": "later.pem"}),
    ];
    let sources = sources.map(|source| json!({"clusterTrustBundle": source}));
    let volume = json!({"name": "v", "projected": {"defaultMode": 0o444, "sources": sources}});
    let spec = json!({"containers": [shell("exec sleep 1000")], "volumes": [volume]});
    let uid = cluster.pod("p", spec).await;
    let message = cluster.wait_for_event("p", "FailedMount").await;
    assert_eq!(
        message,
        "MountVolume.SetUp failed for volume \"v\" : while getting ClusterTrustBundle: \
         clustertrustbundle.certificates.k8s.io \"later\" not found"
    );
    cluster.post(&path, bundle("later", "", &two)).await;
    cluster.wait_for_phase("p", "Running").await;
    let directory = of_volume(&cluster, &uid);
    assert_eq!(read(&directory, "signer.pem"), one);
    assert_eq!(read(&directory, "later.pem"), two);
    let empty = std::fs::metadata(directory.join("missing.pem")).expect("a file");
    assert_eq!(
        (empty.len(), empty.permissions().mode() & 0o777),
        (0, 0o444)
    );

    // One more of the signer, with a certificate that is there already; and one that no longer is selected.
    let both = format!("{one}{two}");
    cluster
        .post(&path, bundle("example.com:ca:two", SIGNER, &both))
        .await;
    until_true("both certificates", || {
        let text = read(&directory, "signer.pem");
        text.len() == both.len() && text.contains(&one) && text.contains(&two)
    })
    .await;
    let change = json!({"metadata": {"labels": {"live": "no"}}});
    let changed = format!("{path}/example.com:ca:two");
    let changed = cluster.call(Method::PATCH, &changed, Some(change)).await;
    changed.expect("changed");
    until_true("the first one alone", || {
        read(&directory, "signer.pem") == one
    })
    .await;
}
