//! Owns the nginx that the oracle's tests ask: the machine's own, or Debian's packages unpacked below `target`, for which
//! nobody has to be root. Leaves what is asked to the tests of `plugins/reverse-proxy`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::root;

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
    /// What the tests read to find it.
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
    fetch(&unpacked).context("there is no nginx with its stream module, and Debian's packages can't be fetched")?;
    Nginx::below(&unpacked)
        .context("the nginx of Debian's packages does not run here; install nginx and its stream module")
}

/// Downloads the packages as apt is set up to, with new lists where it has none or old ones, and unpacks them.
fn fetch(folder: &Path) -> Result<()> {
    println!("fetching Debian's nginx to {}", folder.display());
    fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    if let Err(error) = download(folder, &[]) {
        println!("{error}: trying again with new lists of packages");
        let lists = folder.join("lists");
        fs::create_dir_all(lists.join("partial")).with_context(|| format!("make {}", lists.display()))?;
        // Lists of our own need no root, and no caches that the machine's apt would find.
        let options = [
            format!("Dir::State::Lists={}", lists.display()),
            "Dir::Cache::pkgcache=".to_owned(),
            "Dir::Cache::srcpkgcache=".to_owned(),
        ];
        call(apt_get(folder, &options).arg("update"))?;
        download(folder, &options)?;
    }
    for entry in fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        let package = entry.with_context(|| format!("read {}", folder.display()))?.path();
        if package.extension().is_some_and(|extension| extension == "deb") {
            call(Command::new("dpkg").arg("-x").arg(&package).arg(folder))?;
        }
    }
    Ok(())
}

fn download(folder: &Path, options: &[String]) -> Result<()> {
    call(apt_get(folder, options).arg("download").args(PACKAGES))
}

fn apt_get(folder: &Path, options: &[String]) -> Command {
    let mut command = Command::new("apt-get");
    command.current_dir(folder);
    // Whoever runs this may write to the folder; the user that apt would become may not.
    for option in ["APT::Sandbox::User=root"]
        .into_iter()
        .chain(options.iter().map(String::as_str))
    {
        command.args(["-o", option]);
    }
    command
}

fn call(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command.status().with_context(|| format!("run {program}"))?;
    ensure!(status.success(), "{program} ended with {status}");
    Ok(())
}
