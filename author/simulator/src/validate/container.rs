//! Checks containers: names, ports, variables, mounts, resources.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{list, names, quantity_of, text};
use crate::failure::FieldError;

/// Fields of the pod that a variable may refer to.
const POD_FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

/// Resources of a container that a variable may refer to.
const RESOURCE_FIELDS: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

/// Checks the common parts of all kinds of containers.
pub(super) fn container(container: &Value, path: &str, volumes: &BTreeSet<&str>, errors: &mut Vec<FieldError>) {
    let name = text(&container["name"]);
    if name.is_empty() {
        errors.push(FieldError::required(format!("{path}.name"), ""));
    } else {
        errors.extend(names::label(name, &format!("{path}.name")));
    }
    if text(&container["image"]).is_empty() {
        errors.push(FieldError::required(format!("{path}.image"), ""));
    }
    for (name, supported) in [
        ("terminationMessagePolicy", ["File", "FallbackToLogsOnError"].as_slice()),
        ("imagePullPolicy", &["Always", "IfNotPresent", "Never"]),
    ] {
        let value = &container[name];
        if value.is_string() && !supported.contains(&text(value)) {
            errors.push(FieldError::not_supported(format!("{path}.{name}"), value, supported));
        }
    }
    ports(container, path, errors);
    for (index, variable) in list(&container["env"]).iter().enumerate() {
        variable_is_valid(variable, &format!("{path}.env[{index}]"), errors);
    }
    sources(container, path, errors);
    mounts(container, path, volumes, errors);
    resources(&container["resources"], path, errors);
    security(
        &container["securityContext"],
        &format!("{path}.securityContext"),
        errors,
    );
}

fn ports(container: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let mut names_seen = BTreeSet::new();
    for (index, port) in list(&container["ports"]).iter().enumerate() {
        let path = format!("{path}.ports[{index}]");
        let name = text(&port["name"]);
        if !name.is_empty() {
            let faults = names::port_name(name, &format!("{path}.name"));
            if faults.is_empty() && !names_seen.insert(name) {
                errors.push(FieldError::duplicate(format!("{path}.name"), &port["name"]));
            }
            errors.extend(faults);
        }
        if port["containerPort"].as_i64().unwrap_or(0) == 0 {
            errors.push(FieldError::required(format!("{path}.containerPort"), ""));
        } else {
            let path = format!("{path}.containerPort");
            errors.extend(names::port_number(&port["containerPort"], &path));
        }
        if port["hostPort"].as_i64().unwrap_or(0) != 0 {
            errors.extend(names::port_number(&port["hostPort"], &format!("{path}.hostPort")));
        }
        errors.extend(names::protocol(&port["protocol"], &format!("{path}.protocol")));
    }
}

/// Finds ports of the host that several of these containers ask for.
pub(super) fn host_ports(containers: &[Value], path: &str, errors: &mut Vec<FieldError>) {
    let mut seen = BTreeSet::new();
    for (index, container) in containers.iter().enumerate() {
        for (port_index, port) in list(&container["ports"]).iter().enumerate() {
            let Some(number) = port["hostPort"].as_i64().filter(|number| *number != 0) else {
                continue;
            };
            let claim = format!("{}/{}/{number}", text(&port["protocol"]), text(&port["hostIP"]));
            let shown = json!(claim);
            if !seen.insert(claim) {
                let path = format!("{path}[{index}].ports[{port_index}].hostPort");
                errors.push(FieldError::duplicate(path, &shown));
            }
        }
    }
}

fn variable_is_valid(variable: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if text(&variable["name"]).is_empty() {
        errors.push(FieldError::required(format!("{path}.name"), ""));
    }
    let from = &variable["valueFrom"];
    if !from.is_object() {
        return;
    }
    let path = format!("{path}.valueFrom");
    let mut count = 0;
    for name in [
        "fieldRef",
        "resourceFieldRef",
        "configMapKeyRef",
        "secretKeyRef",
        "fileKeyRef",
    ] {
        if from[name].is_object() {
            count += 1;
            reference(name, &from[name], &format!("{path}.{name}"), errors);
        }
    }
    let detail = match count {
        0 => "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
        _ if !text(&variable["value"]).is_empty() => "may not be specified when `value` is not empty",
        1 => return,
        _ => "may not have more than one field specified at a time",
    };
    errors.push(FieldError::invalid(path, &json!(""), detail));
}

fn reference(kind: &str, reference: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let within = |name: &str| format!("{path}.{name}");
    match kind {
        "fieldRef" => {
            let field = text(&reference["fieldPath"]);
            let subscripted = ["metadata.labels['", "metadata.annotations['"];
            if field.is_empty() {
                errors.push(FieldError::required(within("fieldPath"), ""));
            } else if !POD_FIELDS.contains(&field) && !subscripted.iter().any(|head| field.starts_with(head)) {
                let detail = format!("error converting fieldPath: field label not supported: {field}");
                errors.push(FieldError::invalid(within("fieldPath"), &json!(field), detail));
            }
        }
        "resourceFieldRef" => {
            let resource = text(&reference["resource"]);
            let is_huge = ["requests.hugepages-", "limits.hugepages-"]
                .iter()
                .any(|head| resource.starts_with(head));
            if resource.is_empty() {
                errors.push(FieldError::required(within("resource"), ""));
            } else if !RESOURCE_FIELDS.contains(&resource) && !is_huge {
                let path = within("resource");
                errors.push(FieldError::not_supported(path, &json!(resource), &RESOURCE_FIELDS));
            }
        }
        "configMapKeyRef" | "secretKeyRef" => {
            let form = names::NameForm::Subdomain;
            errors.extend(names::object_name(form, text(&reference["name"]), &within("name")));
            match text(&reference["key"]) {
                "" => errors.push(FieldError::required(within("key"), "")),
                key => errors.extend(names::config_key(key, &within("key"))),
            }
        }
        _ => {}
    }
}

