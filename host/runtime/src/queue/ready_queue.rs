//! Orders the ready objects of one lane: urgent classes first, none of them starved, and within a class the tenant
//! first that has used the least time. Every step costs O(log n) for n ready objects.
//!
//! Classes age by count: a class with a ready object that was passed over [`PASSED_OVER`] times is next. Tenants are
//! served by start-time fair queueing as in `share`: a tenant's tag is the time that its runs have taken, and a tenant
//! that becomes active again starts at the level of the one served last. So neither ten thousand objects nor the
//! longest permitted calls delay another tenant's object by more than a few runs.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use pilothouse_core::{Name, Tenant};

use super::Priority;

/// The priorities in order of urgency.
const PRIORITIES: [Priority; CLASSES] = [
    Priority::Change,
    Priority::New,
    Priority::Wake,
    Priority::Resync,
    Priority::Retry,
];

const CLASSES: usize = 5;

/// Number of times that a class with a ready object is passed over before it is next.
pub const PASSED_OVER: u32 = 8;

/// Minimum cost of a run, so that tenants whose runs take no measurable time still take turns.
const LEAST_COST: Duration = Duration::from_millis(1);

/// Weight of the past in the usual time of a tenant's run: 7 parts in 8.
const SMOOTHING: u32 = 8;

/// Number of a flow, in order of creation.
type FlowId = u64;

/// Place of an object among the ready ones; needed to remove it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadyPlace(u64);

/// Ready objects of a lane.
#[derive(Debug, Default)]
pub struct ReadyQueue {
    ready: BTreeMap<(FlowId, Priority, u64), Name>,
    numbers: HashMap<Tenant, FlowId>,
    flows: HashMap<FlowId, Flow>,
    /// Flows with ready objects, by class, ordered by tag.
    turns: [BTreeSet<(Duration, FlowId)>; CLASSES],
    passed_over: [u32; CLASSES],
    /// Flows with nothing ready or running that are ahead of the level: their used time is kept until the others have
    /// caught up.
    resting: BTreeSet<(Duration, FlowId)>,
    /// The tag of the flow that was served last.
    level: Duration,
    running: usize,
    next_flow: FlowId,
    next_place: u64,
}

/// Work of one tenant in the lane.
#[derive(Debug)]
struct Flow {
    tenant: Tenant,
    /// Number of its ready objects, by class.
    ready: [usize; CLASSES],
    running: u32,
    used: Duration,
    /// Usual time of a run (moving average).
    usual: Duration,
    /// Its key in `turns` or `resting`.
    tag: Duration,
}

impl Flow {
    /// Used time, including an estimate for running jobs.
    fn claim(&self) -> Duration {
        let running = self.usual.max(LEAST_COST).saturating_mul(self.running);
        self.used.saturating_add(running)
    }

    fn is_at_rest(&self) -> bool {
        self.running == 0 && self.ready.iter().all(|ready| *ready == 0)
    }
}

impl ReadyQueue {
    /// Returns `true` if any object is ready.
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Number of ready objects.
    pub fn len(&self) -> usize {
        self.ready.len()
    }

    /// Inserts an object that became ready.
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

    /// Removes an object that is no longer ready.
    pub fn remove(&mut self, name: &Name, priority: Priority, ReadyPlace(place): ReadyPlace) {
        let Some(id) = self.numbers.get(&Tenant::of(name)).copied() else {
            return;
        };
        if self.ready.remove(&(id, priority, place)).is_some() {
            self.left(id, priority);
        }
    }

    /// Takes the next object of a tenant that is not held back. The caller calls [`ReadyQueue::begin`] if it runs.
    pub fn take(&mut self, is_held_back: impl Fn(&Tenant) -> bool) -> Option<(Name, Priority)> {
        let (id, priority) = self.next(is_held_back)?;
        let first = (id, priority, 0)..=(id, priority, u64::MAX);
        let key = self.ready.range(first).next().map(|(key, _)| *key);
        let name = key.and_then(|key| self.ready.remove(&key));
        self.left(id, priority);
        name.map(|name| (name, priority))
    }

    /// Starts the run of an object that was taken.
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

    /// Ends a run.
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

    /// Parks a run that waits for others; the wait is not its tenant's time.
    pub fn park(&mut self, name: &Name) {
        let id = self.flow_of(name);
        self.running = self.running.saturating_sub(1);
        let flow = self.flows.get_mut(&id).expect("it was just found");
        flow.running = flow.running.saturating_sub(1);
        self.retag(id);
    }

    /// Resumes a parked run.
    pub fn unpark(&mut self, name: &Name) {
        let id = self.flow_of(name);
        self.running += 1;
        self.flows.get_mut(&id).expect("it was just found").running += 1;
        self.retag(id);
    }

    /// Finds the next flow and class.
    fn next(&self, is_held_back: impl Fn(&Tenant) -> bool) -> Option<(FlowId, Priority)> {
        let mut order = PRIORITIES;
        // The sort is stable: classes that were passed over too often come first, the others stay in order of urgency.
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

    /// Returns the flow of an object's tenant. A new one starts at the current level.
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

    /// Updates a flow's keys after its ready objects or its used time have changed.
    fn retag(&mut self, id: FlowId) {
        let Self {
            flows, turns, resting, ..
        } = self;
        let flow = flows.get_mut(&id).expect("flows stay until they are at rest");
        for turns in turns.iter_mut() {
            turns.remove(&(flow.tag, id));
        }
        if resting.remove(&(flow.tag, id)) && !flow.is_at_rest() {
            // It had nothing to do: idleness earns no credit.
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
        // With nothing ready or running, no tenant has waited for another.
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

    /// Number of tenants that are remembered.
    #[cfg(test)]
    pub fn tenants(&self) -> usize {
        self.flows.len()
    }
}
