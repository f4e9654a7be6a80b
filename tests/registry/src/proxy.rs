//! A proxy in this process: HTTP with and without TLS, and SOCKS 5. It connects to one server, whatever it is asked for, and
//! records what it is asked for, so names need not resolve.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

use crate::authority::Authority;

pub struct Proxy {
    pub address: SocketAddr,
    /// PEM of the authority, if clients have to speak TLS with it.
    pub authority: Option<String>,
    requests: Arc<Mutex<Vec<String>>>,
}

/// A client's stream, with TLS or without.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Proxy {
    /// A proxy of HTTP and SOCKS 5 before this server.
    pub async fn start(server: SocketAddr) -> Self {
        Self::serve(server, None).await
    }

    /// The same by TLS.
    pub async fn start_tls(server: SocketAddr) -> Self {
        Self::serve(server, Some(Authority::new())).await
    }

    async fn serve(server: SocketAddr, authority: Option<Authority>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, requests) = (listener.local_addr().unwrap(), Arc::default());
        let tls = authority.as_ref().map(|it| it.acceptor.clone());
        let noted = Arc::clone(&requests);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (noted, tls) = (Arc::clone(&noted), tls.clone());
                tokio::spawn(async move {
                    let stream: Box<dyn Stream> = match tls {
                        None => Box::new(stream),
                        Some(tls) => Box::new(tls.accept(stream).await.ok()?),
                    };
                    forward(stream, server, &noted).await
                });
            }
        });
        let authority = authority.map(|it| it.pem);
        Self {
            address,
            authority,
            requests,
        }
    }

    /// What clients asked for, as `CONNECT host:port`, `GET http://host/path` or `SOCKS host:port`, with ` as USER` behind
    /// it if they sent credentials.
    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

async fn forward(mut client: Box<dyn Stream>, server: SocketAddr, requests: &Mutex<Vec<String>>) -> Option<()> {
    let first = client.read_u8().await.ok()?;
    let mut there = TcpStream::connect(server).await.ok()?;
    if first == 5 {
        let request = socks(&mut client).await?;
        requests.lock().unwrap().push(request);
        // Succeeded; the address that the proxy is bound to is of no interest.
        client.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await.ok()?;
    } else {
        let mut head = vec![first];
        while !head.ends_with(b"\r\n\r\n") {
            head.push(client.read_u8().await.ok()?);
        }
        let text = String::from_utf8(head).ok()?;
        let (line, fields) = text.split_once("\r\n")?;
        let mut fields = fields.lines().filter_map(|field| field.split_once(": "));
        let credentials = fields.find(|(name, _)| name.eq_ignore_ascii_case("proxy-authorization"));
        let user = credentials.map_or_else(String::new, |(_, value)| format!(" as {value}"));
        let request = line.strip_suffix(" HTTP/1.1")?;
        requests.lock().unwrap().push(format!("{request}{user}"));
        if request.starts_with("CONNECT ") {
            client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.ok()?;
        } else {
            there.write_all(text.as_bytes()).await.ok()?;
        }
    }
    let _ = copy_bidirectional(&mut client, &mut there).await;
    Some(())
}

/// Reads a request of SOCKS 5 (RFC 1928, RFC 1929) after its version.
async fn socks(client: &mut Box<dyn Stream>) -> Option<String> {
    let methods = text(client).await?;
    let mut user = String::new();
    if methods.contains('\u{2}') {
        client.write_all(&[5, 2]).await.ok()?;
        let _version = client.read_u8().await.ok()?;
        let (name, password) = (text(client).await?, text(client).await?);
        user = format!(" as {name}:{password}");
        client.write_all(&[1, 0]).await.ok()?;
    } else {
        client.write_all(&[5, 0]).await.ok()?;
    }
    let mut head = [0; 4];
    let _ = client.read_exact(&mut head).await.ok()?;
    let host = match head[3] {
        1 => std::net::Ipv4Addr::from(client.read_u32().await.ok()?).to_string(),
        3 => text(client).await?,
        _ => return None,
    };
    let port = client.read_u16().await.ok()?;
    Some(format!("SOCKS {host}:{port}{user}"))
}

/// Bytes after their number.
async fn text(client: &mut Box<dyn Stream>) -> Option<String> {
    let mut bytes = vec![0; client.read_u8().await.ok()?.into()];
    let _ = client.read_exact(&mut bytes).await.ok()?;
    String::from_utf8(bytes).ok()
}
