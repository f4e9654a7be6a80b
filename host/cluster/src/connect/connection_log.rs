//! Logs that the API server cannot be reached or refuses the host's credentials: one line a minute, however many
//! watches and writes fail for that reason.

use std::time::Duration;

use http::{Response, StatusCode};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::error::transport_problem;

/// The interval at which the same problem is logged.
const INTERVAL: Duration = Duration::from_mins(1);

/// Observes the responses to all requests of a client.
pub struct ConnectionLog {
    server: String,
    user: String,
    state: Mutex<LogState>,
}

#[derive(Default)]
struct LogState {
    /// The time at which the log last named a problem.
    logged: Option<Instant>,
    /// Set if the last request failed, and that has been logged.
    is_failing: bool,
}

/// A line of the log.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    Unreachable(String),
    Unauthorized,
    Recovered,
}

impl ConnectionLog {
    /// A log for the client of this user at this server.
    pub fn new(server: String, user: String) -> Self {
        Self {
            server,
            user,
            state: Mutex::default(),
        }
    }

    /// Logs the state of the connection that the result of a request shows.
    pub fn observe<B>(&self, result: &Result<Response<B>, tower::BoxError>) {
        let Self { server, user, .. } = self;
        match self.line(result, Instant::now()) {
            Some(Line::Unreachable(problem)) => tracing::warn!(
                server,
                user,
                problem,
                "cannot reach the API server; check that it runs, and that the network lets the host connect to it; retrying"
            ),
            Some(Line::Unauthorized) => tracing::warn!(
                server,
                user,
                "the API server does not accept the host's credentials (401 Unauthorized); renew the token or the \
                 certificate of this user; retrying"
            ),
            Some(Line::Recovered) => tracing::info!(server, user, "the API server answers again"),
            None => {}
        }
    }

    fn line<B>(&self, result: &Result<Response<B>, tower::BoxError>, now: Instant) -> Option<Line> {
        let mut state = self.state.lock();
        let problem = match result {
            Ok(response) if response.status() == StatusCode::UNAUTHORIZED => Line::Unauthorized,
            Ok(_) => return std::mem::take(&mut state.is_failing).then_some(Line::Recovered),
            Err(error) => Line::Unreachable(transport_problem(&**error)),
        };
        if state.logged.is_some_and(|logged| now.duration_since(logged) < INTERVAL) {
            return None;
        }
        *state = LogState {
            logged: Some(now),
            is_failing: true,
        };
        Some(problem)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_logged_once_a_minute_and_its_end_once() {
        let log = ConnectionLog::new("https://a".to_owned(), "u".to_owned());
        let answered =
            |code: u16| -> Result<_, tower::BoxError> { Ok(Response::builder().status(code).body(()).unwrap()) };
        let refused = || -> Result<Response<()>, _> { Err(std::io::Error::from_raw_os_error(111).into()) };
        let begin = Instant::now();
        let after = |seconds| begin + Duration::from_secs(seconds);
        assert_eq!(log.line(&answered(200), begin), None);
        assert!(matches!(log.line(&refused(), begin), Some(Line::Unreachable(_))));
        assert_eq!(log.line(&refused(), after(59)), None);
        assert_eq!(log.line(&answered(401), after(60)), Some(Line::Unauthorized));
        assert_eq!(log.line(&answered(404), after(61)), Some(Line::Recovered));
        assert_eq!(log.line(&answered(200), after(62)), None);
        // What comes and goes is no reason for more lines.
        assert_eq!(log.line(&refused(), after(63)), None);
        assert_eq!(log.line(&answered(200), after(64)), None);
        assert!(matches!(log.line(&refused(), after(120)), Some(Line::Unreachable(_))));
    }
}
