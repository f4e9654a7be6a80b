//! Checks the names of a project and a kind, and derives others from them: modules, types, plurals.

use std::fmt;
use std::str::FromStr;

use pilothouse_core::plugin::manifest::{is_label, is_subdomain};

/// Name of a package, which is the plugin's name too: cargo, Rust and Kubernetes accept it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackageName(String);

/// A kind by its group and version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewKind {
    /// The API group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The kind.
    pub kind: String,
}

/// Reasons why a name cannot be used, and what to use instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Not a crate's name.
    #[error(
        "{name:?} is no name for a project: {why}; a name has a-z, 0-9 and -, begins with a letter a-z, and has at most 63 \
         characters; try {proposal}"
    )]
    Package {
        /// The given name.
        name: String,
        /// The problem.
        why: &'static str,
        /// A name that can be used.
        proposal: String,
    },
    /// Not three parts.
    #[error("{0:?} is no kind; write GROUP/VERSION/KIND, for example example.com/v1/Website")]
    Parts(String),
    /// A group without a domain.
    #[error(
        "{0:?} is no API group of your own: it is a DNS name with a dot in lower case, for example {1}; for objects of others give \
         --decorates in place of --kind"
    )]
    Group(String, String),
    /// A group that belongs to Kubernetes.
    #[error(
        "{0:?} is an API group of Kubernetes itself; take a domain of yours, for example example.com, or give --decorates in place of \
         --kind"
    )]
    ProtectedGroup(String),
    /// Not a foreign kind.
    #[error(
        "{0:?} is no kind of others; write GROUP/VERSION/KIND, for example apps/v1/StatefulSet, or VERSION/KIND for the core group, as \
         in v1/Service"
    )]
    Decorated(String),
    /// Not an annotation.
    #[error(
        "{0:?} is no name of an annotation; it has letters, digits, -, _ and ., and may have a domain in front, as in \
         example.com/decorate"
    )]
    Annotation(String),
    /// Not a version.
    #[error("{0:?} is no API version; it is v1, v1beta1, v2alpha3 and so on")]
    Version(String),
    /// Not a kind.
    #[error("{name:?} is no kind: {why}; try {proposal}")]
    Kind {
        /// The given name.
        name: String,
        /// The problem.
        why: &'static str,
        /// A kind that can be used.
        proposal: String,
    },
    /// Not a plural.
    #[error(
        "{0:?} is no plural of a kind: it has a-z, 0-9 and - only, and begins with a letter; for example galleries"
    )]
    Plural(String),
}

/// Names that crates of this kind cannot have: Rust's keywords, and crates that every project depends on.
const TAKEN: &[&str] = &[
    "abstract",
    "alloc",
    "as",
    "async",
    "await",
    "become",
    "box",
    "break",
    "const",
    "continue",
    "core",
    "crate",
    "do",
    "dyn",
    "else",
    "enum",
    "extern",
    "false",
    "final",
    "fn",
    "for",
    "gen",
    "if",
    "impl",
    "in",
    "let",
    "lib",
    "loop",
    "macro",
    "main",
    "match",
    "mod",
    "move",
    "mut",
    "override",
    "pilothouse",
    "pilothouse-plugin",
    "priv",
    "proc-macro",
    "pub",
    "ref",
    "return",
    "schemars",
    "self",
    "serde",
    "serde-json",
    "static",
    "std",
    "struct",
    "super",
    "test",
    "tests",
    "trait",
    "true",
    "try",
    "type",
    "typeof",
    "union",
    "unsafe",
    "unsized",
    "use",
    "virtual",
    "where",
    "while",
    "yield",
    "kind",
];

/// Modules that no kind may have: projects in some language have a file of this name.
const TAKEN_MODULES: &[&str] = &["build", "component", "plugin"];

