//! Opaque parameters.

use allot_kubelet::ClaimRef;
use serde_json::{Value, json};

use crate::case::{Case, Observed, Stop, case, ensure, fail, skip};
use crate::fixture::{ClaimRequest, Fixture, OTHER_DRIVER};

const SOURCE: &str = "KEP-4381, opaque driver configuration parameters";

pub(crate) const CASES: &[Case] = &[
    case!(wrong_kind, "config-wrong-kind", process: false, devices: 1,
        rule: "Parameters for this driver of an unknown kind are rejected.",
        source: SOURCE,
        hint: "check apiVersion and kind of every parameters object that is addressed to the driver"),
    case!(other_driver, "config-other-driver", process: false, devices: 1,
        rule: "Parameters for other drivers are ignored.",
        source: SOURCE,
        hint: "filter status.allocation.devices.config by opaque.driver"),
    case!(other_request, "config-other-request", process: false, devices: 2,
        rule: "Parameters that apply to only one of several requests are validated too.",
        source: SOURCE,
        hint: "find the configurations of every result, not only of the first"),
    case!(of_class, "config-class", process: false, devices: 1,
        rule: "Parameters of the device class are validated like those of the claim.",
        source: SOURCE,
        hint: "read all entries of allocation.devices.config; source tells only their priority"),
    case!(refused_then_good, "config-refused-retry", process: false, devices: 1,
        rule: "A claim that was rejected for its parameters is unprepared without an error, and its device is available to the next claim.",
        source: SOURCE,
        hint: "do not reserve a device for a rejected claim"),
    case!(valid, "config-valid", process: false, devices: 1,
        rule: "The parameters given with --config are accepted.",
        source: SOURCE,
        hint: "decode parameters by their apiVersion and kind"),
    case!(unknown_field, "config-unknown-field", process: false, devices: 1,
        rule: "Parameters with an unknown field are rejected: a misspelled field would have no effect.",
        source: "KEP-4381, validation of opaque parameters",
        hint: "decode strictly"),
    case!(priority, "config-priority", process: false, devices: 1,
        rule: "Where the class and the claim have parameters, those of the claim decide: they come last in the allocation.",
        source: SOURCE,
        hint: "apply the entries of allocation.devices.config in their order, the last one over the others"),
];

fn nonsense() -> Value {
    json!({"apiVersion": "conformance.example.com/v1", "kind": "Nonsense"})
}

async fn with(
    w: &mut Fixture,
    driver: &str,
    requests: &[&str],
    parameters: Value,
) -> Result<ClaimRef, Stop> {
    let device = w.devices()[0].clone();
    let requests = requests
        .iter()
        .map(|request| (*request).to_owned())
        .collect();
    let config = vec![(driver.to_owned(), requests, parameters)];
    w.make(ClaimRequest {
        config,
        ..ClaimRequest::device(&device)
    })
    .await
}

async fn wrong_kind(w: &mut Fixture) -> Observed {
    let driver = w.driver().to_owned();
    let claim = with(w, &driver, &[], nonsense()).await?;
    w.refused(&claim).await
}

async fn other_driver(w: &mut Fixture) -> Observed {
    let claim = with(w, OTHER_DRIVER, &[], nonsense()).await?;
    w.prepare(&claim).await?;
    Ok("prepared without the other driver's parameters".to_owned())
}

async fn other_request(w: &mut Fixture) -> Observed {
    let devices = w.devices()[..2].to_vec();
    let driver = w.driver().to_owned();
    let claim = |config| ClaimRequest {
        devices: devices.clone(),
        config,
        ..ClaimRequest::default()
    };
    let refused = w
        .make(claim(vec![(
            driver.clone(),
            vec!["r1".to_owned()],
            nonsense(),
        )]))
        .await?;
    let said = w.refused(&refused).await?;
    w.unprepare(&refused).await?;
    // Without them the same devices are prepared.
    let plain = w.make(claim(Vec::new())).await?;
    w.prepare(&plain).await?;
    Ok(said)
}

async fn of_class(w: &mut Fixture) -> Observed {
    let device = w.devices()[0].clone();
    let class_config = vec![(w.driver().to_owned(), vec!["r0".to_owned()], nonsense())];
    let claim = w
        .make(ClaimRequest {
            class_config,
            ..ClaimRequest::device(&device)
        })
        .await?;
    w.refused(&claim).await
}

async fn refused_then_good(w: &mut Fixture) -> Observed {
    let driver = w.driver().to_owned();
    let claim = with(w, &driver, &[], nonsense()).await?;
    if let Ok(devices) = w.try_prepare(&claim).await? {
        return skip(format!(
            "parameters of an unknown kind were accepted ({} devices)",
            devices.len()
        ));
    }
    w.unprepare(&claim).await?;
    let next = w.claim(0).await?;
    let devices = w.prepare(&next).await?;
    w.resolves(&devices)?;
    Ok("the next claim has the device".to_owned())
}

async fn valid(w: &mut Fixture) -> Observed {
    let Some(parameters) = w.options().parameters.clone() else {
        return skip("no valid parameters are known: pass them with --config");
    };
    let driver = w.driver().to_owned();
    let claim = with(w, &driver, &["r0"], parameters).await?;
    let devices = w.prepare(&claim).await?;
    w.resolves(&devices)?;
    Ok("accepted".to_owned())
}

async fn unknown_field(w: &mut Fixture) -> Observed {
    let Some(mut parameters) = w.options().parameters.clone() else {
        return skip("no valid parameters are known: pass them with --config");
    };
    parameters["conformanceUnknownField"] = json!(true);
    let driver = w.driver().to_owned();
    let claim = with(w, &driver, &[], parameters).await?;
    w.refused(&claim).await
}

/// What containers get with parameters of the class and of the claim, without what identifies the claim.
async fn effect(w: &mut Fixture, class: Option<&Value>, claim: &Value) -> Result<String, Stop> {
    let device = w.devices()[0].clone();
    let driver = w.driver().to_owned();
    let config = |parameters: &Value| (driver.clone(), Vec::new(), parameters.clone());
    let claim = w
        .make(ClaimRequest {
            class_config: class.into_iter().map(config).collect(),
            config: vec![config(claim)],
            ..ClaimRequest::device(&device)
        })
        .await?;
    let devices = w.prepare(&claim).await?;
    w.needs_cdi(&devices)?;
    let edits = serde_json::to_string(&w.edits(&devices)?);
    let edits = edits.or_else(|error| fail(error.to_string()))?;
    w.unprepare(&claim).await?;
    Ok(edits
        .replace(&claim.uid, "UID")
        .replace(&claim.name, "NAME"))
}

async fn priority(w: &mut Fixture) -> Observed {
    let options = w.options();
    let (Some(one), Some(other)) = (&options.parameters, &options.other_parameters) else {
        return skip(
            "two kinds of valid parameters are needed: pass them with --config and --other-config",
        );
    };
    let (first, second) = (effect(w, None, one).await?, effect(w, None, other).await?);
    if first == second || first != effect(w, None, one).await? {
        return skip("what containers get does not tell the two parameters apart");
    }
    for (class, claim, wanted) in [(one, other, &second), (other, one, &first)] {
        let found = effect(w, Some(class), claim).await?;
        ensure!(
            found == *wanted,
            "with {claim} in the claim and {class} in the class, containers get {found}; with those of the claim alone {wanted}"
        );
    }
    Ok("those of the claim decide".to_owned())
}
