//! Corpus of bad values: each with its field, its error, and the harm it would do in a templated nginx.conf.

use serde_json::{Value, json};

use crate::plugin;

/// One bad value.
#[derive(Clone, Copy, Debug)]
pub struct Bad {
    /// The field that is named in the refusal.
    pub path: &'static str,
    /// Value.
    pub value: &'static str,
    /// Part of the plugin's message.
    pub words: &'static str,
    /// Reaction of nginx to the value in one of the templates of its field.
    pub nginx: Nginx,
}

/// Reaction of nginx to a bad value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nginx {
    /// Refusal with the plugin's message.
    SaysTheSame,
    /// Refusal.
    Refuses,
    /// Acceptance of the value for more than it should be.
    IsTricked,
}

use Nginx::{IsTricked, Refuses, SaysTheSame};

const PROXY_PASS: &[(&str, &str, Nginx)] = &[
    ("http://$noexists", "unknown \"noexists\" variable", SaysTheSame),
    (
        "http://a.test/${noexists}x",
        "unknown \"noexists\" variable",
        SaysTheSame,
    ),
    ("http://127.0.0.1/$", "invalid variable name", SaysTheSame),
    ("http://127.0.0.1/$-", "invalid variable name", SaysTheSame),
    ("http://127.0.0.1/${}", "invalid variable name", SaysTheSame),
    (
        "http://127.0.0.1/${host",
        "the closing bracket in \"host\" variable is missing",
        SaysTheSame,
    ),
    ("http://", "no host in upstream \"\"", SaysTheSame),
    ("http:///x", "no host in upstream \"/x\"", SaysTheSame),
    ("http://:80/", "no host in upstream \":80/\"", SaysTheSame),
    (
        "http://127.0.0.1:99999/x",
        "invalid port in upstream \"127.0.0.1:99999/x\"",
        SaysTheSame,
    ),
    (
        "http://127.0.0.1:0",
        "invalid port in upstream \"127.0.0.1:0\"",
        SaysTheSame,
    ),
    (
        "http://127.0.0.1:x",
        "invalid port in upstream \"127.0.0.1:x\"",
        SaysTheSame,
    ),
    (
        "http://[nothing]/",
        "invalid IPv6 address in upstream \"[nothing]/\"",
        SaysTheSame,
    ),
    ("ftp://127.0.0.1", "invalid URL prefix", SaysTheSame),
    ("127.0.0.1", "invalid URL prefix", SaysTheSame),
    ("http://127.0.0.1; return 200", "';'", IsTricked),
    ("http://127.0.0.1;\nreturn 200", "';'", IsTricked),
    ("http://127.0.0.1; } location /x { return 200", "';'", IsTricked),
    ("http://127.0.0.1 extra", "has a space", Refuses),
    ("http://127.0.0.1/{", "'{'", Refuses),
    ("http://127.0.0.1/\"; return 200; #", "'\"'", IsTricked),
];

const HEADER: &[(&str, &str, Nginx)] = &[
    ("$noexists", "unknown \"noexists\" variable", SaysTheSame),
    ("a${noexists}b", "unknown \"noexists\" variable", SaysTheSame),
    ("$0", "unknown \"0\" variable", SaysTheSame),
    ("costs 5$", "invalid variable name", SaysTheSame),
    ("${", "invalid variable name", SaysTheSame),
    (
        "${host",
        "the closing bracket in \"host\" variable is missing",
        SaysTheSame,
    ),
    ("a\"; return 200; #", "'\"'", IsTricked),
    ("a\" b", "'\"'", Refuses),
    ("a\\", "'\\\\'", Refuses),
    ("a; return 200", "';'", IsTricked),
    ("a{", "'{'", Refuses),
];

const HEADER_NAME: &[(&str, &str, Nginx)] = &[
    ("a b", "is no name of a header", Refuses),
    ("a;", "is no name of a header", Refuses),
    ("x v; return 200; #", "is no name of a header", IsTricked),
    ("x{", "is no name of a header", Refuses),
    (
        "loooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooong",
        "is no name of a header",
        Refuses,
    ),
];

const HIDDEN: &[(&str, &str, Nginx)] = &[
    ("a b", "is no name of a header", Refuses),
    ("a; return 200", "is no name of a header", IsTricked),
    ("a{", "is no name of a header", Refuses),
    ("", "is no name of a header", Refuses),
];

const LOG_FORMAT: &[(&str, &str, Nginx)] = &[
    ("$noexists", "unknown \"noexists\" variable", SaysTheSame),
    ("$1", "unknown \"1\" variable", SaysTheSame),
    ("a $", "invalid parameter \"$\"", SaysTheSame),
    ("$-", "invalid parameter \"$-\"", SaysTheSame),
    (
        "${host",
        "the closing bracket in \"host\" variable is missing",
        SaysTheSame,
    ),
    ("'; server_tokens off; #", "'\\''", IsTricked),
    ("it's", "'\\''", Refuses),
    ("a\\", "'\\\\'", Refuses),
];

