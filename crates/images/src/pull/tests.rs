use std::os::unix::fs::FileTypeExt as _;
use std::time::Duration;

use serde_json::json;

use super::*;
use crate::fixtures::registry::{Fault, Server};
use crate::fixtures::{Built, Layer, gzip, store, timeouts, zstd};
use crate::manifest::{DOCKER_LIST, OCI_INDEX, OCI_MANIFEST};
use crate::{Limits, Timeouts};

mod hostile;

fn puller(directory: &tempfile::TempDir) -> Puller {
    Puller::new(store(directory.path()), Registries::default())
}

fn with(directory: &tempfile::TempDir, limits: Limits, timeouts: Timeouts) -> Puller {
    let store = Store::open(directory.path().join("images"), limits, timeouts).unwrap();
    Puller::new(store, Registries::default())
}

fn credential(username: &str, password: &str) -> Credential {
    Credential {
        username: username.to_owned(),
        password: password.to_owned(),
        source: None,
    }
}

async fn pull(puller: &Puller, name: &str) -> Result<Pulled> {
    puller.pull(&Reference::parse(name)?, &[]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_is_pulled_by_tag_and_by_digest() {
    let (directory, server) = (tempfile::tempdir().unwrap(), Server::start().await);
    let image = Built::simple();
    let name = server.push(&image, "v1");
    let puller = puller(&directory);
    let pulled = pull(&puller, &name).await.unwrap();
    assert_eq!(pulled.image.name, name);
    let repository = format!("{}/some/app", server.authority);
    let by_digest = format!("{repository}@{}", image.digest());
    assert_eq!(pulled.image.image_id(), by_digest);
    assert_eq!(pulled.image.id, Digest::of(&image.config));
    let config = &pulled.image.config;
    assert_eq!(config.entrypoint, ["/bin/app"]);
    assert!(config.cmd.is_empty());
    assert_eq!(
        (config.user.as_str(), config.working_dir.as_str()),
        ("app", "/srv")
    );
    assert_eq!(config.stop_signal.as_deref(), Some("SIGINT"));
    assert!(config.volumes.contains("/data") && config.labels["a"] == "b");
    let lower = &pulled.rootfs.lower;
    let passwd = std::fs::read_to_string(lower[0].join("etc/passwd")).unwrap();
    assert!(passwd.starts_with("root:"));
    let roots: Vec<&std::path::Path> = lower.iter().map(|path| path.as_path()).collect();
    let user = crate::user::resolve(&roots, &config.user).unwrap();
    assert_eq!((user.uid, user.gid, user.groups), (1000, 1001, vec![7]));
    // Found by its digest without another pull, and pulled by it elsewhere.
    let found = puller
        .store()
        .find(&Reference::parse(&by_digest).unwrap())
        .unwrap();
    assert_eq!(found.unwrap().id, pulled.image.id);
    let elsewhere = tempfile::tempdir().unwrap();
    let again = pull(&self::puller(&elsewhere), &by_digest).await.unwrap();
    assert_eq!(again.image.image_id(), by_digest);
}

#[tokio::test(flavor = "multi_thread")]
async fn layers_of_every_compression_and_docker_manifests_are_taken() {
    let (directory, server) = (tempfile::tempdir().unwrap(), Server::start().await);
    let plain: fn(&[u8]) -> Vec<u8> = |content| content.to_vec();
    let image = Built::new(&[
        (Layer::new().file("a", "gzip").tar(), gzip),
        (Layer::new().file("b", "zstd").tar(), zstd),
        (
            Layer::new().file("c", "plain").file(".wh.a", "").tar(),
            plain,
        ),
    ]);
    let name = server.push(&image.docker(), "v1");
    let pulled = pull(&puller(&directory), &name).await.unwrap();
    let lower = &pulled.rootfs.lower;
    assert_eq!(lower.len(), 3);
    assert_eq!(
        std::fs::read_to_string(lower[0].join("c")).unwrap(),
        "plain"
    );
    assert_eq!(std::fs::read_to_string(lower[1].join("b")).unwrap(), "zstd");
    let mark = std::fs::symlink_metadata(lower[0].join("a")).unwrap();
    assert!(mark.file_type().is_char_device() || pulled.rootfs.user_xattrs);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_an_index_the_image_for_this_machine_is_taken() {
    for kind in [OCI_INDEX, DOCKER_LIST] {
        let (directory, server) = (tempfile::tempdir().unwrap(), Server::start().await);
        let image = Built::simple();
        server.push(&image, "hidden");
        let mut own = Descriptor::of(OCI_MANIFEST, &image.manifest);
        own.platform = Some(Platform::host());
        let mut other = Descriptor::of(OCI_MANIFEST, b"another");
        other.platform = Some(Platform {
            architecture: "s390x".to_owned(),
            ..Platform::host()
        });
        let index = json!({"schemaVersion": 2, "mediaType": kind, "manifests": [other, own]});
        let index = serde_json::to_vec(&index).unwrap();
        let entry = (kind.to_owned(), index.clone());
        server.state.lock().manifests.insert("v1".to_owned(), entry);
        let name = format!("{}/some/app:v1", server.authority);
        let pulled = pull(&puller(&directory), &name).await.unwrap();
        assert_eq!(pulled.image.target, Digest::of(&index));
        assert_eq!(pulled.image.manifest, image.digest());

        let only = json!({"schemaVersion": 2, "mediaType": kind, "manifests": [other]});
        let entry = (kind.to_owned(), serde_json::to_vec(&only).unwrap());
        server.state.lock().manifests.insert("v2".to_owned(), entry);
        let name = format!("{}/some/app:v2", server.authority);
        let error = pull(&puller(&directory), &name).await.unwrap_err();
        assert!(matches!(error, Error::Platform(_)), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_private_registry_wants_the_right_credentials() {
    for tokens in [false, true] {
        let (directory, server) = (tempfile::tempdir().unwrap(), Server::start().await);
        let name = server.push(&Built::simple(), "v1");
        {
            let mut state = server.state.lock();
            state.login = Some(("me".to_owned(), "word".to_owned()));
            state.tokens = tokens;
        }
        let puller = puller(&directory);
        let error = pull(&puller, &name).await.unwrap_err();
        assert!(matches!(error, Error::Unauthorized(..)), "{error}");
        assert!(!error.to_string().contains("<b>"), "{error}");
        let reference = Reference::parse(&name).unwrap();
        let wrong = credential("me", "guess");
        let error = puller
            .pull(&reference, std::slice::from_ref(&wrong))
            .await
            .unwrap_err();
        assert!(matches!(error, Error::Unauthorized(..)), "{error}");
        let right = credential("me", "word");
        puller.pull(&reference, &[wrong, right]).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_missing_is_told() {
    let (directory, server) = (tempfile::tempdir().unwrap(), Server::start().await);
    let puller = puller(&directory);
    let name = format!("{}/some/app:none", server.authority);
    let error = pull(&puller, &name).await.unwrap_err();
    assert_eq!(error.to_string(), format!("{name}: not found"));
    let image = Built::simple();
    let name = server.push(&image, "v1");
    server.state.lock().blobs.remove(image.layers[0].as_str());
    let error = pull(&puller, &name).await.unwrap_err();
    assert!(matches!(error, Error::NotFound(_)), "{error}");
    assert!(puller.store().list().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_corrupt_blob_never_gets_into_the_store() {
    let (directory, server) = (tempfile::tempdir().unwrap(), Server::start().await);
    let image = Built::simple();
    let name = server.push(&image, "v1");
    server.state.lock().fault = Fault::Corrupt;
    let puller = puller(&directory);
    let error = pull(&puller, &name).await.unwrap_err();
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
    assert!(!puller.store().has_blob(&Digest::of(&image.config)));
    server.state.lock().fault = Fault::None;
    pull(&puller, &name).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_layer_with_another_diff_id_is_refused() {
    let (directory, server) = (tempfile::tempdir().unwrap(), Server::start().await);
    let good = Layer::new().file("a", "1").tar();
    let mut image = Built::new(&[(good, gzip)]);
    // The manifest matches the sent bytes, the configuration does not match their content.
    let other = gzip(&Layer::new().file("a", "2").tar());
    let text = String::from_utf8(image.manifest.clone()).unwrap();
    let text = text.replace(image.layers[0].as_str(), Digest::of(&other).as_str());
    let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
    value["layers"][0]["size"] = json!(other.len());
    image.manifest = serde_json::to_vec(&value).unwrap();
    image.blobs.push(other);
    let name = server.push(&image, "v1");
    let puller = puller(&directory);
    let error = pull(&puller, &name).await.unwrap_err();
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
    assert!(puller.store().list().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_malicious_layer_gets_no_name() {
    let (directory, server) = (tempfile::tempdir().unwrap(), Server::start().await);
    let bad = Layer::new()
        .file("good", "")
        .file("../../escape", "x")
        .tar();
    let name = server.push(&Built::new(&[(bad, gzip)]), "v1");
    let puller = puller(&directory);
    let error = pull(&puller, &name).await.unwrap_err();
    assert!(matches!(error, Error::Layer { .. }), "{error}");
    assert!(puller.store().list().unwrap().is_empty());
    // The attack: images that are refused fill the disk with what was downloaded of them.
    for left in ["layers", "blobs/sha256"] {
        let left = std::fs::read_dir(puller.store().root().join(left)).unwrap();
        assert_eq!(left.count(), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn waits_have_deadlines() {
    let (directory, server) = (tempfile::tempdir().unwrap(), Server::start().await);
    let name = server.push(&Built::simple(), "v1");
    let short = Duration::from_millis(200);
    let faults = [
        (
            Fault::Silent,
            Timeouts {
                connect: short,
                response: short,
                ..timeouts()
            },
        ),
        (
            Fault::Stall(5),
            Timeouts {
                stall: short,
                ..timeouts()
            },
        ),
        (
            Fault::Stall(5),
            Timeouts {
                pull: short,
                ..timeouts()
            },
        ),
    ];
    for (fault, timeouts) in faults {
        server.state.lock().fault = fault;
        let puller = with(&directory, Limits::default(), timeouts);
        let error = pull(&puller, &name).await.unwrap_err();
        assert!(matches!(error, Error::Timeout(..)), "{error}");
        assert!(error.is_unreachable());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn endless_answers_are_cut() {
    let (directory, server) = (tempfile::tempdir().unwrap(), Server::start().await);
    let name = server.push(&Built::simple(), "v1");
    let puller = puller(&directory);
    server.state.lock().fault = Fault::EndlessManifest;
    let error = pull(&puller, &name).await.unwrap_err();
    assert!(matches!(error, Error::TooLarge(_)), "{error}");
    {
        let mut state = server.state.lock();
        state.fault = Fault::EndlessToken;
        state.tokens = true;
    }
    let error = pull(&puller, &name).await.unwrap_err();
    assert!(matches!(error, Error::TooLarge(_)), "{error}");
    {
        let mut state = server.state.lock();
        state.fault = Fault::RedirectLoop;
        state.tokens = false;
    }
    let error = pull(&puller, &name).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable(..)), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blob_longer_than_its_descriptor_is_refused() {
    let (directory, server) = (tempfile::tempdir().unwrap(), Server::start().await);
    let image = Built::simple();
    let name = server.push(&image, "v1");
    let layer = image.layers[0].as_str();
    let lengthen = |blob: Option<&mut Vec<u8>>| blob.unwrap().extend([0; 100]);
    lengthen(server.state.lock().blobs.get_mut(layer));
    let error = pull(&puller(&directory), &name).await.unwrap_err();
    assert!(matches!(error, Error::Size { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_download_goes_on_where_it_was() {
    let (directory, server) = (tempfile::tempdir().unwrap(), Server::start().await);
    let name = server.push(&Built::simple(), "v1");
    server.state.lock().fault = Fault::CutOnce(40);
    pull(&puller(&directory), &name).await.unwrap();
    let ranges = server.state.lock().ranges.clone();
    assert!(ranges.contains(&"bytes=40-".to_owned()), "{ranges:?}");

    // The same across a restart of the process: received content stays in the store.
    let directory = tempfile::tempdir().unwrap();
    server.state.lock().fault = Fault::CutAlways(60);
    let error = pull(&puller(&directory), &name).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable(..)), "{error}");
    {
        let mut state = server.state.lock();
        state.fault = Fault::None;
        state.ranges.clear();
    }
    pull(&puller(&directory), &name).await.unwrap();
    let ranges = server.state.lock().ranges.clone();
    assert!(ranges.contains(&"bytes=60-".to_owned()), "{ranges:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn pulls_of_one_image_share_their_work() {
    let (directory, server) = (tempfile::tempdir().unwrap(), Server::start().await);
    let name = server.push(&Built::simple(), "v1");
    let puller = puller(&directory);
    let pulls = futures::future::join_all((0..20).map(|_| pull(&puller, &name))).await;
    assert!(pulls.iter().all(Result::is_ok));
    assert_eq!(server.count("/manifests/"), 1);
    assert_eq!(server.count("/blobs/"), 2);
    // What runs is forgotten when it is done.
    pull(&puller, &name).await.unwrap();
    assert_eq!(server.count("/manifests/"), 2);
    assert_eq!(server.count("/blobs/"), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn mirrors_are_asked_first_and_get_no_credentials() {
    let (directory, server) = (tempfile::tempdir().unwrap(), Server::start().await);
    server.push(&Built::simple(), "v1");
    let file = format!(
        "registries:\n  registry.invalid:\n    mirrors: ['http://127.0.0.1:9', 'http://{}']\n    fallback: false\n",
        server.authority
    );
    let puller = Puller::new(store(directory.path()), Registries::parse(&file).unwrap());
    let reference = Reference::parse("registry.invalid/some/app:v1").unwrap();
    let pulled = puller
        .pull(&reference, &[credential("me", "word")])
        .await
        .unwrap();
    assert_eq!(pulled.image.name, "registry.invalid/some/app:v1");
    assert!(
        pulled
            .image
            .image_id()
            .starts_with("registry.invalid/some/app@sha256:")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_server_is_reported_as_unreachable() {
    let directory = tempfile::tempdir().unwrap();
    // Bound, so that no other server gets the port, and not listened on.
    let gone = tokio::net::TcpSocket::new_v4().unwrap();
    gone.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = gone.local_addr().unwrap();
    let error = pull(&puller(&directory), &format!("{address}/app:v1"))
        .await
        .unwrap_err();
    assert!(error.is_unreachable(), "{error}");
}

/// A disk of one megabyte. Only root can mount one; others get the same error from a limit on the size of files.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_told_and_leaves_no_half_image() {
    use rustix::mount::{MountFlags, UnmountFlags};
    let (directory, server) = (tempfile::tempdir().unwrap(), Server::start().await);
    let mut noise = vec![0u8; 4 << 20];
    rand::RngCore::fill_bytes(&mut rand::rng(), &mut noise);
    let plain = Layer::new().entry(b'0', "big", "", 0o644, &noise).tar();
    let name = server.push(&Built::new(&[(plain, gzip)]), "v1");
    let disk = directory.path().join("disk");
    std::fs::create_dir(&disk).unwrap();
    let options = Some(c"size=1m");
    if let Err(error) = rustix::mount::mount("tmpfs", &disk, "tmpfs", MountFlags::empty(), options)
    {
        eprintln!("no small disk: mount: {error}");
        return;
    }
    let error = {
        let store = Store::open(disk.join("images"), Limits::default(), timeouts()).unwrap();
        let puller = Puller::new(store, Registries::default());
        let error = pull(&puller, &name).await.unwrap_err();
        assert!(puller.store().list().unwrap().is_empty());
        // Frees space for others: content that did not fit is removed.
        assert_eq!(
            std::fs::read_dir(disk.join("images/ingest"))
                .unwrap()
                .count(),
            0
        );
        error
    };
    rustix::mount::unmount(&disk, UnmountFlags::DETACH).unwrap();
    assert!(error.is_full(), "{error}");
}
