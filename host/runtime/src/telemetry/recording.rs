//! Records calls on request, and writes them as lines of a file. Without a recording a call costs the read of one
//! atomic number. Recorded calls have the values of Secrets, like the cache; they are masked before anything leaves the
//! host, with all values that the whole recording knows.
//!
//! The memory is bounded: [`MOST_RECORDINGS`] at a time, [`MOST_BYTES`] of each, [`MOST_CALL_BYTES`] of a call. Calls
//! that do not fit are counted. A recording that nobody asks for within [`ABANDONED_AFTER`] is dropped.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use pilothouse_core::plugin::contract::{ListOptions, LogLevel};
use pilothouse_core::recording::{
    FORMAT, Header, KEY_BYTES, Line, Masker, Masks, RecordedAnswer, RecordedCall, RecordedGet, RecordedInput,
    RecordedList, RecordedLog, RecordedRead, RecordedUsage, Trailer, Tree,
};
use pilothouse_core::{Failure, Kind, Name};
use pilothouse_sandbox::Usage;
use serde_json::Value;
use tokio::time::Instant;

use crate::lanes::lane::Lane;

/// Recordings at the same time.
pub const MOST_RECORDINGS: usize = 4;

/// The bytes that are kept of one recording.
pub const MOST_BYTES: usize = 16 * 1024 * 1024;

/// The bytes that are kept of one call, before they are written as JSON.
pub const MOST_CALL_BYTES: usize = 4 * 1024 * 1024;

/// The longest time that a recording may take.
pub const LONGEST: Duration = Duration::from_hours(1);

/// The most calls of a recording.
pub const MOST_CALLS: u64 = 10_000;

/// Time for which a recording is kept that nobody asks for.
const ABANDONED_AFTER: Duration = Duration::from_secs(30);

/// Parameters of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordingQuestion {
    /// The plugin's name.
    pub plugin: String,
    /// The calls about one object; none: all.
    pub object: Option<(Kind, Name)>,
    /// Duration.
    pub within: Duration,
    /// Maximum number of calls.
    pub count: u64,
}

/// Progress of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordingProgress {
    /// Calls that are kept.
    pub calls: u64,
    /// Calls that were dropped for lack of room.
    pub dropped: u64,
    /// The bytes that are kept.
    pub bytes: u64,
    /// Set if recording has ended: the time is over, or there are enough calls.
    pub is_over: bool,
}

/// Reason why there is no recording.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// Recording is not allowed.
    #[error(
        "this host records no calls; start it with `pilothouse run --allow-recording`, or set api.recording=true in the values \
         of the chart"
    )]
    NotAllowed,
    /// The limit of [`MOST_RECORDINGS`] is reached.
    #[error("{MOST_RECORDINGS} recordings are under way at this host; wait until one of them has ended")]
    TooMany,
    /// A recording of this identifier has other parameters.
    #[error("another recording has this id; begin again with another one")]
    Taken,
    /// There is no such recording.
    #[error(
        "the host has no such recording, because nobody has asked for it for 30 s, or because it has started anew; record again"
    )]
    Unknown,
    /// No random key is available.
    #[error(
        "the host cannot read random bytes from /dev/urandom to mask Secrets with: {0}; give its container that device"
    )]
    NoKey(#[from] io::Error),
    /// There is too much to mask.
    #[error("what was recorded cannot be masked: {0}; record fewer calls with --count")]
    NoMask(String),
}

/// The recordings of a host.
#[derive(Default)]
pub struct Recordings {
    is_allowed: bool,
    /// Number of recordings.
    under_way: AtomicUsize,
    sessions: Mutex<BTreeMap<String, Arc<Session>>>,
}

/// One recording.
struct Session {
    question: RecordingQuestion,
    /// A lane of the plugin when the recording began.
    lane: Arc<Lane>,
    begun: String,
    until: Instant,
    kept: Mutex<Kept>,
}

struct Kept {
    /// Recorded calls as JSON, not masked yet.
    calls: Vec<Vec<u8>>,
    bytes: usize,
    dropped: u64,
    of_other_versions: u64,
    /// Time of the last request.
    asked: Instant,
}

