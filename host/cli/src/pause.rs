//! `pilothouse pause` and `pilothouse resume`: stop the reconciles of one object, and start them again. They set an annotation.

use anyhow::ensure;
use clap::Args;
use pilothouse_core::status::annotations::PAUSED;

use crate::artifact::wait_for;
use crate::primary::PrimaryArguments;

/// Help below the options of `pause`.
const PAUSE_EXAMPLES: &str = "\
Examples:
  pilothouse pause appservice/web -n shop
  kubectl annotate appservice web -n shop pilothouse.dev/paused=true --overwrite    # the same

While it is paused, the host neither calls the plugin for the object nor writes anything for it but the condition Reconciled=Unknown with
the reason Paused. Its deletion is not held back. The user needs the rights get and patch on the object.

Exit code: 0, also if it is paused already, 1 if the object does not exist or the user lacks a right, 2 if the command line is wrong.";

/// Help below the options of `resume`.
const RESUME_EXAMPLES: &str = "\
Examples:
  pilothouse resume appservice/web -n shop
  kubectl annotate appservice web -n shop pilothouse.dev/paused-    # the same

The host reconciles the object at once. The user needs the rights get and patch on the object.

Exit code: 0, also if it is not paused, 1 if the object does not exist or the user lacks a right, 2 if the command line is wrong.";

/// `pilothouse pause`
#[derive(Args)]
#[command(after_help = PAUSE_EXAMPLES)]
pub struct PauseCommand {
    #[command(flatten)]
    primary: PrimaryArguments,
}

/// `pilothouse resume`
#[derive(Args)]
#[command(after_help = RESUME_EXAMPLES)]
pub struct ResumeCommand {
    #[command(flatten)]
    primary: PrimaryArguments,
}

impl PauseCommand {
    /// Sets the annotation.
    pub fn execute(self) -> anyhow::Result<()> {
        wait_for(async {
            let primary = self.primary.find().await?;
            let title = primary.title();
            ensure!(
                !primary.is_deleting(),
                "{title} is being deleted, and a pause does not hold that back"
            );
            if primary.is_paused() {
                println!("{title} is paused already");
                return Ok(());
            }
            primary.annotate(PAUSED, Some("true")).await?;
            println!(
                "{title} is paused; `pilothouse resume {}` resumes it",
                primary.arguments()
            );
            Ok(())
        })
    }
}

impl ResumeCommand {
    /// Removes the annotation.
    pub fn execute(self) -> anyhow::Result<()> {
        wait_for(async {
            let primary = self.primary.find().await?;
            let title = primary.title();
            if primary.annotation(PAUSED).is_none() {
                println!("{title} is not paused");
                return Ok(());
            }
            primary.annotate(PAUSED, None).await?;
            println!("{title} is resumed; the host reconciles it now");
            Ok(())
        })
    }
}
