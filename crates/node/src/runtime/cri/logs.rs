//! Rotation of container logs: the runtime writes them, the agent puts full ones aside, as a kubelet does.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use allot_protos::cri_v1 as v1;

use super::calls::CallError;
use super::translate::label;
use super::{Inner, follow};
use crate::rules;
use crate::shim::log::{put_aside, remove_oldest};

/// Looks for full logs until it is dropped.
pub(super) async fn rotate(inner: Arc<Inner>) {
    loop {
        tokio::time::sleep(inner.settings.logs.period).await;
        inner.reached().await;
        if let Err(failure) = inner.rotate_logs().await {
            tracing::debug!(%failure, "logs were not looked at");
        }
    }
}

/// Path of a container's log.
fn path(directory: &Path, listed: &v1::Container) -> Option<PathBuf> {
    let label = |name: &str| listed.labels.get(name).map(String::as_str);
    let (namespace, name) = (label(label::POD_NAMESPACE)?, label(label::POD_NAME)?);
    let uid = label(label::POD_UID)?;
    let metadata = listed.metadata.as_ref()?;
    // Names of the agent have no slash. With one the path could lead to files of the machine.
    let container = metadata.name.as_str();
    let mut parts = [namespace, name, uid, container].into_iter();
    if parts.any(|part| part.contains('/')) || container == ".." {
        return None;
    }
    let of_pod = rules::log_directory_of(directory, namespace, name, uid);
    Some(of_pod.join(rules::log_name(container, metadata.attempt)))
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(io::Error::other(error)))
}

impl Inner {
    async fn rotate_logs(&self) -> Result<(), CallError> {
        let filter = v1::ContainerFilter {
            label_selector: follow::own(self),
            ..v1::ContainerFilter::default()
        };
        let request = v1::ListContainersRequest {
            filter: Some(filter),
        };
        for container in self.calls.list_containers(request).await?.containers {
            if container.state() != v1::ContainerState::ContainerRunning {
                continue;
            }
            let Some(path) = path(&self.settings.directory, &container) else {
                continue;
            };
            if let Err(error) = self.rotate_if_full(&container.id, &path).await {
                tracing::warn!(log = %path.display(), %error, "log was not rotated");
            }
        }
        Ok(())
    }

    async fn rotate_if_full(&self, id: &str, path: &Path) -> io::Result<()> {
        let limits = &self.settings.logs;
        let looked = path.to_owned();
        let full = blocking(move || std::fs::metadata(looked)).await;
        let aside = match full {
            Ok(data) if data.len() < limits.size => return Ok(()),
            Ok(_) => {
                let full = path.to_owned();
                Some(blocking(move || put_aside(&full)).await?)
            }
            // It was put aside before the agent or the runtime ended.
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let request = v1::ReopenContainerLogRequest {
            container_id: id.to_owned(),
        };
        let reopened = self.calls.reopen_container_log(request).await;
        let (path, files) = (path.to_owned(), limits.files);
        if let Err(failure) = reopened {
            // The runtime continues with the file that it has open, unless it did what was requested of it.
            if let Some(aside) = aside {
                blocking(move || match path.exists() {
                    true => Ok(()),
                    false => std::fs::rename(aside, path),
                })
                .await?;
            }
            return Err(io::Error::other(failure));
        }
        blocking(move || remove_oldest(&path, files)).await
    }
}
