//! Bounds the memory of calls and of answers that are carried out: each is limited by its plugin's limits, and their
//! sum by this. A waiting call or answer holds nothing that others wait for; an answer that can never fit is the
//! plugin's failure.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use pilothouse_cluster::apart::apart;
use pilothouse_core::plugin::contract::Outcome;
use pilothouse_core::status::reason::Reason;
use pilothouse_core::text::parsed_size::parsed_size;
use pilothouse_core::{Failure, Limits};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

const MEBIBYTE: usize = 1024 * 1024;

/// Memory of guests, and of the data between them and the host, in bytes. Five calls with the default limits fit, and
/// two with the largest.
const CALLS_BYTES: usize = 256 * MEBIBYTE;

/// Memory of parsed answers that are being carried out, of all plugins and of one, in bytes.
const ANSWERS_BYTES: usize = 128 * MEBIBYTE;
const ANSWERS_OF_A_PLUGIN_BYTES: usize = 96 * MEBIBYTE;

/// Memory of small answers, of all plugins and of one, in bytes: they never wait behind large ones.
const SMALL_ANSWERS_BYTES: usize = 32 * MEBIBYTE;
const SMALL_ANSWERS_OF_A_PLUGIN_BYTES: usize = 16 * MEBIBYTE;

/// Size in bytes from which an answer is large.
const SMALL_BYTES: usize = MEBIBYTE;

/// Copies of one object that exist while it is applied: the request, its text, the response, and its fields.
const COPIES: usize = 4;

/// Size in bytes from which an answer leaves free memory that is worth returning.
const LARGE_BYTES: usize = 4 * MEBIBYTE;

/// Memory limits of calls and answers.
#[derive(Debug)]
pub struct Room {
    calls: Arc<Semaphore>,
    answers: Answers,
    small_answers: Answers,
}

/// Memory of large answers, or of small ones.
#[derive(Debug)]
struct Answers {
    all: Arc<Semaphore>,
    bytes_of_a_plugin: usize,
    /// Share of each plugin that uses some.
    plugins: Mutex<HashMap<Arc<str>, Arc<Semaphore>>>,
}

impl Answers {
    fn new(bytes: usize, bytes_of_a_plugin: usize) -> Self {
        Self {
            all: Arc::new(Semaphore::new(bytes)),
            bytes_of_a_plugin,
            plugins: Mutex::default(),
        }
    }

    fn of(&self, plugin: &Arc<str>) -> Arc<Semaphore> {
        let mut plugins = self.plugins.lock();
        if !plugins.contains_key(plugin) {
            // Waiting and running answers hold a copy.
            plugins.retain(|_, room| Arc::strong_count(room) > 1);
        }
        let new = || Arc::new(Semaphore::new(self.bytes_of_a_plugin));
        plugins.entry(plugin.clone()).or_insert_with(new).clone()
    }
}

/// Memory of a call, released on drop.
#[derive(Debug)]
pub struct CallRoom {
    /// Memory of the answer as text.
    text: OwnedSemaphorePermit,
    _guest: Option<OwnedSemaphorePermit>,
}

impl CallRoom {
    /// Releases the guest's memory after the call.
    pub fn ended(self) -> Self {
        Self {
            text: self.text,
            _guest: None,
        }
    }

    /// Releases the memory beyond the answer's size in bytes.
    fn answered(&mut self, bytes: usize) {
        let rest = self.text.num_permits().saturating_sub(bytes);
        drop(self.text.split(rest));
    }
}

/// Memory of an answer, released on drop.
#[derive(Debug)]
pub struct AnswerRoom {
    bytes: usize,
    /// Permits of the plugin, and of all.
    held: Option<[OwnedSemaphorePermit; 2]>,
}

impl Drop for AnswerRoom {
    fn drop(&mut self) {
        let held = self.held.take();
        if self.bytes < LARGE_BYTES {
            return;
        }
        // Memory that the allocator keeps would add to that of the next answers.
        if let Ok(handle) = Handle::try_current() {
            drop(handle.spawn_blocking(move || {
                pilothouse_sandbox::return_free_memory();
                drop(held);
            }));
        }
    }
}

impl Default for Room {
    fn default() -> Self {
        Self {
            calls: Arc::new(Semaphore::new(CALLS_BYTES)),
            answers: Answers::new(ANSWERS_BYTES, ANSWERS_OF_A_PLUGIN_BYTES),
            small_answers: Answers::new(SMALL_ANSWERS_BYTES, SMALL_ANSWERS_OF_A_PLUGIN_BYTES),
        }
    }
}

