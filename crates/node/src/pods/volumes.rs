//! Volumes as directories on the host.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{
    self as v1, Container, DownwardAPIVolumeFile, KeyToPath, Pod, ServiceAccount, VolumeProjection,
};
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt};

use super::env::{Downward, Problem, Sources};
use crate::claims::text;
use crate::shim::spec::Mount;

/// A volume that has been made.
#[derive(Debug, Clone)]
pub(super) struct Volume {
    path: PathBuf,
    /// Its content is the API server's: containers cannot change it.
    read_only: bool,
}

type Files = BTreeMap<String, (Vec<u8>, u32)>;

/// Makes all volumes of a pod; returns them by name. Done once per start of the pod: later changes of a
/// config map are not followed.
pub(super) async fn prepare(
    client: &Client,
    downward: &Downward<'_>,
    directory: &Path,
    sources: &mut Sources,
) -> Result<BTreeMap<String, Volume>, Problem> {
    let mut made = BTreeMap::new();
    let volumes = downward
        .pod
        .spec
        .iter()
        .flat_map(|spec| spec.volumes.iter().flatten());
    for volume in volumes {
        let problem = |error: Problem| {
            format!(
                "MountVolume.SetUp failed for volume \"{}\" : {error}",
                volume.name
            )
        };
        let path = one(client, downward, directory, volume, sources)
            .await
            .map_err(problem)?;
        let read_only = volume.config_map.is_some()
            || volume.secret.is_some()
            || volume.downward_api.is_some()
            || volume.projected.is_some();
        made.insert(volume.name.clone(), Volume { path, read_only });
    }
    Ok(made)
}

async fn one(
    client: &Client,
    downward: &Downward<'_>,
    directory: &Path,
    volume: &v1::Volume,
    sources: &mut Sources,
) -> Result<PathBuf, Problem> {
    let path = directory.join("volumes").join(&volume.name);
    if let Some(host) = &volume.host_path {
        return host_path(&host.path, host.type_.as_deref().unwrap_or_default());
    }
    if volume.empty_dir.is_some() {
        make_dir(&path, 0o777)?;
        return Ok(path);
    }
    let mut files = Files::new();
    if let Some(map) = &volume.config_map {
        let optional = map.optional.unwrap_or(false);
        let data = sources
            .config_map(&map.name, optional)
            .await?
            .unwrap_or_default();
        let mode = mode(map.default_mode);
        select(&mut files, data, map.items.as_deref(), mode, optional)?;
    } else if let Some(secret) = &volume.secret {
        let optional = secret.optional.unwrap_or(false);
        let name = secret.secret_name.as_deref().unwrap_or_default();
        let data = sources
            .secret(name, optional)
            .await?
            .cloned()
            .unwrap_or_default();
        select(
            &mut files,
            data,
            secret.items.as_deref(),
            mode(secret.default_mode),
            optional,
        )?;
    } else if let Some(api) = &volume.downward_api {
        downward_files(
            &mut files,
            downward,
            api.items.as_deref(),
            mode(api.default_mode),
        )?;
    } else if let Some(projected) = &volume.projected {
        for source in projected.sources.iter().flatten() {
            project(
                &mut files,
                client,
                downward,
                source,
                mode(projected.default_mode),
                sources,
            )
            .await?;
        }
    } else {
        return Err("volumes of this type are not supported by this node".into());
    }
    make_dir(&path, 0o755)?;
    for (name, (content, mode)) in files {
        let file = path.join(inside(&name)?);
        if let Some(parent) = file.parent() {
            make_dir(parent, 0o755)?;
        }
        allot_cdi::file::write_atomic(&file, &content, mode)
            .map_err(|error| format!("{}: {error}", file.display()))?;
    }
    Ok(path)
}

fn mode(mode: Option<i32>) -> u32 {
    mode.map_or(0o644, |mode| mode as u32 & 0o777)
}

async fn project(
    files: &mut Files,
    client: &Client,
    downward: &Downward<'_>,
    source: &VolumeProjection,
    mode: u32,
    sources: &mut Sources,
) -> Result<(), Problem> {
    if let Some(map) = &source.config_map {
        let optional = map.optional.unwrap_or(false);
        let data = sources
            .config_map(&map.name, optional)
            .await?
            .unwrap_or_default();
        select(files, data, map.items.as_deref(), mode, optional)?;
    }
    if let Some(secret) = &source.secret {
        let optional = secret.optional.unwrap_or(false);
        let data = sources
            .secret(&secret.name, optional)
            .await?
            .cloned()
            .unwrap_or_default();
        select(files, data, secret.items.as_deref(), mode, optional)?;
    }
    if let Some(api) = &source.downward_api {
        downward_files(files, downward, api.items.as_deref(), mode)?;
    }
    if let Some(wanted) = &source.service_account_token {
        let audience = wanted.audience.clone().into_iter().collect();
        let token = token(client, downward.pod, audience, wanted.expiration_seconds).await?;
        files.insert(wanted.path.clone(), (token.into_bytes(), mode));
    }
    Ok(())
}

async fn token(
    client: &Client,
    pod: &Pod,
    audiences: Vec<String>,
    seconds: Option<i64>,
) -> Result<String, Problem> {
    let account = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.service_account_name.clone());
    let account = account.unwrap_or_else(|| "default".into());
    let api: Api<ServiceAccount> =
        Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
    let bound = serde_json::json!({
        "apiVersion": "v1", "kind": "Pod", "name": pod.name_any(), "uid": pod.uid().unwrap_or_default(),
    });
    let request = TokenRequest {
        spec: Some(TokenRequestSpec {
            audiences: Some(audiences),
            expiration_seconds: seconds,
            bound_object_ref: serde_json::from_value(bound).ok(),
        }),
        ..TokenRequest::default()
    };
    let answer = api
        .create_token_request(&account, &PostParams::default(), &request)
        .await;
    let answer = answer.map_err(|error| format!("failed to fetch token: {}", text(&error)))?;
    Ok(answer
        .status
        .and_then(|status| status.token)
        .unwrap_or_default())
}

