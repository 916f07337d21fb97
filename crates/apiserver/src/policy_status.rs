//! The `status` of ValidatingAdmissionPolicies: type checking of their expressions against the kinds that they match.
//!
//! A policy is enforced regardless of the result; its author reads the result with `kubectl get -o yaml`. Upstream this
//! is a controller of kube-controller-manager; here the server does it, as a client of its own API.

use std::collections::{BTreeMap, BTreeSet};

use allot_cel::env::{DeclType, Env};
use allot_schema::openapi;
use allot_store::ListOptions;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Map, Value, json};

use crate::admission::dynamic::GROUP;
use crate::error::Result;
use crate::expression::{DYNAMIC, declare, typed, with_variables};
use crate::identity::User;
use crate::object::{meta, split_api_version, strings, text};
use crate::registry::Registry;
use crate::server::Server;

const PLURAL: &str = "validatingadmissionpolicies";
/// The field manager of the status, as upstream.
const MANAGER: &str = "validatingadmissionpolicy-status";
const ACCOUNT: &str = "validatingadmissionpolicy-status-controller";
/// The maximum number of kinds that are checked per rule.
const MOST_KINDS: usize = 10;

/// Group, version and kind.
type Kind = [String; 3];

impl Server {
    /// Starts type checking of the expressions of ValidatingAdmissionPolicies against the kinds that they match; the
    /// warnings are written to their status. Upstream this is a controller: a server without controllers does not call
    /// this.
    pub fn check_policy_types(&self) {
        start(self.clone());
    }
}

/// Checks the existing policies, then each policy that changes.
fn start(server: Server) {
    tokio::spawn(async move {
        let collection = format!("{GROUP}/{PLURAL}");
        let core = server.0.clone();
        loop {
            // The list contains changes that a lagging watch missed.
            let from = core.backend.revision();
            let Ok(mut watcher) = core.backend.watch(&collection, "", from) else {
                return;
            };
            loop {
                if let Err(error) = check_all(&server, &collection).await {
                    tracing::warn!(%error, "checking the types of admission policies");
                }
                tokio::select! {
                    () = core.shutdown.cancelled() => return,
                    changes = watcher.changes() => match changes {
                        Ok(_) => {}
                        Err(allot_store::Error::Closed) => return,
                        Err(_) => break,
                    },
                }
            }
        }
    });
}

/// Writes the status of the policies that have changed since it was written.
async fn check_all(server: &Server, collection: &str) -> Result<()> {
    let core = &server.0;
    let page = core
        .backend
        .list(collection, ListOptions::default())
        .await?;
    for entry in page.entries {
        // Stored objects are JSON written by this server.
        let policy: Value = serde_json::from_slice(&entry.value).unwrap_or_default();
        let generation = policy["metadata"]["generation"].as_i64().unwrap_or(0);
        if generation <= policy["status"]["observedGeneration"].as_i64().unwrap_or(0) {
            continue;
        }
        let warnings = warnings(&policy, &core.registry.load());
        let mut found = json!({});
        if !warnings.is_empty() {
            found["expressionWarnings"] = warnings.into();
        }
        let status = json!({"observedGeneration": generation, "typeChecking": found});
        write_status(server, meta(&policy, "name"), &status).await;
    }
    Ok(())
}

async fn write_status(server: &Server, name: &str, status: &Value) {
    let body = json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name}, "status": status,
    });
    let path = format!("/apis/{GROUP}/v1/{PLURAL}/{name}/status?fieldManager={MANAGER}&force=true");
    let request = Request::patch(path)
        .header("content-type", "application/apply-patch+yaml")
        .body(Full::new(Bytes::from(body.to_string())));
    let Ok(request) = request else { return };
    let account = format!("system:serviceaccount:kube-system:{ACCOUNT}");
    let user = User::new(account, [crate::identity::MASTERS]);
    let response = server.handle(request, Some(user)).await;
    // A deleted policy needs no status.
    if !response.status().is_success() && response.status() != 404 {
        let body = response.into_body().collect().await;
        let answer = body.map(|it| it.to_bytes()).unwrap_or_default();
        let answer = String::from_utf8_lossy(&answer);
        tracing::warn!(%answer, policy = name, "writing what was found in an admission policy");
    }
}

