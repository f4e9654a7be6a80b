//! A recording in the repository, as an author commits one: later versions of the test kit have to read and replay it.
//! `web.recording.jsonl` has the calls of app-service for an AppService that was made and changed. Record it again only if
//! app-service answers otherwise on purpose: a change of the format must not need that.
#![allow(clippy::unwrap_used, reason = "all of it is for tests")]

use std::path::Path;

use pilothouse_core::recording::RecordedInput;
use pilothouse_testkit::recording::Recording;

fn committed() -> Recording {
    Recording::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/web.recording.jsonl")).unwrap()
}

#[test]
fn a_committed_recording_is_read() {
    let Recording { header, calls, trailer } = committed();
    assert_eq!(
        (header.plugin.as_str(), header.version.as_str()),
        ("app-service", "0.1.0")
    );
    assert_eq!((calls.len(), trailer.calls, trailer.dropped), (4, 4, 0));
    for (number, call) in (1..).zip(&calls) {
        assert_eq!((call.number, call.name.as_str()), (number, "web"));
        assert!(
            matches!(&call.input, RecordedInput::Reconcile(request) if request.attempt == 0),
            "{call:?}"
        );
        assert_eq!(call.reads.len(), 1, "it looks for its Deployment: {call:?}");
    }
}

mod isolated {
    use xtask::plugins::{PluginsOptions, build};

    #[test]
    fn a_committed_recording_is_replayed() {
        let options = PluginsOptions {
            only: vec!["app-service".to_owned()],
            ..PluginsOptions::default()
        };
        let component = build(&options).unwrap().remove(0).path;
        let recording = super::committed();
        let report = recording.replay(&recording.load(component).unwrap());
        assert!(report.is_same(), "{report}");
        assert_eq!(report.calls.len(), 4);
    }
}