/// Types that the template names, and those that every Rust file has. A kind of such a name has a type of another name.
const TAKEN_TYPES: &[&str] = &[
    "BTreeMap",
    "Box",
    "Clone",
    "Cluster",
    "Condition",
    "ConditionsOnly",
    "ConfigMap",
    "ConfigMapVolumeSource",
    "Container",
    "Controller",
    "ControllerManifest",
    "Copy",
    "Debug",
    "Default",
    "Defaulter",
    "Deployment",
    "Deserialize",
    "Drop",
    "Err",
    "FakeCluster",
    "Failure",
    "FieldError",
    "Fields",
    "Finalization",
    "Finalized",
    "Finalizer",
    "Fn",
    "From",
    "Iterator",
    "JsonSchema",
    "Kind",
    "Live",
    "LiveDeployment",
    "LiveStatus",
    "NoConfig",
    "None",
    "ObjectMeta",
    "Ok",
    "Operator",
    "Option",
    "Outcome",
    "Request",
    "Resource",
    "Result",
    "Review",
    "Self",
    "Send",
    "Serialize",
    "Some",
    "String",
    "Sync",
    "ToString",
    "Touch",
    "Validator",
    "Value",
    "Vec",
    "Volume",
    "VolumeMount",
];

/// Most characters of a DNS label.
const MAX_LABEL: usize = 63;

impl FromStr for PackageName {
    type Err = NameError;

    fn from_str(name: &str) -> Result<Self, NameError> {
        let why = if name.is_empty() {
            "it is empty"
        } else if name.contains(['/', '\\']) {
            "it is a path; change to the folder that the project should be in, and give its name"
        } else if !name.starts_with(|first: char| first.is_ascii_lowercase()) {
            "it begins with a letter a-z"
        } else if !name
            .chars()
            .all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '-')
        {
            "it has a-z, 0-9 and - only"
        } else if name.ends_with('-') || name.contains("--") {
            "each - stands between letters and digits"
        } else if name.len() > MAX_LABEL {
            "it has at most 63 characters"
        } else if TAKEN.contains(&name) {
            "Rust, cargo or a crate that the project depends on has it"
        } else {
            return Ok(Self(name.to_owned()));
        };
        Err(NameError::Package {
            name: name.to_owned(),
            why,
            proposal: proposed_package(name),
        })
    }
}

impl PackageName {
    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the name of its library, as Rust writes it.
    pub fn library(&self) -> String {
        self.0.replace('-', "_")
    }
}

/// Returns the nearest valid name.
fn proposed_package(name: &str) -> String {
    let last = name
        .rsplit(['/', '\\'])
        .find(|part| !part.is_empty())
        .unwrap_or_default();
    let words: Vec<_> = snake(last)
        .split(|it: char| !it.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect();
    let joined: String = words.join("-").chars().take(MAX_LABEL - "-operator".len()).collect();
    let joined = joined.trim_matches('-').to_owned();
    if joined.is_empty() {
        "my-operator".to_owned()
    } else if !joined.starts_with(|first: char| first.is_ascii_lowercase()) {
        format!("operator-{joined}")
    } else if TAKEN.contains(&joined.as_str()) {
        format!("{joined}-operator")
    } else {
        joined
    }
}

impl FromStr for NewKind {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let [group, version, kind] = text.split('/').collect::<Vec<_>>()[..] else {
            return Err(NameError::Parts(text.to_owned()));
        };
        check_group(group)?;
        if !is_version(version) {
            return Err(NameError::Version(version.to_owned()));
        }
        check_kind(kind)?;
        Ok(Self {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
        })
    }
}

fn check_group(group: &str) -> Result<(), NameError> {
    if !group.contains('.') || !group.split('.').all(is_label) || group.len() > 200 {
        let lower: String = group.to_lowercase();
        let label: String = lower.chars().filter(char::is_ascii_alphanumeric).collect();
        let proposal = if group.contains('.') || label.is_empty() {
            "example.com".to_owned()
        } else {
            format!("{label}.example.com")
        };
        return Err(NameError::Group(group.to_owned(), proposal));
    }
    let protected = ["k8s.io", "kubernetes.io"];
    if protected
        .iter()
        .any(|it| group == *it || group.ends_with(&format!(".{it}")))
    {
        return Err(NameError::ProtectedGroup(group.to_owned()));
    }
    Ok(())
}

