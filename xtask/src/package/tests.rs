use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;

use allot_images::{Limits, Store, Timeouts};

/// A program with the answers that packaging needs of the real one.
const STAND_IN: &str = "#!/bin/sh
case $1 in
  completion) echo \"completion of $2\" ;;
  manual) echo '.TH allot 1' > $2/allot.1; echo '.TH allot-up 1' > $2/allot-up.1 ;;
  *) exit 1 ;;
esac
";

/// Runs a command of xtask on the stand-in.
fn package(command: fn(&[String]) -> anyhow::Result<bool>, directory: &Path, out: &str) {
    package_with(command, directory, out, &[]).expect("packaged");
}

fn package_with(
    command: fn(&[String]) -> anyhow::Result<bool>,
    directory: &Path,
    out: &str,
    more: &[&str],
) -> anyhow::Result<()> {
    let binary = directory.join(format!("program-of-{out}"));
    std::fs::write(&binary, STAND_IN).expect("written");
    std::fs::set_permissions(&binary, Permissions::from_mode(0o755)).expect("permitted");
    let text = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    let mut arguments = vec![
        "--binary".to_owned(),
        text(&binary),
        "--out".to_owned(),
        text(&directory.join(out)),
        "--target".to_owned(),
        "x86_64-unknown-linux-gnu".to_owned(),
    ];
    arguments.extend(more.iter().map(|argument| (*argument).to_owned()));
    assert!(command(&arguments)?);
    Ok(())
}

/// All files below a directory.
fn files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut open = vec![directory.to_owned()];
    while let Some(at) = open.pop() {
        for entry in std::fs::read_dir(at).expect("a directory").flatten() {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else {
                let name = path
                    .strip_prefix(directory)
                    .expect("below")
                    .display()
                    .to_string();
                all.insert(name, std::fs::read(path).expect("read"));
            }
        }
    }
    all
}

#[test]
fn an_image_is_the_same_twice_and_can_be_imported() {
    let directory = tempfile::tempdir().expect("directory");
    for out in ["one", "two", "two"] {
        package(super::image, directory.path(), out);
    }
    let one = files(&directory.path().join("one"));
    assert_eq!(one, files(&directory.path().join("two")));
    let bill = one
        .iter()
        .find(|(name, _)| name.ends_with(".cdx.json"))
        .expect("a bill")
        .1;
    let bill: serde_json::Value = serde_json::from_slice(bill).expect("JSON");
    assert_eq!(bill["bomFormat"], "CycloneDX");
    let names: Vec<&str> = bill["components"]
        .as_array()
        .expect("components")
        .iter()
        .filter_map(|it| it["name"].as_str())
        .collect();
    assert!(
        names.contains(&"tokio") && names.contains(&"allot-node"),
        "{names:?}"
    );
    assert!(!names.contains(&"criterion"), "what tests it is not in it");

    // As `allot image import` does, from the directory and from the archive.
    let archive = one
        .keys()
        .find(|name| name.ends_with(".oci.tar"))
        .expect("an archive");
    for (number, source) in ["layout", archive].into_iter().enumerate() {
        let store = directory.path().join(format!("images-{number}"));
        let store = Store::open(store, Limits::default(), Timeouts::default()).expect("a store");
        let source = directory.path().join("one").join(source);
        let images = allot_images::import::import(&store, &source, None, &AtomicBool::new(false));
        let images = images.expect("imported");
        let name = format!("docker.io/library/allot:{}", env!("CARGO_PKG_VERSION"));
        assert_eq!(
            images.iter().map(|it| it.name.clone()).collect::<Vec<_>>(),
            [name]
        );
    }
}

