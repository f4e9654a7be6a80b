//! `pilothouse login` and `pilothouse logout`: stores and removes credentials for a registry in Docker's configuration.

use std::io::{IsTerminal as _, Read as _};

use anyhow::{Context as _, bail};
use clap::Args;
use pilothouse_artifact::{Credentials, Kept, Reference};

use super::{RegistryArguments, Session, wait_for};

/// The longest password or token. Those of cloud registries have some thousand characters.
const LONGEST_PASSWORD: u64 = 64 << 10;

/// Help of `login` below the options.
const LOGIN_EXAMPLES: &str = "\
Examples:
  pilothouse login ghcr.io -u ada                                     asks for the password
  pilothouse login ghcr.io -u ada --password-stdin < token.txt

The registry is asked whether it takes the credentials before they are kept. They are kept where `docker login` keeps them:
in the credential helper that Docker's configuration names for the registry, else in the configuration itself,
$DOCKER_CONFIG/config.json or ~/.docker/config.json. A password is never an argument, which other users could see.

Exit code: 0 the credentials are kept, 1 they are not, 2 the command line is wrong.";

/// Help of `logout` below the options.
const LOGOUT_EXAMPLES: &str = "\
Examples:
  pilothouse logout ghcr.io

Exit code: 0 the credentials are gone, 1 there were none or they cannot be removed, 2 the command line is wrong.";

/// `pilothouse login`
#[derive(Args)]
#[command(after_help = LOGIN_EXAMPLES)]
pub struct LoginCommand {
    /// The registry: HOST or HOST:PORT
    #[arg(value_name = "HOST", value_parser = registry)]
    host: String,

    /// The user's name
    #[arg(long, short, value_name = "USER")]
    username: String,

    /// Read the password from standard input, and do not ask for it
    #[arg(long)]
    password_stdin: bool,

    #[command(flatten)]
    registries: RegistryArguments,
}

/// `pilothouse logout`
#[derive(Args)]
#[command(after_help = LOGOUT_EXAMPLES)]
pub struct LogoutCommand {
    /// The registry: HOST or HOST:PORT
    #[arg(value_name = "HOST", value_parser = registry)]
    host: String,
}

impl LoginCommand {
    /// Checks the credentials, and stores them.
    pub fn execute(self) -> anyhow::Result<()> {
        let Self {
            host,
            username,
            password_stdin,
            registries,
        } = self;
        let session = registries.session()?;
        let password = if password_stdin {
            password_of(std::io::stdin().lock())?
        } else if std::io::stdin().is_terminal() {
            let asked = rpassword::prompt_password(format!("Password of {username} at {host}: "));
            asked.context("cannot read the password from the terminal")?
        } else {
            bail!("there is no terminal to ask for the password; give it on standard input with --password-stdin");
        };
        if password.is_empty() {
            bail!("the password for {host} is empty; nothing was changed");
        }
        wait_for(check(&session, &host, &username, &password))?;
        let kept = pilothouse_artifact::login(&host, &username, &password)?;
        session.say(match kept {
            Kept::File(file) => format!("the credentials for {host} are in {}, readable by you", file.display()),
            Kept::Helper(helper) => format!("{helper} keeps the credentials for {host}"),
        });
        Ok(())
    }
}

impl LogoutCommand {
    /// Removes the credentials.
    pub fn execute(self) -> anyhow::Result<()> {
        let host = self.host;
        match pilothouse_artifact::logout(&host)? {
            Kept::File(file) => eprintln!("removed the credentials for {host} from {}", file.display()),
            Kept::Helper(helper) => eprintln!("{helper} has removed the credentials for {host}"),
        }
        Ok(())
    }
}

async fn check(session: &Session, host: &str, username: &str, password: &str) -> anyhow::Result<()> {
    let credentials = Credentials::Basic {
        username: username.to_owned(),
        password: password.to_owned(),
    };
    session.client.check(host, &credentials).await?;
    Ok(())
}

/// Parses a registry as references and Docker's configuration name it.
fn registry(text: &str) -> Result<String, String> {
    let invalid = || "write HOST or HOST:PORT, such as ghcr.io, without https:// and repository".to_owned();
    if text.contains('/') {
        return Err(invalid());
    }
    let reference = Reference::new(text, "pilothouse").map_err(|_| invalid())?;
    Ok(reference.host().to_owned())
}

/// Reads the first line, without its end.
fn password_of(input: impl std::io::Read) -> anyhow::Result<String> {
    let mut text = String::new();
    let read = input.take(LONGEST_PASSWORD + 1).read_to_string(&mut text);
    // The error would not show the password, but it would not help either.
    read.map_err(|_| anyhow::anyhow!("cannot read the password from standard input, or it is not UTF-8"))?;
    let password = text.trim_end_matches(['\r', '\n']);
    if text.len() as u64 > LONGEST_PASSWORD || password.contains(['\r', '\n']) {
        bail!("standard input has more than one line or {LONGEST_PASSWORD} bytes; give it the password alone");
    }
    Ok(password.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registry_is_named_without_scheme_and_repository() {
        assert_eq!(registry("ghcr.io").unwrap(), "ghcr.io");
        assert_eq!(registry("localhost:5000").unwrap(), "localhost:5000");
        assert_eq!(registry("index.docker.io").unwrap(), "docker.io");
        for refused in ["", "https://ghcr.io", "ghcr.io/acme", "ghcr", "ghcr.io:a"] {
            assert!(registry(refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn the_password_is_one_line() {
        assert_eq!(password_of(&b"hunter2\r\n"[..]).unwrap(), "hunter2");
        assert_eq!(password_of(&b" with spaces "[..]).unwrap(), " with spaces ");
        for refused in [&b"hunter2\nhunter3\n"[..], b"hunter2\xff", &vec![b'x'; 70_000]] {
            let error = password_of(refused).unwrap_err().to_string();
            assert!(!error.contains("hunter"), "{error}");
        }
    }
}
