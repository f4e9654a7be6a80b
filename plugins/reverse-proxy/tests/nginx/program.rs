//! Finds the real nginx, checks a configuration with it, and runs it.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use tempfile::TempDir;

use crate::generate::HOSTS;

/// Time limit for nginx to answer after its start, on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// An nginx in a folder of its own.
#[derive(Debug)]
pub struct Nginx {
    program: PathBuf,
    /// Path of the stream module where it is not part of the program.
    stream_module: Option<PathBuf>,
    folder: TempDir,
}

/// An nginx that runs until it is dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    /// Address at which it proxies.
    pub address: SocketAddr,
    /// Address of the probe.
    pub probe: SocketAddr,
}

impl Nginx {
    /// The nginx that `cargo xtask test --only oracle` has found or fetched, else that of the machine.
    pub fn find() -> Self {
        let given = |name: &str| env::var_os(name).map(PathBuf::from);
        let program = given("PILOTHOUSE_NGINX").unwrap_or_else(|| "/usr/sbin/nginx".into());
        assert!(
            program.exists(),
            "{} is missing: `cargo xtask test --only oracle` fetches it where apt-get can",
            program.display()
        );
        let module =
            given("PILOTHOUSE_NGINX_STREAM").unwrap_or_else(|| "/usr/lib/nginx/modules/ngx_stream_module.so".into());
        Self {
            program,
            stream_module: module.exists().then_some(module),
            folder: tempfile::tempdir().expect("there is room for a folder"),
        }
    }

    /// Runs `nginx -t`, and returns its complaints if it fails. Only paths and names of hosts in the text are changed:
    /// `/tmp` becomes a folder of this test, and hosts that do not exist become this machine, since nginx looks them
    /// up.
    pub fn check(&self, text: &str) -> Result<(), String> {
        let output = self.command(&self.write(text)).arg("-t").output().expect("nginx runs");
        if output.status.success() {
            return Ok(());
        }
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// Starts nginx, with other ports, and waits until it answers its probe.
    pub fn run(&self, text: &str) -> Running {
        let [address, probe] = free_addresses();
        let text = text
            .replace("listen 8080", &format!("listen {address}"))
            .replace("listen 3001", &format!("listen {probe}"));
        let mut command = self.command(&self.write(&text));
        let child = command
            .args(["-g", "daemon off; master_process off;"])
            .stdout(Stdio::null());
        let child = child.spawn().expect("nginx runs");
        let mut running = Running { child, address, probe };
        let begun = Instant::now();
        while TcpStream::connect(probe).is_err() {
            let ended = running.child.try_wait().expect("nginx can be asked for");
            assert!(
                ended.is_none() && begun.elapsed() < PATIENCE,
                "nginx does not run: {ended:?}\n{text}"
            );
            thread::sleep(Duration::from_millis(20));
        }
        running
    }

    fn write(&self, text: &str) -> PathBuf {
        let mut text = text.replace("/tmp/", &format!("{}/", self.folder.path().display()));
        for host in HOSTS {
            text = text.replace(host, "127.0.0.1");
        }
        let path = self.folder.path().join("nginx.conf");
        let load = self
            .stream_module
            .as_ref()
            .map(|module| format!("load_module {};\n", module.display()));
        fs::write(&path, load.unwrap_or_default() + &text).expect("the folder can be written to");
        path
    }

    fn command(&self, configuration: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command
            .arg("-p")
            .arg(self.folder.path())
            .args(["-e", "stderr", "-c"])
            .arg(configuration);
        command
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns two addresses of this machine without a listener, with TCP and UDP alike.
fn free_addresses() -> [SocketAddr; 2] {
    let bound = || {
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let address = tcp.local_addr().expect("it is bound");
        let udp = UdpSocket::bind(address).ok();
        (tcp, udp, address)
    };
    // Both are held until both are known, so that they differ.
    let (one, other) = (bound(), bound());
    [one.2, other.2]
}
