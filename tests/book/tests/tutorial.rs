//! docs/tutorial.md, as its reader does it: in an empty folder, every file is written and every command run, in order, and
//! the output is what the page shows. Consoles that need a cluster are left out, and say so in the page.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

use pilothouse_book::console::{Step, has_shown, steps};
use pilothouse_book::root;
use pilothouse_end_to_end::components::program;

/// A reader: where they are, and what is on their search path.
struct Reader {
    folder: PathBuf,
    path: String,
}

impl Reader {
    fn does(&mut self, step: &Step) {
        match step {
            Step::Write { file, text } => {
                let file = self.folder.join(file);
                fs::create_dir_all(file.parent().expect("it is in the folder")).expect("the folder can be made");
                fs::write(file, text).expect("the file can be written");
            }
            Step::Run { command, .. } if command.starts_with("cd ") => {
                self.folder = self.folder.join(&command["cd ".len()..]);
            }
            Step::Run { command, shown } => self.runs(command, shown),
        }
    }

    fn runs(&self, command: &str, shown: &[String]) {
        let root = root().canonicalize().expect("the repository is there");
        let output = Command::new("sh")
            .args(["-euc", command])
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .env("PATH", &self.path)
            .env("XDG_CACHE_HOME", root.join("target/test-code"))
            // What is compiled once is there for the next run of this test.
            .env("CARGO_BUILD_BUILD_DIR", root.join("target/tutorial"))
            .env_remove("KUBECONFIG")
            .output()
            .expect("sh runs");
        let printed = String::from_utf8_lossy(&output.stdout);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "$ {command}\n{printed}{said}{}", output.status);
        assert!(
            has_shown(&printed, shown),
            "$ {command}\nprints\n{printed}{said}\nand the page shows\n{}",
            shown.join("\n")
        );
    }
}

fn page() -> Vec<Step> {
    steps(&fs::read_to_string(root().join("docs/tutorial.md")).expect("the page can be read"))
}

#[test]
fn the_tutorial_has_all_steps_of_an_author() {
    let commands: Vec<_> = page()
        .into_iter()
        .filter_map(|step| match step {
            Step::Run { command, .. } => Some(command),
            Step::Write { .. } => None,
        })
        .collect();
    for command in ["pilothouse new ", "cargo test", "pilothouse build", "pilothouse test"] {
        assert!(
            commands.iter().any(|it| it.starts_with(command)),
            "{command}: {commands:#?}"
        );
    }
}

mod external {
    use super::*;

    #[test]
    fn the_tutorial_works_from_an_empty_folder() {
        let folder = tempfile::tempdir().unwrap();
        let programs = program().parent().map(Path::to_path_buf).unwrap();
        // What the reader has cloned.
        symlink(root().canonicalize().unwrap(), folder.path().join("pilothouse")).unwrap();
        let mut reader = Reader {
            folder: folder.path().canonicalize().unwrap(),
            path: format!("{}:{}", programs.display(), env::var("PATH").unwrap()),
        };
        for step in page() {
            reader.does(&step);
        }
    }
}
