//! Checks the configuration of a plugin against the JSON schema in its manifest. No value of a configuration is printed: any may be
//! a secret.
//!
//! Both are untrusted, and references make a short schema long: the check has a budget of steps, which common validators do not
//! offer. What it does not judge (references to other documents, `unevaluatedProperties`, patterns that only ECMAScript has) it
//! accepts, and names. Formats are annotations, as JSON Schema has it by default.

use std::collections::{BTreeSet, HashMap};
use std::fmt;

use regex::{Regex, RegexBuilder};
use serde_json::{Map, Value};

use super::manifest::ManifestError;
use crate::kubernetes::values::is_equal;
use crate::text::printable::{first_few, type_of};

/// The most steps: one for each schema that a value is held against.
const MAX_STEPS: usize = 100_000;

/// The deepest that a schema is followed; the configuration itself nests 128 levels at most.
const MAX_DEPTH: usize = 256;

/// Steps that a pattern counts for, because it has to be compiled.
const PATTERN_STEPS: usize = 100;

/// Bytes of a compiled pattern.
const PATTERN_BYTES: usize = 1 << 20;

/// Bytes of a text that are matched in one step.
const STEP_BYTES: usize = 256;

/// The gap that a schema leaves which is longer than the budget.
const TOO_MUCH: &str = "more levels and steps than the host follows";

/// Keywords that restrict values and are not judged.
const UNJUDGED: [&str; 4] = [
    "unevaluatedProperties",
    "unevaluatedItems",
    "$dynamicRef",
    "$recursiveRef",
];

/// A member of a configuration that does not fit.
struct Misfit {
    path: String,
    problem: String,
}

impl fmt::Display for Misfit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, problem } = self;
        match path.strip_prefix('.').unwrap_or(path) {
            "" => write!(formatter, "{problem}"),
            path => write!(formatter, "{path}: {problem}"),
        }
    }
}

/// Checks a configuration that was given. Returns the parts of the schema that could not be judged, for people.
pub(super) fn check(schema: Option<&Value>, name: &str, configuration: &Value) -> Result<Vec<String>, ManifestError> {
    let Some(schema) = schema else {
        return match configuration {
            Value::Null => Ok(Vec::new()),
            Value::Object(members) if members.is_empty() => Ok(Vec::new()),
            _ => Err(ManifestError::NoConfiguration(name.to_owned())),
        };
    };
    // A plugin that is given none fills in what it needs.
    if configuration.is_null() {
        return Ok(Vec::new());
    }
    let mut judge = Judge {
        root: schema,
        steps: MAX_STEPS,
        patterns: HashMap::new(),
        gaps: BTreeSet::new(),
    };
    let misfits = judge.judge(schema, configuration, "", 0);
    if misfits.is_empty() {
        return Ok(judge.gaps.into_iter().collect());
    }
    let misfits: Vec<String> = misfits.iter().map(Misfit::to_string).collect();
    Err(ManifestError::Configuration {
        problems: first_few(misfits.iter().map(String::as_str)),
    })
}

struct Judge<'a> {
    root: &'a Value,
    steps: usize,
    patterns: HashMap<&'a str, Option<Regex>>,
    /// Parts of the schema that could not be judged.
    gaps: BTreeSet<String>,
}

impl<'a> Judge<'a> {
    fn judge(&mut self, schema: &'a Value, value: &Value, path: &str, depth: usize) -> Vec<Misfit> {
        let schema = match schema {
            Value::Object(schema) => schema,
            Value::Bool(false) => return vec![misfit(path, "the schema takes nothing here; remove it")],
            Value::Bool(true) => return Vec::new(),
            other => {
                self.gap(format!("a schema that is {}, and not an object", type_of(other)));
                return Vec::new();
            }
        };
        if depth == MAX_DEPTH {
            self.gap(TOO_MUCH.to_owned());
            return Vec::new();
        }
        if !self.spend(1) {
            return Vec::new();
        }
        for keyword in UNJUDGED.iter().filter(|keyword| schema.contains_key(**keyword)) {
            self.gap((*keyword).to_owned());
        }
        if value.is_null() && schema.get("nullable") == Some(&Value::Bool(true)) {
            return Vec::new();
        }
        if let Some(problem) = wrong_type(schema, value) {
            return vec![misfit(path, problem)];
        }
        let mut misfits = Vec::new();
        if let Some(problem) = wrong_value(schema, value) {
            misfits.push(misfit(path, problem));
        }
        match value {
            Value::Object(members) => self.object(schema, members, path, depth, &mut misfits),
            Value::Array(items) => self.array(schema, items, path, depth, &mut misfits),
            Value::String(text) => self.text(schema, text, path, &mut misfits),
            _ => {}
        }
        self.combined(schema, value, path, depth, &mut misfits);
        misfits
    }

