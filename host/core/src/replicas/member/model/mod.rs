//! Tries orders of events, and checks in each state that no namespace has two writers, and that each has one soon after
//! the last disturbance.
//!
//! A search goes layer by layer through all events that are possible in each state. States that are equal are merged,
//! and of each layer a sample of limited size is kept, so a state stands for all orders of events that lead to it.

mod world;

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::rc::Rc;

use self::world::{Budget, Event, NAMESPACES, World};
use super::Guard;

/// Layers of a search, and states that are kept of each.
const DEPTH: usize = 60;
const WIDTH: usize = 160;

/// Ticks after the last disturbance within which each namespace has a writer: a Lease that ends, a write that is
/// settled meanwhile, and the rounds in which replicas adopt a plan, agree and take what is free.
const SOON: usize = 14;

/// The events that have led to a state, last first.
struct Trace(Event, Option<Rc<Self>>);

/// A state, and the number of orders of events that lead to it.
struct State {
    world: World,
    orders: u128,
    trace: Option<Rc<Trace>>,
}

/// The result of a search.
#[derive(Debug, Default)]
struct Searched {
    /// Events that were tried.
    tried: usize,
    /// Orders of events that were covered.
    orders: u128,
    /// The rule that was broken first, with the events that led there.
    fault: Option<String>,
}

fn describe(fault: &str, trace: Option<&Rc<Trace>>) -> String {
    let events = std::iter::successors(trace, |trace| trace.1.as_ref());
    let mut events: Vec<String> = events.map(|trace| format!("{:?}", trace.0)).collect();
    events.reverse();
    format!("{fault}: {}", events.join(", "))
}

/// A quick hasher: that of the standard library takes most of the time of a search without optimisation.
#[derive(Default)]
struct Fingerprint(u64);

impl Hasher for Fingerprint {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 29)
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, number: u8) {
        self.write_u64(number.into());
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }
}

fn fingerprint(of: &impl Hash) -> u64 {
    let mut hasher = Fingerprint::default();
    of.hash(&mut hasher);
    hasher.finish()
}

/// Searches from a state.
fn search(start: &World, depth: usize, width: usize) -> Searched {
    let mut searched = Searched::default();
    let mut layer = vec![State {
        world: start.clone(),
        orders: 1,
        trace: None,
    }];
    for _ in 0..depth {
        let mut next: HashMap<u64, State> = HashMap::new();
        for State { world, orders, trace } in &layer {
            for event in world.events() {
                searched.tried += 1;
                let mut world = world.clone();
                world.apply(event);
                let trace = Some(Rc::new(Trace(event, trace.clone())));
                if let Some(fault) = world.fault() {
                    searched.fault = Some(describe(&fault, trace.as_ref()));
                    return searched;
                }
                let key = fingerprint(&world);
                let orders = *orders;
                let state = next.entry(key).or_insert(State {
                    world,
                    orders: 0,
                    trace,
                });
                state.orders = state.orders.saturating_add(orders);
            }
        }
        let mut kept: Vec<(u64, State)> = next.into_iter().collect();
        // The fingerprints are as good as random.
        kept.sort_unstable_by_key(|(key, _)| *key);
        kept.truncate(width);
        layer = kept.into_iter().map(|(_, state)| state).collect();
        let orders = layer.iter().map(|state| state.orders).sum::<u128>();
        searched.orders = searched.orders.max(orders);
    }
    for State { world, trace, .. } in layer.iter().step_by(5) {
        if let Some(fault) = idle(world.clone()) {
            searched.fault = Some(describe(&fault, trace.as_ref()));
            return searched;
        }
    }
    searched
}

/// Lets the replicas run without disturbances, and returns the fault if a namespace has no writer in the end.
fn idle(mut world: World) -> Option<String> {
    world.calm();
    let end = world.now + world::TICK * u32::try_from(SOON).unwrap();
    while world.now < end {
        let events = world.events();
        let event = events.iter().find(|event| !matches!(event, Event::Tick)).copied();
        world.apply(event.unwrap_or(Event::Tick));
        if let Some(fault) = world.fault() {
            return Some(format!("when all was calm, {fault}"));
        }
    }
    let lacks = |namespace: &usize| world.writers(*namespace).is_empty();
    let lacks = (0..NAMESPACES.len()).find(lacks).filter(|_| world.has_replica());
    lacks.map(|namespace| format!("nobody writes in namespace {}, {world:#?}", NAMESPACES[namespace]))
}

/// Replicas that share the work.
fn sharing(replicas: usize, running: usize) -> World {
    let mut world = World::new(replicas);
    (0..running).for_each(|replica| world.join(replica));
    for _ in 0..400 {
        let events = world.events();
        let event = events.iter().find(|event| !matches!(event, Event::Tick)).copied();
        world.apply(event.unwrap_or(Event::Tick));
        assert_eq!(world.fault(), None);
    }
    for namespace in 0..NAMESPACES.len() {
        assert_eq!(world.writers(namespace).len(), 1, "{world:#?}");
    }
    world
}

/// Lets one replica finish its round.
fn settle(world: &mut World, replica: usize) {
    let is_its = |event: &Event| matches!(event, Event::Act(of) | Event::Serve(of) if *of == replica);
    while let Some(event) = world.events().into_iter().find(is_its) {
        world.apply(event);
    }
}

fn with(mut world: World, budget: Budget) -> World {
    world.budget = budget;
    world
}

