//! Checks the volumes of pods and the claims that become volumes: each has one source.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{list, names, quantity_of, same, text};
use crate::failure::FieldError;

/// The sources of a volume in the order in which the server looks for them, with the name under which it refuses one.
const SOURCES: [(&str, &str); 29] = [
    ("emptyDir", "emptyDir"),
    ("hostPath", "hostPath"),
    ("gitRepo", "gitRepo"),
    ("gcePersistentDisk", "gcePersistentDisk"),
    ("awsElasticBlockStore", "awsElasticBlockStore"),
    ("secret", "secret"),
    ("nfs", "nfs"),
    ("iscsi", "iscsi"),
    ("glusterfs", "glusterfs"),
    ("flocker", "flocker"),
    ("persistentVolumeClaim", "persistentVolumeClaim"),
    ("rbd", "rbd"),
    ("cinder", "cinder"),
    ("cephfs", "cephFS"),
    ("quobyte", "quobyte"),
    ("downwardAPI", "downwarAPI"),
    ("fc", "fc"),
    ("flexVolume", "flexVolume"),
    ("configMap", "configMap"),
    ("azureFile", "azureFile"),
    ("vsphereVolume", "vsphereVolume"),
    ("photonPersistentDisk", "photonPersistentDisk"),
    ("portworxVolume", "portworxVolume"),
    ("azureDisk", "azureDisk"),
    ("storageos", "storageos"),
    ("projected", "projected"),
    ("scaleIO", "scaleIO"),
    ("csi", "csi"),
    ("ephemeral", "ephemeral"),
];

/// Checks the volumes of a pod's spec and returns the names of those that containers can mount; `claimed` are the names of a
/// StatefulSet's claim templates, which take the place of volumes with these names.
pub(super) fn volumes<'a>(
    spec: &'a Value,
    path: &str,
    claimed: &BTreeSet<&'a str>,
    errors: &mut Vec<FieldError>,
) -> BTreeSet<&'a str> {
    let mut mountable = claimed.clone();
    let volumes = list(&spec["volumes"]).iter();
    let volumes = volumes.filter(|volume| !claimed.contains(text(&volume["name"])));
    for (index, volume) in volumes.enumerate() {
        // Volumes of claim templates come first.
        let path = format!("{path}.volumes[{}]", claimed.len() + index);
        let before = errors.len();
        source(volume, &path, errors);
        let name = text(&volume["name"]);
        if name.is_empty() {
            errors.push(FieldError::required(format!("{path}.name"), ""));
        } else {
            errors.extend(names::label(name, &format!("{path}.name")));
        }
        if mountable.contains(name) {
            errors.push(FieldError::duplicate(format!("{path}.name"), &volume["name"]));
        }
        if errors.len() == before {
            mountable.insert(name);
        }
    }
    mountable
}

fn source(volume: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let image = ("image", "image");
    let mut present = SOURCES.into_iter().chain([image]);
    let mut present = present.by_ref().filter(|(name, _)| volume[*name].is_object());
    let Some((first, _)) = present.next() else {
        errors.push(FieldError::required(path, "must specify a volume type"));
        return;
    };
    let required = match first {
        "hostPath" => Some("path"),
        "secret" => Some("secretName"),
        "configMap" => Some("name"),
        "persistentVolumeClaim" => Some("claimName"),
        _ => None,
    };
    if let Some(name) = required.filter(|name| text(&volume[first][*name]).is_empty()) {
        errors.push(FieldError::required(format!("{path}.{first}.{name}"), ""));
    }
    if first == "projected" {
        projections(&volume[first], &format!("{path}.{first}"), errors);
    }
    for (_, shown) in present {
        let detail = "may not specify more than 1 volume type";
        errors.push(FieldError::forbidden(format!("{path}.{shown}"), detail));
    }
}

fn projections(projected: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for (index, source) in list(&projected["sources"]).iter().enumerate() {
        let path = format!("{path}.sources[{index}]");
        for name in ["secret", "configMap"] {
            if source[name].is_object() && text(&source[name]["name"]).is_empty() {
                errors.push(FieldError::required(format!("{path}.{name}.name"), ""));
            }
        }
        let sources = source.as_object().into_iter().flatten();
        if sources.filter(|(_, value)| value.is_object()).count() > 1 {
            let detail = "may not specify more than 1 volume type per source";
            errors.push(FieldError::forbidden(path, detail));
        }
    }
}

