//! Stores of earlier releases open, and everything in them continues. `e2e/stores` has one of each release, created by
//! that release with `cargo test -p allot --test e2e upgrade::write_a_store -- --ignored`.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use k8s_openapi::api::core::v1::{ConfigMap, Node, Secret};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::{
    ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use super::harness::{ALLOT, Up, directory, example};

const TEAM: &str = "team-a";

const OBJECTS: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: team-a}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: words, namespace: team-a, labels: {kept: "yes"}}
data: {word: "grüße", many: "a\nb\n"}
---
apiVersion: v1
kind: Secret
metadata: {name: secret, namespace: team-a}
stringData: {key: value}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {size: {type: integer}}}
"#;

const WIDGET: &str = r#"{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "one", "namespace": "team-a"},
    "spec": {"size": 3}}"#;

fn stores() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/stores")
}

/// Creates a store of this release.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "writes into the repository"]
async fn write_a_store() {
    let data = directory();
    let up = Up::start(data.path(), &["--runtime=simulated"]).await;
    up.create(OBJECTS).await;
    established(&up).await;
    up.create(WIDGET).await;
    up.create(&example("example_resourceclaimtemplate.yaml"))
        .await;
    up.create(&example("example_claim_po.yaml")).await;
    up.running("example-claim").await;
    assert!(up.stop());
    forget_the_machine(data.path()).await;
    let compact = Command::new(ALLOT)
        .args(["store", "compact", "--data-dir"])
        .arg(data.path())
        .status();
    assert!(compact.expect("the binary starts").success());
    let store = std::fs::read(data.path().join("store.redb")).expect("a store");
    let path = stores().join(format!("{}.redb.gz", env!("CARGO_PKG_VERSION")));
    let file = std::fs::File::create(path).expect("a file");
    let mut file = flate2::write::GzEncoder::new(file, flate2::Compression::best());
    file.write_all(&store).expect("written");
    file.finish().expect("written");
}

/// Takes what identifies this machine out of the Node, by an API server without an agent that would write it again.
async fn forget_the_machine(data: &Path) {
    let kubeconfig = data.join("kubeconfig");
    let mut server = Command::new(ALLOT)
        .args(["apiserver", "--listen=127.0.0.1:0", "--data-dir"])
        .arg(data)
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut lines = BufReader::new(server.stderr.take().expect("piped")).lines();
    let serving = lines.next().expect("a line").expect("UTF-8");
    assert!(serving.starts_with("serving "), "{serving}");
    let client = super::harness::client(&kubeconfig).await;
    let nobody = json!({"status": {"nodeInfo": {
        "machineID": "0123456789abcdef", "systemUUID": "0123456789abcdef", "kernelVersion": "6.1.0",
        "bootID": "00000000-0000-4000-8000-000000000000", "osImage": "Debian GNU/Linux 12 (bookworm)"}}});
    let patched = Api::<Node>::all(client)
        .patch_status("node-0", &PatchParams::default(), &Patch::Merge(nobody))
        .await;
    patched.expect("patched");
    let pid = server.id().to_string();
    let told = Command::new("kill").args(["-TERM", &pid]).status();
    assert!(told.expect("kill").success());
    assert!(server.wait().expect("ended").success());
}

async fn established(up: &Up) {
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
    let kinds: Api<CustomResourceDefinition> = Api::all(up.client.clone());
    let established = kube::runtime::wait::conditions::is_crd_established();
    let waited = kube::runtime::wait::await_condition(kinds, "widgets.example.com", established);
    tokio::time::timeout(super::harness::PATIENCE, waited)
        .await
        .expect("in time")
        .expect("watched");
}

