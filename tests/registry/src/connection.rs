//! HTTP/1.1 as far as the host's client speaks it, and every way to send an answer badly.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader};

use crate::answers::answer;
use crate::exchange::{Manner, Reply, Request, State};

pub(crate) async fn connection(stream: impl AsyncRead + AsyncWrite + Unpin, state: Arc<Mutex<State>>) -> Option<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let request = read(&mut stream).await?;
        let reply = {
            let mut state = state.lock().unwrap();
            state.requests.push(request.clone());
            let hook = state.hook.take();
            let hooked = hook.as_ref().and_then(|hook| hook(&request, &mut state));
            state.hook = state.hook.take().or(hook);
            hooked.unwrap_or_else(|| answer(&request, &mut state))
        };
        write(&mut stream, &request, reply).await?;
    }
}

async fn read(stream: &mut (impl AsyncBufReadExt + Unpin)) -> Option<Request> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok()?;
    let mut words = line.split_whitespace();
    let (method, path) = (words.next()?.to_owned(), words.next()?);
    // A proxy forwards the whole URL.
    let rest = path
        .strip_prefix("http://")
        .and_then(|rest| rest.find('/').map(|at| &rest[at..]));
    let path = rest.unwrap_or(path).to_owned();
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else {
            break;
        };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").map_or(0, |it| it.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    assert!(!headers.contains_key("transfer-encoding"), "bodies have a length");
    Some(Request {
        method,
        path,
        headers,
        body,
    })
}

async fn write(stream: &mut (impl AsyncWrite + Unpin), request: &Request, reply: Reply) -> Option<()> {
    let Reply {
        status,
        headers,
        body,
        manner,
    } = reply;
    if manner == Manner::Hang {
        std::future::pending::<()>().await;
    }
    let mut head = format!("HTTP/1.1 {status} Status\r\n");
    for (name, value) in &headers {
        head += &[name, ": ", value, "\r\n"].concat();
    }
    let has_length = headers
        .iter()
        .any(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    if manner == Manner::Endless {
        head.push_str("connection: close\r\n");
    } else if !has_length && status != 204 {
        head += &["content-length: ", &body.len().to_string(), "\r\n"].concat();
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes()).await.ok()?;
    if request.method == "HEAD" {
        return stream.flush().await.ok();
    }
    match manner {
        Manner::Drip(pause) => {
            for byte in body {
                stream.write_all(&[byte]).await.ok()?;
                stream.flush().await.ok()?;
                tokio::time::sleep(pause).await;
            }
        }
        Manner::Bursts(size, pause) => {
            for burst in body.chunks(size) {
                stream.write_all(burst).await.ok()?;
                stream.flush().await.ok()?;
                tokio::time::sleep(pause).await;
            }
        }
        Manner::CutAfter(bytes) => {
            stream.write_all(&body[..bytes.min(body.len())]).await.ok()?;
            stream.flush().await.ok()?;
            return None;
        }
        Manner::Endless => loop {
            stream.write_all(&body).await.ok()?;
        },
        Manner::Whole | Manner::Hang => stream.write_all(&body).await.ok()?,
    }
    stream.flush().await.ok()
}