/// The objects that give variables as a whole.
fn sources(container: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let path = format!("{path}.envFrom");
    for (index, source) in list(&container["envFrom"]).iter().enumerate() {
        let mut count = 0;
        for kind in ["configMapRef", "secretRef"] {
            if !source[kind].is_object() {
                continue;
            }
            count += 1;
            let (name, path) = (text(&source[kind]["name"]), format!("{path}[{index}].{kind}.name"));
            if name.is_empty() {
                errors.push(FieldError::required(path, ""));
            } else {
                errors.extend(names::object_name(names::NameForm::Subdomain, name, &path));
            }
        }
        let detail = match count {
            0 => "must specify one of: `configMapRef` or `secretRef`",
            1 => continue,
            _ => "may not have more than one field specified at a time",
        };
        errors.push(FieldError::invalid(&path, &json!(""), detail));
    }
}

fn mounts(container: &Value, path: &str, volumes: &BTreeSet<&str>, errors: &mut Vec<FieldError>) {
    let mut paths_seen = BTreeSet::new();
    for (index, mount) in list(&container["volumeMounts"]).iter().enumerate() {
        let path = format!("{path}.volumeMounts[{index}]");
        let name = text(&mount["name"]);
        if name.is_empty() {
            errors.push(FieldError::required(format!("{path}.name"), ""));
        }
        if !volumes.contains(name) {
            errors.push(FieldError::not_found(format!("{path}.name"), &json!(name)));
        }
        let place = text(&mount["mountPath"]);
        if place.is_empty() {
            errors.push(FieldError::required(format!("{path}.mountPath"), ""));
        }
        if !paths_seen.insert(place) {
            errors.push(FieldError::invalid(
                format!("{path}.mountPath"),
                &json!(place),
                "must be unique",
            ));
        }
        if !text(&mount["subPath"]).is_empty() && !text(&mount["subPathExpr"]).is_empty() {
            let detail = "subPathExpr and subPath are mutually exclusive";
            errors.push(FieldError::invalid(
                format!("{path}.subPathExpr"),
                &mount["subPathExpr"],
                detail,
            ));
        }
    }
}

/// Checks requests and limits. A resource that cannot be shared needs equal ones.
fn resources(resources: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let path = format!("{path}.resources");
    for (name, request) in resources["requests"].as_object().into_iter().flatten() {
        let is_native = !name.contains('/') || name.contains("kubernetes.io/");
        let shared = is_native && !name.starts_with("hugepages-");
        let limit = &resources["limits"][name];
        let detail = match limit.as_str() {
            None if shared => continue,
            None => {
                let detail = "Limit must be set for non overcommitable resources";
                errors.push(FieldError::required(format!("{path}.limits"), detail));
                continue;
            }
            Some(most) if !shared && quantity_of(request) != quantity_of(limit) => {
                format!("must be equal to {name} limit of {most}")
            }
            Some(most) if quantity_of(request) > quantity_of(limit) => {
                format!("must be less than or equal to {name} limit of {most}")
            }
            Some(_) => continue,
        };
        errors.push(FieldError::invalid(format!("{path}.requests"), request, detail));
    }
}

/// The members of a security context as Go orders and shows them.
const SECURITY: [(&str, &str); 12] = [
    ("AllowPrivilegeEscalation", "allowPrivilegeEscalation"),
    ("AppArmorProfile", "appArmorProfile"),
    ("Capabilities", "capabilities"),
    ("Privileged", "privileged"),
    ("ProcMount", "procMount"),
    ("ReadOnlyRootFilesystem", "readOnlyRootFilesystem"),
    ("RunAsGroup", "runAsGroup"),
    ("RunAsNonRoot", "runAsNonRoot"),
    ("RunAsUser", "runAsUser"),
    ("SELinuxOptions", "seLinuxOptions"),
    ("SeccompProfile", "seccompProfile"),
    ("WindowsOptions", "windowsOptions"),
];

/// Checks the security context of a container.
fn security(context: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for name in ["runAsUser", "runAsGroup"] {
        if context[name]
            .as_i64()
            .is_some_and(|number| !(0..=2_147_483_647).contains(&number))
        {
            let detail = "must be between 0 and 2147483647, inclusive";
            errors.push(FieldError::invalid(format!("{path}.{name}"), &context[name], detail));
        }
    }
    seccomp(&context["seccompProfile"], &format!("{path}.seccompProfile"), errors);
    if context["allowPrivilegeEscalation"] == false && context["privileged"] == true {
        let members = SECURITY
            .iter()
            .map(|(shown, name)| ((*shown).to_owned(), context[*name].clone()));
        let shown = members.collect::<serde_json::Map<_, _>>().into();
        let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
        errors.push(FieldError::invalid(path, &shown, detail));
    }
}

/// Checks that a profile of system calls is named exactly where its type has one.
pub(super) fn seccomp(profile: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let (is_local, name) = (profile["type"] == "Localhost", &profile["localhostProfile"]);
    let path = format!("{path}.localhostProfile");
    if is_local && name.is_null() {
        let detail = "must be set when seccomp type is Localhost";
        errors.push(FieldError::required(path, detail));
    } else if !is_local && name.is_string() {
        let shown = json!({"LocalhostProfile": name, "Type": profile["type"]});
        let detail = "can only be set when seccomp type is Localhost";
        errors.push(FieldError::invalid(path, &shown, detail));
    }
}
