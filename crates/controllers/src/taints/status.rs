//! The status of DeviceTaintRules: what a rule evicts, has evicted, or would evict.

use super::*;

impl Controller {
    pub(super) async fn sync_rule(&self, name: &str) -> Result<Next, Error> {
        let Some(resource) = &self.rule_resource else {
            return Ok(Next::Done);
        };
        let Some((rule, condition)) = self.next_condition(name) else {
            return Ok(Next::Done);
        };
        let conditions = rule
            .status
            .as_ref()
            .and_then(|s| s.conditions.clone())
            .unwrap_or_default();
        let mut conditions: Vec<Value> = conditions.iter().map(|c| json!(c)).collect();
        conditions.retain(|c| c["type"] != rules::CONDITION);
        conditions.push(condition);
        let body = json!({
            "metadata": api::same(&*rule),
            "status": {"conditions": conditions},
        });
        let api: Api<Rule> = Api::all_with(self.client.clone(), resource);
        match api::patch(&api, name, Part::Status, &body).await {
            Ok(_) => {}
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
        let written = (self.clock.now(), meta::generation(&*rule));
        self.state.lock().written.insert(name.to_owned(), written);
        Ok(Next::Done)
    }

    /// The rule and its new condition; `None` if that would not be news.
    fn next_condition(&self, name: &str) -> Option<(Arc<Rule>, Value)> {
        let state = self.state.lock();
        let rule = state.rules.iter().find(|r| meta_name(r) == name)?.clone();
        let now = self.clock.now();
        let old = rules::condition(&rule);
        let evicted = state.counts.get(meta::uid(&*rule)).copied().unwrap_or(0);
        let new = match rule.spec.taint.effect.as_str() {
            "NoExecute" => {
                let pending = state
                    .pending
                    .iter()
                    .filter(|(k, e)| e.rules().any(|r| r == name) && !self.is_going(k));
                let keys: Vec<&Key> = pending.map(|(k, _)| k).collect();
                let namespaces: BTreeSet<&str> = keys.iter().map(|k| split_key(k).0).collect();
                rules::no_execute(keys.len(), namespaces.len(), evicted)
            }
            "None" => {
                if old.is_some_and(|c| {
                    c.reason == "NoEffect" && c.observed_generation == rule.metadata.generation
                }) {
                    return None;
                }
                let found = self.simulate(&rule, now);
                rules::no_effect(&found, evicted)
            }
            _ => rules::other_effect(evicted),
        };
        rules::changed(&rule, old, &new, now).map(|c| (rule.clone(), c))
    }

    /// Whether the pod is deleted or about to be: a rule does not wait for it any longer.
    fn is_going(&self, key: &str) -> bool {
        let (namespace, name) = split_key(key);
        let pod = self.pods.find(namespace, name);
        pod.is_none_or(|p| meta::deleting(&*p))
    }

    /// What the rule would do if its effect were NoExecute.
    fn simulate(&self, rule: &Rule, now: Timestamp) -> rules::Simulated {
        let mut as_if = rule.clone();
        as_if.spec.taint.effect = "NoExecute".to_owned();
        let as_if = vec![Arc::new(as_if)];
        let newest = plan::newest_generations(&self.slices.list());
        let mut found = rules::Simulated::default();
        for slice in self.slices.list() {
            let pool = plan::pool_key(&slice.spec.driver, &slice.spec.pool.name);
            if newest.get(&pool) != Some(&slice.spec.pool.generation) {
                continue;
            }
            let devices = slice.spec.devices.iter().flatten();
            found.published += devices
                .filter(|d| {
                    plan::rule_selects(rule, &slice.spec.driver, &slice.spec.pool.name, &d.name)
                })
                .count();
        }
        let mut pods: BTreeSet<Key> = BTreeSet::new();
        for claim in self.claims.list() {
            let mut hit = false;
            for result in plan::results(&claim) {
                if plan::rule_selects(rule, &result.driver, &result.pool, &result.device) {
                    // As in upstream: a shared device counts once for each of its claims.
                    found.allocated += 1;
                    hit = true;
                }
            }
            if !hit {
                continue;
            }
            let namespace = meta::namespace(&*claim);
            for (pod_key, pod) in self.users(&claim) {
                let find = |name: &str| self.claims.find(namespace, name);
                if !meta::deleting(&*pod)
                    && plan::eviction(&pod, find, &plan::Tainted::default(), &as_if, now).is_some()
                {
                    pods.insert(pod_key);
                }
            }
        }
        found.namespaces = pods
            .iter()
            .map(|k| split_key(k).0)
            .collect::<BTreeSet<_>>()
            .len();
        found.pods = pods.len();
        found
    }
}

pub(super) fn meta_name(rule: &Rule) -> String {
    rule.metadata.name.clone().unwrap_or_default()
}