/// Records the calls of one reconcile or review, one after the other.
pub struct CallRecorder {
    sessions: Vec<Arc<Session>>,
    lane: Arc<Lane>,
    primary: Name,
    time: u64,
    reads: Vec<RecordedRead>,
    log: Vec<RecordedLog>,
    bytes: usize,
}

impl Recordings {
    /// Makes an empty set; `is_allowed` permits recordings.
    pub fn new(is_allowed: bool) -> Self {
        Self {
            is_allowed,
            ..Self::default()
        }
    }

    /// A recorder for calls about an object, if they are recorded.
    pub fn recorder(&self, lane: &Arc<Lane>, primary: &Name, time: u64) -> Option<Box<CallRecorder>> {
        if self.under_way.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let now = Instant::now();
        let mut sessions = self.sessions.lock();
        self.forget_abandoned(&mut sessions, now);
        let wanted = sessions.values().filter(|session| session.wants(lane, primary, now));
        let sessions: Vec<Arc<Session>> = wanted.cloned().collect();
        (!sessions.is_empty()).then(|| {
            Box::new(CallRecorder {
                sessions,
                lane: lane.clone(),
                primary: primary.clone(),
                time,
                reads: Vec::new(),
                log: Vec::new(),
                bytes: 0,
            })
        })
    }

    /// Begins a recording, or reports its progress.
    pub fn begin(
        &self,
        id: &str,
        question: RecordingQuestion,
        lane: Arc<Lane>,
        begun: String,
    ) -> Result<RecordingProgress, RecordingError> {
        self.check_allowed()?;
        let now = Instant::now();
        let mut sessions = self.sessions.lock();
        self.forget_abandoned(&mut sessions, now);
        if let Some(session) = sessions.get(id) {
            return session.progress(&question, now);
        }
        if sessions.len() >= MOST_RECORDINGS {
            return Err(RecordingError::TooMany);
        }
        let session = Session {
            until: now + question.within,
            question,
            lane,
            begun,
            kept: Mutex::new(Kept {
                calls: Vec::new(),
                bytes: 0,
                dropped: 0,
                of_other_versions: 0,
                asked: now,
            }),
        };
        tracing::info!(
            plugin = session.question.plugin,
            seconds = session.question.within.as_secs(),
            calls = session.question.count,
            "recording calls"
        );
        sessions.insert(id.to_owned(), Arc::new(session));
        self.under_way.store(sessions.len(), Ordering::Relaxed);
        Ok(RecordingProgress::default())
    }

    /// Fails if the host may not record.
    pub fn check_allowed(&self) -> Result<(), RecordingError> {
        if self.is_allowed {
            Ok(())
        } else {
            Err(RecordingError::NotAllowed)
        }
    }

    /// Ends a recording. Returns its masked lines. Blocks for as long as that takes.
    pub fn finish(
        &self,
        id: &str,
        question: &RecordingQuestion,
    ) -> Result<(Vec<String>, RecordingProgress), RecordingError> {
        self.check_allowed()?;
        let session = {
            let mut sessions = self.sessions.lock();
            let session = sessions.get(id).ok_or(RecordingError::Unknown)?;
            session.progress(question, Instant::now())?;
            let session = sessions.remove(id).ok_or(RecordingError::Unknown)?;
            self.under_way.store(sessions.len(), Ordering::Relaxed);
            session
        };
        let progress = session.progress(question, Instant::now())?;
        let lines = session.lines()?;
        tracing::info!(
            plugin = question.plugin,
            calls = progress.calls,
            dropped = progress.dropped,
            "recorded calls"
        );
        Ok((lines, progress))
    }

    fn forget_abandoned(&self, sessions: &mut BTreeMap<String, Arc<Session>>, now: Instant) {
        sessions.retain(|_, session| {
            let asked = session.kept.lock().asked;
            now.saturating_duration_since(asked) < ABANDONED_AFTER
        });
        self.under_way.store(sessions.len(), Ordering::Relaxed);
    }
}

