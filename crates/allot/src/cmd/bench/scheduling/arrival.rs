//! Arrival of measured pods: all at once, at a rate, or each when another ends.

use super::*;

impl Bench {
    pub(super) async fn burst(
        &self,
        watch: &mut UnboundedReceiver<(String, Instant)>,
    ) -> anyhow::Result<Bound> {
        let n = self.workload.pods;
        let created = self.create_pods("pod", n).await?;
        let mut bound = Bound::default();
        self.wait_bound(watch, "pod-", n, &mut bound, &created)
            .await?;
        Ok(bound)
    }

    /// Creates pods at a rate, independent of how fast they are scheduled. Some are preceded by one that fits nowhere.
    pub(super) async fn arriving(
        &self,
        watch: &mut UnboundedReceiver<(String, Instant)>,
        rate: u32,
    ) -> anyhow::Result<Bound> {
        let (w, names) = (&self.workload, &self.names);
        let claims: Vec<Object> = (0..w.pods).filter_map(|i| w.claim(names, i)).collect();
        self.create_all(claims).await?;
        if self.args.impossible > 0
            && let Some(template) = w.impossible_template(names)
        {
            self.create(template).await?;
        }
        let every = w.pods.checked_div(self.args.impossible);
        let start = Instant::now();
        let results = stream::iter(0..w.pods)
            .then(async |i| {
                let due = start + Duration::from_secs_f64(i as f64 / f64::from(rate));
                tokio::time::sleep_until(due.into()).await;
                i
            })
            .map(async |i| {
                let behind = every.is_some_and(|n| i % n.max(1) == n / 2);
                if behind {
                    self.create(w.impossible_pod(names, i)).await?;
                }
                let at = Instant::now();
                self.create(w.pod(names, "pod", i)).await?;
                Ok::<_, anyhow::Error>((format!("pod-{i}"), at, behind))
            })
            .buffer_unordered(self.args.parallel.max(256));
        let mut seen: HashMap<String, Instant> = HashMap::new();
        let mut created = Vec::with_capacity(w.pods);
        let mut results = std::pin::pin!(results);
        while created.len() < w.pods || seen.len() < w.pods {
            tokio::select! {
                Some(result) = results.next() => created.push(result?),
                bound = self.next_bound(watch) => {
                    let (name, at) = bound?;
                    if name.starts_with("pod-") {
                        seen.insert(name, at);
                    }
                }
            }
        }
        let mut bound = Bound::default();
        created.sort_by_key(|(name, ..)| seen.get(name).copied());
        for (name, at, behind) in created {
            if let Some(seen) = seen.get(&name) {
                bound.note(Some(at), *seen);
                if behind {
                    bound.note_behind(at, *seen);
                }
            }
        }
        Ok(bound)
    }

    /// Keeps `waiting` pods pending: each bound one is deleted and replaced.
    pub(super) async fn steady(
        &self,
        watch: &mut UnboundedReceiver<(String, Instant)>,
        waiting: usize,
    ) -> anyhow::Result<Bound> {
        let (w, names) = (&self.workload, &self.names);
        let mut bound = Bound::default();
        let mut created = HashMap::new();
        for i in 0..waiting.min(w.pods) {
            created.insert(format!("pod-{i}"), Instant::now());
            self.create(w.pod(names, "pod", i)).await?;
        }
        let mut next = waiting.min(w.pods);
        while bound.len() < w.pods {
            let (name, at) = self.next_bound(watch).await?;
            if !name.starts_with("pod-") {
                continue;
            }
            bound.note(created.remove(&name), at);
            let path = format!("/api/v1/namespaces/{}/pods/{name}", names.namespace());
            let now = json!({"gracePeriodSeconds": 0}).to_string().into_bytes();
            self.request::<IgnoredAny>(http::Method::DELETE, &path, now)
                .await?;
            if next < w.pods {
                created.insert(format!("pod-{next}"), Instant::now());
                self.create(w.pod(names, "pod", next)).await?;
                next += 1;
            }
        }
        Ok(bound)
    }
}
