//! Client of a host on this machine: over plain HTTP, at a loopback address only, with a key that only proves that the
//! client can read the host's file. No token of a cluster is sent there: another user may listen at the port.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::Context as _;
use pilothouse_cluster::connect::host_proxy::ProxiedAnswer;

use crate::options::api::read_key;
use crate::options::settings;

/// Timeout of the host's answer.
const WITHIN: Duration = Duration::from_secs(30);

/// The largest answer.
const MOST_BYTES: u64 = 64 * 1024 * 1024;

/// The address of a host on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalHost(SocketAddr);

impl FromStr for LocalHost {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = "it is not like http://127.0.0.1:PORT";
        let rest = text.strip_prefix("http://").ok_or(form)?;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let address = match rest.strip_prefix("localhost:") {
            Some(port) => SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port.parse().map_err(|_| form)?),
            None => rest.parse::<SocketAddr>().map_err(|_| form)?,
        };
        if !address.ip().to_canonical().is_loopback() {
            return Err(
                "it is not on this machine, and what is asked over plain HTTP may be read on the way; leave --host out to \
                 ask the host in the cluster through the API server"
                    .to_owned(),
            );
        }
        Ok(Self(address))
    }
}

impl LocalHost {
    /// Returns the key of the host.
    pub fn key(&self, file: Option<PathBuf>) -> anyhow::Result<String> {
        let file = file.or_else(|| settings::api_key_file(self.0.port()));
        let file =
            file.context("neither XDG_RUNTIME_DIR nor HOME is set; give the file with the key with --api-key-file")?;
        read_key(&file)
    }

    /// Gets a path.
    pub fn get(&self, path: &str, key: &str) -> anyhow::Result<ProxiedAnswer> {
        let address = self.0;
        let answer = self.exchange(path, key);
        let answer = answer
            .with_context(|| format!("cannot ask a host at {address}; does it run with --api-address {address}?"))?;
        parse(&answer).with_context(|| format!("what listens at {address} does not speak HTTP"))
    }

    fn exchange(&self, path: &str, key: &str) -> io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&self.0, WITHIN)?;
        stream.set_read_timeout(Some(WITHIN))?;
        stream.set_write_timeout(Some(WITHIN))?;
        write!(
            stream,
            "GET {path} HTTP/1.0\r\nHost: {}\r\nAuthorization: Bearer {key}\r\n\r\n",
            self.0
        )?;
        let mut answer = String::new();
        stream.take(MOST_BYTES).read_to_string(&mut answer)?;
        Ok(answer)
    }
}

/// Parses the code and the body of an answer, which ends with its connection.
fn parse(answer: &str) -> Option<ProxiedAnswer> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let code = head.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()?;
    Some(ProxiedAnswer {
        code,
        body: body.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_host_on_this_machine_is_asked_over_plain_http() {
        let read = |text: &str| text.parse::<LocalHost>().map(|host| host.0.to_string());
        assert_eq!(read("http://127.0.0.1:80/").as_deref(), Ok("127.0.0.1:80"));
        assert_eq!(read("http://[::1]:8082").as_deref(), Ok("[::1]:8082"));
        assert_eq!(read("http://localhost:8082").as_deref(), Ok("127.0.0.1:8082"));
        for refused in [
            "127.0.0.1:80",
            "https://127.0.0.1:80",
            "http://a:80",
            "http://127.0.0.1",
            "http://127.0.0.1:80/x",
        ] {
            assert!(read(refused).unwrap_err().contains("not like"), "{refused}");
        }
        for refused in ["http://10.0.0.1:80", "http://0.0.0.0:80", "http://[::]:80"] {
            assert!(read(refused).unwrap_err().contains("on this machine"), "{refused}");
        }
    }

    #[test]
    fn an_answer_has_a_code_and_a_body() {
        let answer = parse("HTTP/1.0 401 Unauthorized\r\na: b\r\n\r\n{}\n").unwrap();
        assert_eq!((answer.code, &*answer.body), (401, "{}\n"));
        for garbled in ["", "SSH-2.0-OpenSSH\r\n\r\n", "HTTP/1.1 OK\r\n\r\n"] {
            assert_eq!(parse(garbled), None, "{garbled}");
        }
    }
}
