//! Files that the API server writes: its keys in `pki/`, and the kubeconfig of the administrator.

use std::path::Path;

use allot_apiserver::keys::TokenKey;
use allot_apiserver::pki::write_private;
use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The token of the kubeconfig, kept so that clients continue to work after a restart.
pub(super) fn administrator_token(pki: &Path) -> anyhow::Result<String> {
    let path = pki.join("admin.token");
    if path.exists() {
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        if !text.trim().is_empty() {
            return Ok(text.trim().to_owned());
        }
    }
    let token = format!("{:032x}", rand::random::<u128>());
    write_private(&path, &token)?;
    Ok(token)
}

/// The key of service account tokens, kept so that tokens stay valid after a restart.
pub(super) fn service_account_key(pki: &Path) -> anyhow::Result<TokenKey> {
    let path = pki.join("sa.key");
    let key = if path.exists() {
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        STANDARD
            .decode(text.trim())
            .with_context(|| format!("{} is no key", path.display()))?
    } else {
        let key = rcgen::KeyPair::generate()?.serialize_der();
        write_private(&path, &STANDARD.encode(&key))?;
        key
    };
    TokenKey::from_pkcs8(&key).map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))
}

/// With the token only: with a client certificate in it, a client could not make anonymous requests. The certificate is
/// in `pki/`.
pub(super) fn write_kubeconfig(
    path: &Path,
    url: &str,
    ca: &str,
    token: &str,
) -> anyhow::Result<()> {
    let config = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: allot\nclusters:\n- name: allot\n  cluster:\n    server: {url}\n    \
         certificate-authority-data: {}\ncontexts:\n- name: allot\n  context:\n    cluster: allot\n    user: admin\n\
         users:\n- name: admin\n  user:\n    token: {token}\n",
        STANDARD.encode(ca),
    );
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
    }
    write_private(path, &config).with_context(|| format!("cannot write {}", path.display()))
}
