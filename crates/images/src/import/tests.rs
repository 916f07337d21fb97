use serde_json::json;

use super::fixtures::{archive, layout};
use super::*;
use crate::fixtures::{Built, Layer, gzip, store};

fn names(images: Result<Vec<Image>>) -> Vec<String> {
    images
        .unwrap()
        .into_iter()
        .map(|image| image.name)
        .collect()
}

#[test]
fn layouts_are_taken_from_directories_and_archives() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path());
    let cancel = AtomicBool::new(false);
    let path = layout(
        directory.path(),
        &Built::simple(),
        "registry.example.com/app:v1",
    );
    assert_eq!(
        names(import(&store, &path, None, &cancel)),
        ["registry.example.com/app:v1"]
    );
    let file = directory.path().join("image.tar");
    std::fs::write(&file, gzip(&archive(&path))).unwrap();
    let again = tempfile::tempdir().unwrap();
    let other = self::store(again.path());
    let name = Reference::parse("named").unwrap();
    assert_eq!(
        names(import(&other, &file, Some(&name), &cancel)),
        ["docker.io/library/named:latest"]
    );
    let image = other.find(&name).unwrap().unwrap();
    // The digest was not verified by a registry.
    assert_eq!(image.image_id(), image.id.to_string());
    let tagged = layout(again.path(), &Built::simple(), "v2");
    assert_eq!(
        names(import(&other, &tagged, Some(&name), &cancel)),
        ["docker.io/library/named:v2"]
    );
    let nameless = names(import(&other, &tagged, None, &cancel));
    assert!(nameless[0].starts_with("sha256:"), "{nameless:?}");
}

#[test]
fn archives_of_docker_save_are_taken() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path());
    let plain = Layer::new().file("hello", "world").tar();
    let image = Built::new(&[(plain.clone(), gzip), (plain.clone(), gzip)]);
    let list = json!([{"Config": "c.json", "RepoTags": ["app:1", "app:2"], "Layers": ["one/layer.tar", "two/layer.tar"]}]);
    let saved = Layer::new()
        .entry(b'0', "c.json", "", 0o644, &image.config)
        .entry(b'0', "one/layer.tar", "", 0o644, &plain)
        // Old versions save equal layers as links.
        .symlink("two/layer.tar", "../one/layer.tar")
        .entry(
            b'0',
            "manifest.json",
            "",
            0o644,
            list.to_string().as_bytes(),
        );
    let file = directory.path().join("saved.tar");
    std::fs::write(&file, saved.tar()).unwrap();
    let cancel = AtomicBool::new(false);
    let found = names(import(&store, &file, None, &cancel));
    assert_eq!(
        found,
        ["docker.io/library/app:1", "docker.io/library/app:2"]
    );
    let image = store
        .find(&Reference::parse("app:2").unwrap())
        .unwrap()
        .unwrap();
    let root = store.unpack(&image, &cancel).unwrap();
    assert_eq!(
        std::fs::read_to_string(root.lower[0].join("hello")).unwrap(),
        "world"
    );
}

#[test]
fn hostile_archives_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path());
    let secret = directory.path().join("secret");
    std::fs::write(&secret, "secret").unwrap();
    let saved = |config: &str, layer: &str| {
        json!([{"Config": config, "RepoTags": ["a:1"], "Layers": [layer]}]).to_string()
    };
    let list = |text: String| Layer::new().entry(b'0', "manifest.json", "", 0o644, text.as_bytes());
    let config = Built::simple().config;
    let hex = "a".repeat(64);
    let bad = Built::new(&[(Layer::new().file("../x", "").tar(), gzip)]);
    let cases = [
        ("nothing", Layer::new().file("readme", "")),
        (
            "no archive",
            Layer::new().entry(b'0', "index.json", "", 0o644, b"{"),
        ),
        (
            "no image",
            Layer::new().file("index.json", r#"{"manifests":[]}"#),
        ),
        ("path out", list(saved(secret.to_str().unwrap(), "l"))),
        ("relative path out", list(saved("../../secret", "l"))),
        (
            "link out",
            list(saved("c", "l")).symlink("c", "../../secret"),
        ),
        (
            "links in a circle",
            list(saved("c", "l")).symlink("c", "d").symlink("d", "c"),
        ),
        (
            "missing layer",
            list(saved("c", "l")).entry(b'0', "c", "", 0o644, &config),
        ),
        (
            "wrong blob",
            Layer::new().file(&format!("blobs/sha256/{hex}"), "x"),
        ),
    ];
    let cancel = AtomicBool::new(false);
    for (what, layer) in cases {
        let file = directory.path().join("bad.tar");
        std::fs::write(&file, layer.tar()).unwrap();
        let error = import(&store, &file, None, &cancel);
        assert!(error.is_err(), "{what}");
    }
    // It ends in the middle of a blob, of which nothing is left.
    let mut noise = vec![0u8; 64 << 10];
    rand::RngCore::fill_bytes(&mut rand::rng(), &mut noise);
    let blob = format!("blobs/sha256/{hex}");
    let mut cut = gzip(&Layer::new().entry(b'0', &blob, "", 0o644, &noise).tar());
    cut.truncate(32 << 10);
    let file = directory.path().join("cut.tar.gz");
    std::fs::write(&file, cut).unwrap();
    assert!(import(&store, &file, None, &cancel).is_err());
    let mut left = std::fs::read_dir(store.root().join("ingest")).unwrap();
    assert!(left.next().is_none());
    let path = layout(directory.path(), &bad, "a:1");
    let error = import(&store, &path, None, &cancel).unwrap_err();
    assert!(matches!(error, Error::Layer { .. }), "{error}");
    assert!(store.list().unwrap().is_empty());
    assert_eq!(
        std::fs::read_dir(store.root().join("blobs/sha256"))
            .unwrap()
            .count(),
        0
    );
}

/// The attack: an archive of a few megabytes has millions of files of the same name. Each was extracted, and took an inode.
#[test]
fn regression_files_of_the_same_name_count_each() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path());
    let cancel = AtomicBool::new(false);
    let blob = format!("blobs/sha256/{}", Digest::of(b"").hex());
    for name in ["a", &blob] {
        let one = Layer::new().file(name, "").tar();
        // Without the two blocks that end the archive.
        let file = directory.path().join("many.tar");
        std::fs::write(&file, one[..512].repeat(10_001)).unwrap();
        let error = import(&store, &file, None, &cancel).unwrap_err();
        assert!(matches!(error, Error::TooLarge(_)), "{name}: {error}");
    }
    let mut left = std::fs::read_dir(store.root().join("ingest")).unwrap();
    assert!(left.next().is_none());
}

/// The attack: a layout has a pipe in the place of a file. Its reader waited without end.
#[test]
fn regression_a_pipe_in_a_layout_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path());
    let path = layout(directory.path(), &Built::simple(), "a:1");
    let index = path.join("index.json");
    std::fs::remove_file(&index).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &index, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let error = import(&store, &path, None, &AtomicBool::new(false)).unwrap_err();
    assert!(error.to_string().contains("not a regular file"), "{error}");
}
