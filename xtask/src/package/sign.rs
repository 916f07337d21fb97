//! Signatures of checksums.
//!
//! They are those of OpenSSH (`ssh-keygen -Y`), because it is on nearly every machine that signs or verifies, keeps keys in
//! files, agents and hardware tokens, and adds no dependency here. The key comes from outside of the checkout.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

/// The purpose of the signatures. A signature that the same key made for another purpose does not verify.
pub(super) const NAMESPACE: &str = "allot-release";

/// The environment variable that names the key file.
pub(super) const VARIABLE: &str = "ALLOT_SIGNING_KEY";

/// Where the signature of a file is.
fn place(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".sig");
    name.into()
}

/// Removes the signature of an earlier file, which would not verify.
pub(super) fn forget(file: &Path) -> Result<()> {
    let old = place(file);
    match std::fs::remove_file(&old) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| old.display().to_string())
        }
        _ => Ok(()),
    }
}

/// Signs a file with a private key, or with the key of the agent or token that belongs to a public key. Returns the
/// signature's file.
pub(super) fn sign(file: &Path, key: &Path) -> Result<PathBuf> {
    ensure!(key.is_file(), "there is no signing key {}", key.display());
    let made = Command::new("ssh-keygen")
        .args(["-q", "-Y", "sign", "-n", NAMESPACE, "-f"])
        .args([key, file])
        .stdin(Stdio::null())
        .output()
        .context("ssh-keygen, which signs, does not start: is OpenSSH installed?")?;
    let error = String::from_utf8_lossy(&made.stderr);
    ensure!(
        made.status.success(),
        "cannot sign with {}: {}",
        key.display(),
        error.trim()
    );
    Ok(place(file))
}
