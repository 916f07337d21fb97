//! A driver's controller that does one write at a time, so that it can be killed between any two.

use std::collections::BTreeMap;

use rand::Rng;
use rand::rngs::StdRng;
use serde_json::{Value, json};

use super::api::{Api, at, id};

/// A driver. What it holds outside of the cluster survives it.
pub struct Driver {
    pub name: &'static str,
    /// Claims per node.
    pub capacity: usize,
    /// Nodes that it refuses.
    pub refuses: Vec<String>,
    pub shareable: bool,
    pub reserves: bool,
    /// Node by identity of the claim.
    pub held: BTreeMap<String, String>,
}

fn list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The object of a pod's claim.
pub fn claim_of(api: &Api, pod: &Value, entry: &Value) -> Option<Value> {
    let namespace = text(&pod["metadata"]["namespace"]);
    if let Some(name) = entry["resourceClaimName"].as_str() {
        return api.get(&id("resourceclaims", namespace, name));
    }
    let statuses = list(&pod["status"]["resourceClaimStatuses"]);
    let status = statuses.iter().find(|s| s["name"] == entry["name"]);
    let name = match status {
        Some(status) => text(&status["resourceClaimName"]).to_owned(),
        None => format!(
            "{}-{}",
            text(&pod["metadata"]["name"]),
            text(&entry["name"])
        ),
    };
    let claim = api.get(&id("resourceclaims", namespace, &name))?;
    (claim["metadata"]["ownerReferences"][0]["uid"] == pod["metadata"]["uid"]).then_some(claim)
}

impl Driver {
    pub fn can_take(&self, node: &str, claims: usize, besides: &[&str]) -> bool {
        let used = self
            .held
            .iter()
            .filter(|(uid, n)| *n == node && !besides.contains(&uid.as_str()));
        !self.refuses.iter().any(|r| r == node) && used.count() + claims <= self.capacity
    }

    fn finalizer(&self) -> String {
        format!("{}/deletion-protection", self.name)
    }

    fn protects(&self, claim: &Value) -> bool {
        list(&claim["metadata"]["finalizers"])
            .iter()
            .any(|f| *f == self.finalizer())
    }

    /// Does the first thing that it finds to do. Says whether there was any.
    pub fn step(&mut self, api: &Api, schedulings: &str, rng: &mut StdRng) -> bool {
        let classes: Vec<String> = api
            .all("resourceclasses")
            .iter()
            .filter(|c| c["driverName"] == self.name && c["structuredParameters"] != true)
            .map(|c| text(&c["metadata"]["name"]).to_owned())
            .collect();
        let mut work: Vec<Value> = api.all("resourceclaims");
        let at = rng.random_range(0..work.len().max(1));
        if !work.is_empty() {
            work.rotate_left(at);
        }
        if work.iter().any(|claim| self.release(api, claim)) {
            return true;
        }
        let mut talks = api.all(schedulings);
        let at = rng.random_range(0..talks.len().max(1));
        if !talks.is_empty() {
            talks.rotate_left(at);
        }
        talks
            .iter()
            .any(|talk| self.talk(api, schedulings, talk, &classes))
    }

    fn release(&mut self, api: &Api, claim: &Value) -> bool {
        let going = !claim["metadata"]["deletionTimestamp"].is_null()
            || claim["status"]["deallocationRequested"] == true;
        if !list(&claim["status"]["reservedFor"]).is_empty() || !going || !self.protects(claim) {
            return false;
        }
        self.held.remove(text(&claim["metadata"]["uid"]));
        let patch = if claim["status"]["allocation"].is_null() {
            let rest: Vec<Value> = list(&claim["metadata"]["finalizers"])
                .into_iter()
                .filter(|f| *f != self.finalizer())
                .collect();
            ("", json!({"metadata": {"finalizers": rest}}))
        } else {
            let none =
                json!({"allocation": null, "driverName": null, "deallocationRequested": null});
            ("/status", json!({"status": none}))
        };
        write(api, "resourceclaims", patch.0, claim, &patch.1);
        true
    }