/// Reports whether it is `v`, a number, and perhaps `alpha` or `beta` with a number.
fn is_version(version: &str) -> bool {
    let is_number = |text: &str| {
        !text.is_empty() && !text.starts_with('0') && text.len() < 6 && text.chars().all(|it| it.is_ascii_digit())
    };
    let Some(rest) = version.strip_prefix('v') else {
        return false;
    };
    let parts = rest.split_once("alpha").or_else(|| rest.split_once("beta"));
    parts.map_or_else(
        || is_number(rest),
        |(major, minor)| is_number(major) && is_number(minor),
    )
}

fn check_kind(kind: &str) -> Result<(), NameError> {
    let why = if kind.is_empty() {
        "it is empty"
    } else if !kind.chars().all(|it| it.is_ascii_alphanumeric()) {
        "it has letters and digits only"
    } else if !kind.starts_with(|first: char| first.is_ascii_uppercase()) {
        "it begins with an upper-case letter"
    } else if kind.len() > MAX_LABEL {
        "it has at most 63 characters"
    } else {
        return Ok(());
    };
    let words = kind
        .split(|it: char| !it.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty());
    let camel: String = words.map(capitalized).collect();
    let camel = camel.trim_start_matches(|first: char| first.is_ascii_digit());
    let proposal: String = camel.chars().take(MAX_LABEL).collect();
    Err(NameError::Kind {
        name: kind.to_owned(),
        why,
        proposal: if proposal.is_empty() {
            "Website".to_owned()
        } else {
            proposal
        },
    })
}

fn capitalized(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_ascii_uppercase().to_string() + letters.as_str()
    })
}

impl fmt::Display for NewKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { group, version, kind } = self;
        write!(formatter, "{group}/{version}/{kind}")
    }
}

impl NewKind {
    /// Returns the name of the Rust type.
    pub fn type_name(&self) -> String {
        let kind = self.kind.as_str();
        if TAKEN_TYPES.contains(&kind) {
            format!("{kind}Resource")
        } else {
            kind.to_owned()
        }
    }

    /// Returns the name of the module.
    pub fn module(&self) -> String {
        let module = snake(&self.kind);
        if TAKEN.iter().chain(TAKEN_MODULES).any(|taken| *taken == module) {
            format!("{module}_kind")
        } else {
            module
        }
    }

    /// Returns the beginning of a variable's name: `HttpProxy` as `httpProxy`.
    pub fn variable(&self) -> String {
        let snake = snake(&self.kind);
        let mut words = snake.split('_');
        let first = words.next().unwrap_or_default().to_owned();
        first + &words.map(capitalized).collect::<String>()
    }

    /// Returns a DNS label: the name of the controller.
    pub fn label(&self) -> String {
        snake(&self.kind).replace('_', "-")
    }

    /// Returns the kind in lower case.
    pub fn singular(&self) -> String {
        self.kind.to_lowercase()
    }

    /// Returns the English plural in lower case.
    pub fn plural(&self) -> String {
        let word = self.singular();
        let before_last = word.chars().rev().nth(1).unwrap_or('a');
        if word.ends_with('y') && !"aeiou".contains(before_last) {
            return format!("{}ies", &word[..word.len() - 1]);
        }
        let hisses = ["s", "x", "z", "ch", "sh"].iter().any(|ending| word.ends_with(ending));
        word + if hisses { "es" } else { "s" }
    }
}

/// Parses a foreign kind, which may be one of Kubernetes itself.
pub fn decorated(text: &str) -> Result<NewKind, NameError> {
    let (group, version, kind) = match text.split('/').collect::<Vec<_>>()[..] {
        [group, version, kind] if !group.is_empty() => (group, version, kind),
        [version, kind] => ("", version, kind),
        _ => return Err(NameError::Decorated(text.to_owned())),
    };
    let is_group = group.is_empty() || group.split('.').all(is_label);
    if !is_group || !is_version(version) {
        return Err(NameError::Decorated(text.to_owned()));
    }
    check_kind(kind)?;
    Ok(NewKind {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: kind.to_owned(),
    })
}

