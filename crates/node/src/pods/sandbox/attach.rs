//! The attachment of pods to their networks: what plugins are asked, in which order it is recorded, and how it is undone.

use std::path::Path;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use super::super::network;
use super::condition::not_ready;
use super::error::{NetworkError, SandboxError};
use super::plugin_args::{args, capabilities};
use super::record::{Known, Record};
use super::{Obstacle, Sandboxes, uid};
use crate::cni::{self, Attachment, Client};

impl Sandboxes {
    /// Gives a pod its network, unless it has it. `directory` is the pod's.
    ///
    /// # Errors
    /// Nothing is left of the attempt, or it is recorded.
    pub(in crate::pods) async fn attach(
        &self,
        pod: &Pod,
        directory: &Path,
    ) -> Result<(), Obstacle> {
        let uid = uid(pod);
        let _lock = self.locks.take(uid).await;
        let before = self.known.lock().get(uid).cloned();
        match before {
            Some(Known::Open(..)) if network::of(directory).is_some() => return Ok(()),
            // An earlier attempt failed, or the machine was started again.
            Some(Known::Begun(_) | Known::Open(..)) => {
                let undone = self.undo(uid, directory).await;
                undone.map_err(Obstacle::failed)?;
                self.forget(uid);
            }
            Some(Known::Closed(_)) => self.forget(uid),
            Some(Known::Shared) => return Ok(()),
            None => {}
        }
        if !self.wanted(pod) {
            return Ok(());
        }
        let failed = |source: NetworkError| {
            let uid = uid.to_owned();
            Obstacle::failed(SandboxError::Attach { uid, source })
        };
        let capabilities =
            capabilities(pod).map_err(|text| failed(NetworkError::Annotation(text)))?;
        let network = cni::find(&self.settings.conf_dir).map_err(|error| not_ready(&error))?;
        let namespace = network::ensure(directory).map_err(|error| failed(error.into()))?;
        let mut record = Record {
            pod: Attachment {
                id: uid.to_owned(),
                namespace: Some(namespace),
                args: args(pod),
                capabilities,
                result: None,
            },
            network,
            bin_dirs: self.settings.bin_dirs.clone(),
        };
        self.records
            .write(uid, &record)
            .map_err(|error| failed(error.into()))?;
        let begun = Known::Begun(Some(Box::new(record.clone())));
        self.known.lock().insert(uid.to_owned(), begun);
        let added = self.client.add(&record.network, &record.pod).await;
        let added = added.map_err(NetworkError::from).and_then(|result| {
            record.pod.result = Some(result);
            let addresses = record.addresses().filter(|all| !all.is_empty());
            let addresses = addresses.ok_or(NetworkError::NoAddress)?;
            self.records.write(uid, &record)?;
            Ok(addresses)
        });
        match added {
            Ok(addresses) => {
                let open = Known::Open(Box::new(record), addresses);
                self.known.lock().insert(uid.to_owned(), open);
                Ok(())
            }
            Err(error) => {
                // What the plugins before the failed one did is undone at once if possible, and otherwise before the next try.
                match self.undo(uid, directory).await {
                    Ok(()) => self.forget(uid),
                    Err(error) => {
                        let name = pod.name_any();
                        tracing::warn!(
                            pod = name,
                            %error,
                            "the network of a pod is not removed yet"
                        );
                    }
                }
                Err(failed(error))
            }
        }
    }

    /// Takes the network of a pod away, whose containers have ended. `directory` is the pod's.
    ///
    /// # Errors
    /// A plugin failed; the record is kept, and it can be tried again.
    pub(crate) async fn detach(&self, uid: &str, directory: &Path) -> Result<(), SandboxError> {
        let _lock = self.locks.take(uid).await;
        self.undo(uid, directory).await
    }

    /// Detaches and forgets a pod if it still `is_gone` once it has the lock: a static pod may be put back meanwhile.
    ///
    /// # Errors
    /// As [`Self::detach`].
    pub(in crate::pods) async fn detach_gone(
        &self,
        uid: &str,
        directory: &Path,
        is_gone: impl Fn() -> bool + Send,
    ) -> Result<(), SandboxError> {
        let _lock = self.locks.take(uid).await;
        if !is_gone() {
            return Ok(());
        }
        self.undo(uid, directory).await?;
        self.forget(uid);
        Ok(())
    }

    /// As [`Self::detach`], with the lock that the caller has.
    async fn undo(&self, uid: &str, directory: &Path) -> Result<(), SandboxError> {
        let before = self.known.lock().get(uid).cloned();
        let (record, addresses) = match before {
            None | Some(Known::Closed(_) | Known::Shared) => {
                network::remove(directory);
                return Ok(());
            }
            Some(Known::Open(record, addresses)) => (Some(record), addresses),
            Some(Known::Begun(record)) => (record, Vec::new()),
        };
        let failed = |source: NetworkError| {
            let uid = uid.to_owned();
            SandboxError::Detach { uid, source }
        };
        let mut record = match record {
            Some(record) => *record,
            // Plugins find most by the ID alone. Without a configuration the record is kept.
            None => Record {
                network: cni::find(&self.settings.conf_dir)
                    .map_err(|error| failed(error.into()))?,
                pod: Attachment {
                    id: uid.to_owned(),
                    ..Attachment::default()
                },
                bin_dirs: Vec::new(),
            },
        };
        // After a restart of the machine there is a file, and no namespace.
        record.pod.namespace = network::of(directory);
        let client = self.client_of(&record);
        let deleted = client.delete(&record.network, &record.pod).await;
        deleted.map_err(|error| failed(error.into()))?;
        network::remove(directory);
        let removed = self.records.remove(uid);
        removed.map_err(|error| failed(error.into()))?;
        let closed = Known::Closed(addresses);
        self.known.lock().insert(uid.to_owned(), closed);
        Ok(())
    }

    /// Forgets a pod whose network was taken away.
    pub(crate) fn forget(&self, uid: &str) {
        let mut known = self.known.lock();
        if matches!(known.get(uid), Some(Known::Closed(_) | Known::Shared)) {
            known.remove(uid);
        }
    }

    /// Asks the plugins whether a pod still is as they left it.
    ///
    /// # Errors
    /// It is not.
    pub(in crate::pods) async fn check(&self, uid: &str) -> Result<(), cni::Error> {
        let known = self.known.lock().get(uid).cloned();
        let Some(Known::Open(record, _)) = known else {
            return Ok(());
        };
        let client = self.client_of(&record);
        let checked = client.check(&record.network, &record.pod).await;
        // Its network may have been removed meanwhile.
        let is_open = matches!(self.known.lock().get(uid), Some(Known::Open(..)));
        match checked {
            Err(error) if is_open => Err(error),
            _ => Ok(()),
        }
    }

    /// Looks for plugins where they were when the pod got its network, and then where they are now.
    pub(super) fn client_of(&self, record: &Record) -> Client {
        let mut client = self.client.clone();
        let now = std::mem::replace(&mut client.bin_dirs, record.bin_dirs.clone());
        let new = now.into_iter().filter(|it| !record.bin_dirs.contains(it));
        client.bin_dirs.extend(new);
        client
    }
}
