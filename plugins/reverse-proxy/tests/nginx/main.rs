//! Tests of the plugin's configurations against nginx: no accepted resource can add a directive (for which a parser of
//! nginx's own syntax is enough), and, in `oracle`, checks with a real nginx.

mod bad;
mod conf;
mod generate;
mod oracle;
mod plugin;
mod program;

use serde_json::json;

use crate::generate::Random;

/// Count of resources that are tried for each kind.
const TRIES: u64 = 3000;

#[test]
fn no_accepted_resource_adds_or_removes_a_directive() {
    let mut accepted = 0;
    for seed in 0..TRIES {
        let mut random = Random::new(seed);
        for object in [generate::hostile_http(&mut random), generate::hostile_tcp(&mut random)] {
            let Ok(text) = plugin::configuration(&object) else {
                continue;
            };
            accepted += 1;
            let tree = conf::parse(&text).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{text}"));
            let expected = plugin::expected(&object);
            assert!(
                tree == expected,
                "seed {seed}: {object:#}\n{text}\n{:#?}\nis not\n{:#?}",
                conf::Shown(&tree),
                conf::Shown(&expected)
            );
        }
    }
    assert!(
        accepted > TRIES / 10,
        "only {accepted} were accepted, which says little"
    );
}

#[test]
fn admission_and_reconcile_accept_the_same_resources() {
    for seed in 0..TRIES / 10 {
        let mut random = Random::new(seed);
        for object in [generate::hostile_http(&mut random), generate::hostile_tcp(&mut random)] {
            let stored = plugin::validate(&object).map(drop);
            let reconciled = plugin::configuration(&object).map(drop);
            assert_eq!(
                stored.is_ok(),
                reconciled.is_ok(),
                "seed {seed}: {object:#}: {stored:?}, {reconciled:?}"
            );
        }
    }
}

#[test]
fn bad_resources_are_refused_by_the_name_of_the_field() {
    let all = bad::all();
    assert!(all.len() >= 60, "there are {}", all.len());
    for bad in &all {
        let errors = plugin::validate(&bad.object()).expect_err(&format!("{} {:?}", bad.path, bad.value));
        let said = errors
            .iter()
            .any(|error| error.path == bad.error_path() && error.message.contains(bad.words));
        assert!(
            said,
            "{} {:?} is to be refused with {:?}: {errors:?}",
            bad.path, bad.value, bad.words
        );
    }
}

#[test]
fn the_output_does_not_depend_on_the_order_of_members() {
    let one = json!({"x-b": "2", "x-a": "1", "X-C": "3"});
    let other = json!({"X-C": "3", "x-a": "1", "x-b": "2"});
    let text = |headers| {
        let spec = json!({"proxyPass": "http://a.test", "proxySetHeader": headers, "proxyHideHeader": ["b", "A"]});
        plugin::configuration(&plugin::http(spec)).unwrap()
    };
    assert_eq!(text(one), text(other));
}