    fn talk(&mut self, api: &Api, schedulings: &str, talk: &Value, classes: &[String]) -> bool {
        let meta = &talk["metadata"];
        let Some(pod) = api.get(&id("pods", text(&meta["namespace"]), text(&meta["name"]))) else {
            return false;
        };
        if meta["ownerReferences"][0]["uid"] != pod["metadata"]["uid"] {
            return false;
        }
        let mut own = Vec::new();
        for entry in list(&pod["spec"]["resourceClaims"]) {
            let Some(claim) = claim_of(api, &pod, &entry) else {
                continue;
            };
            let class = text(&claim["spec"]["resourceClassName"]);
            if claim["status"]["allocation"].is_null()
                && claim["metadata"]["deletionTimestamp"].is_null()
                && classes.iter().any(|c| c == class)
            {
                own.push((text(&entry["name"]).to_owned(), claim));
            }
        }
        if own.is_empty() {
            return false;
        }
        // Two entries may stand for one claim.
        let mut uids: Vec<&str> = own
            .iter()
            .map(|(_, c)| text(&c["metadata"]["uid"]))
            .collect();
        uids.sort_unstable();
        uids.dedup();
        let selected = text(&talk["spec"]["selectedNode"]);
        let mut asked: Vec<String> = list(&talk["spec"]["potentialNodes"])
            .iter()
            .map(|n| text(n).to_owned())
            .collect();
        if !selected.is_empty() && !asked.iter().any(|n| n == selected) {
            asked.push(selected.to_owned());
        }
        asked.retain(|node| !self.can_take(node, uids.len(), &uids));
        let unsuitable = asked;
        if !selected.is_empty() && !unsuitable.iter().any(|n| n == selected) {
            // One claim after the other; the finalizer, the allocation and its write are separate steps.
            if let Some((_, claim)) = own.first() {
                if !self.protects(claim) {
                    let mut all = list(&claim["metadata"]["finalizers"]);
                    all.push(self.finalizer().into());
                    return write(
                        api,
                        "resourceclaims",
                        "",
                        claim,
                        &json!({"metadata": {"finalizers": all}}),
                    );
                }
                let uid = text(&claim["metadata"]["uid"]);
                if self.held.get(uid).is_none_or(|n| n != selected) {
                    self.held.insert(uid.to_owned(), selected.to_owned());
                    return true;
                }
                return self.record(api, claim, selected, &pod);
            }
        }
        let mut answers = list(&talk["status"]["resourceClaims"]);
        let before = answers.clone();
        for (entry, _) in &own {
            let mut answer = json!({"name": entry});
            if !unsuitable.is_empty() {
                answer["unsuitableNodes"] = json!(unsuitable);
            }
            match answers.iter_mut().find(|a| a["name"] == **entry) {
                Some(old) => *old = answer,
                None => answers.push(answer),
            }
        }
        answers != before
            && write(
                api,
                schedulings,
                "/status",
                talk,
                &json!({"status": {"resourceClaims": answers}}),
            )
    }

    fn record(&self, api: &Api, claim: &Value, node: &str, pod: &Value) -> bool {
        let term =
            json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]});
        let mut status = json!({
            "driverName": self.name,
            "allocation": {"availableOnNodes": {"nodeSelectorTerms": [term]}},
        });
        if self.shareable {
            status["allocation"]["shareable"] = true.into();
        }
        if self.reserves {
            let meta = &pod["metadata"];
            status["reservedFor"] =
                json!([{"resource": "pods", "name": meta["name"], "uid": meta["uid"]}]);
        }
        write(
            api,
            "resourceclaims",
            "/status",
            claim,
            &json!({"status": status}),
        )
    }
}

/// Changes an object, or its status, if it is still as it was read.
fn write(api: &Api, collection: &str, sub: &str, object: &Value, patch: &Value) -> bool {
    let mut patch = patch.clone();
    patch["metadata"]["resourceVersion"] = object["metadata"]["resourceVersion"].clone();
    let status = sub == "/status";
    api.patch(&at(collection, object), status, &patch, false)
        .is_ok()
}
