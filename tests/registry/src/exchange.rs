//! Requests to the registry, its answers, and the state that they read and change.

use std::collections::BTreeMap;
use std::time::Duration;

use pilothouse_artifact::Digest;

pub(crate) type Hook = Box<dyn Fn(&Request, &mut State) -> Option<Reply> + Send>;

#[derive(Clone, Debug)]
pub struct Request {
    pub method: String,
    /// With the query.
    pub path: String,
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }
}

/// Response of the registry.
#[derive(Clone)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub manner: Manner,
}

impl Reply {
    #[must_use]
    pub fn manner(mut self, manner: Manner) -> Self {
        self.manner = manner;
        self
    }
}

/// Manner in which it sends its response.
#[derive(Clone, Copy, PartialEq)]
pub enum Manner {
    Whole,
    /// Nothing at all.
    Hang,
    /// One byte, and the next after this time.
    Drip(Duration),
    /// So many bytes, and the next after this time.
    Bursts(usize, Duration),
    /// So many bytes, and then the connection closes.
    CutAfter(usize),
    /// The body again and again, without a length.
    Endless,
}

pub fn reply(status: u16, headers: &[(&str, &str)], body: impl Into<Vec<u8>>) -> Reply {
    Reply {
        status,
        headers: headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        body: body.into(),
        manner: Manner::Whole,
    }
}

/// Content of the registry, and its behaviour.
#[derive(Default)]
pub struct State {
    pub blobs: BTreeMap<Digest, Vec<u8>>,
    /// By repository and then tag or digest.
    pub manifests: BTreeMap<(String, String), (String, Vec<u8>)>,
    pub requests: Vec<Request>,
    /// Set if it has the referrers API.
    pub referrers_api: bool,
    /// User and password, for the Basic scheme.
    pub basic: Option<(String, String)>,
    /// Asked before anything else.
    pub hook: Option<Hook>,
    pub ranges: bool,
}