impl Room {
    /// Waits for the memory of a call with these limits. The largest permitted limits fit.
    pub async fn for_call(&self, limits: &Limits) -> CallRoom {
        let Limits {
            memory_bytes,
            transfer_bytes,
            read_bytes,
            ..
        } = *limits;
        // Data that the guest reads is passed on before it answers.
        let text = usize::try_from(transfer_bytes.max(read_bytes)).unwrap_or(CALLS_BYTES);
        // The call itself rejects limits beyond their ranges.
        let text = text.min(CALLS_BYTES);
        let guest = usize::try_from(memory_bytes).unwrap_or(CALLS_BYTES);
        let guest = guest.min(CALLS_BYTES.saturating_sub(text));
        let mut text_and_guest = take(&self.calls, text + guest).await;
        CallRoom {
            _guest: text_and_guest.split(guest),
            text: text_and_guest,
        }
    }

    /// Waits for the memory of a plugin's answer, and holds that of its text until then. `waits` is called before a
    /// wait.
    pub async fn for_answer(
        &self,
        plugin: &Arc<str>,
        answer: &Outcome,
        mut call: CallRoom,
        waits: impl FnOnce(),
    ) -> Result<AnswerRoom, Failure> {
        let AnswerSize { text, parsed: bytes } = answer_size(answer);
        if bytes > ANSWERS_OF_A_PLUGIN_BYTES {
            return Err(Failure::guest(
                Reason::GuestLimit,
                format!(
                    "the answer takes {bytes} bytes when it is parsed, and the answers of a plugin may take \
                     {ANSWERS_OF_A_PLUGIN_BYTES} together; return fewer objects, or fewer and larger parts in them"
                ),
            ));
        }
        call.answered(text);
        let answers = if bytes < SMALL_BYTES {
            &self.small_answers
        } else {
            &self.answers
        };
        let of_plugin = answers.of(plugin);
        if of_plugin.available_permits() < bytes || answers.all.available_permits() < bytes {
            waits();
        }
        let of_plugin = take(&of_plugin, bytes).await;
        let of_all = take(&answers.all, bytes).await;
        drop(call);
        Ok(AnswerRoom {
            bytes,
            held: Some([of_plugin, of_all]),
        })
    }
}

async fn take(room: &Arc<Semaphore>, bytes: usize) -> OwnedSemaphorePermit {
    let permits = u32::try_from(bytes).expect("the room has less than 4 GiB");
    let taken = room.clone().acquire_many_owned(permits).await;
    taken.expect("the semaphore is never closed")
}

/// Memory of an answer, in bytes.
struct AnswerSize {
    /// Size as text.
    text: usize,
    /// Size until it is carried out, including the text.
    parsed: usize,
}