#[test]
fn packages_are_the_same_twice_and_debian_reads_them() {
    let directory = tempfile::tempdir().expect("directory");
    for out in ["one", "two"] {
        package(super::dist, directory.path(), out);
    }
    let one = files(&directory.path().join("one"));
    assert_eq!(one, files(&directory.path().join("two")));
    let version = env!("CARGO_PKG_VERSION");
    let sums = String::from_utf8(one["SHA256SUMS"].clone()).expect("UTF-8");
    for file in [
        format!("allot-{version}-linux-amd64.tar.gz"),
        format!("allot_{version}_amd64.deb"),
        format!("allot-{version}-linux-amd64.cdx.json"),
    ] {
        let line = format!("{}  {file}\n", super::sha256(&one[&file]));
        assert!(sums.contains(&line), "{sums}");
    }
    let package = directory
        .path()
        .join(format!("one/allot_{version}_amd64.deb"));
    let Ok(output) = Command::new("dpkg-deb")
        .arg("--contents")
        .arg(&package)
        .output()
    else {
        eprintln!("skipped: no dpkg-deb");
        return;
    };
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    let list = String::from_utf8(output.stdout).expect("UTF-8");
    for expected in [
        " usr/bin/allot\n",
        " usr/share/man/man1/allot-up.1.gz\n",
        " usr/share/bash-completion/completions/allot\n",
        " usr/lib/systemd/system/allot.service\n",
        " etc/allot/up.yaml\n",
    ] {
        assert!(list.contains(expected), "{expected} in {list}");
    }
    // Older releases of dpkg print the numbers if a file names no owner.
    let is_root = |line: &str| line.contains(" root/root ") || line.contains(" 0/0 ");
    assert!(list.lines().all(is_root), "{list}");
    assert!(list.contains("-rwxr-xr-x"), "{list}");
    let field = Command::new("dpkg-deb")
        .arg("--field")
        .arg(&package)
        .output()
        .expect("dpkg-deb");
    let fields = String::from_utf8(field.stdout).expect("UTF-8");
    assert!(
        fields.contains(&format!("Version: {version}\n")),
        "{fields}"
    );
    assert!(!fields.contains("Depends:"), "a static program: {fields}");
}

/// Whether the signature of the checksums in a directory is of a signer.
fn verifies(directory: &Path, signers: &Path) -> bool {
    let sums = std::fs::File::open(directory.join("SHA256SUMS")).expect("checksums");
    // As docs/OPERATIONS.md says.
    let verified = Command::new("ssh-keygen")
        .args(["-Y", "verify", "-I", "allot", "-n", super::sign::NAMESPACE])
        .arg("-f")
        .arg(signers)
        .arg("-s")
        .arg(directory.join("SHA256SUMS.sig"))
        .stdin(sums)
        .output();
    verified.expect("ssh-keygen").status.success()
}

#[test]
fn checksums_are_signed_with_the_key_that_is_given() {
    let directory = tempfile::tempdir().expect("directory");
    let at = |name: &str| directory.path().join(name);
    // Writes a key, and the file that names it as a signer.
    let make = |name: &str| {
        let made = Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-C", "test", "-f"])
            .arg(at(name))
            .output();
        if made.is_err() {
            return false;
        }
        let public = std::fs::read_to_string(at(&format!("{name}.pub"))).expect("a public key");
        std::fs::write(at(&format!("{name}.signers")), format!("allot {public}")).expect("written");
        true
    };
    if !make("key") || !make("other") {
        eprintln!("skipped: no ssh-keygen");
        return;
    }
    let key = at("key").display().to_string();
    package_with(super::dist, directory.path(), "one", &["--sign-key", &key]).expect("signed");
    let one = at("one");
    assert!(verifies(&one, &at("key.signers")));
    assert!(!verifies(&one, &at("other.signers")), "another key");
    // Signed again it replaces the signature, and the same bytes have the same one.
    let before = files(&one);
    package_with(super::dist, directory.path(), "one", &["--sign-key", &key]).expect("signed");
    assert_eq!(before, files(&one));
    let mut sums = before["SHA256SUMS"].clone();
    sums[0] ^= 1;
    std::fs::write(one.join("SHA256SUMS"), sums).expect("written");
    assert!(!verifies(&one, &at("key.signers")), "changed checksums");

    // A signature of before does not stay beside checksums that nobody signed.
    package(super::dist, directory.path(), "one");
    assert!(!one.join("SHA256SUMS.sig").exists());
    let absent = at("absent").display().to_string();
    let more = ["--sign-key", &absent];
    let error = package_with(super::dist, directory.path(), "one", &more);
    let error = error.expect_err("no key").to_string();
    assert!(error.contains("there is no signing key"), "{error}");
}