impl Session {
    fn wants(&self, lane: &Lane, primary: &Name, now: Instant) -> bool {
        let RecordingQuestion {
            plugin, object, count, ..
        } = &self.question;
        let is_object = object
            .as_ref()
            .is_none_or(|(kind, name)| kind.same_kind(lane.grants.primary()) && name == primary);
        is_object && **plugin == *lane.plugin && now < self.until && (self.kept.lock().calls.len() as u64) < *count
    }

    /// Progress of the recording, for a client that asks for it.
    fn progress(&self, question: &RecordingQuestion, now: Instant) -> Result<RecordingProgress, RecordingError> {
        if (&self.question.plugin, &self.question.object) != (&question.plugin, &question.object) {
            return Err(RecordingError::Taken);
        }
        let mut kept = self.kept.lock();
        kept.asked = now;
        let calls = kept.calls.len() as u64;
        Ok(RecordingProgress {
            calls,
            dropped: kept.dropped,
            bytes: kept.bytes as u64,
            is_over: now >= self.until || calls >= self.question.count,
        })
    }

    /// Keeps a call, if there is room.
    fn keep(&self, lane: &Lane, call: Option<&[u8]>) {
        let mut kept = self.kept.lock();
        if lane.component.digest() != self.lane.component.digest() {
            kept.of_other_versions += 1;
            return;
        }
        let Some(call) = call.filter(|call| kept.bytes + call.len() <= MOST_BYTES) else {
            kept.dropped += 1;
            return;
        };
        if kept.calls.len() as u64 >= self.question.count {
            return;
        }
        kept.bytes += call.len();
        kept.calls.push(call.to_vec());
    }

    /// The lines of the file.
    fn lines(&self) -> Result<Vec<String>, RecordingError> {
        let mut key = [0; KEY_BYTES];
        File::open("/dev/urandom")?.read_exact(&mut key)?;
        let (manifest, schema) = self.describe();
        self.masked(key, &manifest, &schema)
    }

    /// Lines of the file, masked with the values that any of the calls knows.
    fn masked(&self, key: [u8; KEY_BYTES], manifest: &Value, schema: &Value) -> Result<Vec<String>, RecordingError> {
        let mut kept = self.kept.lock();
        let calls = std::mem::take(&mut kept.calls);
        let read = |call: &[u8]| -> RecordedCall { serde_json::from_slice(call).expect("the host has written it") };
        let mut masker = Masker::new(key);
        for call in &calls {
            let mut call = read(call);
            masker.learn_configuration(schema, call.input.configuration());
            masker.learn(&mut call);
        }
        let masked = !masker.is_empty();
        let masks = masker.finish().map_err(RecordingError::NoMask)?;
        let mut lines = vec![line(&Line::Recording(Box::new(self.header(manifest, &masks))))];
        for (number, call) in (1..).zip(calls) {
            let mut call = RecordedCall { number, ..read(&call) };
            masks.mask(&mut call);
            lines.push(line(&Line::Call(Box::new(call))));
        }
        lines.push(line(&Line::End(Trailer {
            calls: lines.len() as u64 - 1,
            dropped: kept.dropped,
            of_other_versions: kept.of_other_versions,
            masked,
        })));
        Ok(lines)
    }

    /// Description of the plugin without its CRDs, and the schema of its configuration.
    fn describe(&self) -> (Value, Value) {
        let Lane {
            component,
            config,
            limits,
            ..
        } = &*self.lane;
        let config = Some(config.as_str()).filter(|config| *config != "{}");
        let described = component.describe_with_log(config, limits, Box::new(|_, _, _| {}));
        let mut manifest: Value = described
            .ok()
            .and_then(|text| serde_json::from_str(&text).ok())
            .unwrap_or_default();
        let schema = manifest["configurationSchema"].clone();
        if let Some(manifest) = manifest.as_object_mut() {
            manifest.remove("crds");
        }
        (manifest, schema)
    }

