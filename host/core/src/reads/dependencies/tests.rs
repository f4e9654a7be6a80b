//! Tests of the readers that a change requeues: exactly those that read it, and with a memory limit never fewer.

use std::cell::Cell;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::*;
use crate::kubernetes::path::Projection;
use crate::kubernetes::selector::Selector;
use crate::reads::query::{CheckedQuery, values_at};

impl Grouped for u32 {
    type Group = Self;

    fn group(&self) -> Self {
        *self
    }
}

struct Seen {
    visible: &'static [u32],
    matched: bool,
    matches: bool,
}

impl ChangedObject<u32> for Seen {
    fn is_visible_to(&self, reader: &u32) -> bool {
        self.visible.contains(reader)
    }

    fn matched(&self, _: &CheckedQuery) -> bool {
        self.matched
    }

    fn matches(&self, _: &CheckedQuery) -> bool {
        self.matches
    }

    fn values(&self, path: &FieldPath) -> BTreeSet<String> {
        let labels = path == &FieldPath::label("a");
        labels.then(|| "b".to_owned()).into_iter().collect()
    }
}

fn kind() -> Arc<Kind> {
    Arc::new(Kind::new("", "v1", "ConfigMap"))
}

fn name(name: &str) -> Name {
    Name::new(Some("a"), name)
}

fn query(labels: &str) -> Read {
    let labels = Selector::parse(labels).unwrap();
    Read::List(
        kind(),
        Arc::new(CheckedQuery {
            labels,
            ..CheckedQuery::default()
        }),
    )
}

fn woken(dependencies: &Dependencies<u32>, object: &str, seen: &Seen) -> Vec<u32> {
    let Woken { readers, groups } = dependencies.woken(&kind(), &name(object), seen);
    assert!(groups.is_empty());
    readers
}

#[test]
fn a_change_wakes_exactly_the_readers_that_see_it() {
    let mut dependencies = Dependencies::default();
    for reader in 0..4 {
        dependencies.replace(&reader, BTreeSet::from([Read::Get(kind(), name("x"))]));
    }
    dependencies.replace(&9, BTreeSet::from([Read::Get(kind(), name("y"))]));
    let seen = Seen {
        visible: &[1, 3, 9],
        matched: false,
        matches: false,
    };
    assert_eq!(woken(&dependencies, "x", &seen), [1, 3]);
    assert_eq!(woken(&dependencies, "z", &seen), Vec::<u32>::new());
}

#[test]
fn recorded_reads_of_a_group_are_counted_incrementally() {
    let mut dependencies = Dependencies::default();
    let counted = |dependencies: &Dependencies<u32>| {
        let (reads, bytes) = dependencies.recorded(&1);
        assert_eq!(reads, dependencies.reads.get(&1).map_or(0, BTreeSet::len));
        assert_eq!(bytes == 0, reads == 0);
        reads
    };
    assert_eq!(counted(&dependencies), 0);
    let get = |object| Read::Get(kind(), name(object));
    dependencies.replace(&1, BTreeSet::from([get("x"), get("y"), query("a=b")]));
    assert_eq!(counted(&dependencies), 3);
    dependencies.add(&1, get("z"));
    dependencies.add(&1, get("z"));
    assert_eq!(counted(&dependencies), 4);
    dependencies.allow(&1, 20_000);
    dependencies.replace(&1, BTreeSet::from([get("x"), get("y"), get("z")]));
    assert_eq!(counted(&dependencies), 1, "the whole kind takes their place");
    dependencies.remove(&1);
    assert_eq!(counted(&dependencies), 0);
}

#[test]
fn entering_leaving_and_changing_within_a_query_wakes_readers() {
    let mut dependencies = Dependencies::default();
    dependencies.replace(&1, BTreeSet::from([query("a=b")]));
    let wakes = |visible, matched, matches| {
        !woken(
            &dependencies,
            "x",
            &Seen {
                visible,
                matched,
                matches,
            },
        )
        .is_empty()
    };
    assert!(wakes(&[], false, true));
    assert!(wakes(&[], true, false));
    assert!(wakes(&[1], true, true));
    assert!(!wakes(&[], true, true));
    assert!(!wakes(&[1], false, false));
}

#[test]
fn an_obstacle_wakes_at_any_change() {
    let mut dependencies = Dependencies::default();
    dependencies.replace(&1, BTreeSet::from([Read::Obstacle(kind(), name("x"))]));
    assert_eq!(
        woken(
            &dependencies,
            "x",
            &Seen {
                visible: &[],
                matched: false,
                matches: false
            }
        ),
        [1]
    );
}

