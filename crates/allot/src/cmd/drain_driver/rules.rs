//! DeviceTaintRules, if the server serves them: they also taint what a running driver publishes later, and stay until
//! they are removed.

use allot_client::{delete, discovery};
use allot_controllers::drain::{Drain, TAINT};
use allot_reflector::everything;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::cmd::snapshot::api_error;

/// The label of the rules, with the driver as its value.
const LABEL: &str = "allot.dev/draining";
/// The annotation with the node that a rule is for.
const NODE: &str = "allot.dev/draining-node";
/// The field manager that writes them.
const MANAGER: &str = "allot-drain-driver";

/// The rules of a server.
pub struct Rules {
    api: Api<DynamicObject>,
    version: String,
}

impl Rules {
    /// In a version that the server has.
    pub fn new(client: &Client, version: &str) -> Self {
        let resource = discovery::resource(
            allot_model::GROUP,
            version,
            "DeviceTaintRule",
            "devicetaintrules",
        );
        Self {
            api: Api::all_with(client.clone(), &resource),
            version: resource.api_version,
        }
    }

    /// Writes rules for the driver, or for its pools on a node; returns their names. None if a pool is on other nodes
    /// as well, because a rule cannot distinguish them.
    ///
    /// # Errors
    /// The server refuses one.
    pub async fn write(&self, drain: &Drain, slices: &[Value]) -> anyhow::Result<Vec<String>> {
        let Some(selectors) = selectors(drain, slices) else {
            return Ok(Vec::new());
        };
        let mut names = Vec::new();
        for (number, selector) in selectors.into_iter().enumerate() {
            let rule = rule(&self.version, drain, number, selector);
            let name = rule["metadata"]["name"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            let params = PatchParams::apply(MANAGER).force();
            let written = self.api.patch(&name, &params, &Patch::Apply(&rule)).await;
            written.map_err(api_error)?;
            names.push(name);
        }
        Ok(names)
    }

    /// Deletes the rules of earlier drains; how many there were.
    ///
    /// # Errors
    /// The server refuses it.
    pub async fn remove(&self, drain: &Drain) -> anyhow::Result<usize> {
        let label = format!("{LABEL}={}", drain.driver);
        let params = ListParams::default().labels(&label);
        let list = allot_reflector::list(&self.api, &params, everything).await;
        let mut removed = 0;
        for rule in list.map_err(api_error)? {
            let annotations = rule.metadata.annotations.as_ref();
            let node = annotations.and_then(|all| all.get(NODE));
            if drain.node.is_some() && node != drain.node.as_ref() {
                continue;
            }
            let name = rule.metadata.name.unwrap_or_default();
            match self
                .api
                .delete(&name, &delete::by_uid(rule.metadata.uid))
                .await
            {
                Ok(_) => removed += 1,
                // 409: another drain, which has just begun, has written it again.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                Err(error) => return Err(api_error(error)),
            }
        }
        Ok(removed)
    }
}

/// Selectors of exactly the drained devices; `None` if no rule can select them.
fn selectors(drain: &Drain, slices: &[Value]) -> Option<Vec<Value>> {
    let Some(node) = &drain.node else {
        return Some(vec![json!({"driver": drain.driver})]);
    };
    let text = |slice: &Value, pointer: &str| {
        let text = slice.pointer(pointer).and_then(Value::as_str);
        text.map(str::to_owned)
    };
    let own = slices
        .iter()
        .filter(|s| text(s, "/spec/driver").as_ref() == Some(&drain.driver));
    let mut here: Vec<String> = Vec::new();
    let mut elsewhere: Vec<String> = Vec::new();
    for slice in own {
        let pool = text(slice, "/spec/pool/name").unwrap_or_default();
        match text(slice, "/spec/nodeName").as_ref() == Some(node) {
            true => here.push(pool),
            false => elsewhere.push(pool),
        }
    }
    here.sort();
    here.dedup();
    if here.iter().any(|pool| elsewhere.contains(pool)) {
        return None;
    }
    let selector = |pool: &String| json!({"driver": drain.driver, "pool": pool});
    Some(here.iter().map(selector).collect())
}

fn rule(version: &str, drain: &Drain, number: usize, selector: Value) -> Value {
    let effect = if drain.evict {
        "NoExecute"
    } else {
        "NoSchedule"
    };
    let mut name = format!("allot-draining-{}", drain.driver);
    let mut metadata = json!({"labels": {LABEL: drain.driver}});
    if let Some(node) = &drain.node {
        name += &format!("-{node}-{number}");
        metadata["annotations"] = json!({NODE: node});
    }
    metadata["name"] = json!(name);
    json!({
        "apiVersion": version,
        "kind": "DeviceTaintRule",
        "metadata": metadata,
        "spec": {
            "deviceSelector": selector,
            "taint": {"key": TAINT, "effect": effect},
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use allot_controllers::controller::clock::Clock;

    fn check(node: Option<&str>, expected: Value) {
        let slice = |driver: &str, pool: &str, node: &str| json!({"spec": {"driver": driver, "nodeName": node, "pool": {"name": pool}}});
        let slices = [
            slice("d", "a", "a"),
            slice("d", "more", "a"),
            slice("d", "shared", "b"),
            slice("d", "shared", "c"),
            slice("other", "o", "a"),
        ];
        let drain = Drain {
            driver: "d".to_owned(),
            node: node.map(str::to_owned),
            evict: false,
            clock: Clock::System,
            hold: None,
        };
        assert_eq!(json!(selectors(&drain, &slices)), expected, "{node:?}");
    }

    /// A drain that had begun meanwhile lost the rule with which it taints. A time that cannot be read keeps no rule.
    #[tokio::test]
    async fn regression_the_rule_of_a_later_drain_is_not_removed() {
        use http_body_util::BodyExt as _;
        let service = tower::service_fn(|request: http::Request<kube::client::Body>| async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.expect("a body").to_bytes();
            let (code, answer): (u16, Value) = match head.method == http::Method::DELETE {
                // That of the list was deleted, and written again.
                true => {
                    let options: Value = serde_json::from_slice(&body).expect("JSON");
                    let code = match options["preconditions"]["uid"] == "seen" {
                        true => 409,
                        false => 200,
                    };
                    (
                        code,
                        json!({"kind": "Status", "status": "Failure", "code": code}),
                    )
                }
                false => (
                    200,
                    json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRuleList", "metadata": {}, "items": [
                        {"metadata": {"name": "r", "uid": "seen", "managedFields": [{"time": "9999-12-31T23:59:59Z"}]}},
                    ]}),
                ),
            };
            let body = kube::client::Body::from(answer.to_string().into_bytes());
            let response = http::Response::builder().status(code).body(body);
            Ok::<_, std::convert::Infallible>(response.expect("a response"))
        });
        let rules = Rules::new(&Client::new(service, "default"), "v1");
        let drain = Drain {
            driver: "d".to_owned(),
            node: None,
            evict: false,
            clock: Clock::System,
            hold: None,
        };
        let removed = rules.remove(&drain).await.expect("removed");
        assert_eq!(removed, 0);
    }

    #[test]
    fn rules_select_what_is_drained_and_nothing_else() {
        check(None, json!([{"driver": "d"}]));
        let pools = json!([{"driver": "d", "pool": "a"}, {"driver": "d", "pool": "more"}]);
        check(Some("a"), pools);
        check(Some("b"), Value::Null);
        check(Some("missing"), json!([]));
    }
}
