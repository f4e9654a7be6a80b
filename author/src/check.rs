//! `pilothouse check`: checks the properties that every plugin must have. The test kit searches for counterexamples.

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use pilothouse_core::plugin::description::accepted::parse;
use pilothouse_core::plugin::manifest::{AFTER, PROPAGATION};
use pilothouse_core::plugin::wasi::Wasi;
use pilothouse_core::text::printable::printable;
use pilothouse_host::accepted;
use pilothouse_host::output::Format;
use pilothouse_testkit::diff::{hidden, yaml};
use pilothouse_testkit::documents::STANDARD_INPUT;
use pilothouse_testkit::properties::property::Property;
use pilothouse_testkit::properties::{AcceptedFinding, Options, Remark, Report, Violation, check};
use serde_json::{Value, json};

use crate::plugin::{DEFAULT_NAMESPACE, DEFAULT_NOW, PluginArguments, Sorted, StateArguments};
use crate::verdict::NotAsExpected;

/// Help below the options.
const EXAMPLES: &str = "\
Examples:
  pilothouse check app-service.wasm
  pilothouse check app-service.wasm -f sample.yaml --cases 2000
  pilothouse check app-service.wasm --seed 7 --case 42 --property fixed-point
  pilothouse check app-service.wasm --accept accepted.yaml

The properties:
  equal        equal inputs give equal answers, in fresh instances and whatever the number of failures before
  fixed-point  what the plugin has made and its status, fed back, change nothing after a few rounds
  declared     only declared kinds are touched, and the answer depends on declared fields only
  valid        objects and status fit their schemas and the rules of their CRDs, and are stored as they are applied
  order        the order of a map's members, and of lists that are sets or maps, makes no difference, in what is read either
  no-trap      no object that can be stored makes the plugin trap, exceed a limit, or give an invalid answer
  deletion     a deleted object is let go by its finalizer, and leaves nothing; not tried without a finalizer

Each case is an object on a simulated cluster of its own: first the samples of -f, then changes to them and objects made by the
schemas of the CRDs, as far as the API server would store them and the controller's filter selects them. About one in 16 goes to the schema's maxLength (up to 256 KiB),
maxItems and maxProperties (up to 1,000), as far as they fit into one object, and one in eight has the longest name that is a DNS
label (63) or a DNS subdomain (253); a rule in the CRD may refuse them. An object that breaks a property is made as small as possible.

The clock begins at --now. Once nothing changes any more it moves on, three times, to when the plugin wants to run again.

Kinds of which neither the plugin nor --cluster brings the CRD take anything; they are listed. Remarks, such as values
that the API server refuses in objects of Kubernetes' own kinds, come before the verdicts. What is wrong with a part that stands in the
sample as it is, such as a pod template, is a remark, too. Equal ones are one line, with the number of cases and the first
example; -o json has all of them.

Exit code: 0, 1 on an error, 2 if the command line is wrong, 3 if a property is broken.";

/// The most remarks of one kind that are printed as text, and the most letters of each.
const MAX_REMARKS: usize = 10;
const MAX_REMARK_LETTERS: usize = 300;

/// `pilothouse check`
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct CheckCommand {
    #[command(flatten)]
    plugin: PluginArguments,

    /// Samples that the plugin reconciles: a YAML or JSON file, a folder, or - for standard input. May be repeated. What the
    /// plugin does not reconcile becomes part of the cluster
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

    /// An object of one of Kubernetes' own kinds that the plugin wants breaks `valid` also where the API server refuses its
    /// values, rather than its types, and the plugin was given another object than a sample
    #[arg(long)]
    strict: bool,

    /// Findings that are meant to be as they are: a YAML or JSON list, each with `property`, `contains` (a part of the finding's
    /// text) and `reason`. They break nothing, and are counted (default: accepted-findings.yaml of the project)
    #[arg(long, value_name = "FILE")]
    accept: Option<PathBuf>,

    /// Output format
    #[arg(long, short, value_enum, default_value_t = Format::Text)]
    output: Format,
}

