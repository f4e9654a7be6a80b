//! Orders the objects of an answer that come `after` others: applied after them, and deleted before them.
//!
//! An object waits until those that it comes after are Current ([`crate::status::kstatus`]) with its creation, and with each change of
//! what is desired of it: a workload of a new version comes after its migration, too. What was applied before is set back whatever
//! state the others are in, because it is no step forward: a predecessor that a drained node makes unready for a minute does not
//! leave somebody else's edit in place.

use std::collections::HashMap;

use serde_json::Value;

use crate::answer::desired::DesiredObject;
use crate::diff::{Action, rank};
use crate::kubernetes::key::{Key, Kind, Name};
use crate::ownership::{owner_name, parse_owner_name};

/// The items in an order in which each comes after its predecessors, and as given otherwise. The error has the items of a
/// circle, each after the next one.
pub fn sorted(predecessors: &[Vec<usize>]) -> Result<Vec<usize>, Vec<usize>> {
    #[derive(Clone, Copy)]
    enum Mark {
        New,
        Open,
        Done,
    }
    let mut marks = vec![Mark::New; predecessors.len()];
    let mut order = Vec::with_capacity(predecessors.len());
    for first in 0..predecessors.len() {
        // The items that are open, each with the number of its predecessors that were visited.
        let mut path = match marks[first] {
            Mark::New => vec![(first, 0)],
            Mark::Open | Mark::Done => continue,
        };
        while let Some((item, visited)) = path.last_mut() {
            let item = *item;
            marks[item] = Mark::Open;
            let Some(&next) = predecessors[item].get(*visited) else {
                marks[item] = Mark::Done;
                order.push(item);
                path.pop();
                continue;
            };
            *visited += 1;
            match marks[next] {
                Mark::New => path.push((next, 0)),
                Mark::Open => {
                    let circle = path.iter().map(|(item, _)| *item);
                    return Err(circle.skip_while(|item| *item != next).collect());
                }
                Mark::Done => {}
            }
        }
    }
    Ok(order)
}

/// The objects in the order in which they are applied. What others come after has been checked to have no circle.
pub fn in_order(mut objects: Vec<DesiredObject>) -> Vec<DesiredObject> {
    objects.sort_by_key(|desired| rank(desired.kind()));
    if objects.iter().all(|desired| desired.after.is_empty()) {
        return objects;
    }
    let names = objects.iter().map(|desired| identity(desired.kind(), &desired.name));
    let places: HashMap<Identity<'_>, usize> = names.zip(0..).collect();
    let place = |key: &Key| places.get(&identity(&key.kind, &key.name)).copied();
    let predecessors = objects
        .iter()
        .map(|desired| desired.after.iter().filter_map(place).collect());
    let predecessors: Vec<Vec<usize>> = predecessors.collect();
    let Ok(order) = sorted(&predecessors) else {
        return objects;
    };
    let mut objects: Vec<Option<DesiredObject>> = objects.into_iter().map(Some).collect();
    order.into_iter().filter_map(|place| objects[place].take()).collect()
}

/// Reports whether an action has to wait for what the object comes after: it makes the object, or changes what is desired of
/// it. `applied` is the digest of what was applied before.
pub fn waits(action: &Action, applied: Option<&str>, digest: &str) -> bool {
    match action {
        Action::Create | Action::AdoptUnowned => true,
        Action::Apply(_) | Action::Adopt(_) => applied != Some(digest),
        Action::Nothing
        | Action::Foreign
        | Action::CompetingPlugin(_)
        | Action::Rebind
        | Action::Wait
        | Action::Inherited => false,
    }
}

/// Of objects that come after others, given with these, the ones to delete before `first` can be deleted: those that come after it,
/// also by way of others, and that nothing comes after.
pub fn last_after<'a>(first: &Key, objects: &'a [(Key, Vec<Key>)]) -> Vec<&'a Key> {
    let mut found: Vec<&Key> = Vec::new();
    let mut open = vec![first];
    while let Some(key) = open.pop() {
        let after = objects
            .iter()
            .filter(|(_, after)| after.contains(key))
            .map(|(later, _)| later);
        let new: Vec<&Key> = after.filter(|later| !found.contains(later)).collect();
        found.extend(&new);
        open.extend(new);
    }
    let is_last = |key: &Key| !objects.iter().any(|(_, after)| after.contains(key));
    found.into_iter().filter(|key| is_last(key)).collect()
}

