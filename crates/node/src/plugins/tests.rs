use allot_protos::DRA_PLUGIN_TYPE;
use allot_protos::registration::PluginInfo;

use super::registration::{accept, choose, sockets};
use super::*;

fn info(name: &str, versions: &[&str]) -> PluginInfo {
    PluginInfo {
        name: name.into(),
        supported_versions: versions
            .iter()
            .map(|version| (*version).to_owned())
            .collect(),
        ..PluginInfo::default()
    }
}

#[test]
fn the_plugins_order_of_services_decides() {
    let choose = |versions: &[&str]| choose(&info("d", versions), Path::new("/e"), false);
    assert_eq!(
        choose(&["v1.DRAPlugin", "v1beta1.DRAPlugin"]),
        Ok(Service::V1)
    );
    assert_eq!(
        choose(&["v1beta1.DRAPlugin", "v1.DRAPlugin"]),
        Ok(Service::V1beta1)
    );
    assert_eq!(
        choose(&["v1alpha1.DRAResourceHealth", "v1.DRAPlugin"]),
        Ok(Service::V1)
    );
    let context = "invalid supported gRPC versions of DRA driver plugin d at endpoint /e: ";
    let refused = |versions: &[&str]| choose(versions).map_err(|error| error.to_string());
    assert_eq!(
        refused(&[]),
        Err(format!(
            "{context}empty list of supported gRPC services (aka supported versions)"
        ))
    );
    assert_eq!(
        refused(&["1.0.0"]),
        Err(format!(
            "{context}none of services supported by the plugin (\"1.0.0\") are supported by the kubelet \
             (\"v1.DRAPlugin\", \"v1beta1.DRAPlugin\")"
        ))
    );
}

#[test]
fn classic_plugins_are_for_clusters_with_classic_claims() {
    let choose = |versions: &[&str]| choose(&info("d", versions), Path::new("/e"), true);
    assert_eq!(choose(&["1.0.0"]), Ok(Service::Classic));
    assert_eq!(choose(&["v1.DRAPlugin", "1.0.0"]), Ok(Service::V1));
    assert!(choose(&["2.0.0"]).is_err());
}

#[tokio::test]
async fn other_kinds_of_plugins_and_second_registrations_are_refused() {
    let plugins = Plugins::default();
    let device = PluginInfo {
        r#type: "DevicePlugin".into(),
        ..info("d", &["v1.DRAPlugin"])
    };
    let error = accept(Path::new("/s"), device, &plugins).await.unwrap_err();
    let expected =
        "RegisterPlugin error -- no handler registered for plugin type: DevicePlugin at socket /s";
    assert_eq!(error.to_string(), expected);

    let driver = || PluginInfo {
        r#type: DRA_PLUGIN_TYPE.into(),
        ..info("d", &["v1.DRAPlugin"])
    };
    let plugin = accept(Path::new("/s"), driver(), &plugins).await.unwrap();
    let error = accept(Path::new("/s"), driver(), &plugins)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.ends_with("endpoint /s already registered for DRA driver plugin d"),
        "{error}"
    );

    let newer = accept(Path::new("/t"), driver(), &plugins).await.unwrap();
    assert!(Arc::ptr_eq(&plugins.get("d").unwrap(), &newer));
    newer.connected.store(false, Ordering::Relaxed);
    assert!(
        Arc::ptr_eq(&plugins.get("d").unwrap(), &plugin),
        "the newest that is connected"
    );
    plugins.remove(&plugin);
    plugins.remove(&newer);
    assert_eq!(
        plugins.get("d").unwrap_err().to_string(),
        "DRA driver d is not registered"
    );
    assert_eq!(
        plugins.get("").unwrap_err().to_string(),
        "DRA driver name is empty"
    );
}

/// The attack: the name of a driver is a part of selectors of slices that are deleted, and of lists that are separated by commas.
#[test]
fn names_of_drivers_are_those_that_the_api_has() {
    let choose = |name: &str| choose(&info(name, &["v1.DRAPlugin"]), Path::new("/e"), false);
    for name in ["d", "gpu.example.com", "GPU.example.com"] {
        assert_eq!(choose(name), Ok(Service::V1));
    }
    let long = "x".repeat(5000);
    for name in [
        "a,spec.nodeName=other",
        "a b",
        "../a",
        "a\nb",
        "-a",
        &long[..64],
        &long,
    ] {
        let error = choose(name).unwrap_err().to_string();
        assert!(
            error.ends_with("is not a DNS subdomain of at most 63 characters"),
            "{error}"
        );
        assert!(error.len() < 2000);
    }
}

/// A kubelet follows links; those that lead nowhere are no reason to see no others.
#[test]
fn regression_a_link_to_a_socket_is_one() {
    use std::os::unix::fs::symlink;
    let root = tempfile::tempdir().unwrap();
    let (directory, other) = (root.path().join("registry"), root.path().join("d.sock"));
    std::fs::create_dir(&directory).unwrap();
    std::os::unix::net::UnixListener::bind(&other).unwrap();
    let link = directory.join("link.sock");
    symlink(&other, &link).unwrap();
    symlink(root.path().join("none"), directory.join("nowhere.sock")).unwrap();
    symlink("circle.sock", directory.join("circle.sock")).unwrap();
    symlink(root.path(), directory.join("directory.sock")).unwrap();
    let before = sockets(&directory).unwrap();
    assert_eq!(before.keys().collect::<Vec<_>>(), [&link]);
    // Another socket behind it is another plugin.
    std::fs::remove_file(&other).unwrap();
    std::os::unix::net::UnixListener::bind(&other).unwrap();
    assert_ne!(sockets(&directory).unwrap(), before);
}

#[test]
fn regression_a_directory_that_cannot_be_read_is_not_empty() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("plugins_registry");
    assert!(sockets(&directory).unwrap().is_empty());
    std::fs::create_dir(&directory).unwrap();
    for name in ["d.sock", ".hidden.sock"] {
        std::os::unix::net::UnixListener::bind(directory.join(name)).unwrap();
    }
    std::fs::write(directory.join("file"), "").unwrap();
    let found = sockets(&directory).unwrap();
    assert_eq!(
        found.into_keys().collect::<Vec<_>>(),
        [directory.join("d.sock")]
    );
    std::fs::remove_dir_all(&directory).unwrap();
    std::fs::write(&directory, "").unwrap();
    let error = sockets(&directory).unwrap_err();
    assert_eq!(error.path, directory);
}