impl CheckCommand {
    /// Searches for objects that break a property.
    pub fn execute(self) -> anyhow::Result<()> {
        let accepted = self.accepted()?;
        let given = self.state.read(&self.files)?;
        let Sorted {
            plugin,
            mut cluster,
            primaries,
        } = self.state.sort(self.plugin.load()?, &given)?;
        for controller in &plugin.manifest().manifest.controllers {
            let is_of_deletion = |option: &&String| [PROPAGATION, AFTER].contains(&option.as_str());
            if let (None, Some(option)) = (&controller.finalizer, controller.options.iter().find(is_of_deletion)) {
                eprintln!(
                    "controller {} lists the option {option} and names no finalizer: when a primary is deleted, it is the garbage \
                     collector that deletes its objects, in the background and in any order; name a finalizer, and the host deletes \
                     them as asked",
                    controller.name
                );
            }
        }
        let (samples, unselected): (Vec<_>, Vec<_>) = primaries
            .into_iter()
            .partition(|sample| plugin.unselected(&sample.object).is_none());
        for sample in &unselected {
            let filter = plugin.unselected(&sample.object).unwrap_or_default();
            eprintln!(
                "{}: {} {} is no sample but part of the cluster: the plugin reconciles only objects with {filter}",
                sample.place, sample.kind.kind, sample.name
            );
        }
        cluster.extend(unselected);
        let options = Options {
            cases: self.cases,
            seed: self.seed,
            only_case: self.case,
            properties: if self.properties.is_empty() {
                Property::ALL.to_vec()
            } else {
                self.properties.clone()
            },
            samples,
            cluster,
            now: self.state.milliseconds()?,
            strict: self.strict,
            accepted,
        };
        if std::io::stderr().is_terminal() && self.output == Format::Text {
            eprintln!("trying {} objects …", options.cases);
        }
        let report = check(&plugin, &options)?;
        match self.output {
            Format::Text => print!("{}", self.text(&report, &options)),
            Format::Json => println!("{:#}", self.document(&report, &options)),
        }
        match report.violations.as_slice() {
            [] => Ok(()),
            broken => {
                let names: Vec<&str> = broken.iter().map(|violation| violation.property.as_str()).collect();
                Err(NotAsExpected(format!("the plugin breaks {}", names.join(", "))).into())
            }
        }
    }

    /// Formats the report. The result is at the end, where it is seen.
    fn text(&self, report: &Report, options: &Options) -> String {
        let Report {
            judged,
            refused_by_plugin,
            plugin_refusals: _,
            discarded,
            elapsed,
            violations,
            refusals,
            refused,
            untried,
            unchecked,
            without_source,
            accepted,
        } = report;
        let mut text = String::new();
        if *refusals > 0 && !self.strict {
            let _ = writeln!(
                text,
                "for {refusals} of {judged} objects the API server refuses values that the plugin wants; limits in the CRD or a \
                 validator could say so earlier:"
            );
            text += &remarks(refused);
        }
        text += &plugin_refusals(report);
        if *discarded > 0 {
            let _ = writeln!(
                text,
                "{discarded} cases had no object that the API server would store; give samples with -f"
            );
        }
        for kind in unchecked {
            let _ = writeln!(
                text,
                "{kind} is not checked: the plugin brings no CRD for it, so anything is valid; give the CRD with --cluster"
            );
        }
        for kind in without_source {
            let _ = writeln!(
                text,
                "{kind} was not tried: the plugin brings no CRD for it, and no sample was given with -f"
            );
        }
        for (accepted, count) in options.accepted.iter().zip(accepted) {
            let AcceptedFinding {
                property,
                contains,
                reason,
            } = accepted;
            let _ = match count {
                0 => writeln!(
                    text,
                    "accepted and not found: {property} with {contains:?}; if it is mended, take it out of the file"
                ),
                count => writeln!(
                    text,
                    "accepted {count} times: {property} with {contains:?}: {}",
                    printable(reason)
                ),
            };
        }
        for violation in violations {
            let Violation {
                property,
                case,
                problem,
                object,
                shrunk: _,
            } = violation;
            let _ = writeln!(text, "{property} is broken: {}", shown(problem));
            let _ = writeln!(text, "\nwith this object:\n");
            for line in yaml(&hidden(object)).lines() {
                let _ = writeln!(text, "  {}", printable(line));
            }
            let (repeat, command) = (self.repeat(), self.again(*property, *case));
            let _ = writeln!(text, "\n{repeat}:\n\n  {command}\n");
        }
        for property in &options.properties {
            let is_broken = violations.iter().any(|violation| violation.property == *property);
            let (verdict, statement) = if is_broken {
                ("BROKEN", property.statement())
            } else if untried.contains(property) {
                ("-", "not tried: no finalizer is asked about these objects")
            } else {
                ("ok", property.statement())
            };
            let _ = writeln!(text, "{verdict:<6} {:<11} {statement}", property.as_str());
        }
        let refused = match refused_by_plugin {
            0 => String::new(),
            count => format!(", {count} refused by the plugin"),
        };
        let _ = writeln!(
            text,
            "{judged} objects{refused} in {elapsed:.1?}, {:.0} per second",
            report.per_second()
        );
        text
    }