const REGEX: &[(&str, &str, Nginx)] = &[
    ("^/(foo", "missing closing parenthesis", SaysTheSame),
    ("foo)", "unmatched closing parenthesis", SaysTheSame),
    ("*foo", "quantifier does not follow a repeatable item", SaysTheSame),
    ("a**", "quantifier does not follow a repeatable item", SaysTheSame),
    ("[abc", "missing terminating ] for character class", SaysTheSame),
    ("[z-a]", "range out of order in character class", SaysTheSame),
    ("a{3,2}", "numbers out of order in {} quantifier", SaysTheSame),
    ("a{70000}", "number too big in {} quantifier", SaysTheSame),
    ("[[:nope:]]", "unknown POSIX class name", SaysTheSame),
    (r"(a)\2", "reference to non-existent subpattern", SaysTheSame),
    (r"\y", "unrecognized character follows \\", SaysTheSame),
    ("(?z)", "unrecognized character after (? or (?-", SaysTheSame),
    ("((a{1000}){1000}){9}", "regular expression is too large", SaysTheSame),
    ("a\\", "\\ at end of pattern", Refuses),
    ("a\" /y; return 200; #", "'\"'", IsTricked),
    ("a; return 200; rewrite x", "';'", IsTricked),
];

const REPLACEMENT: &[(&str, &str, Nginx)] = &[
    ("", "empty replacement", SaysTheSame),
    ("/$noexists", "unknown \"noexists\" variable", SaysTheSame),
    ("/$", "invalid variable name", SaysTheSame),
    (
        "/${host",
        "the closing bracket in \"host\" variable is missing",
        SaysTheSame,
    ),
    ("/x; return 200", "';'", IsTricked),
    ("/x y", "has a space", Refuses),
];

const TIMEOUT: &[(&str, &str, Nginx)] = &[
    ("1x", "give a number", Refuses),
    ("-1s", "give a number", Refuses),
    ("", "give a number", Refuses),
    ("99999999999999999999s", "give a number", Refuses),
    ("15s; return 200", "give a number", IsTricked),
];

const RESOLVER: &[(&str, &str, Nginx)] = &[
    (
        "127.0.0.1:99999",
        "invalid port in resolver \"127.0.0.1:99999\"",
        SaysTheSame,
    ),
    ("[::g]", "invalid IPv6 address in resolver \"[::g]\"", SaysTheSame),
    ("valid=x", "invalid parameter: valid=x", SaysTheSame),
    ("127.0.0.1 valid=x", "has a space", Refuses),
    ("127.0.0.1; server_tokens off", "';'", IsTricked),
];

const HASH: &[(&str, &str, Nginx)] = &[
    ("$noexists", "unknown \"noexists\" variable", SaysTheSame),
    ("$host", "unknown \"host\" variable", SaysTheSame),
    ("$", "invalid variable name", SaysTheSame),
    (
        "${remote_addr",
        "the closing bracket in \"remote_addr\" variable is missing",
        SaysTheSame,
    ),
    ("$remote_addr sometimes", "invalid parameter \"sometimes\"", SaysTheSame),
    (
        "a b c",
        "invalid number of arguments in \"hash\" directive",
        SaysTheSame,
    ),
    ("$remote_addr; server 127.0.0.1:1", "invalid", IsTricked),
    ("a;", "';'", Refuses),
];

const SERVER: &[(&str, &str, Nginx)] = &[
    ("127.0.0.1", "no port in upstream \"127.0.0.1\"", SaysTheSame),
    ("127.0.0.1:0", "invalid port in upstream \"127.0.0.1:0\"", SaysTheSame),
    (
        "127.0.0.1:99999",
        "invalid port in upstream \"127.0.0.1:99999\"",
        SaysTheSame,
    ),
    (":80", "no host in upstream \":80\"", SaysTheSame),
    ("[::g]:80", "invalid IPv6 address in upstream \"[::g]:80\"", SaysTheSame),
    ("127.0.0.1:80 down", "has a space", IsTricked),
    ("127.0.0.1:80; server 127.0.0.1:81", "';'", IsTricked),
    ("127.0.0.1:80;}", "';'", Refuses),
];

/// The whole corpus.
pub fn all() -> Vec<Bad> {
    let fields = [
        ("spec.proxyPass", PROXY_PASS),
        ("spec.proxySetHeader[x-a]", HEADER),
        ("spec.proxySetHeader", HEADER_NAME),
        ("spec.proxyHideHeader[0]", HIDDEN),
        ("spec.logFormat", LOG_FORMAT),
        ("spec.rewrite[0].regex", REGEX),
        ("spec.rewrite[0].replacement", REPLACEMENT),
        ("spec.proxyReadTimeout", TIMEOUT),
        ("spec.resolver[0]", RESOLVER),
        ("spec.hash", HASH),
        ("spec.servers[0].server", SERVER),
    ];
    let of_field = |(path, values): (&'static str, &'static [(&'static str, &'static str, Nginx)])| {
        values.iter().map(move |&(value, words, nginx)| Bad {
            path,
            value,
            words,
            nginx,
        })
    };
    fields.into_iter().flat_map(of_field).collect()
}

