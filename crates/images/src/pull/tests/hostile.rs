//! Registries that redirect to other servers, and documents of images that have another type than their descriptors.

use super::*;

/// The attack: the storage that a registry redirects to demands a password.
#[tokio::test(flavor = "multi_thread")]
async fn credentials_are_not_for_other_servers() {
    let (directory, server) = (tempfile::tempdir().unwrap(), Server::start().await);
    let other = Server::start().await;
    let image = Built::simple();
    let name = server.push(&image, "v1");
    other.push(&image, "v1");
    server.state.lock().fault = Fault::RedirectTo(other.authority.clone());
    let login = ("me".to_owned(), "word".to_owned());
    let reference = Reference::parse(&name).unwrap();
    let credentials = [credential("me", "word")];
    for tokens in [true, false] {
        {
            let mut state = other.state.lock();
            (state.login, state.tokens) = (Some(login.clone()), tokens);
        }
        let error = puller(&directory).pull(&reference, &credentials).await;
        let error = error.unwrap_err();
        assert!(matches!(error, Error::Unauthorized(..)), "{error}");
        assert_eq!(other.count("/token"), 0);
    }
    // A server that demands no credentials is used.
    other.state.lock().login = None;
    server.state.lock().login = Some(login);
    let pulled = puller(&directory).pull(&reference, &credentials).await;
    assert_eq!(pulled.unwrap().image.name, name);
}

/// The attack: a pod names the metadata service of a cloud as its registry, or a registry on this machine redirects to it.
#[tokio::test(flavor = "multi_thread")]
async fn metadata_services_are_sent_no_requests() {
    let (directory, server) = (tempfile::tempdir().unwrap(), Server::start().await);
    let name = server.push(&Built::simple(), "v1");
    let refused = async |name: &str| {
        let reference = Reference::parse(name).unwrap();
        let error = puller(&directory).pull(&reference, &[]).await.unwrap_err();
        let error = error.to_string();
        let expected = "requests are not sent to the address of a metadata service";
        assert!(error.contains(expected), "{error}");
    };
    for address in [
        "169.254.169.254",
        "100.100.100.200:80",
        "168.63.129.16",
        "[fd00:ec2::254]",
        "[::ffff:169.254.169.254]:80",
    ] {
        server.state.lock().fault = Fault::RedirectTo(address.to_owned());
        refused(&name).await;
        if !address.starts_with('[') {
            refused(&format!("{address}/latest/meta-data:v1")).await;
        }
    }
}

/// The attack: a manifest names other addresses for its layers, at which the node sends requests for others.
#[tokio::test(flavor = "multi_thread")]
async fn layers_are_the_registrys_alone() {
    let (directory, server) = (tempfile::tempdir().unwrap(), Server::start().await);
    let other = Server::start().await;
    let image = Built::simple();
    other.push(&image, "v1");
    let layer = image.layers[0].to_string();
    let mut manifest: serde_json::Value = serde_json::from_slice(&image.manifest).unwrap();
    manifest["layers"][0]["mediaType"] =
        json!("application/vnd.docker.image.rootfs.foreign.diff.tar.gzip");
    let url = format!("http://{}/v2/some/app/blobs/{layer}", other.authority);
    manifest["layers"][0]["urls"] = json!([url]);
    let mut foreign = image.clone();
    foreign.manifest = serde_json::to_vec(&manifest).unwrap();
    let name = server.push(&foreign, "v1");
    server.state.lock().blobs.remove(&layer);
    let error = pull(&puller(&directory), &name).await.unwrap_err();
    assert!(matches!(error, Error::NotFound(_)), "{error}");
    assert_eq!(other.count("/"), 0);
    // One that the registry has is a layer like others.
    server.push(&foreign, "v1");
    pull(&puller(&directory), &name).await.unwrap();
    assert_eq!(other.count("/"), 0);
}

/// Documents that have another type than their descriptors.
#[tokio::test(flavor = "multi_thread")]
async fn documents_are_what_refers_to_them_says() {
    let (directory, server) = (tempfile::tempdir().unwrap(), Server::start().await);
    let image = Built::simple();
    server.push(&image, "v1");
    let index = |of: &[u8]| {
        let entry = Descriptor::of(OCI_MANIFEST, of);
        let index = json!({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [entry]});
        serde_json::to_vec(&index).unwrap()
    };
    let inner = index(&image.manifest);
    let with_config = |config: &[u8]| {
        let mut manifest: serde_json::Value = serde_json::from_slice(&image.manifest).unwrap();
        manifest["config"] = json!(Descriptor::of(crate::manifest::OCI_CONFIG, config));
        serde_json::to_vec(&manifest).unwrap()
    };
    let layer = image.blobs.last().unwrap().clone();
    let cases = [
        ("an index of an index", index(&inner)),
        ("an index of a configuration", index(&image.config)),
        ("a layer as configuration", with_config(&layer)),
        ("an index as configuration", with_config(&inner)),
        ("a configuration", image.config.clone()),
    ];
    for content in [&inner, &image.config] {
        let mut state = server.state.lock();
        let digest = Digest::of(content).to_string();
        state.blobs.insert(digest.clone(), content.clone());
        let entry = (OCI_MANIFEST.to_owned(), content.clone());
        state.manifests.insert(digest, entry);
    }
    for (what, content) in cases {
        let entry = (OCI_INDEX.to_owned(), content);
        server.state.lock().manifests.insert("v2".to_owned(), entry);
        let name = format!("{}/some/app:v2", server.authority);
        let error = pull(&puller(&directory), &name).await.unwrap_err();
        assert!(matches!(error, Error::InvalidImage(_)), "{what}: {error}");
    }
}

/// The attack: each layer is within its bounds, and all of them together fill the disk, or take its inodes.
#[tokio::test(flavor = "multi_thread")]
async fn all_layers_of_an_image_are_bounded_together() {
    let layer = |number: usize| {
        let files = (0..4).fold(Layer::new(), |layer, file| {
            layer.file(&format!("{number}-{file}"), &"x".repeat(100))
        });
        (files.tar(), gzip as crate::fixtures::Pack)
    };
    let image = Built::new(&[layer(0), layer(1), layer(2)]);
    let try_with = |change: fn(&mut Limits)| {
        let image = image.clone();
        async move {
            let (directory, server) = (tempfile::tempdir().unwrap(), Server::start().await);
            let name = server.push(&image, "v1");
            let mut limits = Limits::default();
            change(&mut limits);
            pull(&with(&directory, limits, timeouts()), &name)
                .await
                .map(drop)
        }
    };
    assert!(try_with(|it| it.image_entries = 12).await.is_ok());
    assert!(try_with(|it| it.image_unpacked = 1200).await.is_ok());
    for change in [(|it| it.image_entries = 11) as fn(&mut Limits), |it| {
        it.image_unpacked = 1199
    }] {
        let error = try_with(change).await.unwrap_err();
        assert!(matches!(error, Error::TooLarge(_)), "{error}");
    }
}
