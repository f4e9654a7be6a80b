//! Owns `pilothouse check`: the properties that every plugin must have, as a command. Looking for objects that break one is
//! left to the test kit.

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use pilothouse_host::artifact::printable;
use pilothouse_testkit::diff::{hidden, yaml};
use pilothouse_testkit::documents;
use pilothouse_testkit::properties::{Options, Property, Report, Violation, check};
use serde_json::{Value, json};

use crate::plugin::{PluginArguments, StateArguments};
use crate::verdict::NotAsExpected;

/// Help that stands below the options.
const EXAMPLES: &str = "\
Examples:
  pilothouse check app-service.wasm
  pilothouse check app-service.wasm -f sample.yaml --cases 2000
  pilothouse check app-service.wasm --seed 7 --case 42 --property fixed-point

The properties:
  equal        equal inputs give equal answers, in fresh instances and whatever the number of failures before
  fixed-point  what the plugin has made and its status, fed back, change nothing after a few rounds
  declared     only declared kinds are touched, and the answer depends on declared fields only
  valid        objects and status fit their schemas, and are stored as they are applied
  order        the order of a map's members, and of lists that are sets or maps, makes no difference
  no-trap      no object that can be stored makes the plugin trap, exceed a limit, or give an invalid answer
  deletion     a deleted object is let go by its finalizer, and leaves nothing

Each case is an object on a simulated cluster of its own: first the samples of -f, then changes to them and objects made by the
schemas of the CRDs, as far as the API server would store them. An object that breaks a property is made as small as possible.

Exit code: 0, 1 on an error, 2 if the command line is wrong, 3 if a property is broken.";

/// `pilothouse check`
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct CheckCommand {
    #[command(flatten)]
    plugin: PluginArguments,

    /// Samples that the plugin reconciles: a YAML or JSON file, a folder, or - for standard input. May be repeated
    #[arg(long = "filename", short = 'f', value_name = "FILE|FOLDER|-")]
    files: Vec<PathBuf>,

    #[command(flatten)]
    state: StateArguments,

    /// The number of objects to try
    #[arg(long, value_name = "NUMBER", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    cases: u32,

    /// What objects are drawn from: the same seed makes the same objects
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,

    /// Try this case alone
    #[arg(long, value_name = "NUMBER")]
    case: Option<u32>,

    /// Look at this property alone. May be repeated
    #[arg(long = "property", value_name = "NAME")]
    properties: Vec<Property>,

    /// An object that the plugin wants breaks `valid` also where the API server refuses its values, rather than its types, and
    /// the plugin was given another object than a sample
    #[arg(long)]
    strict: bool,

    /// Output format: text for humans, json for programs
    #[arg(long, short, value_enum, default_value_t = Format::Text)]
    output: Format,
}

/// In which form the result is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
}

impl CheckCommand {
    /// Looks for objects that break a property.
    pub fn execute(self) -> anyhow::Result<()> {
        let plugin = self.plugin.load()?;
        let cluster = self.state.objects(&self.files)?;
        let options = Options {
            cases: self.cases,
            seed: self.seed,
            only_case: self.case,
            properties: if self.properties.is_empty() {
                Property::ALL.to_vec()
            } else {
                self.properties.clone()
            },
            samples: documents::read(&self.files)?,
            cluster,
            now: self.state.milliseconds()?,
            strict: self.strict,
        };
        if std::io::stderr().is_terminal() && self.output == Format::Text {
            eprintln!("trying {} objects …", options.cases);
        }
        let report = check(&plugin, &options)?;
        match self.output {
            Format::Text => print!("{}", self.text(&report, &options)),
            Format::Json => println!("{:#}", self.document(&report)),
        }
        match report.violations.as_slice() {
            [] => Ok(()),
            broken => {
                let names: Vec<&str> = broken.iter().map(|violation| violation.property.as_str()).collect();
                Err(NotAsExpected(format!("the plugin breaks {}", names.join(", "))).into())
            }
        }
    }

    fn text(&self, report: &Report, options: &Options) -> String {
        let mut text = String::new();
        for property in &options.properties {
            let violation = report
                .violations
                .iter()
                .find(|violation| violation.property == *property);
            let verdict = if violation.is_some() { "BROKEN" } else { "ok" };
            let _ = writeln!(text, "{verdict:<6} {:<11} {}", property.as_str(), property.statement());
        }
        let Report {
            judged,
            discarded,
            elapsed,
            violations,
            refusals,
            refused,
            without_source,
        } = report;
        let _ = writeln!(
            text,
            "{judged} objects in {elapsed:.1?}, {:.0} per second",
            report.per_second()
        );
        if *discarded > 0 {
            let _ = writeln!(
                text,
                "{discarded} cases had no object that the API server would store; give samples with -f"
            );
        }
        if *refusals > 0 && !self.strict {
            let _ = writeln!(
                text,
                "for {refusals} of {judged} objects the API server refuses values that the plugin wants; limits in the CRD or a \
                 validator could say so earlier:"
            );
            for (case, words) in refused {
                let _ = writeln!(text, "  case {case}: {}", printable(words));
            }
        }
        for kind in without_source {
            let _ = writeln!(
                text,
                "{kind} was not tried: the plugin brings no CRD for it, and no sample was given with -f"
            );
        }
        for violation in violations {
            let Violation {
                property,
                case,
                problem,
                object,
                shrunk: _,
            } = violation;
            let _ = writeln!(text, "\n{property} is broken: {}", shown(problem));
            let _ = writeln!(text, "\nwith this object:\n");
            for line in yaml(&hidden(object)).lines() {
                let _ = writeln!(text, "  {}", printable(line));
            }
            let _ = writeln!(text, "\nrepeat it with:\n\n  {}", self.again(*property, *case));
        }
        text
    }

    /// The command that repeats exactly one failure.
    fn again(&self, property: Property, case: u32) -> String {
        let mut words = vec![
            "pilothouse".to_owned(),
            "check".to_owned(),
            quoted(&self.plugin.component),
        ];
        let mut with = |option: &str, path: &PathBuf| words.extend([option.to_owned(), quoted(path)]);
        self.plugin.config.iter().for_each(|path| with("--config", path));
        self.files.iter().for_each(|path| with("-f", path));
        self.state.cluster.iter().for_each(|path| with("--cluster", path));
        if self.strict {
            words.push("--strict".to_owned());
        }
        words.push(format!("--seed {} --case {case} --property {property}", self.seed));
        words.join(" ")
    }

    fn document(&self, report: &Report) -> Value {
        let violation = |violation: &Violation| {
            let Violation {
                property,
                case,
                problem,
                object,
                shrunk,
            } = violation;
            json!({
                "property": property.as_str(), "case": case, "problem": problem, "object": hidden(object), "shrunk": shrunk,
                "command": self.again(*property, *case),
            })
        };
        json!({
            "judged": report.judged,
            "discarded": report.discarded,
            "seconds": report.elapsed.as_secs_f64(),
            "perSecond": report.per_second(),
            "refused": report.refusals,
            "withoutSource": report.without_source,
            "violations": report.violations.iter().map(violation).collect::<Vec<_>>(),
        })
    }
}

/// Text of a plugin, of which nothing but line breaks moves the cursor.
fn shown(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(printable).collect();
    lines.join("\n")
}

/// A path as a shell takes it.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |letter: char| letter.is_alphanumeric() || "/._-=+:@".contains(letter);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text;
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}
