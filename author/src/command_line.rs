//! Command line of the program `pilothouse`: defines its commands, and runs one.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use pilothouse_host::render::WebhooksCommand;
use pilothouse_host::{
    CompileCommand, artifact, ask, inspect, install, migrate_storage, pause, reconcile, release, run,
};

use crate::build::BuildCommand;
use crate::manifests::ManifestsCommand;
use crate::manual::{CompletionCommand, ManCommand};
use crate::new::NewCommand;
use crate::{bench, check, dev, render, replay, schemas, test, verdict};

/// Run many Kubernetes operators in one host process, each as a sandboxed WebAssembly component.
#[derive(Parser)]
#[command(name = "pilothouse", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make a project for a new operator, or add a kind to one.
    New(NewCommand),
    /// Build a plugin's crate as a component, or check a component of another toolchain.
    Build(BuildCommand),
    /// Run scenarios and golden cases against a plugin.
    Test(test::TestCommand),
    /// Run a plugin on a simulated or a real cluster, and swap it when sources change.
    Dev(dev::DevCommand),
    /// Run the host, which reconciles a cluster with plugins.
    Run(Box<run::RunCommand>),
    /// Show the plugins of a host and the objects that fail, with cause and next step.
    Status(ask::status::StatusCommand),
    /// Explain an object: what it depends on, what was made for it, its last runs, and who changed what was reverted.
    Why(ask::why::WhyCommand),
    /// Show the plugins of a host by the time, memory and requests that they use.
    Top(ask::top::TopCommand),
    /// Record the calls of a plugin on a running host: inputs, reads and answers, with the values of Secrets masked.
    Record(ask::record::RecordCommand),
    /// Replay a recording offline, with this or another version, and show what differs.
    Replay(replay::ReplayCommand),
    /// Print a plugin's metadata and the kinds that it touches.
    Inspect(inspect::InspectCommand),
    /// Print the ServiceAccount, roles and bindings that grant a plugin what it needs.
    Rights(install::rights::RightsCommand),
    /// Install a plugin: its CRDs, its rights and its Plugin resource.
    Install(install::apply::InstallCommand),
    /// Upgrade a plugin: what changes in its rights, its CRDs and the objects of the cluster, and then the change itself.
    Upgrade(install::upgrade::UpgradeCommand),
    /// Go back to an earlier version of a plugin: what changes in its rights, its CRDs and the objects of the cluster, and then the
    /// change itself.
    Rollback(install::rollback::RollbackCommand),
    /// Uninstall a plugin: its Plugin resource and its rights.
    Uninstall(install::uninstall::UninstallCommand),
    /// Push a plugin to a registry or an OCI layout, with its CRDs and README.
    Push(artifact::push::PushCommand),
    /// Pull a plugin's component from a registry or an OCI layout.
    Pull(artifact::pull::PullCommand),
    /// Copy a plugin with all that belongs to it between registries and OCI layouts.
    Copy(artifact::copy::CopyCommand),
    /// List the tags of a repository.
    Tags(artifact::tags::TagsCommand),
    /// Verify a plugin's signature by keys or by a trust file.
    Verify(artifact::verify::VerifyCommand),
    /// Print what a plugin makes of objects, without a cluster: all of it, or how it differs from something else.
    Render(Box<render::RenderCommand>),
    /// Search for objects with which a plugin breaks a rule that every plugin must keep.
    Check(Box<check::CheckCommand>),
    /// Measure what a plugin's calls for an object cost, and compare two components.
    Bench(Box<bench::BenchCommand>),
    /// Print a plugin's webhook configurations, for an installer to apply.
    Webhooks(WebhooksCommand),
    /// Pause an object: the host neither reconciles nor writes it until it is resumed.
    Pause(pause::PauseCommand),
    /// Resume a paused object: the host reconciles it at once.
    Resume(pause::ResumeCommand),
    /// Reconcile an object, or the failing objects of a plugin, now.
    Reconcile(reconcile::ReconcileCommand),
    /// Remove the finalizer of a plugin that is gone from the objects that wait for it.
    Release(release::ReleaseCommand),
    /// Rewrite the stored objects of a kind in the storage version of its CRD.
    MigrateStorage(migrate_storage::MigrateStorageCommand),
    /// Print all that a plugin needs in a cluster: CRDs, rights, Plugin and a sample.
    Manifests(Box<ManifestsCommand>),
    /// Print what a shell loads to complete the command line.
    Completion(CompletionCommand),
    /// Print the manual, or write a page for each command.
    Man(ManCommand),
    #[command(hide = true)]
    CompileComponent(CompileCommand),
}