/// A kind on the command line: one of one's own, or, with a CRD that exists, any.
#[derive(Clone, Debug)]
pub struct GivenKind {
    /// The kind.
    pub kind: NewKind,
    /// Why it cannot be the kind of a new CRD.
    pub refused: Option<NameError>,
}

impl FromStr for GivenKind {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        match (text.parse::<NewKind>(), decorated(text)) {
            (Ok(kind), _) => Ok(Self { kind, refused: None }),
            (Err(error), Ok(kind)) => Ok(Self {
                kind,
                refused: Some(error),
            }),
            (Err(error), Err(_)) => Err(error),
        }
    }
}

/// Checks the kind of a CRD that exists: what its names become has to be a name in every language.
pub fn check_published(NewKind { group, version, kind }: &NewKind) -> Result<(), NameError> {
    if !is_subdomain(group) || !is_label(version) {
        return Err(NameError::Parts(format!("{group}/{version}/{kind}")));
    }
    check_kind(kind)
}

/// Checks the name of an annotation.
pub fn annotation(text: &str) -> Result<String, NameError> {
    let (prefix, name) = text
        .rsplit_once('/')
        .map_or((None, text), |(prefix, name)| (Some(prefix), name));
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    let ends = [name.chars().next(), name.chars().last()];
    let is_name = name.len() <= MAX_LABEL
        && name.chars().all(is_plain)
        && ends
            .iter()
            .all(|end| end.is_some_and(|letter| letter.is_ascii_alphanumeric()));
    if is_name && prefix.is_none_or(is_subdomain) {
        Ok(text.to_owned())
    } else {
        Err(NameError::Annotation(text.to_owned()))
    }
}

/// Checks a given plural.
pub fn plural(text: &str) -> Result<String, NameError> {
    let is_plural = text.starts_with(|first: char| first.is_ascii_lowercase())
        && text
            .chars()
            .all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '-')
        && !text.ends_with('-')
        && text.len() <= MAX_LABEL;
    if is_plural {
        Ok(text.to_owned())
    } else {
        Err(NameError::Plural(text.to_owned()))
    }
}

