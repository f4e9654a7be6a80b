//! Fills in defaults when a resource is stored. It works on JSON: values of a wrong type are left for the validator.

use serde_json::{Map, Value};

use crate::nginx::address::Url;
use crate::nginx::http::COMBINED;
use crate::nginx::syntax;
use crate::settings::Settings;

/// Completes the fields that only a ReverseProxy has.
pub(crate) fn http(spec: &mut Map<String, Value>) {
    if is_absent(spec, "logFormat") {
        spec.insert("logFormat".to_owned(), COMBINED.into());
    }
    // An invalid URL is only refused for itself.
    let text = spec.get("proxyPass").and_then(Value::as_str);
    let text = text.filter(|text| syntax::check_word(text, syntax::Value::Http).is_ok());
    let url = text.and_then(Url::parse).filter(|url| url.check().is_ok());
    let host = url.map(|url| url.authority.to_owned());
    if is_absent(spec, "proxySetHeader") {
        spec.insert("proxySetHeader".to_owned(), Value::Object(Map::new()));
    }
    let Some(headers) = spec.get_mut("proxySetHeader").and_then(Value::as_object_mut) else {
        return;
    };
    *headers = in_lower_case(std::mem::take(headers));
    if let Some(host) = host
        && !headers.keys().any(|name| name.eq_ignore_ascii_case("host"))
    {
        headers.insert("host".to_owned(), host.into());
    }
}

/// Completes the image: the configuration's if it is absent or empty.
pub(crate) fn image(spec: &mut Map<String, Value>, settings: &Settings) {
    if is_absent(spec, "image") || spec["image"] == "" {
        spec.insert("image".to_owned(), settings.default_image.as_str().into());
    }
}

fn is_absent(spec: &Map<String, Value>, field: &str) -> bool {
    spec.get(field).is_none_or(Value::is_null)
}

/// Returns the headers by name in lower case. Names that differ only in case are all kept: the validator refuses them.
fn in_lower_case(headers: Map<String, Value>) -> Map<String, Value> {
    let same = |name: &String| headers.keys().filter(|other| other.eq_ignore_ascii_case(name)).count() > 1;
    let names: Vec<String> = headers
        .keys()
        .map(|name| {
            if same(name) {
                name.clone()
            } else {
                name.to_ascii_lowercase()
            }
        })
        .collect();
    names
        .into_iter()
        .zip(headers.into_iter().map(|(_, value)| value))
        .collect()
}
