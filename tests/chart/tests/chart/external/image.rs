//! The image that `cargo xtask image` makes: what is in it, and that the host runs from its file system alone, as the user of
//! the image, read-only, and with the configuration that Kubernetes puts into a pod.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use pilothouse_external::programs::image;
use serde_json::{Value, json};
use tempfile::TempDir;

/// The largest program, in bytes: what `LARGEST_PROGRAM` in `xtask/src/image.rs` is, too.
const LARGEST_PROGRAM: u64 = 30_000_000;

/// The largest image, in bytes. Beside the program it has the certificate authorities, a quarter of a megabyte.
const LARGEST_IMAGE: u64 = 30_500_000;

/// Architecture of this machine, as images name it.
const ARCHITECTURE: &str = if cfg!(target_arch = "aarch64") {
    "arm64"
} else {
    "amd64"
};

/// The machine that ELF files name, by the architecture.
const MACHINES: [(&str, usize); 2] = [("amd64", 0x3e), ("arm64", 0xb7)];

/// The user of the image.
const USER: u32 = 65532;

/// An image that is unpacked.
struct Image {
    folder: TempDir,
    architecture: String,
    config: Value,
}

impl Image {
    /// The image for this machine.
    fn unpack() -> Self {
        let mut images = Self::unpack_all();
        let own = images.iter().position(|image| image.architecture == ARCHITECTURE);
        images.swap_remove(own.expect("the archive has an image for this machine"))
    }

    /// The images of all architectures that the archive has.
    fn unpack_all() -> Vec<Self> {
        let archive = tempfile::tempdir().unwrap();
        let layout = archive.path();
        unpack(&image(), layout);
        let blob = |descriptor: &Value| -> PathBuf {
            let digest = descriptor["digest"].as_str().unwrap().replace(':', "/");
            layout.join("blobs").join(digest)
        };
        let read = |path: &Path| -> Value { serde_json::from_reader(File::open(path).unwrap()).unwrap() };
        let list = read(&blob(&read(&layout.join("index.json"))["manifests"][0]));
        let platforms = list["manifests"].as_array().unwrap();
        let image = |descriptor: &Value| {
            assert_eq!(descriptor["platform"]["os"], "linux");
            let manifest = read(&blob(descriptor));
            let folder = tempfile::tempdir().unwrap();
            for layer in manifest["layers"].as_array().unwrap() {
                unpack(&blob(layer), &folder.path().join("root"));
            }
            Self {
                folder,
                architecture: descriptor["platform"]["architecture"].as_str().unwrap().to_owned(),
                config: read(&blob(&manifest["config"])),
            }
        };
        platforms.iter().map(image).collect()
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }
}

/// Unpacks an archive, compressed or not.
fn unpack(archive: &Path, folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    let status = Command::new("tar")
        .arg("-xf")
        .arg(archive)
        .arg("-C")
        .arg(folder)
        .status()
        .unwrap();
    assert!(status.success(), "{}", archive.display());
}

/// All files below a folder, by their paths within it.
fn files(root: &Path) -> Vec<String> {
    let (mut folders, mut files) = (vec![root.to_owned()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files.push(path.strip_prefix(root).unwrap().display().to_string());
            }
        }
    }
    files.sort();
    files
}

#[test]
fn the_image_has_the_host_and_nothing_that_it_does_not_need() {
    for image in Image::unpack_all() {
        assert_eq!(
            files(&image.root()),
            ["etc/ssl/certs/ca-certificates.crt", "pilothouse-host"]
        );
        let config = &image.config["config"];
        assert_eq!(config["User"], "65532:65532");
        assert_eq!(config["Entrypoint"], json!(["/pilothouse-host"]));
        assert_eq!(config["Cmd"], Value::Null);
        assert_eq!(
            config["Labels"]["org.opencontainers.image.version"],
            env!("CARGO_PKG_VERSION")
        );
        assert_eq!(
            (&image.config["os"], &image.config["architecture"]),
            (&json!("linux"), &json!(image.architecture))
        );
        let program = fs::metadata(image.root().join("pilothouse-host")).unwrap();
        assert_eq!(
            program.permissions().mode() & 0o6022,
            0,
            "neither set-user-id nor writable"
        );
        assert_eq!(
            (program.uid(), program.gid()),
            own_ids(),
            "whoever unpacks it as root sees root's file"
        );
        let size: u64 = files(&image.root())
            .iter()
            .map(|file| fs::metadata(image.root().join(file)).unwrap().len())
            .sum();
        assert!(
            program.len() <= LARGEST_PROGRAM,
            "{}: {}",
            image.architecture,
            program.len()
        );
        assert!(size <= LARGEST_IMAGE, "{}: {size}", image.architecture);
    }
}

/// Files of root, unpacked by another user, are that user's.
fn own_ids() -> (u32, u32) {
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    (user.as_raw(), group.as_raw())
}

#[test]
fn the_images_host_is_static_and_of_its_architecture() {
    for image in Image::unpack_all() {
        let mut program = Vec::new();
        File::open(image.root().join("pilothouse-host"))
            .unwrap()
            .read_to_end(&mut program)
            .unwrap();
        assert_eq!(&program[..4], b"\x7fELF");
        let number = |at: usize, length: usize| {
            let bytes = &program[at..at + length];
            bytes
                .iter()
                .rev()
                .fold(0_usize, |number, byte| number << 8 | usize::from(*byte))
        };
        assert!(
            MACHINES.contains(&(image.architecture.as_str(), number(18, 2))),
            "{}: {:#x}",
            image.architecture,
            number(18, 2)
        );
        // PT_INTERP, the segment that names the dynamic linker, in the table of 64-bit program headers.
        let (table, size, count) = (number(32, 8), number(54, 2), number(56, 2));
        assert!(count > 0);
        let interpreters = (0..count).filter(|entry| number(table + entry * size, 4) == 3);
        assert_eq!(interpreters.count(), 0, "the program asks for a dynamic linker");
    }
}

