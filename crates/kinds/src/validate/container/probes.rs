//! Probes and hooks.

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::names;
use serde_json::Value;

use super::super::{list, not_negative, one_of, rule, text};

const HEADER: &str = "a valid HTTP header must consist of alphanumeric characters or '-'";

/// Checks a probe.
pub(crate) fn probe(
    probe: &Value,
    key: &str,
    grace: Option<i64>,
    path: &Path,
    errors: &mut ErrorList,
) {
    handler(probe, grace, path, errors);
    for number in [
        "initialDelaySeconds",
        "timeoutSeconds",
        "periodSeconds",
        "successThreshold",
        "failureThreshold",
    ] {
        not_negative(&probe[number], &path.child(number), errors);
    }
    let at = path.child("terminationGracePeriodSeconds");
    let seconds = probe["terminationGracePeriodSeconds"].as_i64();
    if let Some(seconds) = seconds.filter(|seconds| *seconds <= 0) {
        errors.push(Error::invalid(&at, seconds, "must be greater than 0"));
    }
    let successes = probe["successThreshold"].as_i64().unwrap_or(1);
    if key != "readinessProbe" {
        if successes != 1 {
            let at = path.child("successThreshold");
            errors.push(Error::invalid(&at, successes, "must be 1"));
        }
    } else if let Some(seconds) = seconds {
        let detail = "must not be set for readinessProbes";
        errors.push(Error::invalid(&at, seconds, detail));
    }
}

/// Validates the action of a probe or hook.
pub(crate) fn handler(handler: &Value, grace: Option<i64>, path: &Path, errors: &mut ErrorList) {
    let mut count = 0;
    for kind in ["exec", "httpGet", "tcpSocket", "grpc", "sleep"] {
        let action = &handler[kind];
        if !action.is_object() {
            continue;
        }
        let at = path.child(kind);
        if count > 0 {
            errors.push(Error::forbidden(
                &at,
                "may not specify more than 1 handler type",
            ));
            continue;
        }
        count += 1;
        match kind {
            "exec" if list(action, "command").is_empty() => {
                errors.push(Error::required(&at.child("command"), ""))
            }
            "httpGet" => {
                if text(action, "path").is_empty() {
                    errors.push(Error::required(&at.child("path"), ""));
                }
                handler_port(&action["port"], &at.child("port"), errors);
                one_of(
                    text(action, "scheme"),
                    &["HTTP", "HTTPS"],
                    true,
                    &at.child("scheme"),
                    errors,
                );
                for header in list(action, "httpHeaders") {
                    let name = text(header, "name");
                    let known = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
                    if name.is_empty() || !name.bytes().all(known) {
                        let detail =
                            names::regex_error(HEADER, "[-A-Za-z0-9]+", &["X-Header-Name"]);
                        errors.push(Error::invalid(&at.child("httpHeaders"), name, detail));
                    }
                }
            }
            "sleep" => {
                let seconds = action["seconds"].as_i64().unwrap_or_default();
                if let Some(grace) = grace.filter(|grace| !(0..=*grace).contains(&seconds)) {
                    let detail = format!(
                        "must be non-negative and less than terminationGracePeriodSeconds ({grace})"
                    );
                    errors.push(Error::invalid(&at, seconds, detail));
                }
            }
            "tcpSocket" | "grpc" => handler_port(&action["port"], &at.child("port"), errors),
            _ => {}
        }
    }
    if count == 0 {
        errors.push(Error::required(path, "must specify a handler type"));
    }
}

fn handler_port(port: &Value, path: &Path, errors: &mut ErrorList) {
    match port {
        Value::String(name) => rule(names::port_name(name), name, path, errors),
        port => {
            let number = port.as_i64().unwrap_or_default();
            for text in names::port_number(number) {
                errors.push(Error::invalid(path, number, text));
            }
        }
    }
}
