//! Makes resources from a seed: some that have to be accepted, and some with random values anywhere.

use serde_json::{Value, json};

use crate::plugin;

/// Hosts that tests lead to this machine.
pub const HOSTS: [&str; 4] = ["one.test", "two.shop.svc.test", "my_service.test", "three-3.test"];

/// Words of which texts are made; the second half is for those who mean harm.
const HARMLESS: [&str; 24] = [
    "a",
    "B-7",
    "_x",
    ".",
    "/",
    "?",
    "=",
    "&",
    "%20",
    "~",
    ",",
    "$host-",
    "$1",
    "${uri}",
    "${arg_x}",
    "$http_x_y.",
    "${remote_addr}",
    "$request_uri/",
    "$scheme:",
    "*",
    "!",
    "@",
    "+",
    "(",
];
const HARMFUL: [&str; 30] = [
    ";",
    "{",
    "}",
    "\"",
    "'",
    "\\",
    "\n",
    "\r",
    "\t",
    "\0",
    " ",
    "#",
    "$",
    "${",
    "$noexists",
    "${noexists}",
    "return 200;",
    "\"; return 200; \"",
    "'; return 200; '",
    "}} http {",
    "\\\"",
    "\\'",
    "ä",
    "\u{2028}",
    "$$",
    "$0",
    "`",
    "<",
    "]",
    "\u{7f}",
];

/// Regular expressions that are to be taken.
const EXPRESSIONS: [&str; 16] = [
    "^/foo(.*)$",
    "^",
    "(?i)^/(a|b)/(.+?)/?$",
    r"^/v(\d{1,3})/([^/]+)\.(?:json|xml)$",
    r"^/[[:alpha:]_][\w.-]*(?=/)",
    r"(a)\1{2,}[\]\-a-z]*+",
    r"\x3bX\/[^\]^]|",
    r"^(?!/api)(/.*)$",
    "a||b",
    "()",
    r"\bword\b.\Z",
    "[a-]",
    "[^-a]",
    "((((x)*)+)?){2}",
    "[$%]{0,1000}?",
    r"\{\}\$\.",
];

/// Numbers from a seed (xorshift64*).
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// The same numbers for the same seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33;
        usize::try_from(number).expect("31 bits fit") % bound
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }

    fn chance(&mut self, in_hundred: usize) -> bool {
        self.below(100) < in_hundred
    }

    /// Up to so many words, one after the other.
    fn text(&mut self, words: &[&str], most: usize) -> String {
        let count = self.below(most + 1);
        (0..count).map(|_| self.one(words)).collect()
    }
}

/// A ReverseProxy that is to be accepted.
pub fn http(random: &mut Random) -> Value {
    let mut spec = common(random);
    let host = random.one(&[
        HOSTS[0],
        HOSTS[1],
        HOSTS[2],
        HOSTS[3],
        "10.0.0.1:8080",
        "[::1]:80",
        "$host",
        "${arg_to}.test:81",
    ]);
    let path = random.text(&["/", "a", "${request_uri}", "?b=", "$1", "${uri}", "%20", "."], 4);
    let path = if path.is_empty() || (path.starts_with('?') && !host.starts_with('[')) {
        path
    } else {
        format!("/{path}")
    };
    spec["proxyPass"] = format!("{}://{host}{path}", random.one(&["http", "https", "$scheme"])).into();
    if random.chance(60) {
        spec["logFormat"] = random
            .text(
                &[
                    "$remote_addr",
                    " ",
                    "\"$request\"",
                    "{\"a\": \"${status}\"}",
                    ";",
                    "$pipe",
                    "ä",
                    "[]",
                    "#",
                ],
                6,
            )
            .into();
    }
    let rules = (0..random.below(4)).map(|_| {
        json!({
            "regex": random.one(&EXPRESSIONS),
            "replacement": format!("/{}", random.text(&HARMLESS, 3)),
            "flag": random.one(&["last", "break"]),
        })
    });
    spec["rewrite"] = rules.collect();
    spec["proxyHideHeader"] = ["x-powered-by", "Server", "x-a.b_c"]
        .into_iter()
        .filter(|_| random.chance(50))
        .collect();
    let mut headers = json!({});
    for name in [
        "Host",
        "x-forwarded-for",
        "X-Request-Id",
        "upgrade",
        "connection",
        "cookie",
    ] {
        if random.chance(30) {
            headers[name] = random
                .text(&[HARMLESS.as_slice(), &[" ", "#", "[", "|"]].concat(), 5)
                .into();
        }
    }
    if random.chance(10) {
        headers["h".repeat(128)] = "$time_local".into();
    }
    spec["proxySetHeader"] = headers;
    for timeout in ["proxyReadTimeout", "proxySendTimeout", "proxyConnectTimeout"] {
        if random.chance(40) {
            spec[timeout] = format!("{}s", random.below(100_000)).into();
        }
    }
    plugin::http(spec)
}