/// Converts `HttpProxy` to `http_proxy`, `HTTPRoute` to `http_route`.
pub fn snake(name: &str) -> String {
    let letters: Vec<char> = name.chars().collect();
    let mut snake = String::new();
    for (index, letter) in letters.iter().enumerate() {
        let before = index.checked_sub(1).map(|index| letters[index]);
        let after = letters.get(index + 1);
        let begins_word = letter.is_ascii_uppercase()
            && before.is_some_and(|before| {
                before.is_ascii_lowercase()
                    || before.is_ascii_digit()
                    || (before.is_ascii_uppercase() && after.is_some_and(char::is_ascii_lowercase))
            });
        if begins_word {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(text: &str) -> NewKind {
        text.parse().unwrap()
    }

    #[test]
    fn kinds_of_others_and_annotations_are_checked() {
        for (text, group, kind) in [
            ("apps/v1/StatefulSet", "apps", "StatefulSet"),
            ("v1/Service", "", "Service"),
            (
                "gateway.networking.k8s.io/v1beta1/HTTPRoute",
                "gateway.networking.k8s.io",
                "HTTPRoute",
            ),
        ] {
            let found = decorated(text).unwrap();
            assert_eq!((found.group.as_str(), found.kind.as_str()), (group, kind));
        }
        for text in [
            "StatefulSet",
            "/v1/Service",
            "Apps/v1/StatefulSet",
            "apps/1/StatefulSet",
            "a/b/v1/C",
            "",
        ] {
            assert!(matches!(decorated(text), Err(NameError::Decorated(_))), "{text}");
        }
        assert!(matches!(decorated("apps/v1/statefulset"), Err(NameError::Kind { .. })));
        for name in ["x", "example.com/decorate", "a.b-c_D"] {
            assert_eq!(annotation(name).unwrap(), name);
        }
        for name in ["", "/x", "x/", "a b", "-x", "Example.com/x", "a/b/c", "x:y"] {
            assert!(annotation(name).is_err(), "{name}");
        }
        let refused = "apps/v1/StatefulSet".parse::<NewKind>().unwrap_err().to_string();
        assert!(
            refused.contains("for objects of others give --decorates in place of --kind"),
            "{refused}"
        );
    }

    #[test]
    fn a_name_that_is_none_is_answered_with_one_that_is() {
        for (name, proposal) in [
            ("", "my-operator"),
            ("Website", "website"),
            ("my_site", "my-site"),
            ("MyWebSite", "my-web-site"),
            ("9lives", "operator-9lives"),
            ("match", "match-operator"),
            ("serde", "serde-operator"),
            ("a/b", "b"),
            ("../x", "x"),
            ("-a-", "a"),
            ("a--b", "a-b"),
            ("wébsite", "w-bsite"),
            ("--", "my-operator"),
        ] {
            let error = name.parse::<PackageName>().unwrap_err().to_string();
            assert!(error.ends_with(&format!("; try {proposal}")), "{name}: {error}");
            assert!(proposal.parse::<PackageName>().is_ok(), "{proposal}");
        }
        let long = "a".repeat(64);
        assert!(
            long.parse::<PackageName>()
                .unwrap_err()
                .to_string()
                .contains("at most 63 characters")
        );
        assert_eq!("my-site".parse::<PackageName>().unwrap().library(), "my_site");
    }

    #[test]
    fn each_part_of_a_kind_is_named_when_it_is_wrong() {
        for (text, part) in [
            ("", "write GROUP/VERSION/KIND"),
            ("Website", "write GROUP/VERSION/KIND"),
            ("example.com/v1", "write GROUP/VERSION/KIND"),
            ("example.com/v1/Website/x", "write GROUP/VERSION/KIND"),
            ("example/v1/Website", "\"example\" is no API group of your own"),
            ("example/v1/Website", "for example example.example.com"),
            ("Example.com/v1/Website", "\"Example.com\" is no API group"),
            ("/v1/Website", "\"\" is no API group"),
            (
                "apps.k8s.io/v1/Website",
                "\"apps.k8s.io\" is an API group of Kubernetes",
            ),
            ("example.com/1/Website", "\"1\" is no API version"),
            ("example.com/v0/Website", "\"v0\" is no API version"),
            ("example.com/v1gamma1/Website", "\"v1gamma1\" is no API version"),
            (
                "example.com/v1/website",
                "\"website\" is no kind: it begins with an upper-case letter; try Website",
            ),
            ("example.com/v1/web-site", "it has letters and digits only; try WebSite"),
            ("example.com/v1/", "\"\" is no kind: it is empty"),
        ] {
            let error = text.parse::<NewKind>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        for version in ["v1", "v2alpha1", "v1beta12"] {
            assert!(
                format!("example.com/{version}/A").parse::<NewKind>().is_ok(),
                "{version}"
            );
        }
    }

    #[test]
    fn what_follows_from_a_kind_is_what_somebody_would_write() {
        for (name, module, plural) in [
            ("Website", "website", "websites"),
            ("HttpProxy", "http_proxy", "httpproxies"),
            ("HTTPRoute", "http_route", "httproutes"),
            ("Gateway", "gateway", "gateways"),
            ("Class", "class", "classes"),
            ("Match", "match_kind", "matches"),
            ("Box", "box_kind", "boxes"),
            ("Build", "build_kind", "builds"),
            ("S3Bucket", "s3_bucket", "s3buckets"),
        ] {
            let kind = kind(&format!("example.com/v1/{name}"));
            assert_eq!((kind.module().as_str(), kind.plural().as_str()), (module, plural));
        }
        for taken in ["Cluster", "Live", "Finalized", "String"] {
            let kind = kind(&format!("example.com/v1/{taken}"));
            assert_eq!(kind.type_name(), format!("{taken}Resource"));
        }
        assert_eq!(kind("example.com/v1/HttpProxy").label(), "http-proxy");
        assert_eq!(kind("example.com/v1/HTTPRoute").variable(), "httpRoute");
        assert_eq!(kind("example.com/v1/Site").variable(), "site");
        assert_eq!(plural("data").unwrap(), "data");
        let error = plural("Policies").unwrap_err().to_string();
        assert!(error.ends_with("for example galleries"), "{error}");
    }
}
