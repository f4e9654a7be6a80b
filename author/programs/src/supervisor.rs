//! Processes that must not outlive their owner: they share a process group and a folder, and both are removed when the
//! owner ends, however it ends. The owner chooses the processes.
//!
//! The group's leader is a watchdog: a shell that holds the read end of a pipe whose write end only the owner has. When
//! the owner ends, even by SIGKILL, the system closes the pipe, and the watchdog removes the folder and kills the
//! group, itself included. A parent-death signal would not do: it is tied to the thread that started the child, and the
//! test harness ends its threads long before the process.

use std::{
    fs::{self, File},
    io,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// Script of the watchdog. It is in the killed group, so it removes first. A file made in between makes `rm` fail once.
const WATCHDOG: &str =
    r#"cat >/dev/null; for attempt in 1 2 3 4 5; do rm -rf -- "$1" 2>/dev/null && break; done; kill -KILL 0"#;

/// Bytes of a log that an error shows.
const TAIL_BYTES: usize = 4_000;

/// Processes that live as long as this value, and the folder that they use.
#[derive(Debug)]
pub struct Supervisor {
    folder: PathBuf,
    watchdog: Child,
    /// Closed last; the watchdog waits for that.
    _pipe: ChildStdin,
    components: Vec<Component>,
}

#[derive(Debug)]
struct Component {
    name: &'static str,
    child: Child,
    log: PathBuf,
    program: PathBuf,
    arguments: Vec<String>,
}

impl Supervisor {
    /// Takes ownership of a folder, which is removed with the processes.
    pub fn new(folder: PathBuf) -> io::Result<Self> {
        let mut watchdog = Command::new("/bin/sh")
            .args(["-c", WATCHDOG, "pilothouse-watchdog"])
            .arg(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let pipe = watchdog.stdin.take().expect("standard input is piped");
        Ok(Self {
            folder,
            watchdog,
            _pipe: pipe,
            components: Vec::new(),
        })
    }

    /// Returns the folder that the processes use.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Starts a program with its output in `<folder>/<name>.log`.
    pub fn spawn(&mut self, name: &'static str, program: &Path, arguments: &[String]) -> io::Result<()> {
        self.spawn_with(name, program, arguments, None)
    }

    /// Starts a program like [`Self::spawn`] with an environment variable set.
    pub fn spawn_with(
        &mut self,
        name: &'static str,
        program: &Path,
        arguments: &[String],
        variable: Option<(&str, &str)>,
    ) -> io::Result<()> {
        let log = self.folder.join(format!("{name}.log"));
        let output = File::create(&log)?;
        let child = self.begin(program, arguments, variable, output)?;
        self.components.push(Component {
            name,
            child,
            log,
            program: program.to_owned(),
            arguments: arguments.to_vec(),
        });
        Ok(())
    }

    fn begin(
        &self,
        program: &Path,
        arguments: &[String],
        variable: Option<(&str, &str)>,
        output: File,
    ) -> io::Result<Child> {
        let group = i32::try_from(self.watchdog.id()).map_err(io::Error::other)?;
        Command::new(program)
            .args(arguments)
            .envs(variable)
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .process_group(group)
            .spawn()
    }

    /// Kills a component like SIGKILL, and restarts it with the same arguments; its log is continued.
    pub fn restart(&mut self, name: &str) -> io::Result<()> {
        let missing = || io::Error::new(io::ErrorKind::NotFound, format!("{name} was never started"));
        let index = self.components.iter().position(|component| component.name == name);
        let index = index.ok_or_else(missing)?;
        let component = &mut self.components[index];
        component.child.kill()?;
        component.child.wait()?;
        let Component {
            log,
            program,
            arguments,
            ..
        } = component;
        let (log, program, arguments) = (log.clone(), program.clone(), arguments.clone());
        let output = File::options().append(true).open(log)?;
        self.components[index].child = self.begin(&program, &arguments, None, output)?;
        Ok(())
    }

    /// Kills a component like SIGKILL, and forgets it; its log stays in the folder until it is spawned again.
    pub fn stop(&mut self, name: &str) -> io::Result<()> {
        let missing = || io::Error::new(io::ErrorKind::NotFound, format!("{name} does not run"));
        let index = self.components.iter().position(|component| component.name == name);
        let mut component = self.components.remove(index.ok_or_else(missing)?);
        component.child.kill()?;
        component.child.wait().map(drop)
    }

    /// Returns the first component that has ended, which none should.
    pub fn ended(&mut self) -> Option<(&'static str, ExitStatus)> {
        self.components
            .iter_mut()
            .find_map(|component| Some((component.name, component.child.try_wait().ok().flatten()?)))
    }

    /// Returns the ID of a component's process.
    pub fn process_id(&self, name: &str) -> Option<u32> {
        let found = self.components.iter().find(|component| component.name == name)?;
        Some(found.child.id())
    }

    /// Sends a signal to a component that still runs.
    pub fn signal(&mut self, name: &str, signal: Signal) -> io::Result<()> {
        let ended = || io::Error::new(io::ErrorKind::NotFound, format!("{name} does not run"));
        let found = self
            .components
            .iter_mut()
            .find(|component| component.name == name)
            .ok_or_else(ended)?;
        // The ID of a process that has ended and was waited for may belong to another one.
        if found.child.try_wait()?.is_some() {
            return Err(ended());
        }
        let pid = i32::try_from(found.child.id())
            .ok()
            .and_then(Pid::from_raw)
            .ok_or_else(ended)?;
        kill_process(pid, signal).map_err(io::Error::from)
    }

    /// Returns a component's whole log; empty if there is no such component.
    pub fn log(&self, name: &str) -> String {
        let found = self.components.iter().find(|component| component.name == name);
        let bytes = found
            .map(|found| fs::read(&found.log).unwrap_or_default())
            .unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Returns the end of a component's log; empty if there is no such component.
    pub fn tail(&self, name: &str) -> String {
        self.components
            .iter()
            .find(|component| component.name == name)
            .map(|found| tail(&found.log))
            .unwrap_or_default()
    }

    /// Returns the ends of all logs.
    pub fn tails(&self) -> Vec<(&'static str, String)> {
        self.components
            .iter()
            .map(|component| (component.name, tail(&component.log)))
            .collect()
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        // The watchdog has not been waited for, so its ID can't belong to another process.
        if let Some(group) = i32::try_from(self.watchdog.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        for component in &mut self.components {
            let _ = component.child.wait();
        }
        let _ = self.watchdog.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn tail(path: &Path) -> String {
    let bytes = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(TAIL_BYTES)..]);
    // The limit may cut the first line anywhere.
    if bytes.len() > TAIL_BYTES {
        text.split_once('\n').map_or("", |(_, rest)| rest).to_owned()
    } else {
        text.into_owned()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead as _, BufReader, Read as _, Write as _},
        time::{Duration, Instant},
    };

    use super::*;

    /// Set for the process that a test starts of itself, to be killed.
    const OWNER: &str = "PILOTHOUSE_TEST_OWNER";

    fn sleeper() -> (Supervisor, PathBuf) {
        let folder = tempfile::Builder::new()
            .prefix("pilothouse-supervisor-")
            .tempdir()
            .unwrap()
            .keep();
        let mut supervisor = Supervisor::new(folder.clone()).unwrap();
        supervisor
            .spawn(
                "sleeper",
                Path::new("/bin/sh"),
                &["-c".into(), "echo begun; exec sleep 600".into()],
            )
            .unwrap();
        (supervisor, folder)
    }

    /// Prints the IDs of its processes, and waits until its standard input is closed, which is not before it is killed.
    fn be_killed() {
        let (supervisor, folder) = sleeper();
        let (watchdog, sleeper) = (supervisor.watchdog.id(), supervisor.components[0].child.id());
        // Not through println, which the harness may capture.
        writeln!(io::stdout(), "\nowner: {watchdog} {sleeper} {}", folder.display()).unwrap();
        let _ = io::stdin().read(&mut [0]);
    }

    fn is_running(pid: &str) -> bool {
        // A zombie whose parent has not waited yet is not running any more.
        fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
    }

    fn within_ten_seconds(mut holds: impl FnMut() -> bool) -> bool {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !holds() {
            if Instant::now() > deadline {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }

    #[test]
    fn a_dropped_supervisor_leaves_neither_process_nor_folder() {
        let (supervisor, folder) = sleeper();
        let pids = [supervisor.watchdog.id(), supervisor.components[0].child.id()].map(|pid| pid.to_string());
        assert!(within_ten_seconds(|| supervisor.tail("sleeper") == "begun\n"));
        drop(supervisor);
        assert!(pids.iter().all(|pid| !is_running(pid)));
        assert!(!folder.exists());
    }

    #[test]
    fn a_stopped_component_does_not_run_and_can_be_spawned_again() {
        let (mut supervisor, folder) = sleeper();
        let stopped = supervisor.components[0].child.id().to_string();
        supervisor.stop("sleeper").unwrap();
        assert!(!is_running(&stopped));
        assert!(folder.exists());
        assert!(supervisor.ended().is_none());
        assert!(supervisor.stop("sleeper").is_err());
        supervisor
            .spawn("sleeper", Path::new("/bin/sleep"), &["600".into()])
            .unwrap();
        assert!(is_running(&supervisor.components[0].child.id().to_string()));
    }

    #[test]
    fn an_ended_component_is_named_with_its_log() {
        let (mut supervisor, _) = sleeper();
        supervisor
            .spawn(
                "failing",
                Path::new("/bin/sh"),
                &["-c".into(), "echo because; exit 7".into()],
            )
            .unwrap();
        let mut ended = None;
        assert!(within_ten_seconds(|| {
            ended = supervisor.ended();
            ended.is_some()
        }));
        let (name, status) = ended.unwrap();
        assert_eq!((name, status.code()), ("failing", Some(7)));
        assert_eq!(supervisor.tail("failing"), "because\n");
    }

    #[test]
    fn a_killed_owner_leaves_neither_process_nor_folder() {
        if std::env::var_os(OWNER).is_some() {
            be_killed();
        }
        let mut owner = Command::new(std::env::current_exe().unwrap())
            .args(["--nocapture", "a_killed_owner_leaves_neither_process_nor_folder"])
            .env(OWNER, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let line = BufReader::new(owner.stdout.take().unwrap())
            .lines()
            .map(Result::unwrap)
            .find_map(|line| line.strip_prefix("owner: ").map(str::to_owned))
            .expect("the owner says what it started");
        let words: Vec<&str> = line.split(' ').collect();
        assert!(is_running(words[0]) && is_running(words[1]) && Path::new(words[2]).exists());
        // SIGKILL: nothing in the owner gets a chance to clean up.
        owner.kill().unwrap();
        owner.wait().unwrap();
        assert!(
            within_ten_seconds(|| !is_running(words[0]) && !is_running(words[1])),
            "processes are left"
        );
        assert!(!Path::new(words[2]).exists(), "the folder is left");
    }
}