/// Checks a PersistentVolumeClaim, and what an update may change of it.
pub(super) fn claim(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let spec = &object["spec"];
    let mut errors = claim_spec(spec, "spec");
    let Some(old) = old else { return errors };
    let before = &old["spec"];
    let bound = object["status"]["phase"] == "Bound";
    let fixed = |spec: &Value| {
        let mut fixed = spec.clone();
        if let Some(members) = fixed.as_object_mut() {
            // The volume is set once.
            if text(&before["volumeName"]).is_empty() {
                members.remove("volumeName");
            }
            if bound {
                members.remove("volumeAttributesClassName");
                if let Some(requests) = members
                    .get_mut("resources")
                    .and_then(|it| it["requests"].as_object_mut())
                {
                    requests.remove("storage");
                }
            }
        }
        fixed
    };
    if !same(&fixed(spec), &fixed(before)) {
        let detail = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound \
            claims\n";
        errors.push(FieldError::forbidden("spec", detail));
    }
    let size = |spec: &Value| quantity_of(&spec["resources"]["requests"]["storage"]);
    let capacity = quantity_of(&old["status"]["capacity"]["storage"]);
    if size(spec) < size(before) && size(spec) <= capacity {
        let detail = "field can not be less than status.capacity";
        errors.push(FieldError::forbidden("spec.resources.requests.storage", detail));
    }
    errors.extend(super::immutable(
        "volumeMode",
        &spec["volumeMode"],
        Some(&before["volumeMode"]),
    ));
    errors
}

/// Checks the spec of a claim or of a claim's template.
pub(super) fn claim_spec(spec: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let modes = list(&spec["accessModes"]);
    let path_of_modes = format!("{path}.accessModes");
    if modes.is_empty() {
        let detail = "at least 1 access mode is required";
        errors.push(FieldError::required(&path_of_modes, detail));
    }
    let known = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
    let unknown = modes.iter().filter(|mode| !known.contains(&text(mode)));
    errors.extend(unknown.map(|mode| FieldError::not_supported(&path_of_modes, mode, &known)));
    let alone = |mode: &&Value| **mode == "ReadWriteOncePod";
    if modes.iter().any(|mode| alone(&mode)) && modes.iter().any(|mode| !alone(&mode) && known.contains(&text(mode))) {
        let detail = "may not use ReadWriteOncePod with other access modes";
        errors.push(FieldError::forbidden(path_of_modes, detail));
    }
    let size = &spec["resources"]["requests"]["storage"];
    let path_of_size = format!("{path}.resources[storage]");
    if size.is_null() {
        errors.push(FieldError::required(path_of_size, ""));
    } else if quantity_of(size) <= 0 {
        errors.push(FieldError::invalid(path_of_size, size, "must be greater than zero"));
    }
    let class = text(&spec["storageClassName"]);
    if !class.is_empty() {
        let form = names::NameForm::Subdomain;
        errors.extend(names::object_name(form, class, &format!("{path}.storageClassName")));
    }
    let volume_modes = ["Block", "Filesystem"];
    let mode = &spec["volumeMode"];
    if mode.is_string() && !volume_modes.contains(&text(mode)) {
        errors.push(FieldError::not_supported(
            format!("{path}.volumeMode"),
            mode,
            &volume_modes,
        ));
    }
    let (source, reference) = (&spec["dataSource"], &spec["dataSourceRef"]);
    if source.is_object() && reference.is_object() {
        let detail = if !text(&reference["namespace"]).is_empty() {
            Some("may not be specified when dataSourceRef.namespace is specified")
        } else if !same(source, reference) {
            Some("must match dataSourceRef")
        } else {
            None
        };
        let shown = json!(format!("{path}.dataSource"));
        errors.extend(detail.map(|detail| FieldError::invalid(path, &shown, detail)));
    }
    errors
}
