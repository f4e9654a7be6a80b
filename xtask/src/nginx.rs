//! Finds the nginx for the oracle's tests: the machine's own, or Debian's (`debian`). The tests of
//! `plugins/reverse-proxy` use it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use crate::{debian, root};

/// The program and the stream module are in these packages of Debian's; which of the first two has the program depends on
/// the release.
const PACKAGES: [&str; 3] = ["nginx", "nginx-light", "libnginx-mod-stream"];

/// An nginx with its stream module.
#[derive(Clone, Debug)]
pub(crate) struct Nginx {
    program: PathBuf,
    stream_module: PathBuf,
}

impl Nginx {
    /// Returns the variables in which the tests find it.
    pub(crate) fn environment(&self) -> [(&'static str, &Path); 2] {
        [
            ("PILOTHOUSE_NGINX", &self.program),
            ("PILOTHOUSE_NGINX_STREAM", &self.stream_module),
        ]
    }

    /// The nginx below a root directory, if both parts of it are there and it runs.
    fn below(root: &Path) -> Option<Self> {
        let nginx = Self {
            program: root.join("usr/sbin/nginx"),
            stream_module: root.join("usr/lib/nginx/modules/ngx_stream_module.so"),
        };
        let runs = || {
            let mut command = Command::new(&nginx.program);
            command.arg("-v").stdout(Stdio::null()).stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        };
        (nginx.stream_module.exists() && runs()).then_some(nginx)
    }
}

/// Finds nginx, fetching it where it is missing, or says why there is none.
pub(crate) fn find() -> Result<Nginx> {
    let unpacked = root().join("target/tools/nginx");
    if let Some(nginx) = Nginx::below(Path::new("/")).or_else(|| Nginx::below(&unpacked)) {
        return Ok(nginx);
    }
    debian::fetch("nginx", &PACKAGES, &unpacked)
        .context("there is no nginx with its stream module, and Debian's packages can't be fetched")?;
    Nginx::below(&unpacked)
        .context("the nginx of Debian's packages does not run here; install nginx and its stream module")
}
