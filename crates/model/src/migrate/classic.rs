//! The classic kinds of v1alpha1 and v1alpha2: classes, claims and templates with their parameters.

use serde_json::{Map, Value, json};

use super::parameters::{Reference, as_opaque};
use super::{Context, own_metadata};
use crate::kind::{GROUP, Kind, Version};
use crate::view::{View, set};

/// The name of the only request of a claim that did not say more than a class.
const REQUEST: &str = "device";

const CLASS_PARAMETERS: &str = "ResourceClassParameters";
const CLAIM_PARAMETERS: &str = "ResourceClaimParameters";

impl<'a> Context<'a> {
    pub(super) fn classic(&mut self, kind: &str, document: &'a Value) {
        match kind {
            "ResourceClass" => self.class(document),
            "ResourceClaim" => {
                let metadata = document.at("metadata");
                let spec = self.claim_spec(
                    document.at("spec"),
                    metadata.text("namespace"),
                    &["spec"],
                    true,
                );
                if document.at("status").has("allocation") {
                    let text = "an allocation is not carried over; the scheduler makes a new one";
                    self.note(&["status", "allocation"], text);
                }
                self.emit_v1(Kind::ResourceClaim, metadata, spec);
            }
            "ResourceClaimTemplate" => {
                let metadata = document.at("metadata");
                let template = document.at("spec");
                let namespace = metadata.text("namespace");
                let mut spec = json!({});
                if template.has("metadata") {
                    set(&mut spec, "metadata", template.at("metadata").clone());
                }
                let inner =
                    self.claim_spec(template.at("spec"), namespace, &["spec", "spec"], false);
                set(&mut spec, "spec", inner);
                self.emit_v1(Kind::ResourceClaimTemplate, metadata, spec);
            }
            "ResourceSlice" => self.slice(document),
            CLASS_PARAMETERS | CLAIM_PARAMETERS => {
                // They become part of the classes and claims that refer to them.
                if !self.is_used(document) {
                    self.note(
                        &["metadata", "name"],
                        format!("no class or claim here refers to this {kind}; it is left out"),
                    );
                }
            }
            "PodScheduling" | "PodSchedulingContext" => {
                self.note(
                    &["kind"],
                    "negotiation between scheduler and drivers is gone; the object is left out",
                );
            }
            _ => self.note(
                &["kind"],
                format!("{kind} is not known in this version; left out"),
            ),
        }
    }

    pub(super) fn emit_v1(&mut self, kind: Kind, metadata: &Value, spec: Value) {
        let object = json!({
            "apiVersion": Version::V1.api_version(),
            "kind": kind.name(),
            "metadata": own_metadata(metadata),
            "spec": spec,
        });
        self.modern(kind, Version::V1, object);
    }

    /// Whether some class or claim leads to these in-tree parameters.
    fn is_used(&self, parameters: &Value) -> bool {
        let kind = parameters.text("kind");
        self.documents.iter().any(|document| {
            let (reference, namespace) = match (document.text("kind"), kind) {
                ("ResourceClass", CLASS_PARAMETERS) => (
                    document.at("parametersRef"),
                    document.at("parametersRef").text("namespace"),
                ),
                ("ResourceClaim", CLAIM_PARAMETERS) => (
                    document.at("spec").at("parametersRef"),
                    document.at("metadata").text("namespace"),
                ),
                ("ResourceClaimTemplate", CLAIM_PARAMETERS) => (
                    document.at("spec").at("spec").at("parametersRef"),
                    document.at("metadata").text("namespace"),
                ),
                _ => return false,
            };
            !reference.is_null()
                && self
                    .in_tree(&Reference::of(reference, namespace), kind)
                    .is_some_and(|found| found == parameters)
        })
    }

    fn class(&mut self, class: &'a Value) {
        let driver = class.text("driverName");
        let mut selectors = vec![selector(format!("device.driver == {}", quoted(driver)))];
        let mut config = Vec::new();
        if class.has("suitableNodes") {
            let text =
                "v1 classes do not choose nodes; give the driver's ResourceSlices a nodeSelector";
            self.note(&["suitableNodes"], text);
        }
        if class.has("parametersRef") {
            let reference = class.at("parametersRef");
            let reference = Reference::of(reference, reference.text("namespace"));
            match self.in_tree(&reference, CLASS_PARAMETERS) {
                Some(parameters) => {
                    self.class_parameters(parameters, driver, &mut selectors, &mut config)
                }
                None => config.extend(self.opaque(&reference, driver, &["parametersRef"])),
            }
        }
        let mut spec = json!({"selectors": selectors});
        if !config.is_empty() {
            set(&mut spec, "config", config);
        }
        self.emit_v1(Kind::DeviceClass, class.at("metadata"), spec);
    }