    fn header(&self, manifest: &Value, masks: &Masks) -> Header {
        let mut manifest = Tree::read(&manifest.to_string());
        masks.mask_document(&mut manifest);
        let manifest = manifest.value();
        let component = &self.lane.component;
        Header {
            format: FORMAT.to_owned(),
            contract: component.contract_version().to_owned(),
            plugin: self.question.plugin.clone(),
            version: manifest["version"].as_str().unwrap_or_default().to_owned(),
            digest: format!("sha256:{}", component.digest()),
            component: component.name().to_owned(),
            begun: self.begun.clone(),
            limits: self.lane.limits.clone(),
            manifest,
        }
    }
}

fn line(line: &Line) -> String {
    serde_json::to_string(line).expect("recordings have text for keys")
}

impl CallRecorder {
    /// Records a `cluster.get`.
    pub fn get(&mut self, kind: &Kind, namespace: Option<&str>, name: &str, answer: &Result<Option<String>, Failure>) {
        let bytes = answer
            .as_ref()
            .map_or(0, |answer| answer.as_ref().map_or(0, String::len));
        if self.reserve(bytes) {
            self.reads
                .push(RecordedRead::Get(RecordedGet::new(kind, namespace, name, answer)));
        }
    }

    /// Records a `cluster.list`.
    pub fn list(&mut self, kind: &Kind, options: &ListOptions, answer: &Result<Vec<String>, Failure>) {
        let bytes = answer.as_ref().map_or(0, |answer| answer.iter().map(String::len).sum());
        if self.reserve(bytes) {
            self.reads
                .push(RecordedRead::List(RecordedList::new(kind, options, answer)));
        }
    }

    /// Records a `clock.now`.
    pub fn now(&mut self, granularity: u64, answer: u64) {
        if self.reserve(0) {
            self.reads.push(RecordedRead::Now { granularity, answer });
        }
    }

    /// Records a `clock.reached`.
    pub fn reached(&mut self, moment: u64, answer: bool) {
        if self.reserve(0) {
            self.reads.push(RecordedRead::Reached { moment, answer });
        }
    }

    /// Records a log line.
    pub fn log(&mut self, level: LogLevel, message: &str, fields: &[(String, String)]) {
        let fields_bytes: usize = fields.iter().map(|(name, value)| name.len() + value.len()).sum();
        if self.reserve(message.len() + fields_bytes) {
            self.log.push(RecordedLog::new(level, message, fields));
        }
    }

    /// Counts bytes, and returns `true` if they fit. Otherwise the whole call is dropped: a call without all of its
    /// reads could not be replayed.
    fn reserve(&mut self, bytes: usize) -> bool {
        /// Estimated overhead of a text in JSON.
        const AROUND: usize = 100;
        self.bytes += bytes + AROUND;
        if self.bytes <= MOST_CALL_BYTES {
            return true;
        }
        self.reads = Vec::new();
        self.log = Vec::new();
        false
    }

    /// Ends a call. Later records belong to the next one.
    pub fn ended(&mut self, input: RecordedInput, answer: RecordedAnswer, usage: &Usage) {
        let (reads, log) = (std::mem::take(&mut self.reads), std::mem::take(&mut self.log));
        let is_whole = std::mem::take(&mut self.bytes) <= MOST_CALL_BYTES;
        let Usage {
            time,
            wake: _,
            memory_bytes,
            reads: read_count,
            read_bytes,
            log_bytes,
            log_lines_dropped: _,
        } = usage;
        let call = is_whole.then(|| RecordedCall {
            number: 0,
            controller: self.lane.controller.clone(),
            kind: self.lane.grants.primary().clone(),
            namespace: self.primary.namespace.as_deref().map(str::to_owned),
            name: self.primary.name.to_string(),
            time: self.time,
            input,
            reads,
            log,
            answer,
            usage: RecordedUsage {
                microseconds: u64::try_from(time.as_micros()).unwrap_or(u64::MAX),
                memory_bytes: *memory_bytes,
                reads: *read_count,
                read_bytes: *read_bytes,
                log_bytes: *log_bytes,
            },
        });
        let written = call.map(|call| serde_json::to_vec(&call).expect("recordings have text for keys"));
        for session in &self.sessions {
            session.keep(&self.lane, written.as_deref());
        }
    }
}

#[cfg(test)]
mod tests;
