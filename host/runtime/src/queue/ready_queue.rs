//! Owns the order of what is ready in one lane: urgent classes first, none of them passed over for ever, and within a
//! class the tenant first that has used the least time. Every step costs O(log n) for n objects that are ready.
//!
//! Between classes it is ageing by count: one that has something ready and was passed over [`PASSED_OVER`] times is next.
//! Between tenants it is start-time fair queueing as in `share`: a tenant's tag is the time that its runs have taken, and
//! a tenant that had nothing to do begins level with the one that was served last. So neither ten thousand objects nor
//! calls that take all the time that they may delay another tenant's object by more than a few runs.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use pilothouse_core::{Name, Tenant};

use super::Priority;

/// The priorities in their order.
const PRIORITIES: [Priority; CLASSES] = [
    Priority::Change,
    Priority::New,
    Priority::Wake,
    Priority::Resync,
    Priority::Retry,
];

const CLASSES: usize = 5;

/// How often a class that has something ready is passed over before it is next.
pub const PASSED_OVER: u32 = 8;

/// What a run counts at least, so that tenants whose runs take no time that a clock shows still take turns.
const LEAST_COST: Duration = Duration::from_millis(1);

/// How much of the usual time of a tenant's run is of the past: 7 parts in 8.
const SMOOTHING: u32 = 8;

/// The number of a flow; the older has the smaller one.
type FlowId = u64;

/// The place of an object among those that are ready; given when it gets ready, and needed to take it out again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadyPlace(u64);

/// What is ready in a lane.
#[derive(Debug, Default)]
pub struct ReadyQueue {
    ready: BTreeMap<(FlowId, Priority, u64), Name>,
    numbers: HashMap<Tenant, FlowId>,
    flows: HashMap<FlowId, Flow>,
    /// For each class, the flows that have something ready in it, by their tags.
    turns: [BTreeSet<(Duration, FlowId)>; CLASSES],
    passed_over: [u32; CLASSES],
    /// Flows with nothing ready and nothing running that are ahead of the level: what they have used is not forgotten
    /// before the others have caught up.
    resting: BTreeSet<(Duration, FlowId)>,
    /// The tag of the flow that was served last.
    level: Duration,
    running: usize,
    next_flow: FlowId,
    next_place: u64,
}

/// What one tenant has in the lane.
#[derive(Debug)]
struct Flow {
    tenant: Tenant,
    /// How many of its objects are ready, by class.
    ready: [usize; CLASSES],
    running: u32,
    used: Duration,
    /// How long a run of it usually takes.
    usual: Duration,
    /// As it stands in `turns` or `resting`.
    tag: Duration,
}

impl Flow {
    /// What it has used, what runs included.
    fn claim(&self) -> Duration {
        let running = self.usual.max(LEAST_COST).saturating_mul(self.running);
        self.used.saturating_add(running)
    }

    fn is_at_rest(&self) -> bool {
        self.running == 0 && self.ready.iter().all(|ready| *ready == 0)
    }
}

impl ReadyQueue {
    /// Whether anything is ready.
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// How many objects are ready.
    pub fn len(&self) -> usize {
        self.ready.len()
    }

    /// An object gets ready.
    pub fn push(&mut self, name: &Name, priority: Priority) -> ReadyPlace {
        let place = self.next_place;
        self.next_place += 1;
        let id = self.flow_of(name);
        self.ready.insert((id, priority, place), name.clone());
        let flow = self.flows.get_mut(&id).expect("it was just found");
        flow.ready[priority as usize] += 1;
        self.retag(id);
        ReadyPlace(place)
    }

    /// An object is not ready any more.
    pub fn remove(&mut self, name: &Name, priority: Priority, ReadyPlace(place): ReadyPlace) {
        let Some(id) = self.numbers.get(&Tenant::of(name)).copied() else {
            return;
        };
        if self.ready.remove(&(id, priority, place)).is_some() {
            self.left(id, priority);
        }
    }

    /// The next object of a tenant that is not held back, taken out; whether it begins is the caller's to say.
    pub fn take(&mut self, is_held_back: impl Fn(&Tenant) -> bool) -> Option<(Name, Priority)> {
        let (id, priority) = self.next(is_held_back)?;
        let first = (id, priority, 0)..=(id, priority, u64::MAX);
        let key = self.ready.range(first).next().map(|(key, _)| *key);
        let name = key.and_then(|key| self.ready.remove(&key));
        self.left(id, priority);
        name.map(|name| (name, priority))
    }

