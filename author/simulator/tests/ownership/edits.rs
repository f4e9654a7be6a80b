//! Edits of another client at each place of a value: set, empty, remove, replace, add, reverse, null.

use serde_json::{Map, Value};

/// One step into a value.
#[derive(Clone, Debug)]
enum Step {
    Member(String),
    Item(usize),
}

#[derive(Clone, Debug)]
enum Act {
    Remove,
    Put(Value),
    /// Adds what the other value has beyond this one.
    Add(Value),
    TurnRound,
}

/// One edit of a value.
#[derive(Clone, Debug)]
pub struct Edit {
    pub name: String,
    path: Vec<Step>,
    act: Act,
}

/// Every edit at every place.
pub fn edits(value: &Value, other: &Value) -> Vec<Edit> {
    let mut edits = Vec::new();
    walk(value, Some(other), &mut Vec::new(), &mut edits);
    edits
}

fn walk(value: &Value, other: Option<&Value>, path: &mut Vec<Step>, edits: &mut Vec<Edit>) {
    let mut add = |name: &str, act: Act| {
        let name = format!("{name} {}", shown(path));
        edits.push(Edit {
            name,
            path: path.clone(),
            act,
        });
    };
    if !path.is_empty() {
        add("remove", Act::Remove);
    }
    add("null", Act::Put(Value::Null));
    match value {
        Value::Object(_) => add("empty", Act::Put(Value::Object(Map::new()))),
        Value::Array(_) => add("empty", Act::Put(Value::Array(Vec::new()))),
        _ => {}
    }
    if let Some(other) = other.filter(|other| *other != value) {
        add("replace", Act::Put(other.clone()));
        if value.is_object() || value.is_array() {
            add("add", Act::Add(other.clone()));
        }
    }
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                path.push(Step::Member(name.clone()));
                walk(member, other.and_then(|other| other.get(name)), path, edits);
                path.pop();
            }
        }
        Value::Array(items) => {
            if items.len() > 1 {
                add("turn round", Act::TurnRound);
            }
            for (index, item) in items.iter().enumerate() {
                path.push(Step::Item(index));
                walk(item, other.and_then(|other| other.get(index)), path, edits);
                path.pop();
            }
        }
        _ => {}
    }
}

fn shown(path: &[Step]) -> String {
    path.iter().fold("it".to_owned(), |text, step| match step {
        Step::Member(name) => format!("{text}.{name}"),
        Step::Item(index) => format!("{text}[{index}]"),
    })
}

impl Edit {
    /// The edited value; none where the place is not there.
    pub fn of(&self, value: &Value) -> Option<Value> {
        let mut edited = value.clone();
        let (last, way) = match self.path.split_last() {
            Some((last, way)) => (Some(last), way),
            None => (None, [].as_slice()),
        };
        let mut place = &mut edited;
        for step in way {
            place = match step {
                Step::Member(name) => place.get_mut(name)?,
                Step::Item(index) => place.get_mut(*index)?,
            };
        }
        if let Act::Remove = self.act {
            match last? {
                Step::Member(name) => drop(place.as_object_mut()?.remove(name)?),
                Step::Item(index) => drop(place.as_array_mut()?.remove(*index)),
            }
            return Some(edited);
        }
        let place = match last {
            Some(Step::Member(name)) => place.get_mut(name)?,
            Some(Step::Item(index)) => place.get_mut(*index)?,
            None => place,
        };
        match &self.act {
            Act::Put(value) => *place = value.clone(),
            Act::Add(other) => add(place, other),
            Act::TurnRound => place.as_array_mut()?.reverse(),
            Act::Remove => {}
        }
        Some(edited)
    }
}

/// Members that are not there yet are put there; items stand before those that are there.
fn add(place: &mut Value, other: &Value) {
    match (place, other) {
        (Value::Object(members), Value::Object(others)) => {
            for (name, other) in others {
                members.entry(name.clone()).or_insert_with(|| other.clone());
            }
        }
        (Value::Array(items), Value::Array(others)) => {
            let key = |item: &Value| ["name", "port", "protocol", "zone", "tier"].map(|name| item.get(name).cloned());
            let is_new = |other: &&Value| {
                items
                    .iter()
                    .all(|item| item != *other && (!other.is_object() || key(item) != key(other)))
            };
            let new: Vec<Value> = others.iter().filter(is_new).cloned().collect();
            items.splice(0..0, new);
        }
        _ => {}
    }
}
