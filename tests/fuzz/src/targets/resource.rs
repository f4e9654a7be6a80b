//! Target `resource`: Plugin resources, as an API server lists and watches them, up to the desired state of each. The
//! input is the responses in turn, with lines `---` between them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use pilothouse_cluster::resources::host_resources::HostResourceApi;
use pilothouse_core::Kind;
use pilothouse_runtime::check_plugin;

use crate::cluster::{chunks, client, runtime};
use crate::refused;

/// Virtual time for which the resources are followed.
const FOLLOWED: Duration = Duration::from_mins(1);

pub(super) fn run(data: &[u8]) {
    let runtime = runtime();
    let _entered = runtime.enter();
    let answers: Arc<Mutex<VecDeque<Bytes>>> = Arc::new(Mutex::new(chunks(data).into()));
    let client = client(move |_| {
        let next = answers.lock().pop_front();
        next.map_or_else(|| (500, Bytes::new()), |next| (200, next))
    });
    let kind = HostResourceApi::new(client, Kind::new("pilothouse.dev", "v1alpha1", "Plugin"), "plugins");
    let (sender, mut receiver) = tokio::sync::watch::channel(None);
    runtime.block_on(async {
        let follow = kind.follow(sender, |trouble| {
            if let Some(trouble) = trouble {
                refused(&trouble, "");
            }
        });
        let look = async {
            while receiver.changed().await.is_ok() {
                let known = receiver.borrow_and_update().clone();
                for resource in known.iter().flat_map(|known| known.values()) {
                    if let Err(error) = check_plugin(resource) {
                        refused(&error, "");
                    }
                }
            }
        };
        let _ = tokio::time::timeout(FOLLOWED, async { tokio::join!(follow, look) }).await;
    });
}