    fn gap(&mut self, gap: String) {
        self.gaps.insert(gap);
    }

    /// Takes steps from the budget. If there are too few, the rest of the schema is not judged.
    fn spend(&mut self, steps: usize) -> bool {
        let rest = self.steps.checked_sub(steps);
        self.steps = rest.unwrap_or(0);
        if rest.is_none() {
            self.gap(TOO_MUCH.to_owned());
        }
        rest.is_some()
    }

    /// Reports whether a value fits; `None` if that cannot be judged.
    fn fits(&mut self, schema: &'a Value, value: &Value, depth: usize) -> Option<bool> {
        let known = std::mem::take(&mut self.gaps);
        let fits = self.judge(schema, value, "", depth + 1).is_empty();
        let is_judged = self.gaps.is_empty();
        self.gaps.extend(known);
        is_judged.then_some(fits)
    }

    fn object(
        &mut self,
        schema: &'a Map<String, Value>,
        members: &Map<String, Value>,
        path: &str,
        depth: usize,
        misfits: &mut Vec<Misfit>,
    ) {
        let declared = schema.get("properties").and_then(Value::as_object);
        let patterns = schema.get("patternProperties").and_then(Value::as_object);
        let others = schema.get("additionalProperties");
        for (name, value) in members {
            let path = format!("{path}.{name}");
            let mut is_known = false;
            if let Some(schema) = declared.and_then(|declared| declared.get(name)) {
                is_known = true;
                misfits.extend(self.judge(schema, value, &path, depth + 1));
            }
            for (pattern, schema) in patterns.into_iter().flatten() {
                match self.matches(pattern, name) {
                    Some(true) => {
                        is_known = true;
                        misfits.extend(self.judge(schema, value, &path, depth + 1));
                    }
                    Some(false) => {}
                    None => is_known = true,
                }
            }
            match others {
                Some(Value::Bool(false)) if !is_known => misfits.push(misfit(&path, unknown(declared))),
                Some(others) if !is_known => misfits.extend(self.judge(others, value, &path, depth + 1)),
                _ => {}
            }
            if let Some(names) = schema.get("propertyNames")
                && self.fits(names, &Value::String(name.clone()), depth) == Some(false)
            {
                misfits.push(misfit(
                    &path,
                    "the schema does not take a member of this name; rename it",
                ));
            }
        }
        let mut require = |name: &str| {
            if !members.contains_key(name) {
                misfits.push(misfit(&format!("{path}.{name}"), "it is missing; give it"));
            }
        };
        texts(schema.get("required")).for_each(&mut require);
        for (name, required) in schema
            .get("dependentRequired")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            if members.contains_key(name) {
                texts(Some(required)).for_each(&mut require);
            }
        }
        let count = members.len();
        misfits.extend(
            out_of_bounds(schema, ["minProperties", "maxProperties"], count, "members").map(|it| misfit(path, it)),
        );
    }

    fn array(
        &mut self,
        schema: &'a Map<String, Value>,
        items: &[Value],
        path: &str,
        depth: usize,
        misfits: &mut Vec<Misfit>,
    ) {
        // Before 2020-12, a list of schemas stood in `items`, and what followed them in `additionalItems`.
        let (first, rest) = match schema.get("items") {
            Some(Value::Array(first)) => (Some(first), schema.get("additionalItems")),
            rest => (schema.get("prefixItems").and_then(Value::as_array), rest),
        };
        for (index, item) in items.iter().enumerate() {
            let schema = first.and_then(|first| first.get(index)).or(rest);
            if let Some(schema) = schema {
                misfits.extend(self.judge(schema, item, &format!("{path}[{index}]"), depth + 1));
            }
        }
        if let Some(wanted) = schema.get("contains")
            && schema.get("minContains").and_then(Value::as_u64) != Some(0)
            && items.iter().all(|item| self.fits(wanted, item, depth) == Some(false))
        {
            misfits.push(misfit(path, "it lacks an item that the schema asks for; add it"));
        }
        if schema.get("uniqueItems") == Some(&Value::Bool(true)) && self.spend(items.len() * items.len()) {
            let is_twice =
                |(index, item): (usize, &Value)| items[..index].iter().any(|earlier| is_equal(earlier, item));
            if items.iter().enumerate().any(is_twice) {
                misfits.push(misfit(path, "it has an item twice; remove one"));
            }
        }
        misfits
            .extend(out_of_bounds(schema, ["minItems", "maxItems"], items.len(), "items").map(|it| misfit(path, it)));
    }

    fn text(&mut self, schema: &'a Map<String, Value>, text: &str, path: &str, misfits: &mut Vec<Misfit>) {
        let length = text.chars().count();
        misfits
            .extend(out_of_bounds(schema, ["minLength", "maxLength"], length, "characters").map(|it| misfit(path, it)));
        if let Some(pattern) = schema.get("pattern").and_then(Value::as_str)
            && self.matches(pattern, text) == Some(false)
        {
            misfits.push(misfit(
                path,
                format!("it does not match the pattern {pattern}; correct it"),
            ));
        }
    }

    /// Reports whether a pattern matches a text; `None` if the pattern cannot be parsed.
    fn matches(&mut self, pattern: &'a str, text: &str) -> Option<bool> {
        let is_new = !self.patterns.contains_key(pattern);
        if !self.spend(text.len() / STEP_BYTES + if is_new { PATTERN_STEPS } else { 1 }) {
            return None;
        }
        let compile = || RegexBuilder::new(pattern).size_limit(PATTERN_BYTES).build().ok();
        let found = self.patterns.entry(pattern).or_insert_with(compile);
        let found = found.as_ref().map(|pattern| pattern.is_match(text));
        if found.is_none() {
            self.gap(format!("the pattern {pattern}"));
        }
        found
    }

    fn combined(
        &mut self,
        schema: &'a Map<String, Value>,
        value: &Value,
        path: &str,
        depth: usize,
        misfits: &mut Vec<Misfit>,
    ) {
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            let target = reference
                .strip_prefix('#')
                .and_then(|pointer| self.root.pointer(pointer));
            match target {
                Some(target) => misfits.extend(self.judge(target, value, path, depth + 1)),
                None => self.gap(format!("the reference {reference}, which leads out of it")),
            }
        }
        for part in schemas(schema, "allOf").unwrap_or_default() {
            misfits.extend(self.judge(part, value, path, depth + 1));
        }
        if let Some(forms) = schemas(schema, "anyOf") {
            misfits.extend(self.any(forms, value, path, depth));
        }
        if let Some(forms) = schemas(schema, "oneOf") {
            let fitting: Vec<_> = forms.iter().map(|form| self.fits(form, value, depth)).collect();
            match fitting.iter().filter(|fits| **fits == Some(true)).count() {
                0 if !fitting.contains(&None) => misfits.extend(self.any(forms, value, path, depth)),
                0 | 1 => {}
                _ => misfits.push(misfit(
                    path,
                    "it fits several forms of which the schema takes one; decide for one",
                )),
            }
        }
        if let Some(not) = schema.get("not")
            && self.fits(not, value, depth) == Some(true)
        {
            misfits.push(misfit(path, "the schema excludes it; change it"));
        }
        if let Some(condition) = schema.get("if") {
            let then = match self.fits(condition, value, depth) {
                Some(true) => schema.get("then"),
                Some(false) => schema.get("else"),
                None => None,
            };
            if let Some(then) = then {
                misfits.extend(self.judge(then, value, path, depth + 1));
            }
        }
    }

    /// The misfits of a value that has to fit one of several forms: those of the form that is meant, as far as one can tell.
    fn any(&mut self, forms: &'a [Value], value: &Value, path: &str, depth: usize) -> Vec<Misfit> {
        let mut meant: Option<Vec<Misfit>> = None;
        for form in forms {
            let misfits = self.judge(form, value, path, depth + 1);
            if misfits.is_empty() {
                return misfits;
            }
            let is_within = misfits.iter().all(|misfit| misfit.path.len() > path.len());
            if is_within && meant.as_ref().is_none_or(|meant| misfits.len() < meant.len()) {
                meant = Some(misfits);
            }
        }
        meant.unwrap_or_else(|| {
            vec![misfit(
                path,
                "it has none of the forms that the schema takes; correct it",
            )]
        })
    }
}