fn answer_size(answer: &Outcome) -> AnswerSize {
    let Outcome { desired, status, .. } = answer;
    let texts = desired.iter().flat_map(|desired| [&desired.object, &desired.options]);
    let texts = texts.chain(status);
    let bytes: usize = texts.clone().map(String::len).sum();
    apart(bytes, || {
        let (sum, largest) = texts.fold((0, 0), |(sum, largest), text| {
            let size = parsed_size(text.as_bytes());
            (sum + size, size.max(largest))
        });
        AnswerSize {
            text: bytes,
            parsed: bytes + sum + COPIES * largest,
        }
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pilothouse_core::plugin::contract::{Desired, Lifecycle, Ownership};
    use tokio::time::timeout;

    use super::*;

    const SOON: Duration = Duration::from_millis(20);

    fn answer(object: String) -> Outcome {
        let desired = Desired {
            object,
            ownership: Ownership::Owned,
            lifecycle: Lifecycle::default(),
            options: "{}".to_owned(),
        };
        Outcome {
            desired: vec![desired],
            ..Outcome::default()
        }
    }

    /// An answer that takes so many MiB, a fifth of it by its largest object.
    fn text(mebibytes: usize) -> Outcome {
        answer(format!(
            r#"{{"data":"{}"}}"#,
            "x".repeat(mebibytes * MEBIBYTE / (2 + COPIES))
        ))
    }

    #[test]
    fn the_largest_limits_fit() {
        let limits = Limits {
            memory_bytes: 64 * 1024 * 1024,
            transfer_bytes: 32 * 1024 * 1024,
            read_bytes: 32 * 1024 * 1024,
            output_bytes: 16 * 1024 * 1024,
            ..Limits::default()
        };
        assert_eq!(limits.check(), Ok(()));
        assert!(limits.memory_bytes + limits.transfer_bytes <= CALLS_BYTES as u64 / 2);
        for larger in [
            Limits {
                transfer_bytes: limits.transfer_bytes + 1,
                ..limits.clone()
            },
            Limits {
                read_bytes: limits.read_bytes + 1,
                ..limits.clone()
            },
            Limits {
                output_bytes: limits.output_bytes + 1,
                ..limits.clone()
            },
            Limits {
                memory_bytes: limits.memory_bytes + 1,
                ..limits.clone()
            },
        ] {
            assert!(larger.check().is_err());
        }
    }

    #[tokio::test]
    async fn calls_wait_for_room_and_the_end_of_a_call_makes_some() {
        let (room, limits) = (Room::default(), Limits::default());
        let mut calls = Vec::new();
        while let Ok(call) = timeout(SOON, room.for_call(&limits)).await {
            calls.push(call);
        }
        assert_eq!(calls.len(), 5);
        let ended: Vec<_> = calls.into_iter().map(CallRoom::ended).collect();
        assert!(timeout(SOON, room.for_call(&limits)).await.is_ok());
        drop(ended);
    }

    #[tokio::test]
    async fn small_answers_do_not_wait_for_large_ones() {
        let room = Arc::new(Room::default());
        let plugin: Arc<str> = "p".into();
        let call = async || room.for_call(&Limits::default()).await.ended();
        let (large, small) = (text(20), text(0));
        let mut held = Vec::new();
        for _ in 0..4 {
            held.push(room.for_answer(&plugin, &large, call().await, || {}).await.unwrap());
        }
        let mut waiting = Vec::new();
        for _ in 0..20 {
            let (call, is_told) = (call().await, Arc::new(Mutex::new(false)));
            let (room, plugin, told) = (room.clone(), plugin.clone(), is_told.clone());
            waiting.push(tokio::spawn(async move {
                room.for_answer(&plugin, &text(20), call, || *told.lock() = true)
                    .await
                    .unwrap()
            }));
            tokio::task::yield_now().await;
            assert!(*is_told.lock());
        }
        let next = timeout(SOON, room.for_call(&Limits::default())).await;
        assert!(next.is_ok(), "the texts of twenty answers leave room for calls");
        let told = || panic!("a small answer does not wait");
        let got = timeout(SOON, room.for_answer(&plugin, &small, call().await, told)).await;
        assert!(got.is_ok());
        for it in &waiting {
            it.abort();
        }
    }

    #[tokio::test]
    async fn answers_wait_for_room_and_one_plugin_leaves_some_to_others() {
        let room = Room::default();
        let (flood, other): (Arc<str>, Arc<str>) = ("flood".into(), "other".into());
        let call = async || room.for_call(&Limits::default()).await.ended();
        let mut held = Vec::new();
        let answer = text(20);
        for _ in 0..4 {
            held.push(room.for_answer(&flood, &answer, call().await, || {}).await.unwrap());
        }
        let waiting = timeout(SOON, room.for_answer(&flood, &answer, call().await, || {})).await;
        assert!(waiting.is_err(), "a fifth one of 20 MiB waits");
        assert!(
            timeout(SOON, room.for_answer(&other, &answer, call().await, || {}))
                .await
                .is_ok()
        );
        held.pop();
        // Returned on a thread of its own.
        let waited = timeout(
            Duration::from_secs(10),
            room.for_answer(&flood, &answer, call().await, || {}),
        )
        .await;
        assert!(waited.is_ok());
    }

    #[tokio::test]
    async fn an_answer_that_can_never_fit_fails_with_both_numbers() {
        let room = Room::default();
        let maps = vec![r#"{"":1}"#; 200_000].join(",");
        let call = room.for_call(&Limits::default()).await.ended();
        let failure = room
            .for_answer(&"p".into(), &answer(format!(r#"{{"a":[{maps}]}}"#)), call, || {})
            .await;
        let failure = failure.unwrap_err();
        assert_eq!(failure.reason, Reason::GuestLimit);
        assert!(
            failure.message.contains("100663296") && failure.message.contains("takes 7"),
            "{failure}"
        );
        assert_eq!(room.calls.available_permits(), CALLS_BYTES);
    }
}