/// Runs the program.
pub fn execute() -> ExitCode {
    let Arguments { command } = arguments();
    verdict::ended(match command {
        Command::New(new) => new.execute(),
        Command::Build(build) => build.execute(),
        Command::Manifests(manifests) => manifests.execute(),
        Command::Completion(completion) => completion.execute(self::command()),
        Command::Man(man) => man.execute(self::command()),
        Command::Test(test) => test.execute(),
        Command::Dev(dev) => dev.execute(),
        Command::Run(run) => run.execute(),
        Command::Status(status) => status.execute(),
        Command::Why(why) => why.execute(),
        Command::Top(top) => top.execute(),
        Command::Record(record) => record.execute(),
        Command::Replay(replay) => replay.execute(),
        Command::Inspect(inspect) => inspect.execute(),
        Command::Rights(rights) => rights.execute(),
        Command::Install(install) => install.execute(schemas::compare),
        Command::Upgrade(upgrade) => upgrade.execute(schemas::compare),
        Command::Rollback(rollback) => rollback.execute(schemas::compare),
        Command::Uninstall(uninstall) => uninstall.execute(),
        Command::Push(push) => push.execute(),
        Command::Pull(pull) => pull.execute(),
        Command::Copy(copy) => copy.execute(),
        Command::Tags(tags) => tags.execute(),
        Command::Verify(verify) => verify.execute(),
        Command::Render(render) => render.execute(),
        Command::Check(check) => check.execute(),
        Command::Bench(bench) => bench.execute(),
        Command::Webhooks(webhooks) => webhooks.execute(),
        Command::Pause(pause) => pause.execute(),
        Command::Resume(resume) => resume.execute(),
        Command::Reconcile(reconcile) => reconcile.execute(),
        Command::Release(release) => release.execute(),
        Command::MigrateStorage(migrate) => migrate.execute(),
        Command::CompileComponent(compile) => compile.execute(),
    })
}

/// Commands by purpose, in the order in which the help lists them.
const GROUPS: [(&str, &[&str]); 5] = [
    (
        "Write a plugin",
        &["new", "build", "dev", "test", "render", "check", "bench", "replay"],
    ),
    (
        "Install plugins",
        &[
            "install",
            "upgrade",
            "rollback",
            "uninstall",
            "inspect",
            "rights",
            "manifests",
            "webhooks",
            "release",
            "migrate-storage",
        ],
    ),
    (
        "Run a host, and see what it does",
        &["run", "status", "why", "top", "record", "pause", "resume", "reconcile"],
    ),
    ("Plugins in registries", &["push", "pull", "copy", "tags", "verify"]),
    ("Settings", &["completion", "man", "help"]),
];

/// Help template of the program: clap cannot group commands.
const HELP: &str = "{about-with-newline}\n{usage-heading} {usage}{after-help}\n\nOptions:\n{options}\n";

/// Returns the command line, for documentation, completion and manual pages.
pub fn command() -> clap::Command {
    let command = Arguments::command();
    let groups = grouped(&command);
    command.help_template(HELP).after_help(groups)
}

/// Formats the groups, with a line for each command: its description up to a colon.
fn grouped(command: &clap::Command) -> String {
    let about = |name: &str| {
        let about = command.find_subcommand(name).and_then(clap::Command::get_about);
        let about = about.map_or_else(|| "Print the help of a command".to_owned(), ToString::to_string);
        let end = about.find(':').unwrap_or(about.len());
        about[..end].trim_end_matches('.').to_owned()
    };
    let group = |(title, names): &(&str, &[&str])| {
        let lines = names.iter().map(|name| format!("\n  {name:<15} {}", about(name)));
        format!("\n {title}{}", lines.collect::<String>())
    };
    GROUPS
        .iter()
        .map(group)
        .fold("Commands:".to_owned(), |text, group| text + &group)
}

/// Name by which kubectl finds the program as its plugin.
const KUBECTL_PLUGIN: &str = "kubectl-pilothouse";

/// Parses the command line. Help names the program as it was called: as itself, or by kubectl.
fn arguments() -> Arguments {
    let called = std::env::args_os().next().map(PathBuf::from);
    let is_plugin = called.is_some_and(|path| path.file_name().is_some_and(|name| name == KUBECTL_PLUGIN));
    let mut command = command();
    if is_plugin {
        command = command.bin_name("kubectl pilothouse");
    }
    let matches = command.get_matches();
    Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_command_is_in_one_group_of_the_help() {
        let mut command = command();
        let visible = command.get_subcommands().filter(|it| !it.is_hide_set());
        let visible: BTreeSet<String> = visible
            .map(|it| it.get_name().to_owned())
            .chain(["help".to_owned()])
            .collect();
        let grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        assert_eq!(grouped.len(), visible.len());
        assert_eq!(visible, grouped.iter().map(|name| (*name).to_owned()).collect());
        let help = command.render_long_help().to_string();
        assert!(
            help.contains("\n Install plugins\n  install         Install a plugin\n"),
            "{help}"
        );
        assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
    }

    #[test]
    fn help_is_broken_between_words_at_the_width_of_the_terminal() {
        for width in [40, 80] {
            let mut program = command().term_width(width);
            let install = program
                .find_subcommand_mut("install")
                .unwrap()
                .clone()
                .term_width(width);
            let help = install.clone().render_long_help().to_string();
            let options = help.split("Examples:").next().unwrap();
            let too_long = options
                .lines()
                .filter(|line| line.chars().count() > width && !line.starts_with("Usage: "))
                .filter(|line| line.trim().contains(' '));
            assert_eq!(too_long.collect::<Vec<_>>(), Vec::<&str>::new(), "{width}");
        }
    }
}