    fn class_parameters(
        &mut self,
        parameters: &Value,
        driver: &str,
        selectors: &mut Vec<Value>,
        config: &mut Vec<Value>,
    ) {
        for filter in parameters.list("filters") {
            if filter.text("driverName") != driver {
                let other = filter.text("driverName");
                self.note(
                    &["parametersRef"],
                    format!(
                        "the class selects devices of {driver}; a filter for {other} has no place"
                    ),
                );
                continue;
            }
            let expression = filter.at("namedResources").text("selector");
            selectors.extend(
                self.rewritten(expression, driver, &["parametersRef"])
                    .map(selector),
            );
        }
        for vendor in parameters.list("vendorParameters") {
            config.push(opaque_config(
                vendor.text("driverName"),
                vendor.at("parameters"),
                None,
            ));
        }
    }

    /// The configuration that a reference to a vendor's object becomes.
    fn opaque(&mut self, reference: &Reference<'_>, driver: &str, path: &[&str]) -> Option<Value> {
        if let Some(object) = self.resolve(reference) {
            return Some(opaque_config(driver, &as_opaque(object), None));
        }
        let text = format!(
            "{reference} is not among the files; its content has to stand in the v1 object"
        );
        self.note(path, text);
        None
    }

    /// `standalone` claims can be seen by several pods; those of templates belong to one.
    fn claim_spec(
        &mut self,
        spec: &'a Value,
        namespace: &str,
        path: &[&str],
        standalone: bool,
    ) -> Value {
        let below = |member: &'static str| path.iter().copied().chain([member]).collect::<Vec<_>>();
        if spec.text("allocationMode") == "Immediate" {
            let text =
                "claims are allocated when the first pod uses them; there is no Immediate mode";
            self.note(&below("allocationMode"), text);
        }
        let class = spec.text("resourceClassName");
        let request = |name: &str, selectors: Vec<Value>| {
            let mut exactly = json!({"deviceClassName": class});
            if !selectors.is_empty() {
                set(&mut exactly, "selectors", selectors);
            }
            json!({"name": name, "exactly": exactly})
        };
        let mut requests = Vec::new();
        let mut config = Vec::new();
        let reference_path = below("parametersRef");
        let reference = Reference::of(spec.at("parametersRef"), namespace);
        let in_tree = spec
            .has("parametersRef")
            .then(|| self.in_tree(&reference, CLAIM_PARAMETERS))
            .flatten();
        match in_tree {
            Some(parameters) => {
                if standalone && parameters.opt_bool("shareable") != Some(true) {
                    let text =
                        "v1 claims can be used by several pods; that this one must not is lost";
                    self.note(&reference_path, text);
                }
                let named = self.claim_parameters(parameters, &mut config, &reference_path);
                requests.extend(
                    named
                        .into_iter()
                        .map(|(name, selectors)| request(&name, selectors)),
                );
            }
            None => {
                requests.push(request(REQUEST, Vec::new()));
                if spec.has("parametersRef") {
                    match self.driver_of_class(class) {
                        Some(driver) => {
                            config.extend(self.opaque(&reference, driver, &reference_path))
                        }
                        None => {
                            let text = format!(
                                "class {class} is not among the files; the driver of {reference} is not known"
                            );
                            self.note(&reference_path, text);
                        }
                    }
                }
            }
        }
        let mut devices = Map::new();
        devices.insert("requests".to_owned(), requests.into());
        if !config.is_empty() {
            devices.insert("config".to_owned(), config.into());
        }
        json!({"devices": devices})
    }

    fn driver_of_class(&self, class: &str) -> Option<&'a str> {
        let found = self.documents.iter().find(|document| {
            document.text("kind") == "ResourceClass"
                && document.text("apiVersion").starts_with(GROUP)
                && document.at("metadata").text("name") == class
        })?;
        Some(found.text("driverName"))
    }

    /// The requests of in-tree parameters: their names and selectors.
    fn claim_parameters(
        &mut self,
        parameters: &Value,
        config: &mut Vec<Value>,
        path: &[&str],
    ) -> Vec<(String, Vec<Value>)> {
        let mut requests = Vec::new();
        for per_driver in parameters.list("driverRequests") {
            let driver = per_driver.text("driverName");
            let mut names = Vec::new();
            for request in per_driver.list("requests") {
                let name = format!("{REQUEST}-{}", requests.len());
                let expression = request.at("namedResources").text("selector");
                let selectors = self
                    .rewritten(expression, driver, path)
                    .map(selector)
                    .into_iter()
                    .collect();
                if request.has("vendorParameters") {
                    let only = std::slice::from_ref(&name);
                    config.push(opaque_config(
                        driver,
                        request.at("vendorParameters"),
                        Some(only),
                    ));
                }
                names.push(name.clone());
                requests.push((name, selectors));
            }
            if per_driver.has("vendorParameters") {
                config.push(opaque_config(
                    driver,
                    per_driver.at("vendorParameters"),
                    Some(&names),
                ));
            }
        }
        requests
    }
}

fn opaque_config(driver: &str, parameters: &Value, requests: Option<&[String]>) -> Value {
    let mut config = json!({"opaque": {"driver": driver, "parameters": parameters}});
    if let Some(requests) = requests {
        set(&mut config, "requests", requests.to_vec());
    }
    config
}

fn selector(expression: String) -> Value {
    json!({"cel": {"expression": expression}})
}

/// A text as a CEL literal.
pub(super) fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}