/// The value of the annotation with the objects that an object comes after. Once it is no longer desired, only the cache
/// remembers them.
pub(crate) fn annotation(after: &[Key]) -> String {
    let mut names: Vec<String> = after.iter().map(|key| owner_name(&key.kind, &key.name)).collect();
    names.sort_unstable();
    Value::from(names).to_string()
}

/// The group and the kind of an object, whatever its version, and its name.
type Identity<'a> = (&'a str, &'a str, Name);

fn identity<'a>(kind: &'a Kind, name: &Name) -> Identity<'a> {
    (&kind.group, &kind.kind, name.clone())
}

/// An object that is to go.
#[derive(Clone, Copy, Debug)]
pub struct ToGo<'a> {
    /// Its kind.
    pub kind: &'a Kind,
    /// Its name.
    pub name: &'a Name,
    /// The annotation with the objects that it comes after.
    pub after: Option<&'a str>,
    /// Set if it is being deleted already.
    pub is_going: bool,
}

/// For each of several objects that are to go, the one that has to be gone before it; none for those to delete now.
///
/// Objects that different answers applied may be in a circle. Then nothing would ever go, and the order does not count.
pub fn first_to_go(objects: &[ToGo<'_>]) -> Vec<Option<usize>> {
    let mut first = vec![None; objects.len()];
    let annotated = objects.iter().filter_map(|object| object.after);
    if annotated.count() == 0 {
        return first;
    }
    let names = objects.iter().map(|object| identity(object.kind, object.name));
    let places: HashMap<Identity<'_>, usize> = names.zip(0..).collect();
    for (place, object) in objects.iter().enumerate() {
        // Another client may have written anything.
        let after: Vec<String> = object
            .after
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default();
        let after = after.iter().filter_map(|name| parse_owner_name(name));
        for predecessor in after.filter_map(|name| places.get(&name)).filter(|it| **it != place) {
            first[*predecessor].get_or_insert(place);
        }
    }
    let moves = first
        .iter()
        .zip(objects)
        .any(|(first, object)| first.is_none() || object.is_going);
    if moves { first } else { vec![None; objects.len()] }
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;
    use crate::diff::Difference;
    use crate::kubernetes::served::{KindFacts, ServedKind};
    use crate::plugin::contract::Lifecycle;

    #[test]
    fn each_comes_after_its_predecessors_and_stays_in_place_else() {
        assert_eq!(sorted(&[vec![], vec![], vec![]]), Ok(vec![0, 1, 2]));
        assert_eq!(sorted(&[vec![2], vec![], vec![1]]), Ok(vec![1, 2, 0]));
        assert_eq!(sorted(&[vec![], vec![0, 2], vec![0]]), Ok(vec![0, 2, 1]));
        let chain: Vec<Vec<usize>> = (0..100_000)
            .map(|item| (item + 1..(item + 2).min(100_000)).collect())
            .collect();
        assert_eq!(
            sorted(&chain).unwrap().first(),
            Some(&99_999),
            "the stack does not grow with it"
        );
    }

    #[test]
    fn a_circle_is_returned_without_what_leads_to_it() {
        assert_eq!(sorted(&[vec![0]]), Err(vec![0]));
        assert_eq!(sorted(&[vec![1], vec![2], vec![3], vec![1]]), Err(vec![1, 2, 3]));
    }

    #[test]
    fn a_step_forward_waits_and_a_step_back_does_not() {
        let drift = Action::Apply(Difference::Drift(vec![".data".to_owned()]));
        assert!(waits(&Action::Create, None, "a") && waits(&Action::AdoptUnowned, None, "a"));
        assert!(waits(&Action::Apply(Difference::Desired), Some("b"), "a"));
        assert!(waits(&Action::Apply(Difference::Yield(Vec::new())), Some("b"), "a"));
        assert!(!waits(&drift, Some("a"), "a"));
        assert!(
            !waits(&Action::Apply(Difference::Desired), Some("a"), "a"),
            "our entry was taken"
        );
        for action in [Action::Nothing, Action::Rebind, Action::Foreign, Action::Wait] {
            assert!(!waits(&action, Some("b"), "a"), "{action:?}");
        }
    }

    fn key(name: &str) -> Key {
        Key::new(Kind::new("apps", "v1", "Deployment").into(), Name::new(Some("a"), name))
    }

    #[test]
    fn objects_are_applied_after_those_that_they_come_after() {
        let object = |kind: &Kind, name: &str, after: &[Key]| DesiredObject {
            served: ServedKind {
                kind: kind.clone().into(),
                plural: String::new(),
                short_names: Vec::new(),
                facts: KindFacts {
                    namespaced: true,
                    has_status: false,
                },
            },
            name: Name::new(Some("a"), name),
            body: Map::new(),
            lifecycle: Lifecycle::default(),
            yields: Vec::new(),
            after: after.to_vec(),
            once: None,
        };
        let (deployment, namespace) = (Kind::new("apps", "v2", "Deployment"), Kind::new("", "v1", "Namespace"));
        let objects = vec![
            object(&deployment, "web", &[key("db"), key("gone")]),
            object(&deployment, "log", &[]),
            object(&deployment, "db", &[]),
            object(&namespace, "space", &[key("log")]),
        ];
        let names = |objects: Vec<DesiredObject>| -> Vec<String> {
            objects.iter().map(|object| object.name.name.to_string()).collect()
        };
        assert_eq!(names(in_order(objects)), ["log", "space", "db", "web"]);
        let free = vec![object(&deployment, "web", &[]), object(&namespace, "space", &[])];
        assert_eq!(names(in_order(free)), ["space", "web"]);
    }

    /// For each of these objects, the one that goes before it. An object is its name, whether it is going, and its annotation.
    fn first(objects: &[(&str, bool, &str)]) -> Vec<Option<usize>> {
        let names: Vec<Name> = objects.iter().map(|(name, ..)| Name::new(Some("a"), name)).collect();
        let kind = Kind::new("apps", "v1", "Deployment");
        let objects = objects.iter().zip(&names).map(|((_, is_going, after), name)| ToGo {
            kind: &kind,
            name,
            after: Some(*after).filter(|after| !after.is_empty()),
            is_going: *is_going,
        });
        first_to_go(&objects.collect::<Vec<_>>())
    }

    #[test]
    fn what_comes_after_others_goes_first() {
        let [of_db, of_web] = ["db", "web"].map(|name| annotation(&[key(name), key("elsewhere")]));
        assert_eq!(of_db, r#"["apps/Deployment/a/db","apps/Deployment/a/elsewhere"]"#);
        for is_going in [false, true] {
            let objects = [("db", false, ""), ("web", false, &*of_db), ("log", is_going, &*of_web)];
            assert_eq!(first(&objects), [Some(1), Some(2), None]);
        }
        for foreign in ["{", "[1]", r#"["x"]"#, r#"["apps/Deployment/a/web"]"#] {
            assert_eq!(
                first(&[("db", false, ""), ("web", false, foreign)]),
                [None, None],
                "{foreign}"
            );
        }
    }

    #[test]
    fn what_comes_after_an_object_is_deleted_from_its_end() {
        let objects = [
            ("web", vec!["db"]),
            ("done", vec!["web", "log"]),
            ("log", vec![]),
            ("other", vec!["log"]),
        ];
        let objects = objects.map(|(name, after)| (key(name), after.into_iter().map(key).collect::<Vec<Key>>()));
        let last = |name: &str| -> Vec<String> {
            let first = key(name);
            last_after(&first, &objects)
                .iter()
                .map(|key| key.name.name.to_string())
                .collect()
        };
        assert_eq!(last("db"), ["done"]);
        assert_eq!(last("log"), ["done", "other"]);
        assert!(last("done").is_empty() && last("unknown").is_empty());
        assert_eq!(last_after(&key("db"), &objects[..1]), [&key("web")]);
    }

    #[test]
    fn old_objects_in_a_circle_go_all_the_same() {
        let [of_db, of_web] = ["db", "web"].map(|name| annotation(&[key(name)]));
        let (db, web) = (("db", false, &*of_web), ("web", false, &*of_db));
        assert_eq!(first(&[db, web]), [None, None]);
        assert_eq!(
            first(&[("db", true, &*of_web), web]),
            [Some(1), Some(0)],
            "one of them goes"
        );
        assert_eq!(
            first(&[db, web, ("log", false, "")]),
            [Some(1), Some(0), None],
            "the third goes first"
        );
    }
}
