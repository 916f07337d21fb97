//! The actions of users, and of all components except for the scheduler and the driver.

use super::*;

impl SimulatedCluster {
    pub(super) fn create(&self, collection: &str, object: Value) {
        let created = self.api.create(collection, object);
        created.expect("names are used once");
    }

    /// Deletes an object; pods disappear at once, since no kubelet runs them.
    pub(super) fn delete(&self, collection: &str, name: &str) {
        let at = id(collection, NAMESPACE, name);
        if collection == "pods" {
            self.api.remove(&at);
        } else {
            let _ = self.api.delete(&at, None);
        }
    }

    pub(super) fn schedulings(&self) -> &'static str {
        match self.release.minor {
            26 => "podschedulings",
            _ => "podschedulingcontexts",
        }
    }

    pub(super) fn fixtures(&self) {
        self.create("namespaces", json!({"metadata": {"name": NAMESPACE}}));
        for class in ["a", "b"] {
            let driver = format!("{class}.example.com");
            self.create(
                "resourceclasses",
                json!({"metadata": {"name": class}, "driverName": driver}),
            );
        }
        if self.release.minor >= 30 {
            let class = json!({"metadata": {"name": "s"}, "driverName": "s.example.com", "structuredParameters": true});
            self.create("resourceclasses", class);
        }
        for class in ["a", "b", "s"] {
            let spec = json!({"spec": {"resourceClassName": class, "allocationMode": "WaitForFirstConsumer"}});
            let meta = json!({"name": class, "namespace": NAMESPACE});
            self.create(
                "resourceclaimtemplates",
                json!({"metadata": meta, "spec": spec}),
            );
        }
        for n in 0..NODES {
            let node = format!("n{n}");
            let amounts = json!({"cpu": "4", "memory": "4Gi", "pods": "20"});
            let labels = json!({"kubernetes.io/hostname": node});
            self.create(
                "nodes",
                json!({"metadata": {"name": node, "labels": labels}, "spec": {}, "status": {"allocatable": amounts}}),
            );
            if self.release.minor >= 30 {
                let named = json!({"instances": [{"name": "i0"}, {"name": "i1"}]});
                let slice = json!({"metadata": {"name": format!("s-{node}")}, "nodeName": node, "driverName": "s.example.com", "namedResources": named});
                self.create("resourceslices", slice);
            }
        }
    }

    pub(super) fn create_pod(&mut self) {
        let name = format!("p{}", self.pods);
        self.pods += 1;
        let structured = self.release.minor >= 30;
        let kinds = if structured { 3 } else { 2 };
        let mut entries = Vec::new();
        for entry in 0..self.rng.random_range(1..3) {
            let class = ["a", "b", "s"][self.rng.random_range(0..kinds)];
            let entry = format!("e{entry}");
            if self.rng.random_range(0..4) == 0 {
                // A claim that others may use as well.
                let claim = format!("c{}", self.rng.random_range(0..3));
                if self
                    .api
                    .get(&id("resourceclaims", NAMESPACE, &claim))
                    .is_none()
                {
                    let spec = json!({"resourceClassName": class, "allocationMode": "WaitForFirstConsumer"});
                    let meta = json!({"name": claim, "namespace": NAMESPACE});
                    self.create("resourceclaims", json!({"metadata": meta, "spec": spec}));
                }
                entries.push(json!({"name": entry, "resourceClaimName": claim}));
            } else {
                entries.push(json!({"name": entry, "resourceClaimTemplateName": class}));
            }
        }
        let spec = json!({
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}],
            "resourceClaims": entries,
        });
        let meta = json!({"name": name, "namespace": NAMESPACE});
        self.create(
            "pods",
            json!({"metadata": meta, "spec": spec, "status": {"phase": "Pending"}}),
        );
    }

    pub(super) fn any(&mut self, collection: &str) -> Option<Value> {
        let all = self.api.all(collection);
        let at = self.rng.random_range(0..all.len().max(1));
        all.get(at).cloned()
    }

    pub(super) fn delete_pod(&mut self) {
        if let Some(pod) = self.any("pods") {
            self.delete("pods", text(&pod["metadata"]["name"]));
        }
    }

    pub(super) fn finish_pod(&mut self) {
        if let Some(mut pod) = self
            .any("pods")
            .filter(|p| !p["spec"]["nodeName"].is_null())
        {
            pod["status"]["phase"] = "Succeeded".into();
            let name = text(&pod["metadata"]["name"]).to_owned();
            let _ = self.api.put(id("pods", NAMESPACE, &name), pod);
        }
    }

    /// A user deletes a claim: a generated one, or one that pods name. Claims of bound pods stay until these are
    /// deleted.
    pub(super) fn delete_claim(&mut self) {
        let in_use = |c: &Value| !list(&c["status"]["reservedFor"]).is_empty();
        if let Some(claim) = self.any("resourceclaims").filter(|c| !in_use(c)) {
            self.delete("resourceclaims", text(&claim["metadata"]["name"]));
        }
    }

    /// A driver changes its mind about nodes; it may refuse all of them.
    pub(super) fn refuse(&mut self) {
        let driver = self.rng.random_range(0..2);
        self.drivers[driver].refuses = (0..NODES)
            .filter(|_| self.rng.random_range(0..3) == 0)
            .map(|n| format!("n{n}"))
            .collect();
    }

    pub(super) fn drive(&mut self, steps: usize) {
        let schedulings = self.schedulings();
        for _ in 0..steps {
            let mut busy = false;
            for (driver, _) in self
                .drivers
                .iter_mut()
                .zip(&self.down)
                .filter(|(_, down)| !**down)
            {
                busy |= driver.step(&self.api, schedulings, &mut self.rng);
            }
            if !busy {
                return;
            }
        }
    }

    /// The garbage collector.
    pub(super) fn collect(&self) {
        let pods = self.api.all("pods");
        for collection in ["resourceclaims", self.schedulings()] {
            for object in self.api.all(collection) {
                let owner = &object["metadata"]["ownerReferences"][0]["uid"];
                let orphan =
                    !owner.is_null() && pods.iter().all(|p| p["metadata"]["uid"] != *owner);
                if orphan && object["metadata"]["deletionTimestamp"].is_null() {
                    self.delete(collection, text(&object["metadata"]["name"]));
                }
            }
        }
    }
}
