//! Owns what is filled in when a resource is stored. It works on JSON: what has the wrong form is left for the validator.

use serde_json::{Map, Value};

use crate::nginx::address::Url;
use crate::nginx::http::COMBINED;
use crate::nginx::syntax;
use crate::settings::Settings;

/// Completes what only a ReverseProxy has.
pub(crate) fn http(spec: &mut Map<String, Value>) {
    if is_absent(spec, "logFormat") {
        spec.insert("logFormat".to_owned(), COMBINED.into());
    }
    // A URL that is to be refused is refused once, for itself.
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

/// Completes the image, which is the configuration's if absent or empty.
pub(crate) fn image(spec: &mut Map<String, Value>, settings: &Settings) {
    if is_absent(spec, "image") || spec["image"] == "" {
        spec.insert("image".to_owned(), settings.default_image.as_str().into());
    }
}

fn is_absent(spec: &Map<String, Value>, field: &str) -> bool {
    spec.get(field).is_none_or(Value::is_null)
}

/// The headers by name in lower case. Of names that differ in nothing but case, none is taken for another: the validator
/// refuses them.
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
