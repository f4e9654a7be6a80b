//! Divides namespaces and assigns shards: evenly, the same everywhere, and moving little.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::plugin::manifest::Controller;

fn tenants(count: usize) -> NamespaceLoads {
    let mut loads = NamespaceLoads::default();
    for number in 0..count {
        loads.add(&format!("tenant-{number:02}"), 20);
    }
    loads
}

fn most_and_total(plan: &ShardPlan) -> (u64, u64) {
    let loads = plan.shards.iter().map(|shard| shard.load);
    (loads.clone().max().unwrap(), loads.sum())
}

/// The load of each replica.
fn used<'a>(assignment: &Assignment<'a>, shards: &[LiveShard<'_>]) -> BTreeMap<&'a str, u64> {
    let mut used = BTreeMap::new();
    for (replica, shard) in assignment.iter().zip(shards) {
        *used.entry(replica.unwrap()).or_default() += shard.load;
    }
    used
}

#[test]
fn hashes_are_those_of_the_api_server() {
    assert_eq!(hash_of(""), 0xcbf2_9ce4_8422_2325);
    assert_eq!(hash_of("a"), 0xaf63_dc4c_8601_ec8c);
    assert_eq!(hash_of("foobar"), 0x8594_4171_f739_67e8);
}

#[test]
fn a_selector_names_each_range_without_its_end() {
    assert_eq!(HashRanges::all().selector(), None);
    let upper = HashRange::new(1 << 63, u64::MAX).unwrap();
    let one = HashRange::new(0x10, 0x1f).unwrap();
    let ranges: HashRanges = [upper, one].into_iter().collect();
    assert_eq!(
        ranges.selector().unwrap(),
        "shardRange(object.metadata.namespace, '0x0000000000000010', '0x0000000000000020') || \
         shardRange(object.metadata.namespace, '0x8000000000000000', '0x10000000000000000')"
    );
    assert_eq!(
        ranges.to_string(),
        "0x0000000000000010..0x0000000000000020, 0x8000000000000000..0x10000000000000000"
    );
    for (hash, is_in) in [
        (0xf, false),
        (0x10, true),
        (0x1f, true),
        (0x20, false),
        (u64::MAX, true),
    ] {
        assert_eq!(ranges.contains(hash), is_in, "{hash:x}");
    }
    let gap = HashRange::new(0x20, (1 << 63) - 1).unwrap();
    let below = HashRange::new(0, 0xf).unwrap();
    let all = ranges.union(&[gap, below].into_iter().collect());
    assert_eq!(all, HashRanges::all());
}

#[test]
fn ranges_are_sets() {
    let set = |ranges: &[(u64, u64)]| -> HashRanges {
        ranges
            .iter()
            .filter_map(|(first, last)| HashRange::new(*first, *last))
            .collect()
    };
    let one = set(&[(0, 9), (20, 29), (40, u64::MAX)]);
    assert_eq!(
        one.intersection(&set(&[(5, 24), (29, 40)])),
        set(&[(5, 9), (20, 24), (29, 29), (40, 40)])
    );
    assert_eq!(one.intersection(&HashRanges::default()), HashRanges::default());
    let rest = set(&[(10, 19), (30, 39)]);
    assert_eq!(HashRanges::all().without(&one), rest);
    assert_eq!(HashRanges::all().without(&rest), one);
    assert_eq!(
        one.without(&set(&[(0, 4), (25, 50)])),
        set(&[(5, 9), (20, 24), (51, u64::MAX)])
    );
    assert_eq!(one.without(&HashRanges::default()), one);
    for empty in [
        one.without(&one),
        one.without(&HashRanges::all()),
        HashRanges::default().without(&one),
    ] {
        assert!(empty.is_empty(), "{empty}");
    }
    for (other, covered) in [
        (set(&[(0, 9)]), true),
        (set(&[(21, 22), (40, 41)]), true),
        (set(&[]), true),
    ] {
        assert_eq!((one.covers(&other), one.union(&other) == one), (covered, covered));
    }
    for other in [set(&[(5, 10)]), set(&[(10, 19)]), set(&[(0, u64::MAX)])] {
        assert!(!one.covers(&other) && one.union(&other).covers(&other) && one.union(&other).covers(&one));
    }
    assert!(HashRanges::all().covers(&one) && HashRanges::of_namespace("a").has("a"));
    assert!(!HashRanges::of_namespace("a").has("b"));
}

#[test]
fn names_that_differ_little_are_divided_evenly() {
    let hashes: BTreeSet<u64> = (0..100)
        .map(|number| hash_of(&format!("tenant-{number:02}")) >> 58)
        .collect();
    assert!(hashes.len() < 4, "equal ranges would do: {hashes:?}");
    for shards in [1, 2, 3, 4, 7, 16, 64] {
        let plan = first_plan(1, shards, &tenants(100));
        plan.check().unwrap();
        let (most, total) = most_and_total(&plan);
        assert_eq!((plan.shards.len(), total), (shards, 2000));
        assert!(
            most <= 20 * 100_u64.div_ceil(shards as u64),
            "{shards} shards, the largest with {most}"
        );
    }
}

#[test]
fn any_load_gives_a_plan_with_every_namespace_in_one_shard() {
    for (namespaces, shards) in [(0, 1), (0, 5), (1, 4), (3, 128), (100, 128), (500, 3)] {
        let mut loads = NamespaceLoads::default();
        for number in 0..namespaces {
            loads.add(&format!("team-{number}"), number * number % 97);
        }
        let plan = first_plan(9, shards, &loads);
        assert_eq!((plan.version, plan.shards.len()), (9, shards));
        plan.check().unwrap();
        assert_eq!(ShardPlan::parse(&plan.print()).unwrap(), plan);
    }
    // A namespace that has nearly everything cannot be divided.
    let mut loads = tenants(10);
    loads.add("large", 100_000);
    let plan = first_plan(1, 4, &loads);
    let (most, _) = most_and_total(&plan);
    assert!(most <= 100_000 + 20, "{most}");
}

#[test]
fn a_plan_is_replaced_only_if_that_helps() {
    let empty = first_plan(1, 4, &NamespaceLoads::default());
    let better = better_plan(&empty, &tenants(100)).unwrap();
    assert_eq!((better.version, most_and_total(&better)), (2, (500, 2000)));
    assert_eq!(better_plan(&better, &tenants(100)), None);
    // A fifth more objects somewhere move nothing.
    let mut more = tenants(100);
    more.add("tenant-07", 400);
    assert_eq!(better_plan(&better, &more), None);
    let mut one = NamespaceLoads::default();
    one.add("large", 1000);
    assert_eq!(better_plan(&empty, &one), None, "one namespace cannot be divided");
}

#[test]
fn what_is_no_plan_is_refused_with_the_cause() {
    let shard = |from: &str, to: &str| format!(r#"{{"ranges":[{{"from":"{from}","to":"{to}"}}],"load":0}}"#);
    let (low, high) = (
        shard("0x0000000000000000", "0x8000000000000000"),
        shard("0x8000000000000000", "0x10000000000000000"),
    );
    let plan = |shards: &[&str]| ShardPlan::parse(&format!(r#"{{"version":1,"shards":[{}]}}"#, shards.join(",")));
    plan(&[&low, &high]).unwrap();
    plan(&[&high, &low]).unwrap();
    let problem = |shards: &[&str]| plan(shards).unwrap_err().to_string();
    assert_eq!(problem(&[]), "it has 0 shards; a plan has 1 to 128");
    assert_eq!(
        problem(&[&low]),
        "the hash 0x8000000000000000 is in 0 shards; each has to be in one"
    );
    assert_eq!(
        problem(&[&high]),
        "the hash 0x0000000000000000 is in 0 shards; each has to be in one"
    );
    assert_eq!(
        problem(&[&low, &high, &low]),
        "the hash 0x0000000000000000 is in 2 shards; each has to be in one"
    );
    for (from, to) in [
        ("8", "9"),
        ("0x8", "0x8"),
        ("0x9", "0x8"),
        ("0x0", "0x10000000000000001"),
        ("0x0", "0x1ffffffffffffffffffffffffffffffffffffffff"),
        ("-0x1", "0x+8"),
    ] {
        let problem = problem(&[&shard(from, to)]);
        assert!(
            problem.contains("is no range of 64-bit hexadecimal hashes"),
            "{problem}"
        );
    }
    assert!(problem(&["{}"]).contains("missing field"));
    for version in [0, u64::MAX] {
        let plan = format!(r#"{{"version":{version},"shards":[]}}"#);
        let problem = ShardPlan::parse(&plan).unwrap_err().to_string();
        let expected = format!("its version is {version}; versions are 1 to 9223372036854775807");
        assert_eq!(problem, expected);
    }
    assert!(
        ShardPlan::parse("")
            .unwrap_err()
            .to_string()
            .starts_with("it is no plan of shards")
    );
}

fn live(loads: &[u64]) -> Vec<LiveShard<'static>> {
    loads
        .iter()
        .map(|load| LiveShard {
            load: *load,
            holder: None,
        })
        .collect()
}

/// The shards as they are after each went where it was to go.
fn moved<'a>(shards: &[LiveShard<'_>], assignment: &Assignment<'a>) -> Vec<LiveShard<'a>> {
    let loads = shards.iter().map(|shard| shard.load);
    let moved = loads
        .zip(assignment)
        .map(|(load, holder)| LiveShard { load, holder: *holder });
    moved.collect()
}

#[test]
fn shards_are_divided_by_load_with_the_same_result_everywhere() {
    let shards = live(&[100, 900, 0, 400, 500, 100]);
    let assignment = assign(&["a", "b"], &shards);
    assert_eq!(assignment, assign(&["b", "a"], &shards));
    let used = used(&assignment, &shards);
    assert_eq!((used["a"], used["b"]), (1000, 1000));
    assert_eq!(assign(&[], &shards), vec![None; 6]);
    // Shards without objects are divided, too.
    let empty = live(&[0; 8]);
    let assignment = assign(&["a", "b", "c", "d"], &empty);
    for replica in ["a", "b", "c", "d"] {
        assert_eq!(assignment.iter().filter(|it| **it == Some(replica)).count(), 2);
    }
}

#[test]
fn any_number_that_somebody_writes_is_reckoned_with() {
    let shards = live(&[u64::MAX, u64::MAX, 1, u64::MAX]);
    let assignment = assign(&["a", "b"], &shards);
    let of_a = assignment.iter().filter(|holder| **holder == Some("a")).count();
    assert_eq!((of_a, assignment.len()), (2, 4), "{assignment:?}");
    assert!(is_uneven(&[u64::MAX, 0, 0, 0]) && !is_uneven(&[u64::MAX; 4]) && !is_uneven(&[]));
}

#[test]
fn replicas_that_come_and_go_move_few_shards() {
    let shards = live(&[250; 8]);
    let alone = moved(&shards, &assign(&["a"], &shards));
    let two = assign(&["a", "b"], &alone);
    let stayed = |before: &[LiveShard<'_>], after: &Assignment<'_>| {
        before
            .iter()
            .zip(after)
            .filter(|(before, after)| before.holder == **after)
            .count()
    };
    assert_eq!((stayed(&alone, &two), used(&two, &shards)["b"]), (4, 1000));
    let two = moved(&shards, &two);
    let four = assign(&["a", "b", "c", "d"], &two);
    assert_eq!((stayed(&two, &four), used(&four, &shards)["d"]), (4, 500));
    let four = moved(&shards, &four);
    assert_eq!(
        stayed(&four, &assign(&["a", "b", "c", "d"], &four)),
        8,
        "nothing moves without a cause"
    );
    let three = assign(&["a", "b", "d"], &four);
    assert_eq!(stayed(&four, &three), 6, "what others hold stays with them");
    // A shard that is most of the work does not wander.
    let uneven = live(&[1000, 1, 1, 1]);
    let first = moved(&uneven, &assign(&["a", "b"], &uneven));
    assert_eq!(stayed(&first, &assign(&["a", "b"], &first)), 4);
}

#[test]
fn no_replica_holds_more_than_twice_the_mean() {
    for replicas in 1..=6_u64 {
        let plan = first_plan(1, 24, &tenants(100));
        let shards: Vec<u64> = plan.shards.iter().map(|shard| shard.load).collect();
        let names: Vec<String> = (0..replicas).map(|number| format!("replica-{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let shards = live(&shards);
        let used = used(&assign(&names, &shards), &shards);
        let most = used.values().max().unwrap();
        assert!(most * replicas <= 2 * 2000, "{replicas} replicas: {used:?}");
    }
}

#[test]
fn work_belongs_to_its_namespace_or_to_the_leader() {
    let ranges: HashRanges = HashRange::new(hash_of("a"), hash_of("a")).into_iter().collect();
    let divisions = Divisions::from([
        ("p/divided".to_owned(), Division::Namespaces),
        ("p/whole".to_owned(), Division::Leader),
    ]);
    let part = |leads| OwnedWork::Part {
        ranges: ranges.clone(),
        leads,
        divisions: Arc::new(divisions.clone()),
    };
    for (controller, namespace, by_anyone, by_leader) in [
        ("p/divided", Some("a"), true, true),
        ("p/divided", Some("b"), false, false),
        ("p/divided", None, false, true),
        ("p/whole", Some("a"), false, true),
        ("p/whole", None, false, true),
        ("p/new", Some("a"), false, false),
    ] {
        assert_eq!(
            part(false).of(controller).has(namespace),
            by_anyone,
            "{controller}, {namespace:?}"
        );
        assert_eq!(
            part(true).of(controller).has(namespace),
            by_leader,
            "{controller}, {namespace:?}, leading"
        );
        assert!(OwnedWork::All.of(controller).has(namespace));
        assert!(!OwnedWork::none().of(controller).has(namespace));
    }
}

#[test]
fn only_controllers_that_write_in_own_namespace_are_divided() {
    let kind = |kind: &str| json!({"group": "", "version": "v1", "kind": kind});
    let controller = |touches: serde_json::Value| -> Controller {
        let controller = json!({"name": "c", "kind": kind("ConfigMap"), "fields": [], "touches": touches});
        serde_json::from_value(controller).unwrap()
    };
    for (scope, access, division) in [
        ("Namespace", json!(["owned", "read"]), Division::Namespaces),
        ("Any", json!(["read"]), Division::Namespaces),
        ("Any", json!(["owned"]), Division::Leader),
        ("Namespace", json!(["contributed"]), Division::Leader),
    ] {
        let touch = json!([{"kind": kind("Secret"), "scope": scope, "access": access}]);
        assert_eq!(Division::of(&controller(touch).touches), division, "{scope} {access}");
    }
}

#[test]
fn plan_gets_current_loads_where_they_even_out_the_shares() {
    let plan = first_plan(7, 4, &tenants(20));
    let holders = [Some("a"), Some("a"), Some("b"), Some("b")];
    let live = |loads: [u64; 4]| {
        let shards = loads.into_iter().zip(holders);
        shards
            .map(|(load, holder)| LiveShard { load, holder })
            .collect::<Vec<_>>()
    };
    let with = |loads| with_loads(&plan, &["a", "b"], &live(loads));
    assert_eq!(with([100, 100, 100, 100]), None);
    assert_eq!(with([120, 120, 100, 100]), None, "it is not worth it");
    assert_eq!(with([100, 1000, 100, 100]), None, "nothing that moves would help much");
    let next = with([400, 400, 100, 100]).unwrap();
    assert_eq!(next.version, 8);
    let loads: Vec<u64> = next.shards.iter().map(|shard| shard.load).collect();
    assert_eq!(loads, [400, 400, 100, 100]);
    let ranges = |plan: &ShardPlan| plan.shards.iter().map(|shard| shard.ranges.clone()).collect::<Vec<_>>();
    assert_eq!(ranges(&next), ranges(&plan));
    assert_eq!(
        with_loads(&next, &["a", "b"], &live([400, 400, 100, 100])),
        None,
        "once is enough"
    );
    assert_eq!(with_loads(&plan, &["a", "b"], &live([400; 4])[..3]), None);
    assert_eq!(with_loads(&plan, &[], &live([u64::MAX; 4])), None);
}
