//! Whether quotas admit a pod and its claims.

use allot_model::quota::{self, FirstClaims, Lookups, Usage};
use serde_json::{Value, json};

/// The quotas, with the used amounts.
#[derive(Debug, Default)]
pub struct Quotas {
    quotas: Vec<Value>,
    /// Classes with a name of an extended resource.
    extended: Vec<(String, String)>,
}

impl Quotas {
    /// Those among the objects.
    pub fn new(objects: &[Value]) -> Self {
        let of_kind = |kind: &'static str| objects.iter().filter(move |o| o["kind"] == kind);
        let extended = of_kind("DeviceClass").filter_map(|class| {
            let name = class.pointer("/metadata/name")?.as_str()?;
            let resource = class.pointer("/spec/extendedResourceName")?.as_str()?;
            Some((name.to_owned(), resource.to_owned()))
        });
        let mut quotas: Vec<Value> = of_kind("ResourceQuota").cloned().collect();
        // One of a file, which no controller has counted for.
        for quota in quotas
            .iter_mut()
            .filter(|q| q.pointer("/status/hard").is_none())
        {
            quota["status"] = json!({"hard": quota["spec"]["hard"], "used": {}});
        }
        Self {
            quotas,
            extended: extended.collect(),
        }
    }

    /// Counts one more object; returns the quota error in the words of the API server.
    ///
    /// # Errors
    /// The quota that is exceeded.
    pub fn charge(
        &mut self,
        namespace: &str,
        (group, resource): (&str, &str),
        object: &Value,
    ) -> Result<(), String> {
        let usage = self.usage(group, resource, object);
        let mut charged = Vec::new();
        for (at, quota) in self.quotas.iter().enumerate() {
            let text = |pointer: &str| quota.pointer(pointer).and_then(Value::as_str);
            if text("/metadata/namespace") != Some(namespace) {
                continue;
            }
            if !quota::in_scopes(quota, group, resource, object) {
                continue;
            }
            match quota::admit(quota, &usage) {
                Ok(None) => {}
                Ok(Some(used)) => charged.push((at, used)),
                Err(quota::Exceeded(why)) => return Err(why),
            }
        }
        for (at, used) in charged {
            let used = used
                .iter()
                .map(|(name, amount)| (name.clone(), json!(amount.to_string())));
            self.quotas[at]["status"]["used"] = Value::Object(used.collect());
        }
        Ok(())
    }

    fn usage(&self, group: &str, resource: &str, object: &Value) -> Usage {
        let extended = |class: &str| {
            let mut known = self.extended.iter();
            known
                .find(|(name, _)| name == class)
                .map(|(_, resource)| resource.clone())
        };
        let lookups = Lookups {
            extended: &extended,
            pod: &|_| None,
            first: &FirstClaims::default(),
        };
        quota::usage(group, resource, object, lookups)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_count_until_a_quota_is_used_up() {
        let quota = json!({"kind": "ResourceQuota", "metadata": {"name": "q", "namespace": "team"},
            "spec": {"hard": {"gpu.deviceclass.resource.k8s.io/devices": "3"}},
            "status": {"hard": {"gpu.deviceclass.resource.k8s.io/devices": "3"},
                "used": {"gpu.deviceclass.resource.k8s.io/devices": "1"}}});
        let claim = json!({"spec": {"devices": {"requests": [{"name": "r",
            "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2}}]}}});
        let mut quotas = Quotas::new(&[quota]);
        let claims = ("resource.k8s.io", "resourceclaims");
        assert_eq!(quotas.charge("team", claims, &claim), Ok(()));
        let why = quotas.charge("team", claims, &claim).expect_err("used up");
        assert!(
            why.starts_with("exceeded quota: q, requested: gpu."),
            "{why}"
        );
        assert_eq!(quotas.charge("other", claims, &claim), Ok(()));
    }
}