/// Searches where disturbances of these kinds may happen, with all guards.
fn holds(world: World, budget: Budget) -> Searched {
    let begun = std::time::Instant::now();
    let searched = search(&with(world, budget), DEPTH, WIDTH);
    let Searched { tried, orders, .. } = &searched;
    println!("tried {tried} events in {orders} orders in {:?}", begun.elapsed());
    assert_eq!(searched.fault, None, "{budget:?}");
    searched
}

/// Searches with all guards, and without one.
fn needs(guard: impl Fn(&mut World), world: World, budget: Budget) {
    holds(world.clone(), budget);
    let mut without = world;
    guard(&mut without);
    let searched = search(&with(without, budget), DEPTH, WIDTH);
    let fault = searched.fault.expect("without the guard a rule is broken");
    println!("without the guard, after {} events: {fault}", searched.tried);
}

fn without(guard: Guard) -> impl Fn(&mut World) {
    move |world| world.leave_out(guard)
}

#[test]
fn no_namespace_has_two_writers_and_each_has_one_soon() {
    let quiet = Budget::default();
    let stops = Budget {
        stops: 1,
        kills: 1,
        stalls: 2,
        losses: 1,
        cuts: 1,
        jobs: 1,
        ..quiet
    };
    let plans = Budget {
        cuts: 1,
        divisions: 1,
        plan_deletions: 1,
        plan_edits: 1,
        stalls: 2,
        jobs: 1,
        breaks: 1,
        ..quiet
    };
    let hands = Budget {
        lease_deletions: 1,
        lease_edits: 1,
        cuts: 1,
        stalls: 1,
        jobs: 1,
        ..quiet
    };
    let moves = Budget {
        joins: 1,
        leaves: 1,
        kills: 1,
        losses: 1,
        jobs: 2,
        breaks: 1,
        cuts: 1,
        stalls: 1,
        ..quiet
    };
    let searches = [
        (2, 2, stops),
        (2, 2, plans),
        (2, 2, hands),
        (3, 2, moves),
        (3, 1, moves),
    ];
    let tried: usize = std::thread::scope(|scope| {
        let search = |(replicas, running, budget)| scope.spawn(move || holds(sharing(replicas, running), budget));
        let searches: Vec<_> = searches.into_iter().map(search).collect();
        searches.into_iter().map(|search| search.join().unwrap().tried).sum()
    });
    assert!(tried >= 100_000, "{tried} events were tried");
}

#[test]
fn a_leader_that_has_not_looked_gives_one_version_two_plans() {
    let mut world = sharing(3, 2);
    // The leader has ended before the other one looks, and a third one comes.
    world.budget = Budget {
        leaves: 1,
        stops: 1,
        ..Budget::default()
    };
    world.apply(Event::Stop(1));
    world.apply(Event::Leave(0));
    settle(&mut world, 0);
    let budget = Budget {
        joins: 1,
        plan_deletions: 1,
        ..Budget::default()
    };
    needs(without(Guard::Looked), world, budget);
}

#[test]
fn a_plan_that_is_not_announced_is_not_worked_by() {
    let mut world = sharing(2, 1);
    // Another one comes, and does not get the plan in its first round, so its Lease says that it has no work.
    world.join(1);
    for event in [Event::Act(1), Event::Serve(1), Event::Act(1)] {
        world.apply(event);
    }
    world.lose(1);
    settle(&mut world, 1);
    settle(&mut world, 0);
    world.apply(Event::Tick);
    settle(&mut world, 0);
    // Its Lease changes before the next announcement.
    let budget = Budget {
        lease_deletions: 1,
        cuts: 1,
        stalls: 1,
        ..Budget::default()
    };
    needs(without(Guard::Announced), world, budget);
}

#[test]
fn a_plan_waits_for_replicas_that_work_by_another() {
    let budget = Budget {
        cuts: 1,
        stalls: 1,
        ..Budget::default()
    };
    needs(without(Guard::Agreed), sharing(2, 2), budget);
}

#[test]
fn a_plan_waits_for_leases_that_were_left_to_end() {
    let budget = Budget {
        leaves: 1,
        jobs: 1,
        breaks: 1,
        cuts: 1,
        ..Budget::default()
    };
    needs(without(Guard::NoneLeft), sharing(2, 2), budget);
}

#[test]
fn a_plan_waits_for_writes_that_may_take_effect() {
    let budget = Budget {
        jobs: 1,
        breaks: 1,
        cuts: 1,
        ..Budget::default()
    };
    needs(without(Guard::Settled), sharing(2, 2), budget);
}

#[test]
fn a_lease_is_kept_while_a_write_may_take_effect() {
    let budget = Budget {
        leaves: 1,
        jobs: 1,
        breaks: 1,
        ..Budget::default()
    };
    needs(without(Guard::Released), sharing(2, 2), budget);
}

#[test]
fn a_replica_that_was_stopped_is_kept_out_by_the_fence() {
    let mut world = sharing(2, 2);
    world.budget = Budget {
        stops: 1,
        jobs: 1,
        ..Budget::default()
    };
    // It is stopped before its reconcile writes, until the other one has all shards.
    let is_start = |event: &Event| matches!(event, Event::Start(1, _));
    let start = world.events().into_iter().find(is_start).unwrap();
    world.apply(start);
    world.apply(Event::Stop(1));
    while (0..NAMESPACES.len()).any(|namespace| world.writers(namespace) != [0]) {
        settle(&mut world, 0);
        world.apply(Event::Tick);
    }
    let budget = Budget {
        stalls: 1,
        ..Budget::default()
    };
    needs(World::leave_out_fence, world, budget);
}
