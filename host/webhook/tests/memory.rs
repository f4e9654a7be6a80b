//! Memory during a flood: many idle connections, and any number of the largest bodies at once. In a program of its own,
//! because the allocator counts the memory of all tests of a program.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod common;

use std::alloc::System;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cap::Cap;
use common::{Wire, head, serve};
use pilothouse_webhook::connections::ConnectionTimeouts;
use pilothouse_webhook::handler::{MAX_BODY_BYTES, WebhookHandler, WebhookRequest, WebhookResponse};

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// Maximum of all samples of the memory in use.
static MOST: AtomicUsize = AtomicUsize::new(0);

/// Memory limit of the flood, its clients included.
const LIMIT: usize = 64 * 1024 * 1024;

const IDLE: usize = 300;
const BODIES: usize = 64;

/// The bytes that a client sends at once.
const PIECE: usize = 64 * 1024;

fn look() {
    MOST.fetch_max(ALLOCATOR.allocated(), Ordering::Relaxed);
}

struct Measured;

impl WebhookHandler for Measured {
    async fn answer(&self, question: WebhookRequest) -> WebhookResponse {
        look();
        WebhookResponse::json(question.body.len().to_string())
    }
}

#[test]
fn idle_connections_and_maximal_bodies_take_less_than_64_mib() {
    let served = serve(Arc::new(Measured), ConnectionTimeouts::default());
    served.is_served();
    let (before, config, address) = (ALLOCATOR.allocated(), served.config(), served.server.address());
    MOST.store(0, Ordering::Relaxed);
    let idle: Vec<Wire> = (0..IDLE).map(|_| Wire::open(address, &config).unwrap()).collect();
    let codes: Vec<u16> = std::thread::scope(|scope| {
        let bodies: Vec<_> = (0..BODIES)
            .map(|_| {
                scope.spawn(|| {
                    let mut wire = Wire::open(address, &config).ok()?;
                    wire.send(head("/x?timeout=30s", MAX_BODY_BYTES).as_bytes()).ok()?;
                    let piece = vec![b' '; PIECE];
                    for _ in 0..MAX_BODY_BYTES / PIECE {
                        look();
                        wire.send(&piece).ok()?;
                    }
                    Some(wire.answer().0)
                })
            })
            .collect();
        // Admission goes on meanwhile.
        while bodies.iter().any(|body| !body.is_finished()) {
            served.is_served();
            look();
        }
        let codes = bodies.into_iter().map(|body| body.join().unwrap().unwrap_or_default());
        codes.collect()
    });
    drop(idle);
    let taken = MOST.load(Ordering::Relaxed).saturating_sub(before);
    let answered = codes.iter().filter(|code| **code == 200).count();
    println!("{} KiB at most, {answered} of {BODIES} bodies answered", taken / 1024);
    assert!(taken < LIMIT, "the flood takes {} MiB", taken / 1024 / 1024);
    assert!(answered > 0, "{codes:?}");
}