    /// An object that was taken out begins to run.
    pub fn begin(&mut self, name: &Name, priority: Priority) {
        for (class, turns) in self.turns.iter().enumerate() {
            let passed_over = &mut self.passed_over[class];
            if class == priority as usize || turns.is_empty() {
                *passed_over = 0;
            } else {
                *passed_over = passed_over.saturating_add(1);
            }
        }
        let id = self.flow_of(name);
        self.running += 1;
        let flow = self.flows.get_mut(&id).expect("it was just found");
        self.level = self.level.max(flow.claim());
        flow.running += 1;
        self.retag(id);
        self.forget_idle_flows();
    }

    /// A run is over.
    pub fn end(&mut self, name: &Name, took: Duration) {
        let id = self.flow_of(name);
        self.running = self.running.saturating_sub(1);
        let flow = self.flows.get_mut(&id).expect("it was just found");
        let took = took.max(LEAST_COST);
        flow.running = flow.running.saturating_sub(1);
        flow.used = flow.used.saturating_add(took);
        flow.usual = if flow.usual.is_zero() {
            took
        } else {
            (flow.usual * (SMOOTHING - 1) + took) / SMOOTHING
        };
        self.retag(id);
    }

    /// A run waits for what others do, which is not its tenant's time.
    pub fn park(&mut self, name: &Name) {
        let id = self.flow_of(name);
        self.running = self.running.saturating_sub(1);
        let flow = self.flows.get_mut(&id).expect("it was just found");
        flow.running = flow.running.saturating_sub(1);
        self.retag(id);
    }

    /// A run that waited goes on.
    pub fn unpark(&mut self, name: &Name) {
        let id = self.flow_of(name);
        self.running += 1;
        self.flows.get_mut(&id).expect("it was just found").running += 1;
        self.retag(id);
    }

    /// The flow and the class that are next.
    fn next(&self, is_held_back: impl Fn(&Tenant) -> bool) -> Option<(FlowId, Priority)> {
        let mut order = PRIORITIES;
        // The sort is stable: the more urgent first, and before all of them what was passed over for too long.
        order.sort_by_key(|priority| {
            let passed_over = self.passed_over[*priority as usize];
            std::cmp::Reverse(if passed_over >= PASSED_OVER { passed_over } else { 0 })
        });
        let may_run = |(_, id): &&(Duration, FlowId)| !is_held_back(&self.flows[id].tenant);
        order.into_iter().find_map(|priority| {
            let turn = self.turns[priority as usize].iter().find(may_run);
            turn.map(|(_, id)| (*id, priority))
        })
    }

    /// The flow of an object's tenant. One that is new begins level with the others.
    fn flow_of(&mut self, name: &Name) -> FlowId {
        let tenant = Tenant::of(name);
        if let Some(id) = self.numbers.get(&tenant) {
            return *id;
        }
        let id = self.next_flow;
        self.next_flow += 1;
        self.numbers.insert(tenant.clone(), id);
        let flow = Flow {
            tenant,
            ready: [0; CLASSES],
            running: 0,
            used: self.level,
            usual: Duration::ZERO,
            tag: self.level,
        };
        self.flows.insert(id, flow);
        id
    }

    fn left(&mut self, id: FlowId, priority: Priority) {
        let class = priority as usize;
        if let Some(flow) = self.flows.get_mut(&id) {
            flow.ready[class] -= 1;
            self.retag(id);
        }
        if self.turns[class].is_empty() {
            self.passed_over[class] = 0;
        }
    }

    /// Puts a flow where it belongs, after what it has or what it has used changed.
    fn retag(&mut self, id: FlowId) {
        let Self {
            flows, turns, resting, ..
        } = self;
        let flow = flows.get_mut(&id).expect("flows stay until they are at rest");
        for turns in turns.iter_mut() {
            turns.remove(&(flow.tag, id));
        }
        if resting.remove(&(flow.tag, id)) && !flow.is_at_rest() {
            // It had nothing to do: what it did not use meanwhile is no credit.
            flow.used = flow.used.max(self.level);
        }
        flow.tag = flow.claim();
        for (class, turns) in turns.iter_mut().enumerate() {
            if flow.ready[class] > 0 {
                turns.insert((flow.tag, id));
            }
        }
        if flow.is_at_rest() {
            resting.insert((flow.tag, id));
            self.forget_idle_flows();
        }
    }

    fn forget_idle_flows(&mut self) {
        // Where nobody has anything to do, nobody has waited for anybody.
        let is_idle = self.running == 0 && self.ready.is_empty();
        while let Some((tag, id)) = self.resting.first().copied() {
            if tag > self.level && !is_idle {
                return;
            }
            self.resting.remove(&(tag, id));
            if let Some(flow) = self.flows.remove(&id) {
                self.numbers.remove(&flow.tenant);
            }
        }
        if self.flows.is_empty() {
            self.level = Duration::ZERO;
        }
    }

    /// How many tenants are remembered.
    #[cfg(test)]
    pub fn tenants(&self) -> usize {
        self.flows.len()
    }
}