    /// Returns the introduction of the command that repeats a failure. Standard input is not part of the command.
    fn repeat(&self) -> &'static str {
        let mut sources = self.files.iter().chain(&self.state.cluster);
        if sources.any(|source| source == Path::new(STANDARD_INPUT)) {
            "repeat it, with the same standard input, with"
        } else {
            "repeat it with"
        }
    }

    /// Returns the command that repeats exactly one failure.
    fn again(&self, property: Property, case: u32) -> String {
        let mut words = vec![
            "pilothouse".to_owned(),
            "check".to_owned(),
            quoted(&self.plugin.component),
        ];
        let mut with = |option: &str, path: &PathBuf| words.extend([option.to_owned(), quoted(path)]);
        if let Some(path) = &self.plugin.config {
            with("--config", path);
        }
        for path in &self.files {
            with("-f", path);
        }
        for path in &self.state.cluster {
            with("--cluster", path);
        }
        if let Some(Wasi::Inert) = self.plugin.wasi.grant {
            words.push("--wasi inert".to_owned());
        }
        if self.state.namespace != DEFAULT_NAMESPACE {
            words.push(format!("--namespace {}", quoted(Path::new(&self.state.namespace))));
        }
        if self.state.now != DEFAULT_NOW.parse().expect("the default is a time") {
            words.push(format!("--now {}", self.state.now));
        }
        if self.strict {
            words.push("--strict".to_owned());
        }
        if let Some(path) = &self.accept {
            words.push(format!("--accept {}", quoted(path)));
        }
        words.push(format!("--seed {} --case {case} --property {property}", self.seed));
        words.join(" ")
    }

    /// Reads the findings that are accepted.
    fn accepted(&self) -> anyhow::Result<Vec<AcceptedFinding>> {
        let given = self.accept.clone();
        let Some(file) = given.or_else(|| accepted::file_of(&self.plugin.component)) else {
            return Ok(Vec::new());
        };
        let option = if self.accept.is_some() { "--accept " } else { "" };
        let named = || format!("{option}{}", file.display());
        let list = accepted::read(&file).with_context(named)?;
        // Those of the plugin's description, which are not said when it is loaded.
        parse(&list).map_err(|problem| anyhow!("{}: {problem}", named()))?;
        let mut entries: Vec<Value> = list.as_array().cloned().unwrap_or_default();
        let is_own = |entry: &Value| !entry["property"].is_null();
        let numbers: Vec<usize> = (1..)
            .zip(&entries)
            .filter(|(_, entry)| is_own(entry))
            .map(|(number, _)| number)
            .collect();
        entries.retain(is_own);
        let accepted: Vec<AcceptedFinding> = serde_json::from_value(entries.into()).with_context(|| {
            format!(
                "{} is no list of findings, each with property, contains and reason",
                named()
            )
        })?;
        for (number, finding) in numbers.iter().zip(&accepted) {
            if let Some(problem) = finding.problem() {
                bail!("{}, finding {number}: {problem}", named());
            }
        }
        Ok(accepted)
    }

    fn document(&self, report: &Report, options: &Options) -> Value {
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
        let remark = |remark: &Remark| {
            let Remark { count, case, words } = remark;
            json!({"cases": count, "case": case, "message": words})
        };
        let accepted = |(finding, count): (&AcceptedFinding, &u32)| {
            let AcceptedFinding {
                property,
                contains,
                reason,
            } = finding;
            json!({"property": property.as_str(), "contains": contains, "reason": reason, "count": count})
        };
        json!({
            "judged": report.judged,
            "discarded": report.discarded,
            "seconds": report.elapsed.as_secs_f64(),
            "perSecond": report.per_second(),
            "refused": report.refused_by_plugin,
            "refusals": report.plugin_refusals.iter().map(remark).collect::<Vec<_>>(),
            "refusedByServer": report.refusals,
            "untried": report.untried.iter().map(|property| property.as_str()).collect::<Vec<_>>(),
            "remarks": report.refused.iter().map(remark).collect::<Vec<_>>(),
            "unchecked": report.unchecked,
            "withoutSource": report.without_source,
            "accepted": options.accepted.iter().zip(&report.accepted).map(accepted).collect::<Vec<_>>(),
            "violations": report.violations.iter().map(violation).collect::<Vec<_>>(),
        })
    }
}

/// Formats the refused objects for the report.
fn plugin_refusals(report: &Report) -> String {
    let (count, judged) = (report.refused_by_plugin, report.judged);
    let mut text = String::new();
    if count > 0 {
        let _ = writeln!(text, "the plugin refuses {count} of {judged} objects:");
        text += &remarks(&report.plugin_refusals);
    }
    if count > judged / 2 {
        text += "the verdicts cover little: more than half of the objects were refused; give samples with -f, and say in the CRD what the \
                 plugin refuses\n";
    }
    text
}