impl Bad {
    /// The path of the error: that of a header's name has the name in it.
    pub fn error_path(&self) -> String {
        if self.path == "spec.proxySetHeader" {
            format!("{}[{}]", self.path, self.value.to_lowercase())
        } else {
            self.path.to_owned()
        }
    }

    /// A resource with the value.
    pub fn object(&self) -> Value {
        let value = self.value;
        let mut http = json!({"proxyPass": "http://127.0.0.1"});
        let mut tcp = json!({"servers": [{"server": "127.0.0.1:80"}]});
        match self.path {
            "spec.proxyPass" => http["proxyPass"] = value.into(),
            "spec.proxySetHeader[x-a]" => http["proxySetHeader"] = json!({"x-a": value}),
            "spec.proxySetHeader" => http["proxySetHeader"] = json!({value: "v"}),
            "spec.proxyHideHeader[0]" => http["proxyHideHeader"] = json!([value]),
            "spec.logFormat" => http["logFormat"] = value.into(),
            "spec.rewrite[0].regex" => http["rewrite"] = json!([{"regex": value, "replacement": "/y"}]),
            "spec.rewrite[0].replacement" => http["rewrite"] = json!([{"regex": "^", "replacement": value}]),
            "spec.proxyReadTimeout" => http["proxyReadTimeout"] = value.into(),
            "spec.resolver[0]" => http["resolver"] = json!([value, "127.0.0.1"]),
            "spec.hash" => tcp["hash"] = value.into(),
            "spec.servers[0].server" => tcp["servers"] = json!([{"server": value}]),
            other => panic!("{other} has no resource"),
        }
        if self.path == "spec.hash" || self.path == "spec.servers[0].server" {
            plugin::tcp(tcp)
        } else {
            plugin::http(http)
        }
    }

    /// A value of the field that nginx takes in every template.
    pub fn harmless(&self) -> &'static str {
        match self.path {
            "spec.proxyPass" => "http://127.0.0.1",
            "spec.proxyReadTimeout" => "15s",
            "spec.resolver[0]" => "127.0.0.1",
            "spec.servers[0].server" => "127.0.0.1:80",
            _ => "x",
        }
    }

    /// Directives as a template would write them, with `{}` for the value.
    pub fn templates(&self) -> &'static [&'static str] {
        match self.path {
            "spec.proxyPass" => &["proxy_pass {};"],
            "spec.proxySetHeader[x-a]" => &["proxy_set_header x-a \"{}\";", "proxy_set_header x-a {};"],
            "spec.proxySetHeader" => &["proxy_set_header {} v;\nproxy_pass http://127.0.0.1;"],
            "spec.proxyHideHeader[0]" => &["proxy_hide_header {};"],
            "spec.logFormat" => &["log_format proxy '{}';\naccess_log /dev/stdout proxy;"],
            "spec.rewrite[0].regex" => &["rewrite \"{}\" /x break;", "rewrite {} /x break;"],
            "spec.rewrite[0].replacement" => &["rewrite ^ \"{}\" break;", "rewrite ^ {} break;"],
            "spec.proxyReadTimeout" => &["proxy_read_timeout {};"],
            "spec.resolver[0]" => &["resolver {} 127.0.0.1;", "resolver 127.0.0.1 {};"],
            "spec.hash" => &["hash {};"],
            "spec.servers[0].server" => &["server {};"],
            other => panic!("{other} has no template"),
        }
    }

    /// A whole configuration with a template's directives in their place.
    pub fn configuration(&self, directives: &str) -> String {
        let folders = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
        let temporary = folders.map(|name| format!("{name}_temp_path /tmp/{name};")).concat() + " access_log off;";
        let main = "pid /tmp/nginx.pid;\nevents {}\n";
        match self.path {
            "spec.hash" => format!("{main}stream {{ upstream u {{\n{directives}\nserver 127.0.0.1:80; }} }}"),
            "spec.servers[0].server" => format!("{main}stream {{ upstream u {{\n{directives}\n}} }}"),
            "spec.logFormat" => {
                let temporary = temporary.replace("access_log off;", "");
                format!("{main}http {{ {temporary}\n{directives}\nserver {{ listen 8080; }} }}")
            }
            "spec.resolver[0]" => format!("{main}http {{ {temporary}\n{directives}\n}}"),
            _ => format!("{main}http {{ {temporary} server {{ listen 8080; location / {{\n{directives}\n}} }} }}"),
        }
    }
}