fn misfit(path: &str, problem: impl Into<String>) -> Misfit {
    Misfit {
        path: path.to_owned(),
        problem: problem.into(),
    }
}

fn unknown(declared: Option<&Map<String, Value>>) -> String {
    let known: Vec<&str> = declared.into_iter().flat_map(Map::keys).map(String::as_str).collect();
    if known.is_empty() {
        return "the plugin has no such member; remove it".to_owned();
    }
    format!(
        "the plugin has no such member; it has {}",
        pilothouse_description::first_of(known.into_iter(), MAX_KNOWN)
    )
}

/// The most members that are named where one is unknown.
const MAX_KNOWN: usize = 10;

fn schemas<'a>(schema: &'a Map<String, Value>, keyword: &str) -> Option<&'a [Value]> {
    schema.get(keyword)?.as_array().map(Vec::as_slice)
}

pub(super) fn texts(list: Option<&Value>) -> impl Iterator<Item = &str> {
    list.and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
}

fn wrong_type(schema: &Map<String, Value>, value: &Value) -> Option<String> {
    let types: Vec<&str> = match schema.get("type")? {
        Value::String(one) => vec![one],
        several => texts(Some(several)).collect(),
    };
    let is_whole = |number: &serde_json::Number| {
        number.is_i64() || number.is_u64() || number.as_f64().is_some_and(|it| it.fract() == 0.0)
    };
    let has = |name: &&str| match (*name, value) {
        ("object", Value::Object(_))
        | ("array", Value::Array(_))
        | ("string", Value::String(_))
        | ("boolean", Value::Bool(_))
        | ("number", Value::Number(_))
        | ("null", Value::Null) => true,
        ("integer", Value::Number(number)) => is_whole(number),
        // No type that JSON Schema knows: nothing can be said.
        (name, _) => !["object", "array", "string", "boolean", "number", "integer", "null"].contains(&name),
    };
    if types.is_empty() || types.iter().any(has) {
        return None;
    }
    let wanted: Vec<&str> = types
        .iter()
        .map(|name| match *name {
            "object" => "an object with members",
            "array" => "a list",
            "string" => "a string (in YAML perhaps in quotes)",
            "boolean" => "true or false",
            "number" => "a number",
            "integer" => "a whole number",
            other => other,
        })
        .collect();
    Some(format!("it is {}; give {}", type_of(value), wanted.join(" or ")))
}

