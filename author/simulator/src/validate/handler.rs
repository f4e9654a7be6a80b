//! Checks probes and the hooks of a container's life: each has one handler.

use serde_json::{Value, json};

use super::{list, names, not_negative, text};
use crate::failure::FieldError;

/// The handlers in the order in which the server looks for them.
const HANDLERS: [&str; 5] = ["exec", "httpGet", "tcpSocket", "grpc", "sleep"];

/// Checks the probes and hooks of a container; `grace_period` is the pod's, in seconds.
pub(super) fn handlers(container: &Value, path: &str, grace_period: &Value, errors: &mut Vec<FieldError>) {
    for hook in ["postStart", "preStop"] {
        let value = &container["lifecycle"][hook];
        if value.is_object() {
            handler(value, &format!("{path}.lifecycle.{hook}"), grace_period, errors);
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if container[name].is_object() {
            probe(name, &container[name], &format!("{path}.{name}"), grace_period, errors);
        }
    }
}

fn probe(name: &str, probe: &Value, path: &str, grace_period: &Value, errors: &mut Vec<FieldError>) {
    handler(probe, path, grace_period, errors);
    for number in [
        "initialDelaySeconds",
        "timeoutSeconds",
        "periodSeconds",
        "successThreshold",
        "failureThreshold",
    ] {
        errors.extend(not_negative(&format!("{path}.{number}"), &probe[number]));
    }
    let own_period = &probe["terminationGracePeriodSeconds"];
    let path_of_period = format!("{path}.terminationGracePeriodSeconds");
    if own_period.as_i64().is_some_and(|seconds| seconds <= 0) {
        errors.push(FieldError::invalid(
            &path_of_period,
            own_period,
            "must be greater than 0",
        ));
    }
    if name == "readinessProbe" {
        if own_period.is_number() {
            let detail = "must not be set for readinessProbes";
            errors.push(FieldError::invalid(path_of_period, own_period, detail));
        }
    } else if probe["successThreshold"] != 1 {
        let threshold = &probe["successThreshold"];
        errors.push(FieldError::invalid(
            format!("{path}.successThreshold"),
            threshold,
            "must be 1",
        ));
    }
}

fn handler(holder: &Value, path: &str, grace_period: &Value, errors: &mut Vec<FieldError>) {
    let mut present = HANDLERS.into_iter().filter(|name| holder[*name].is_object());
    let Some(first) = present.next() else {
        errors.push(FieldError::required(path, "must specify a handler type"));
        return;
    };
    action(first, &holder[first], &format!("{path}.{first}"), grace_period, errors);
    for name in present {
        let detail = "may not specify more than 1 handler type";
        errors.push(FieldError::forbidden(format!("{path}.{name}"), detail));
    }
}

fn action(name: &str, action: &Value, path: &str, grace_period: &Value, errors: &mut Vec<FieldError>) {
    let port = || names::port(&action["port"], &format!("{path}.port"));
    match name {
        "exec" if list(&action["command"]).is_empty() => {
            errors.push(FieldError::required(format!("{path}.command"), ""));
        }
        "httpGet" => {
            errors.extend(port());
            let schemes = ["HTTP", "HTTPS"];
            if !schemes.contains(&text(&action["scheme"])) {
                let path = format!("{path}.scheme");
                errors.push(FieldError::not_supported(path, &action["scheme"], &schemes));
            }
        }
        "tcpSocket" | "grpc" => errors.extend(port()),
        "sleep" => {
            let (seconds, most) = (action["seconds"].as_i64().unwrap_or(0), grace_period.as_i64());
            if let Some(most) = most.filter(|most| !(0..=*most).contains(&seconds)) {
                let detail = format!("must be non-negative and less than terminationGracePeriodSeconds ({most})");
                errors.push(FieldError::invalid(path, &json!(seconds), detail));
            }
        }
        _ => {}
    }
}
