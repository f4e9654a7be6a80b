//! `pilothouse completion` and `pilothouse man`: print shell completions and manual pages. Both are generated from the
//! command line itself, so no command can be missing.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, Command};
use clap_complete::Shell;

/// Help below the options of `completion`.
const COMPLETION_EXAMPLES: &str = "\
Examples:
  pilothouse completion bash > ~/.local/share/bash-completion/completions/pilothouse
  pilothouse completion zsh > ~/.zfunc/_pilothouse
  pilothouse completion fish > ~/.config/fish/completions/pilothouse.fish

Exit code: 0, 2 if the command line is wrong.";

/// Help below the options of `man`.
const MAN_EXAMPLES: &str = "\
Examples:
  pilothouse man | man -l -
  pilothouse man ~/.local/share/man/man1

Exit code: 0, 1 if a page cannot be written, 2 if the command line is wrong.";

/// `pilothouse completion`
#[derive(Args)]
#[command(after_help = COMPLETION_EXAMPLES)]
pub struct CompletionCommand {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

impl CompletionCommand {
    /// Prints the script that the shell loads.
    pub fn execute(self, mut program: Command) -> anyhow::Result<()> {
        let name = program.get_name().to_owned();
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut program, name, &mut script);
        print(&script)
    }
}

/// `pilothouse man`
#[derive(Args)]
#[command(after_help = MAN_EXAMPLES)]
pub struct ManCommand {
    /// Write the pages of all commands into this folder (default: print the page of the program)
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
}

impl ManCommand {
    /// Prints or writes.
    pub fn execute(self, program: Command) -> anyhow::Result<()> {
        match &self.folder {
            None => {
                let mut page = Vec::new();
                clap_mangen::Man::new(program)
                    .render(&mut page)
                    .context("cannot write the page")?;
                print(&page)
            }
            Some(folder) => write_pages(program, folder),
        }
    }
}

fn write_pages(program: Command, folder: &Path) -> anyhow::Result<()> {
    let about = || format!("cannot write the pages into {}", folder.display());
    std::fs::create_dir_all(folder).with_context(about)?;
    clap_mangen::generate_to(program, folder).with_context(about)
}

/// Prints, and ignores a closed pipe.
fn print(text: &[u8]) -> anyhow::Result<()> {
    match io::stdout().write_all(text) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write to standard output"),
    }
}
