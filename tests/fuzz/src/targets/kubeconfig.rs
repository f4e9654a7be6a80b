//! Target `kubeconfig`: a file that `--kubeconfig` names. No request is sent, and no program is run: inputs that
//! request one are left out, so that no input can hurt the machine that fuzzes.

use std::io::Write as _;

use pilothouse_cluster::connect::{ClusterTarget, connect};

use crate::cluster::runtime;
use crate::refused;

pub(super) fn run(data: &[u8]) {
    // Escapes could spell it, too.
    let names_a_program = |text: &[u8]| {
        text.to_ascii_lowercase()
            .windows(4)
            .any(|word| word == b"exec" || word == b"cmd-")
    };
    if names_a_program(data) || data.contains(&b'\\') {
        return;
    }
    let mut file = tempfile::Builder::new()
        .suffix(".kubeconfig")
        .tempfile()
        .expect("a file can be made");
    file.write_all(data).expect("it can be written");
    let path = file.path().to_owned();
    runtime().block_on(async {
        let target = ClusterTarget {
            kubeconfig: Some(path.clone()),
            context: None,
        };
        match connect(&target, "fuzz/1").await {
            Ok(_) => {}
            Err(error) => refused(&error, "kubeconfig"),
        }
    });
}