/// The file system of a pod with this image: read-only but for `/cache`, with `/proc`, and with the token of a
/// ServiceAccount. The host's process alone sees it. The module has the name of the program that it needs besides.
mod helm {
    use std::net::UdpSocket;
    use std::time::{Duration, Instant};

    use pilothouse_end_to_end::components;
    use pilothouse_end_to_end::program::Process;
    use pilothouse_end_to_end::scrape::get;
    use pilothouse_testkit::host::free_address;

    use super::super::helm::bench::{Bench, NAMESPACE, app_service, until};
    use super::*;

    /// Sets up a pod's mounts and becomes the user of the image. Arguments: the root, then the program's own.
    const ENTER: &str = r#"
set -eu
root=$1; shift
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --bind "$root/cache" "$root/cache"
mount -o remount,bind,ro "$root"
exec chroot --userspec=65532:65532 "$root" /pilothouse-host "$@"
"#;

    /// The nameserver of the pod, and the one name that it knows: the API server's certificate has it.
    const NAMESERVER: &str = "127.12.34.56";
    const API_SERVER: &str = "kubernetes.default.svc";

    /// Answers every DNS query for an IPv4 address with 127.0.0.1, and every other one with nothing, until the test
    /// ends: a static program has to resolve names without the libraries of the C library.
    fn serve_names() {
        let socket = UdpSocket::bind((NAMESERVER, 53)).unwrap();
        std::thread::spawn(move || {
            let mut packet = [0; 512];
            while let Ok((length, client)) = socket.recv_from(&mut packet) {
                let question = &packet[..length];
                // The name follows the head of 12 bytes, as labels with their lengths; then the type and the class.
                let name = question[12..].iter().position(|byte| *byte == 0).unwrap();
                let end = 12 + name + 5;
                let is_ipv4 = question[end - 4..end - 2] == [0, 1];
                let mut answer = question[..end].to_vec();
                answer[2..12].copy_from_slice(&[0x81, 0x80, 0, 1, 0, u8::from(is_ipv4), 0, 0, 0, 0]);
                if is_ipv4 {
                    answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1]);
                }
                socket.send_to(&answer, client).unwrap();
            }
        });
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_images_host_runs_as_in_a_pod_and_reads_the_next_token() {
        assert!(
            rustix::process::geteuid().is_root(),
            "this test mounts file systems, in a namespace of its own; run it as root"
        );
        let bench = Bench::new().await;
        bench
            .helm()
            .install(&json!({"host": {"logFormat": "text"}, "replicas": 1, "networkPolicy": {"enabled": false}}))
            .unwrap();
        bench.install_plugin("app-service").await;
        let image = Image::unpack();
        let root = image.root();
        let account = root.join("var/run/secrets/kubernetes.io/serviceaccount");
        for folder in [&account, &root.join("proc"), &root.join("cache"), &root.join("plugins")] {
            fs::create_dir_all(folder).unwrap();
        }
        chown(root.join("cache"), Some(USER), Some(USER)).unwrap();
        fs::set_permissions(root.join("cache"), fs::Permissions::from_mode(0o777)).unwrap();
        fs::copy(
            components::folder().join("app-service.wasm"),
            root.join("plugins/app-service.wasm"),
        )
        .unwrap();
        fs::write(account.join("namespace"), NAMESPACE).unwrap();
        fs::write(account.join("ca.crt"), bench.control_plane.certificate_authority()).unwrap();
        let first = bench.token("first").await;
        fs::write(account.join("token"), &first).unwrap();

        fs::write(root.join("etc/resolv.conf"), format!("nameserver {NAMESERVER}\n")).unwrap();
        serve_names();

        let metrics = free_address().unwrap();
        let (_, port) = bench.control_plane.url().rsplit_once(':').unwrap();
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--propagation", "private", "sh", "-c", ENTER, "sh"])
            .arg(&root);
        for argument in bench.arguments().await {
            let is_metrics = argument.starts_with("--metrics-address=");
            command.arg(if is_metrics {
                format!("--metrics-address={metrics}")
            } else {
                argument
            });
        }
        command
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HOSTNAME", "pilothouse-0")
            .env("KUBERNETES_SERVICE_HOST", API_SERVER)
            .env("KUBERNETES_SERVICE_PORT", port);
        let mut process = Process::spawn(command);
        bench.apply(&app_service("web")).await;
        let ready = async || get(metrics, "/readyz").is_ok_and(|(code, _)| code == 200);
        until("the host is ready", ready, || process.log()).await;
        let is_made = async |name: &str| {
            let deployment = super::super::helm::bench::named("apps/v1", "Deployment", Some("default"), name);
            bench.find(&deployment).await.is_some()
        };
        until(
            "the object is reconciled",
            async || is_made("web").await,
            || process.log(),
        )
        .await;
        assert!(process.log().contains("the pod's service account"), "{}", process.log());
        assert!(
            fs::read_dir(root.join("cache/host")).unwrap().next().is_some(),
            "compiled code is in the one place that the host may write to"
        );

        // The kubelet exchanges the token.
        fs::write(account.join("token"), bench.token("second").await).unwrap();
        bench.ends("first", &first).await;
        bench.apply(&app_service("after")).await;
        until(
            "the host goes on with the new token",
            async || is_made("after").await,
            || process.log(),
        )
        .await;
        let begun = Instant::now();
        process.signal(rustix::process::Signal::TERM);
        assert_eq!(process.ended().await.code(), Some(0), "{}", process.log());
        assert!(begun.elapsed() < Duration::from_secs(30));
    }
}