#[tokio::test(flavor = "multi_thread")]
async fn stores_of_earlier_releases_open() {
    let mut releases = 0;
    for entry in std::fs::read_dir(stores()).expect("stores").flatten() {
        releases += 1;
        let file = std::fs::File::open(entry.path()).expect("a store");
        let mut store = Vec::new();
        flate2::read::GzDecoder::new(file)
            .read_to_end(&mut store)
            .expect("gzip");
        let data = directory();
        std::fs::write(data.path().join("store.redb"), store).expect("written");
        goes_on(data.path()).await;
        let check = Command::new(ALLOT)
            .args(["store", "check", "--data-dir"])
            .arg(data.path())
            .output();
        let check = check.expect("the binary starts");
        assert!(
            check.status.success(),
            "{}",
            String::from_utf8_lossy(&check.stderr)
        );
    }
    assert!(releases > 0);
}

/// The content of the store exists and continues: pods run, devices stay allocated, revisions grow.
async fn goes_on(data: &Path) {
    let up = Up::start(data, &["--runtime=simulated"]).await;
    let client = up.client.clone();
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), TEAM);
    let words = maps.get("words").await.expect("a config map");
    let data = BTreeMap::from(
        [("word", "grüße"), ("many", "a\nb\n")].map(|(a, b)| (a.to_owned(), b.to_owned())),
    );
    assert_eq!(words.data, Some(data));
    assert_eq!(words.labels()["kept"], "yes");
    let secret = Api::<Secret>::namespaced(client.clone(), TEAM)
        .get("secret")
        .await
        .expect("a secret");
    assert_eq!(secret.data.expect("data")["key"].0, b"value");
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"));
    let widgets: Api<DynamicObject> = Api::namespaced_with(client.clone(), TEAM, &kind);
    assert_eq!(
        widgets.get("one").await.expect("a widget").data["spec"],
        json!({"size": 3})
    );

    up.running("example-claim").await;
    let claims: Api<ResourceClaim> = Api::default_namespaced(client.clone());
    let claims = claims
        .list(&ListParams::default())
        .await
        .expect("claims")
        .items;
    let [claim] = claims.as_slice() else {
        panic!("{claims:#?}");
    };
    let status: Value = serde_json::to_value(&claim.status).expect("JSON");
    let result = &status["allocation"]["devices"]["results"][0];
    assert_eq!(result["driver"], "gpu.example.com");
    assert_eq!(status["reservedFor"][0]["name"], "example-claim");
    // The same claim as an older client sees it.
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(
        "resource.k8s.io",
        "v1beta1",
        "ResourceClaim",
    ));
    let old: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &kind);
    match old.get(&claim.name_any()).await {
        Ok(old) => assert_eq!(old.data["status"], status),
        // Not served by every release.
        Err(kube::Error::Api(status)) => assert_eq!(status.code, 404, "{status:?}"),
        Err(error) => panic!("{error}"),
    }
    // A second pod gets another device: the first one is known to be taken.
    let second = example("example_claim_po.yaml").replace("name: example-claim", "name: second");
    up.create(&second).await;
    up.running("second").await;
    let claims: Api<ResourceClaim> = Api::default_namespaced(client.clone());
    let claims = claims
        .list(&ListParams::default())
        .await
        .expect("claims")
        .items;
    let devices = claims.iter().filter_map(|claim| {
        let devices = claim
            .status
            .as_ref()?
            .allocation
            .as_ref()?
            .devices
            .as_ref()?;
        Some(devices.results.as_ref()?.first()?.device.clone())
    });
    let devices: std::collections::BTreeSet<String> = devices.collect();
    assert_eq!(devices.len(), 2, "{devices:?}");
    let revision = |version: Option<String>| {
        version
            .and_then(|it| it.parse::<u64>().ok())
            .expect("a number")
    };
    let newest = claims
        .iter()
        .map(|it| revision(it.resource_version()))
        .max();
    let mut map = ConfigMap::default();
    map.metadata.name = Some("later".into());
    let made = maps
        .create(&PostParams::default(), &map)
        .await
        .expect("created");
    assert!(Some(revision(made.resource_version())) > newest);
    assert!(up.stop());
}