#[test]
fn dependencies_are_replaced_and_leave_nothing_behind() {
    let mut dependencies = Dependencies::default();
    dependencies.replace(
        &1,
        BTreeSet::from([Read::Get(kind(), name("x")), query("a=b"), query("c")]),
    );
    dependencies.replace(&1, BTreeSet::from([Read::Get(kind(), name("y"))]));
    let seen = Seen {
        visible: &[1],
        matched: true,
        matches: true,
    };
    assert_eq!(woken(&dependencies, "x", &seen), Vec::<u32>::new());
    assert_eq!(woken(&dependencies, "y", &seen), [1]);
    dependencies.replace(&2, BTreeSet::from([Read::Get(kind(), name("y"))]));
    dependencies.remove_group(&2);
    assert_eq!(woken(&dependencies, "y", &seen), [1]);
    dependencies.remove(&1);
    assert_eq!(dependencies.readers(), 0);
    assert!(dependencies.gets.is_empty() && dependencies.lists.is_empty() && dependencies.obstacles.is_empty());
}

#[test]
fn a_change_is_held_only_against_queries_that_it_may_concern() {
    let mut dependencies = Dependencies::default();
    dependencies.replace(&1, BTreeSet::from([query("a=b")]));
    dependencies.replace(&2, BTreeSet::from([query("a=c")]));
    dependencies.replace(&3, BTreeSet::from([query("a in (b,c)")]));
    dependencies.replace(&4, BTreeSet::from([query("!x")]));
    let seen = Seen {
        visible: &[],
        matched: false,
        matches: true,
    };
    // Seen says that all match: who is left out was not asked.
    assert_eq!(woken(&dependencies, "x", &seen), [1, 3, 4]);
}

#[test]
fn an_index_is_of_use_as_long_as_somebody_asks_by_it() {
    let mut dependencies = Dependencies::default();
    dependencies.replace(&1, BTreeSet::from([query("a=b")]));
    dependencies.replace(&2, BTreeSet::from([query("a=c"), query("!x")]));
    assert_eq!(dependencies.replace(&1, BTreeSet::from([query("a=d")])), []);
    assert_eq!(dependencies.remove(&1), []);
    assert_eq!(dependencies.remove(&2), [(kind(), FieldPath::label("a"))]);
}

/// A reader of one of two lanes, which see different fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Primary {
    lane: usize,
    number: usize,
}

impl Grouped for Primary {
    type Group = usize;

    fn group(&self) -> usize {
        self.lane
    }
}

/// The fields that each lane sees, metadata apart.
const SEES: [&str; 2] = [".data.a", ".data"];

/// A change of an object as it is compared in earnest: by the bytes that a lane sees.
struct Changed {
    name: Name,
    objects: [Option<Value>; 2],
    /// The parts of the change that were requested.
    asked: Cell<Interest>,
}

impl Changed {
    fn new(name: Name, objects: [Option<Value>; 2]) -> Self {
        let asked = Cell::default();
        Self { name, objects, asked }
    }

    fn note(&self, is_read: bool, is_queried: bool) {
        let before = self.asked.get();
        self.asked.set(Interest {
            is_read: is_read || before.is_read,
            is_queried: is_queried || before.is_queried,
        });
    }

    fn found(&self, object: usize, query: &CheckedQuery) -> bool {
        self.note(false, true);
        let object = self.objects[object].as_ref();
        object.is_some_and(|object| query.matches(&self.name, object))
    }
}

impl ChangedObject<Primary> for Changed {
    fn is_visible_to(&self, lane: &usize) -> bool {
        self.note(true, false);
        let projection = Projection::new([&FieldPath::parse(SEES[*lane]).unwrap()]);
        let [old, new] = self.objects.each_ref().map(|object| {
            let raw = RawValue::from_string(object.as_ref()?.to_string()).unwrap();
            Some(projection.project(&raw, &kind()).unwrap())
        });
        old != new
    }

    fn matched(&self, query: &CheckedQuery) -> bool {
        self.found(0, query)
    }

    fn matches(&self, query: &CheckedQuery) -> bool {
        self.found(1, query)
    }

    fn values(&self, path: &FieldPath) -> BTreeSet<String> {
        self.note(false, true);
        let objects = self.objects.iter().flatten();
        objects
            .flat_map(|object| values_at(path, object).map(std::borrow::Cow::into_owned))
            .collect()
    }
}

/// Draws numbers that are the same in each run: SplitMix64.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((value ^ (value >> 31)) % end as u64).unwrap()
    }

    fn name(&mut self) -> Name {
        let namespace = ["a", "b"][self.below(2)];
        Name::new(Some(namespace), ["x", "y", "z"][self.below(3)])
    }

    fn object(&mut self, name: &Name) -> Option<Value> {
        let texts = ["1", "2"];
        let object = json!({
            "metadata": {"name": &*name.name, "labels": {"tier": texts[self.below(2)]}},
            "data": {"a": texts[self.below(2)], "b": texts[self.below(2)]},
            "hidden": self.below(3),
        });
        (self.below(5) > 0).then_some(object)
    }

    fn read(&mut self, lane: usize) -> Read {
        let value = ["1", "2"][self.below(2)].to_owned();
        match self.below(5) {
            0 | 1 => Read::Get(kind(), self.name()),
            2 => Read::Obstacle(kind(), self.name()),
            3 => query(["tier=1", "tier in (1,2)", "!tier", "tier!=2"][self.below(4)]),
            _ => {
                // A lane asks by what it sees.
                let path = [".data.a", ".data.b"][self.below(lane + 1)];
                let asked = CheckedQuery {
                    namespace: [None, Some("a".to_owned())][self.below(2)].clone(),
                    fields: vec![(FieldPath::parse(path).unwrap(), value)],
                    until: [None, Some(self.name())][self.below(2)].clone(),
                    ..CheckedQuery::default()
                };
                Read::List(kind(), Arc::new(asked))
            }
        }
    }
}

