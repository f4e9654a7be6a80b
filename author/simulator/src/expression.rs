//! Evaluates CEL over JSON: the rules of schemas and the match conditions of webhooks.
//!
//! The language is that of the `cel` crate, with `isIP`. What Kubernetes adds beyond and the crate does not know (quantities,
//! URLs, authorisers) cannot be evaluated.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

use cel::objects::{Key, Map};
use cel::{Context, ExecutionError, Program};
use parking_lot::Mutex;
use serde_json::Value;

/// Evaluates an expression over variables; None where the crate lacks a part that the expression uses.
pub(crate) fn run(text: &str, variables: &[(&str, &Value)]) -> Option<Result<cel::Value, ExecutionError>> {
    let program = compiled(text)?;
    let mut context = Context::default();
    context
        .add_function("isIP", |text: Arc<String>| is_ip(&text))
        .expect("the crate has no function of this name");
    for (name, value) in variables {
        context.add_variable_from_value(*name, convert(value));
    }
    match program.execute(&context) {
        Err(ExecutionError::UndeclaredReference(_) | ExecutionError::NoSuchOverload { .. }) => None,
        result => Some(result),
    }
}

/// Decides as the server does: an IPv4 address within an IPv6 one is none, and no address has a zone.
fn is_ip(text: &str) -> bool {
    match text.parse() {
        Ok(IpAddr::V4(_)) => true,
        Ok(IpAddr::V6(address)) => address.to_ipv4_mapped().is_none(),
        Err(_) => false,
    }
}

/// Compiling costs more than evaluating, and expressions are evaluated with every write.
fn compiled(text: &str) -> Option<Arc<Program>> {
    static PROGRAMS: LazyLock<Mutex<HashMap<String, Option<Arc<Program>>>>> = LazyLock::new(Mutex::default);
    let mut programs = PROGRAMS.lock();
    if let Some(known) = programs.get(text) {
        return known.clone();
    }
    let program = Program::compile(text).ok().map(Arc::new);
    programs.insert(text.to_owned(), program.clone());
    program
}

/// JSON as CEL sees it: whole numbers are signed.
fn convert(value: &Value) -> cel::Value {
    match value {
        Value::Null => cel::Value::Null,
        Value::Bool(flag) => cel::Value::Bool(*flag),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => cel::Value::Int(whole),
            None => cel::Value::Float(number.as_f64().unwrap_or_default()),
        },
        Value::String(text) => cel::Value::String(Arc::new(text.clone())),
        Value::Array(items) => cel::Value::List(Arc::new(items.iter().map(convert).collect())),
        Value::Object(members) => {
            let members: HashMap<Key, cel::Value> = members
                .iter()
                .map(|(name, value)| (Key::String(Arc::new(name.clone())), convert(value)))
                .collect();
            cel::Value::Map(Map { map: Arc::new(members) })
        }
    }
}
