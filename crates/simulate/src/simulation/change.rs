//! Objects that come, change and go.

use allot_scheduler::pod::Key;
use anyhow::Context as _;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use serde_json::Value;

use super::Simulation;
use crate::objects::{Identity, identity};
use crate::show::{self, Seen, parsed};

impl Simulation {
    /// Creates an object, in the form in which an API server would store it.
    ///
    /// # Errors
    /// It is not what its kind says, or there is one of that name already.
    pub fn create(&mut self, object: Value) -> anyhow::Result<()> {
        let name = identity(&object);
        anyhow::ensure!(!self.exists(&name), "{} {} already exists", name.0, name.2);
        self.put(object)
    }

    /// Creates an object of the workload, or puts it in the place of the one with its name, as `kubectl apply` does. A
    /// claim that has the same spec stays as it is.
    ///
    /// # Errors
    /// As [`Simulation::create`]; or a claim of that name has another spec, which cannot be changed.
    pub(super) fn apply(&mut self, object: Value) -> anyhow::Result<()> {
        let name = identity(&object);
        if name.0 != "ResourceClaim" || !self.exists(&name) {
            return self.put(object);
        }
        let wanted: ResourceClaim = parsed(object)?;
        let before = self.objects.claims.get(&Key::new(&name.1, &name.2));
        anyhow::ensure!(
            before.is_none_or(|claim| claim.spec == wanted.spec),
            "ResourceClaim {}/{} already exists with another spec, and the spec of a claim cannot be changed",
            name.1,
            name.2
        );
        Ok(())
    }

    fn exists(&self, (kind, namespace, name): &Identity) -> bool {
        let key = Key::new(namespace, name);
        match &**kind {
            "Pod" => {
                self.objects.names.contains_key(&key) || self.objects.finished.contains_key(&key)
            }
            "ResourceClaim" => self.objects.claims.contains_key(&key),
            "ResourceClaimTemplate" => self.objects.templates.contains_key(&key),
            _ => self
                .objects
                .others
                .contains_key(&(kind.clone(), namespace.clone(), name.clone())),
        }
    }

    /// Creates an object or puts it in the place of the one with its name. Pods and claims can only be created.
    ///
    /// # Errors
    /// It is not what its kind says.
    pub fn put(&mut self, mut object: Value) -> anyhow::Result<()> {
        let identity = identity(&object);
        let before = self.objects.others.get(&identity);
        let uid = before.map(|b| b["metadata"]["uid"].clone());
        object["metadata"]["uid"] = match uid {
            Some(uid) => uid,
            None => self.objects.next_uid().into(),
        };
        object["metadata"]["resourceVersion"] = self.objects.next_version().into();
        self.note_change();
        match &*identity.0 {
            "Pod" => {
                let pod: Pod = parsed(object)?;
                self.create_pod(pod, None, None)?;
            }
            "ResourceClaim" => self.create_claim(parsed(object)?),
            "ResourceClaimTemplate" => {
                self.add_template(parsed::<ResourceClaimTemplate>(object)?);
                self.make_missing_claims();
            }
            kind => {
                match show::input(kind, Seen::Applied(object.clone()))? {
                    Some(input) => self.deliver(input),
                    None if kind == "PriorityClass" => {}
                    None => {
                        let note = format!("{kind} is not simulated");
                        if !self.workload.notes.contains(&note) {
                            self.workload.notes.push(note);
                        }
                    }
                }
                self.objects.others.insert(identity, object);
            }
        }
        self.carry_out();
        Ok(())
    }

    /// Deletes an object; pods stop as the options say.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn delete(&mut self, kind: &str, namespace: &str, name: &str) -> anyhow::Result<()> {
        let key = Key::new(namespace, name);
        let missing = || format!("there is no {kind} {key}");
        self.note_change();
        match kind {
            "Pod" if self.objects.finished.remove(&key).is_some() => {}
            "Pod" => {
                let (uid, _) = self.objects.pod_named(&key).with_context(missing)?;
                let uid = uid.clone();
                self.delete_pod(&uid);
            }
            "ResourceClaim" => self.delete_claim(&key).with_context(missing)?,
            "ResourceClaimTemplate" => {
                self.objects.templates.remove(&key).with_context(missing)?;
            }
            _ => {
                let identity = (kind.to_owned(), namespace.to_owned(), name.to_owned());
                let object = self.objects.others.remove(&identity);
                let object = object.with_context(missing)?;
                if let Some(input) = show::input(kind, Seen::Deleted(object))? {
                    self.deliver(input);
                }
            }
        }
        self.carry_out();
        Ok(())
    }
}
