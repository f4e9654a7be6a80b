//! Webhooks for scripts: an HTTPS server that answers each path in another way. It speaks only as much HTTP as an API
//! server needs.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

/// Time that a client may send nothing.
const PATIENCE: Duration = Duration::from_secs(20);

/// Address at which webhooks answer, until the process ends.
pub struct Hooks {
    /// Without a slash at its end.
    pub url: String,
    /// The certificate to trust, as a `caBundle`.
    pub authority: String,
    /// A certificate that vouches for nothing here.
    pub stranger: String,
}

/// Starts a server of its own.
pub fn start() -> Result<Hooks> {
    let shown = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
    let other = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
    let key = PrivatePkcs8KeyDer::from(shown.signing_key.serialize_der());
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![shown.cert.der().clone()], key.into())?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("https://{}", listener.local_addr()?);
    let config = Arc::new(config);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let config = config.clone();
            // A client that goes away in the middle is no matter.
            std::thread::spawn(move || serve(stream, config));
        }
    });
    Ok(Hooks {
        url,
        authority: STANDARD.encode(shown.cert.pem()),
        stranger: STANDARD.encode(other.cert.pem()),
    })
}

fn serve(stream: TcpStream, config: Arc<ServerConfig>) -> Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut stream = StreamOwned::new(ServerConnection::new(config)?, stream);
    let mut reader = BufReader::new(&mut stream);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let target = line.split(' ').nth(1).context("a request has a target")?.to_owned();
    let mut length = 0;
    while line != "\r\n" {
        line.clear();
        reader.read_line(&mut line)?;
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let path = target.split('?').next().unwrap_or_default();
    let (status, answer) = answer(path, &serde_json::from_slice(&body)?);
    let kind = if status == 200 {
        "application/json"
    } else {
        "text/plain"
    };
    write!(
        stream,
        "HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{answer}",
        answer.len()
    )?;
    stream.conn.send_close_notify();
    stream.flush()?;
    Ok(())
}

fn answer(path: &str, review: &Value) -> (u16, String) {
    let request = &review["request"];
    let uid = &request["uid"];
    let patched = |operations: &Value| json!({"uid": uid, "allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(operations.to_string())});
    let response = match path {
        "/warn" => json!({"uid": uid, "allowed": true, "warnings": ["mind the gap", "mind the gap", "and the step"]}),
        "/deny" => json!({"uid": uid, "allowed": false, "status": {
            "status": "Failure", "code": 422, "reason": "Invalid", "message": "spec.size: Invalid value: 7: too many",
            "details": {"name": "a", "kind": "Thing", "causes": [{"reason": "FieldValueInvalid", "field": "spec.size", "message": "too many"}]},
        }}),
        "/deny-and-warn" => {
            json!({"uid": uid, "allowed": false, "warnings": ["told you"], "status": {"reason": "NoWay"}})
        }
        "/deny-bare" => json!({"uid": uid, "allowed": false}),
        "/deny-with-success" => {
            json!({"uid": uid, "allowed": false, "status": {"status": "Success", "code": 200, "message": "fine"}})
        }
        "/annotate" => patched(&json!([{"op": "add", "path": "/metadata/annotations", "value": {"seen": "yes"}}])),
        "/size" => patched(&json!([{"op": "replace", "path": "/spec/size", "value": 3}])),
        "/rewrite" => patched(&json!([
            {"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "evil:9"},
            {"op": "replace", "path": "/spec/replicas", "value": 9},
        ])),
        "/bare" => patched(&json!([
            {"op": "remove", "path": "/metadata/annotations"}, {"op": "remove", "path": "/metadata/ownerReferences"},
        ])),
        "/beside" => patched(&json!([
            {"op": "add", "path": "/metadata/annotations/beside", "value": "yes"},
            {"op": "add", "path": "/spec/template/spec/containers/-", "value": {"name": "side", "image": "s"}},
            {"op": "add", "path": "/spec/template/spec/nodeSelector", "value": {"a": "b"}},
        ])),
        "/unmanaged" => patched(&json!([{"op": "remove", "path": "/metadata/managedFields"}])),
        "/forged" => {
            patched(&json!([{"op": "replace", "path": "/metadata/managedFields/0/manager", "value": "forged"}]))
        }
        "/garbled-managers" => {
            patched(&json!([{"op": "replace", "path": "/metadata/managedFields/0/operation", "value": "Nope"}]))
        }
        "/invalid" => patched(
            &json!([{"op": "add", "path": "/spec/strategy", "value": {"type": "Recreate", "rollingUpdate": {}}}]),
        ),
        "/mispatch" => patched(&json!([{"op": "remove", "path": "/spec/nothing"}])),
        "/refuse-what-is-seen" => json!({"uid": uid, "allowed": false, "status": {"message": seen(request)}}),
        "/fail" => return (500, "out of order".to_owned()),
        "/not-found" => return (404, "no such hook".to_owned()),
        "/garbled" => return (200, "nonsense".to_owned()),
        "/absent" => {
            return (
                200,
                json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}).to_string(),
            );
        }
        "/other-uid" => json!({"uid": "other", "allowed": true}),
        _ => json!({"uid": uid, "allowed": true}),
    };
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
    (200, review.to_string())
}

/// Returns the parts of a review that do not depend on the user, as text.
fn seen(request: &Value) -> String {
    let mut seen = request.clone();
    for name in ["uid", "userInfo", "options"] {
        seen[name] = Value::Null;
    }
    for name in ["object", "oldObject"] {
        let object = &seen[name];
        seen[name] = json!([
            object["apiVersion"],
            object["metadata"]["name"],
            object["spec"],
            object["status"]
        ]);
    }
    let Value::Object(members) = seen else {
        return String::new();
    };
    let words = members.iter().filter(|(_, value)| !value.is_null());
    let mut words: Vec<String> = words.map(|(name, value)| format!("{name} {value}")).collect();
    words.sort();
    words.join("; ").replace('"', "'")
}
