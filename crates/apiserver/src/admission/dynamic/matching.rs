//! Which requests a policy, a binding or a webhook is about.

use allot_apimachinery::Status;
use allot_apimachinery::labels::{LabelSelector, Selector};
use serde_json::Value;

use super::super::{ObjectForm, Operation};
use super::request::{Request, Target};
use crate::error::Result;
use crate::object::{string_map, strings, text};

/// Their own labels are those that a namespace selector sees; as upstream, regardless of the group.
const NAMESPACES: &str = "namespaces";

/// What has to hold of a request.
#[derive(Debug)]
pub(super) struct Criteria {
    namespaces: Chosen,
    objects: Chosen,
    /// Without rules everything matches.
    rules: Vec<Rule>,
    excluded: Vec<Rule>,
    equivalent: bool,
}

/// A label selector, or the error if it is invalid.
type Chosen = std::result::Result<Selector, String>;

#[derive(Debug)]
struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    /// Resource and subresource.
    resources: Vec<(String, String)>,
    scope: String,
    /// Empty for all.
    names: Vec<String>,
}

impl Criteria {
    /// Of `MatchResources`.
    pub fn of_policy(resources: &Value) -> Self {
        Self::new(resources, "resourceRules")
    }

    /// The criteria of a webhook, which matches nothing without rules.
    pub fn of_webhook(webhook: &Value) -> Self {
        Self::new(webhook, "rules")
    }

    fn new(value: &Value, rules: &str) -> Self {
        let chosen = |key: &str| {
            LabelSelector::from_json(&value[key])
                .and_then(|selector| selector.to_selector())
                .map_err(|error| error.to_string())
        };
        Criteria {
            namespaces: chosen("namespaceSelector"),
            objects: chosen("objectSelector"),
            rules: Rule::all(&value[rules]),
            excluded: Rule::all(&value["excludeResourceRules"]),
            equivalent: text(value, &["matchPolicy"]) == "Equivalent",
        }
    }

    /// The form of the request for the policy or binding, if it matches.
    ///
    /// # Errors
    /// 404 for a namespace that does not exist, 500 for an invalid selector.
    pub async fn matches(&self, request: &Request<'_>, object: &Value) -> Result<Option<Target>> {
        if self.find(&self.excluded, request).is_some() {
            return Ok(None);
        }
        if self.rules.is_empty() {
            let target = request.target.clone();
            return Ok(self.selects(request, object).await?.then_some(target));
        }
        self.matches_rules(request, object).await
    }

    /// Like [`Self::matches`], but without rules nothing matches.
    ///
    /// # Errors
    /// As in [`Self::matches`].
    pub async fn matches_rules(
        &self,
        request: &Request<'_>,
        object: &Value,
    ) -> Result<Option<Target>> {
        // Cheaper than selectors, which may need the namespace; and only requests that match here can fail there.
        let Some(target) = self.find(&self.rules, request) else {
            return Ok(None);
        };
        Ok(self.selects(request, object).await?.then_some(target))
    }

    /// The first of the request's equivalent resources that a rule matches.
    fn find(&self, rules: &[Rule], request: &Request<'_>) -> Option<Target> {
        if rules.is_empty() {
            return None;
        }
        if rules
            .iter()
            .any(|rule| rule.matches(request, &request.target))
        {
            return Some(request.target.clone());
        }
        if !self.equivalent {
            return None;
        }
        let equivalents = request.equivalents();
        rules.iter().find_map(|rule| {
            let mut fitting = equivalents.iter().filter(|it| rule.matches(request, it));
            fitting.next().cloned()
        })
    }

    async fn selects(&self, request: &Request<'_>, object: &Value) -> Result<bool> {
        let internal = |error: &String| Status::internal(error);
        let objects = self.objects.as_ref().map_err(internal)?;
        let labelled = |object: &Value| {
            let sees_labels = !object.is_null() && request.asked.shown != ObjectForm::Scale;
            sees_labels && objects.matches(&string_map(&object["metadata"]["labels"]))
        };
        let old = request.attributes.old.unwrap_or(&Value::Null);
        if !objects.is_empty() && !labelled(object) && !labelled(old) {
            return Ok(false);
        }
        let is_namespace = request.target.resource.plural == NAMESPACES;
        if request.namespace.is_empty() && !is_namespace {
            return Ok(true);
        }
        let namespaces = self.namespaces.as_ref().map_err(internal)?;
        if namespaces.is_empty() {
            return Ok(true);
        }
        let written = matches!(
            request.attributes.operation,
            Operation::Create | Operation::Update
        );
        let namespace = if is_namespace && request.attributes.subresource.is_empty() && written {
            object
        } else {
            let found = request.namespace_object().await?;
            found.ok_or_else(|| request.no_namespace())?
        };
        Ok(namespaces.matches(&string_map(&namespace["metadata"]["labels"])))
    }
}

impl Rule {
    fn all(rules: &Value) -> Vec<Self> {
        let rules = rules.as_array().into_iter().flatten();
        rules.map(Rule::of).collect()
    }

    fn of(value: &Value) -> Self {
        let resources = strings(&value["resources"]).into_iter().map(|name| {
            let (resource, subresource) = name.split_once('/').unwrap_or((&name, ""));
            (resource.to_owned(), subresource.to_owned())
        });
        Rule {
            operations: strings(&value["operations"]),
            groups: strings(&value["apiGroups"]),
            versions: strings(&value["apiVersions"]),
            resources: resources.collect(),
            scope: text(value, &["scope"]).to_owned(),
            names: strings(&value["resourceNames"]),
        }
    }

    /// The rule is about the request, taken as one for `target`.
    fn matches(&self, request: &Request<'_>, target: &Target) -> bool {
        let covers = |list: &[String], item: &str| list.iter().any(|it| it == "*" || it == item);
        let resource = &target.resource;
        let subresource = request.attributes.subresource;
        // The namespace of a namespace is itself; it lives in none.
        let cluster = resource.rules.is_namespace || request.namespace.is_empty();
        let in_scope = match self.scope.as_str() {
            "Namespaced" => !cluster,
            "Cluster" => cluster,
            _ => true,
        };
        in_scope
            && covers(&self.operations, request.operation())
            && covers(&self.groups, &resource.group)
            && covers(&self.versions, &target.version)
            && self.resources.iter().any(|(wanted, part)| {
                (wanted == "*" || *wanted == resource.plural)
                    && (part == "*" || part == subresource)
            })
            && (self.names.is_empty() || self.names.contains(&request.name))
    }
}