/// `status.typeChecking.expressionWarnings` of a policy.
fn warnings(policy: &Value, registry: &Registry) -> Vec<Value> {
    let spec = &policy["spec"];
    let mut types = Types::new(registry);
    let kinds = kinds(&spec["matchConstraints"]["resourceRules"], registry);
    let params = param_kind(&spec["paramKind"])
        .map(|kind| types.of(&kind, "2").unwrap_or_else(|| DYNAMIC.clone()));
    // Variables are compiled once for a kind, not for each expression.
    let objects: Vec<(Kind, Env)> = kinds
        .into_iter()
        .filter_map(|kind| {
            let ty = types.of(&kind, "1")?;
            Some((kind, environment(&ty, params.as_ref(), &spec["variables"])))
        })
        .collect();
    let mut warnings = Vec::new();
    let validations = spec["validations"].as_array().into_iter().flatten();
    for (index, validation) in validations.enumerate() {
        for field in ["expression", "messageExpression"] {
            let expression = text(validation, &[field]);
            if field == "messageExpression" && expression.is_empty() {
                continue;
            }
            let found: Vec<String> = objects
                .iter()
                .filter_map(|([group, version, kind], env)| {
                    let issues = env.compile(expression).err()?;
                    Some(format!("{group}/{version}, Kind={kind}: {issues}\n"))
                })
                .collect();
            if !found.is_empty() {
                let field = format!("spec.validations[{index}].{field}");
                warnings.push(json!({"fieldRef": field, "warning": found.join("\n")}));
            }
        }
    }
    warnings
}

/// The environment of a policy's expressions for a kind, with the variables of the policy.
fn environment(object: &DeclType, params: Option<&DeclType>, declared: &Value) -> Env {
    let mut env = with_variables(typed(object, params));
    for variable in declared.as_array().into_iter().flatten() {
        let checked = env.compile(text(variable, &["expression"])).ok();
        let ty = checked.as_ref().map(|it| it.output());
        declare(&mut env, text(variable, &["name"]), ty);
    }
    env
}

fn param_kind(named: &Value) -> Option<Kind> {
    let (api_version, kind) = (text(named, &["apiVersion"]), text(named, &["kind"]));
    if api_version.is_empty() && kind.is_empty() || api_version.matches('/').count() > 1 {
        return None;
    }
    let (group, version) = split_api_version(api_version);
    Some([group.to_owned(), version.to_owned(), kind.to_owned()])
}

/// The kinds that the rules match; rules with a wildcard in the group or version are skipped.
fn kinds(rules: &Value, registry: &Registry) -> BTreeSet<Kind> {
    let mut found = BTreeSet::new();
    for rule in rules.as_array().into_iter().flatten() {
        let sorted = |key: &str, wild: &[char]| {
            let mut names = strings(&rule[key]);
            names.sort_unstable();
            let any = names.iter().any(|name| name.contains(wild));
            (names, any)
        };
        let (groups, any_group) = sorted("apiGroups", &['*']);
        let (versions, any_version) = sorted("apiVersions", &['*']);
        let (mut resources, _) = sorted("resources", &[]);
        resources.retain(|name| !name.contains(['*', '/']));
        if any_group || any_version {
            continue;
        }
        let mut count = 0;
        for group in &groups {
            for version in &versions {
                for resource in &resources {
                    for kind in named(registry, group, version, resource) {
                        found.insert(kind);
                        count += 1;
                        if count == MOST_KINDS {
                            return found;
                        }
                    }
                }
            }
        }
    }
    found
}

/// The kinds of a resource name. As in client-go's RESTMapper, an empty group means any, as does an empty version.
fn named(registry: &Registry, group: &str, version: &str, name: &str) -> BTreeSet<Kind> {
    let name = name.to_lowercase();
    let resources = registry.iter().filter(|it| {
        (group.is_empty() || it.group == group) && (it.plural == name || it.singular == name)
    });
    let kinds = resources.flat_map(|it| {
        let served = it.versions.iter().filter(|known| known.served);
        let wanted = served.filter(|known| version.is_empty() || known.name == version);
        wanted.map(|known| [it.group.clone(), known.name.clone(), it.kind.clone()])
    });
    kinds.collect()
}

/// The CEL types of kinds, from their OpenAPI documents.
struct Types<'a> {
    registry: &'a Registry,
    documents: BTreeMap<(String, String), Map<String, Value>>,
}

impl<'a> Types<'a> {
    fn new(registry: &'a Registry) -> Self {
        Types {
            registry,
            documents: BTreeMap::new(),
        }
    }

    /// The CEL type of a kind, with a suffix that makes its name unique; `None` if no OpenAPI document contains it.
    fn of(&mut self, [group, version, kind]: &Kind, end: &str) -> Option<DeclType> {
        let key = (group.clone(), version.clone());
        let schemas = self
            .documents
            .entry(key)
            .or_insert_with(|| crate::openapi::published(self.registry, group, version));
        let name = format!("{kind}{end}");
        let found = openapi::decl_type(schemas, [group, version, kind], &name)?;
        Some(found.unwrap_or_else(|| DYNAMIC.clone()))
    }
}

#[cfg(test)]
mod tests;
