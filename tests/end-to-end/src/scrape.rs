//! Requests to a host's server for metrics and health, and the values that `/metrics` prints.
#![allow(clippy::missing_panics_doc, missing_docs, reason = "all of it is for tests")]

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The longest that an answer takes.
const WITHIN: Duration = Duration::from_mins(1);

/// The code and the body of the answer to a GET.
pub fn get(address: SocketAddr, path: &str) -> io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(WITHIN))?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let garbled = || io::Error::new(io::ErrorKind::InvalidData, answer.clone());
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(garbled)?;
    let code = head
        .split(' ')
        .nth(1)
        .and_then(|code| code.parse().ok())
        .ok_or_else(garbled)?;
    Ok((code, body.to_owned()))
}

/// Text of `/metrics`.
#[derive(Clone, Debug)]
pub struct Scrape(pub String);

impl Scrape {
    /// The sum of the whole numbers that the samples of a name have with all these labels, written as `plugin="a"`; none
    /// where there is no sample.
    pub fn count(&self, name: &str, labels: &[&str]) -> Option<u64> {
        let values = self.values(name, labels);
        let counts: Vec<u64> = values.map(|value| value.parse().expect("a count is whole")).collect();
        (!counts.is_empty()).then(|| counts.iter().sum())
    }

    /// The largest number of seconds.
    pub fn seconds(&self, name: &str, labels: &[&str]) -> Option<Duration> {
        let values = self.values(name, labels);
        let seconds = values.map(|value| Duration::from_secs_f64(value.parse().expect("it is a number")));
        seconds.max()
    }

    /// Returns `true` if any sample has this label.
    pub fn has_label(&self, label: &str) -> bool {
        self.0
            .lines()
            .any(|line| !line.starts_with('#') && line.contains(label))
    }

    fn values(&self, name: &str, labels: &[&str]) -> impl Iterator<Item = &str> {
        let rest = self.0.lines().filter_map(move |line| line.strip_prefix(name));
        let samples = rest.filter(|rest| rest.starts_with(['{', ' ']));
        let samples = samples.map(|rest| rest.rsplit_once(' ').expect("a sample has a value"));
        let has_all = move |of: &str| labels.iter().all(|label| of.contains(label));
        samples.filter(move |(of, _)| has_all(of)).map(|(_, value)| value)
    }
}