fn wrong_value(schema: &Map<String, Value>, value: &Value) -> Option<String> {
    if let Some(allowed) = schema.get("enum").and_then(Value::as_array)
        && !allowed.iter().any(|one| is_equal(one, value))
    {
        let allowed: Vec<String> = allowed.iter().map(Value::to_string).collect();
        return Some(format!("it is not one of {}; give one of them", allowed.join(", ")));
    }
    if let Some(only) = schema.get("const")
        && !is_equal(only, value)
    {
        return Some(format!("it is another value than {only}; give that"));
    }
    let number = value.as_f64()?;
    let bound = |name: &str| schema.get(name).and_then(Value::as_f64);
    let (least, most) = (bound("minimum"), bound("maximum"));
    let (above, below) = (bound("exclusiveMinimum"), bound("exclusiveMaximum"));
    if let Some(least) = least.filter(|least| number < *least) {
        return Some(format!("it is less than {least}; give more"));
    }
    if let Some(most) = most.filter(|most| number > *most) {
        return Some(format!("it is more than {most}; give less"));
    }
    if let Some(above) = above.filter(|above| number <= *above) {
        return Some(format!("it is not more than {above}; give more"));
    }
    if let Some(below) = below.filter(|below| number >= *below) {
        return Some(format!("it is not less than {below}; give less"));
    }
    let step = bound("multipleOf").filter(|step| *step > 0.0)?;
    let parts = number / step;
    ((parts - parts.round()).abs() > 1e-9 * parts.abs().max(1.0))
        .then(|| format!("it is no multiple of {step}; give one"))
}

fn out_of_bounds(schema: &Map<String, Value>, [least, most]: [&str; 2], count: usize, unit: &str) -> Option<String> {
    let bound = |name: &str| schema.get(name).and_then(Value::as_u64);
    let count = count as u64;
    if let Some(least) = bound(least).filter(|least| count < *least) {
        return Some(format!("it has {count} {unit}; give at least {least}"));
    }
    let most = bound(most).filter(|most| count > *most)?;
    Some(format!("it has {count} {unit}; give at most {most}"))
}

#[cfg(test)]
mod tests;