/// Formats a line for each remark, and the number of those that are left out.
fn remarks(remarks: &[Remark]) -> String {
    let mut text = String::new();
    for Remark { count, case, words } in remarks.iter().take(MAX_REMARKS) {
        let mut words = printable(words);
        if let Some((end, _)) = words.char_indices().nth(MAX_REMARK_LETTERS) {
            words.truncate(end);
            words.push('…');
        }
        let cases = if *count == 1 {
            format!("case {case}")
        } else {
            format!("{count} cases, the first is {case}")
        };
        let _ = writeln!(text, "  {cases}: {words}");
    }
    let others = remarks.len().saturating_sub(MAX_REMARKS);
    if others > 0 {
        let _ = writeln!(text, "  and {others} other remarks; -o json has them");
    }
    text
}

/// Returns text of a plugin in which nothing but line breaks moves the cursor.
fn shown(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(printable).collect();
    lines.join("\n")
}

/// Quotes a path for a shell.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |letter: char| letter.is_alphanumeric() || "/._-=+:@".contains(letter);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text;
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        check: CheckCommand,
    }

    fn command(options: &[&str]) -> CheckCommand {
        Line::parse_from([&["check", "web.wasm"], options].concat()).check
    }

    #[test]
    fn the_command_that_repeats_a_case_has_all_its_inputs() {
        let again = |options: &[&str]| command(options).again(Property::Valid, 42);
        let end = "--seed 1 --case 42 --property valid";
        assert_eq!(again(&[]), format!("pilothouse check web.wasm {end}"));
        assert_eq!(
            again(&[
                "-f",
                "a b.yaml",
                "--config",
                "c.yaml",
                "--cluster",
                "d.yaml",
                "--wasi",
                "inert"
            ]),
            format!("pilothouse check web.wasm --config c.yaml -f 'a b.yaml' --cluster d.yaml --wasi inert {end}")
        );
        assert_eq!(
            again(&[
                "-n",
                "shop",
                "--now",
                "2026-02-03T04:05:06Z",
                "--strict",
                "--accept",
                "a.yaml",
                "--seed",
                "7"
            ]),
            "pilothouse check web.wasm --namespace shop --now 2026-02-03T04:05:06Z --strict --accept a.yaml --seed 7 --case 42 \
             --property valid"
        );
    }

    #[test]
    fn who_repeats_a_case_is_told_that_it_needs_the_standard_input() {
        assert_eq!(command(&["-f", "a.yaml"]).repeat(), "repeat it with");
        for options in [["-f", "-"], ["--cluster", "-"]] {
            let command = command(&options);
            assert_eq!(command.repeat(), "repeat it, with the same standard input, with");
        }
    }

    #[test]
    fn values_of_a_secret_that_breaks_a_property_are_not_printed() {
        let object =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"a": "b3Blbi1zZXNhbWU="}});
        let violation = Violation {
            property: Property::Valid,
            case: 3,
            problem: "it is\u{7}broken".to_owned(),
            object,
            shrunk: 0,
        };
        let report = Report {
            judged: 1,
            violations: vec![violation],
            ..Report::default()
        };
        let (command, options) = (command(&[]), Options::default());
        let (text, document) = (command.text(&report, &options), command.document(&report, &options));
        assert!(!text.contains("b3Bl") && text.contains("a: \"***\""), "{text}");
        assert!(text.contains("valid is broken: it is\\u{7}broken"), "{text}");
        assert!(!document.to_string().contains("b3Bl"), "{document}");
        assert!(
            text.find("BROKEN valid") > text.find("repeat it with"),
            "the result comes last: {text}"
        );
    }

    #[test]
    fn a_property_that_was_not_tried_is_not_called_ok() {
        let report = Report {
            judged: 1,
            untried: vec![Property::Deletion],
            ..Report::default()
        };
        let command = command(&[]);
        let text = command.text(&report, &Options::default());
        assert!(text.contains("\n-      deletion    not tried: no finalizer"), "{text}");
        assert!(
            !text.contains("ok     deletion") && text.contains("ok     no-trap"),
            "{text}"
        );
        let document = command.document(&report, &Options::default());
        assert_eq!(document["untried"], json!(["deletion"]));
    }

    #[test]
    fn remarks_are_one_line_each_with_a_count_and_no_more_than_fit() {
        let remark = |case: u32, count: u32, words: &str| Remark {
            count,
            case,
            words: words.to_owned(),
        };
        let shown = remarks(&[remark(4, 17, "Service n/a: a\nb"), remark(9, 1, &"ä".repeat(301))]);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[0], "  17 cases, the first is 4: Service n/a: a\\nb");
        assert_eq!(lines[1], format!("  case 9: {}…", "ä".repeat(300)));
        assert_eq!(lines.len(), 2);
        let many: Vec<Remark> = (0..13).map(|case| remark(case, 1, "x")).collect();
        let shown = remarks(&many);
        assert_eq!(shown.lines().count(), 11);
        assert!(shown.ends_with("  and 3 other remarks; -o json has them\n"), "{shown}");
    }
}