/// All keys, or the items under their own paths.
fn select(
    files: &mut Files,
    mut data: BTreeMap<String, Vec<u8>>,
    items: Option<&[KeyToPath]>,
    mode: u32,
    optional: bool,
) -> Result<(), Problem> {
    let Some(items) = items.filter(|items| !items.is_empty()) else {
        files.extend(data.into_iter().map(|(key, value)| (key, (value, mode))));
        return Ok(());
    };
    for item in items {
        match data.remove(&item.key) {
            Some(value) => {
                files.insert(
                    item.path.clone(),
                    (value, item.mode.map_or(mode, |mode| mode as u32 & 0o777)),
                );
            }
            None if optional => {}
            None => return Err(format!("references non-existent config key: {}", item.key)),
        }
    }
    Ok(())
}

fn downward_files(
    files: &mut Files,
    downward: &Downward<'_>,
    items: Option<&[DownwardAPIVolumeFile]>,
    mode: u32,
) -> Result<(), Problem> {
    for item in items.unwrap_or_default() {
        let content = if let Some(field) = &item.field_ref {
            downward.field(&field.field_path)?
        } else if let Some(resource) = &item.resource_field_ref {
            let spec = downward.pod.spec.as_ref();
            let name = resource.container_name.as_deref().unwrap_or_default();
            let container = spec.and_then(|spec| {
                spec.containers
                    .iter()
                    .find(|container| container.name == name)
            });
            let container = container.ok_or_else(|| format!("container {name} not found"))?;
            let divisor = resource
                .divisor
                .as_ref()
                .map_or("1", |divisor| divisor.0.as_str());
            downward.resource(container, &resource.resource, divisor)?
        } else {
            continue;
        };
        let mode = item.mode.map_or(mode, |mode| mode as u32 & 0o777);
        files.insert(item.path.clone(), (content.into_bytes(), mode));
    }
    Ok(())
}

fn make_dir(path: &Path, mode: u32) -> Result<(), Problem> {
    let fail = |error: std::io::Error| format!("{}: {error}", path.display());
    fs::create_dir_all(path).map_err(fail)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(fail)
}

/// A relative path that stays inside of the volume.
fn inside(name: &str) -> Result<&Path, Problem> {
    let path = Path::new(name);
    let plain = path
        .components()
        .all(|part| matches!(part, Component::Normal(_)));
    if plain && !name.is_empty() {
        Ok(path)
    } else {
        Err(format!("invalid path {name:?}"))
    }
}

fn host_path(path: &str, kind: &str) -> Result<PathBuf, Problem> {
    let path = Path::new(path);
    match kind {
        "DirectoryOrCreate" => make_dir(path, 0o755)?,
        "FileOrCreate" if !path.exists() => {
            fs::write(path, "").map_err(|error| format!("{}: {error}", path.display()))?;
        }
        _ => {}
    }
    let metadata = fs::metadata(path).map_err(|_| {
        format!(
            "hostPath type check failed: {} does not exist",
            path.display()
        )
    });
    let metadata = match (metadata, kind) {
        // Without a type nothing is checked; a missing directory is made, as a container runtime would.
        (Err(_), "") => {
            make_dir(path, 0o755)?;
            fs::metadata(path).map_err(|error| error.to_string())?
        }
        (result, _) => result?,
    };
    let fits = match kind {
        "Directory" | "DirectoryOrCreate" => metadata.is_dir(),
        "File" | "FileOrCreate" => metadata.is_file(),
        _ => true,
    };
    if !fits {
        return Err(format!(
            "hostPath type check failed: {} is not a {kind}",
            path.display()
        ));
    }
    path.canonicalize()
        .map_err(|error| format!("{}: {error}", path.display()))
}

/// The mounts of a container.
pub(super) fn mounts(
    container: &Container,
    volumes: &BTreeMap<String, Volume>,
    env: &[(String, String)],
) -> Result<Vec<Mount>, Problem> {
    let mut mounts = Vec::new();
    for mount in container.volume_mounts.iter().flatten() {
        let volume = volumes
            .get(&mount.name)
            .ok_or_else(|| format!("volume {:?} not found", mount.name))?;
        let expanded = mount
            .sub_path_expr
            .as_deref()
            .map(|text| super::env::expand(text, env));
        let real = |path: &Path| {
            path.canonicalize()
                .map_err(|error| format!("{}: {error}", path.display()))
        };
        let root = real(&volume.path)?;
        let source = match expanded
            .as_deref()
            .or(mount.sub_path.as_deref())
            .filter(|path| !path.is_empty())
        {
            Some(sub) => {
                let path = root.join(inside(sub)?);
                // A container may have put a symbolic link there: it must not lead out of the volume.
                let existing = path.ancestors().find(|path| path.exists()).unwrap_or(&root);
                if !real(existing)?.starts_with(&root) {
                    return Err(format!(
                        "failed to prepare subPath for volumeMount \"{}\" of container \"{}\"",
                        mount.name, container.name
                    ));
                }
                if !path.exists() {
                    make_dir(&path, 0o755)?;
                }
                real(&path)?
            }
            None => root,
        };
        mounts.push(Mount {
            source,
            target: PathBuf::from(&mount.mount_path),
            read_only: volume.read_only || mount.read_only.unwrap_or(false),
        });
    }
    Ok(mounts)
}