/// A TCPReverseProxy that is to be accepted.
pub fn tcp(random: &mut Random) -> Value {
    let mut spec = common(random);
    let servers = (0..=random.below(5)).map(|index| {
        let host = random.one(&[HOSTS[0], HOSTS[1], HOSTS[2], HOSTS[3], "10.0.0.1", "[::1]"]);
        let mut server = json!({"server": format!("{host}:{}", 1000 + index)});
        if random.chance(40) {
            server["weight"] = (1 + random.below(1000)).into();
        }
        if random.chance(40) {
            server["maxConns"] = random.below(10_000).into();
        }
        server
    });
    spec["servers"] = servers.collect();
    if random.chance(60) {
        let key = random.text(
            &["$remote_addr-", "${session_time}", "a", "-", "${server_port}", "#"],
            3,
        );
        let consistent = if random.chance(50) { " consistent" } else { "" };
        spec["hash"] = format!("k{key}{consistent}").into();
    }
    spec["protocol"] = random.one(&["TCP", "UDP"]).into();
    if random.chance(50) {
        spec["proxyTimeout"] = format!("{}{}", random.below(10_000), random.one(&["s", "m"])).into();
    }
    plugin::tcp(spec)
}

fn common(random: &mut Random) -> Value {
    let mut spec = json!({});
    if random.chance(50) {
        spec["workerProcesses"] = (1 + random.below(8)).into();
        spec["workerConnections"] = (4 + random.below(1000)).into();
    }
    if random.chance(50) {
        let words = ["10.0.0.10", "[fd00::1]:5353", "127.0.0.1:53", "valid=30s", "ipv6=off"];
        spec["resolver"] = words[..=random.below(words.len())].iter().copied().collect();
    }
    spec
}

/// Returns a ReverseProxy with any content; most are to be refused, and accepted ones must be harmless.
pub fn hostile_http(random: &mut Random) -> Value {
    let mut object = http(random);
    let spec = &mut object["spec"];
    let word = hostile(random);
    match random.below(9) {
        0 => spec["proxyPass"] = format!("http://one.test/{word}").into(),
        1 => spec["proxyPass"] = format!("http://{word}").into(),
        2 => spec["logFormat"] = word.into(),
        3 => spec["rewrite"] = json!([{"regex": word, "replacement": "/x"}]),
        4 => spec["rewrite"] = json!([{"regex": "^", "replacement": word}]),
        5 => spec["proxyHideHeader"] = json!([word]),
        6 => spec["proxySetHeader"] = json!({word: "v"}),
        7 => spec["proxySetHeader"] = json!({"x-a": word}),
        _ => spec["resolver"] = json!([word]),
    }
    object
}

/// A TCPReverseProxy with anything in it.
pub fn hostile_tcp(random: &mut Random) -> Value {
    let mut object = tcp(random);
    let spec = &mut object["spec"];
    let word = hostile(random);
    match random.below(4) {
        0 => spec["servers"] = json!([{"server": word}]),
        1 => spec["servers"] = json!([{"server": format!("one.test:80{word}")}]),
        2 => spec["hash"] = word.into(),
        _ => spec["proxyTimeout"] = word.into(),
    }
    object
}

fn hostile(random: &mut Random) -> String {
    let all: Vec<&str> = HARMLESS.iter().chain(&HARMFUL).copied().collect();
    let words = if random.chance(50) { HARMLESS.to_vec() } else { all };
    format!("{}{}", random.text(&words, 3), random.text(&words, 2))
}