fn woken_primaries(dependencies: &Dependencies<Primary>, change: &Changed, all: &[Primary]) -> BTreeSet<Primary> {
    change.asked.take();
    let Woken { readers, groups } = dependencies.woken(&kind(), &change.name, change);
    let (asked, interest) = (change.asked.get(), dependencies.interest(&kind(), &change.name));
    assert!(interest.is_read >= asked.is_read && interest.is_queried >= asked.is_queried);
    let in_groups = all.iter().filter(|primary| groups.contains(&primary.lane));
    in_groups.copied().chain(readers).collect()
}

#[test]
fn no_budget_keeps_a_reader_asleep_that_has_to_wake() {
    let mut draw = Draw(7);
    let all: Vec<Primary> = (0..24)
        .map(|number| Primary {
            lane: number % 2,
            number,
        })
        .collect();
    let (mut coarser, mut by_group) = (0, 0);
    for round in 0..100 {
        let mut exact = Dependencies::default();
        let mut bounded = Dependencies::default();
        // From nothing at all to nearly everything.
        let most = [0, 2_000, 8_000, 30_000, 60_000][round % 5];
        for lane in 0..2 {
            bounded.allow(&lane, most);
        }
        for _ in 0..60 {
            let primary = all[draw.below(all.len())];
            let reads: BTreeSet<Read> = (0..draw.below(6)).map(|_| draw.read(primary.lane)).collect();
            exact.replace(&primary, reads.clone());
            bounded.replace(&primary, reads);
            if draw.below(4) == 0 {
                let read = Read::Obstacle(kind(), draw.name());
                exact.add(&primary, read.clone());
                bounded.add(&primary, read);
            }
            for lane in 0..2 {
                assert!(bounded.budgets.get(&lane).is_none_or(|budget| budget.used <= most));
            }
        }
        for _ in 0..40 {
            let name = draw.name();
            let objects = [draw.object(&name), draw.object(&name)];
            let change = Changed::new(name, objects);
            let must = woken_primaries(&exact, &change, &all);
            let are = woken_primaries(&bounded, &change, &all);
            assert!(are.is_superset(&must), "{most}: {must:?} {are:?} {:?}", change.objects);
            coarser += usize::from(are.len() > must.len());
            by_group += usize::from(!bounded.everybody.is_empty());
        }
        for lane in 0..2 {
            bounded.remove_group(&lane);
        }
        assert!(bounded.budgets.is_empty() && bounded.reads.is_empty());
        assert!(bounded.everybody.is_empty() && bounded.everybodys_obstacles.is_empty());
        assert!(bounded.gets.is_empty() && bounded.some.is_empty() && bounded.lists.is_empty());
    }
    assert!(coarser > 300 && by_group > 300, "{coarser} {by_group}");
}

#[test]
fn one_large_reader_leaves_the_others_exact() {
    let mut dependencies = Dependencies::default();
    dependencies.allow(&0, 1_000_000);
    let many = |count: usize| -> BTreeSet<Read> {
        (0..count)
            .map(|index| Read::Get(kind(), name(&format!("o{index}"))))
            .collect()
    };
    let primary = |number| Primary { lane: 0, number };
    dependencies.replace(&primary(0), many(1000));
    assert_eq!(dependencies.reads[&primary(0)], BTreeSet::from([Read::Some(kind())]));
    dependencies.replace(&primary(1), many(20));
    assert_eq!(dependencies.reads[&primary(1)].len(), 20);
    dependencies.replace(&primary(0), many(3));
    assert_eq!(dependencies.reads[&primary(0)].len(), 3, "exact again");
    for number in 2..200 {
        dependencies.replace(&primary(number), many(20));
    }
    let change = Changed::new(name("o1"), [None, Some(json!({"metadata": {"name": "o1"}}))]);
    let all: Vec<Primary> = (0..200).map(primary).collect();
    assert_eq!(woken_primaries(&dependencies, &change, &all).len(), 200);
    assert!(dependencies.budgets[&0].used <= 1_000_000);
    for number in 2..200 {
        dependencies.remove(&primary(number));
    }
    dependencies.replace(&primary(2), many(20));
    assert_eq!(dependencies.reads[&primary(2)].len(), 20);
}
