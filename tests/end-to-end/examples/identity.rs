//! Measures the cost of acting as a plugin's service account on a real API server: an apply as the host, the same apply
//! by impersonation, and the review of one right, in turn. `cargo xtask bench identity` runs it.

use std::error::Error;
use std::time::{Duration, Instant};

use http::{Method, Request};
use kube::Client;
use pilothouse_testkit::controlplane::{ControlPlane, Options};
use pilothouse_testkit::requests::TEST_ACCOUNT;
use serde_json::{Value, json};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Requests of each kind, after as many that do not count.
const TIMES: usize = 500;
const WARM: usize = 50;

const USER: &str = "system:serviceaccount:default:plugin";

#[tokio::main]
async fn main() -> Outcome<()> {
    let times = std::env::args().nth(1).map_or(Ok(TIMES), |number| number.parse())?;
    let control_plane = ControlPlane::start(Options::default()).await?;
    let client = control_plane.client_as(TEST_ACCOUNT).await?;
    grant(&client).await?;
    let (mut direct, mut acting, mut reviews) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..WARM + times {
        let is_warm = number >= WARM;
        for (user, taken) in [(None, &mut direct), (Some(USER), &mut acting)] {
            let name = user.map_or("direct", |_| "acting");
            let begun = Instant::now();
            apply_config_map(&client, name, number, user).await?;
            if is_warm {
                taken.push(begun.elapsed());
            }
        }
        let begun = Instant::now();
        review(&client, number).await?;
        if is_warm {
            reviews.push(begun.elapsed());
        }
    }
    let direct = line("apply as the host", direct);
    let acting = line("apply by impersonation", acting);
    line("review of one right", reviews);
    println!(
        "impersonation / host, medians: {:.2}",
        acting.as_secs_f64() / direct.as_secs_f64()
    );
    Ok(())
}

/// The account may patch ConfigMaps.
async fn grant(client: &Client) -> Outcome<()> {
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let group = "rbac.authorization.k8s.io";
    let metadata = json!({"name": "plugin", "namespace": "default"});
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "patch"]}]);
    let role = json!({"apiVersion": format!("{group}/v1"), "kind": "Role", "metadata": metadata, "rules": rules});
    let binding = json!({
        "apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": metadata,
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "plugin"},
        "subjects": [{"kind": "ServiceAccount", "name": "plugin", "namespace": "default"}],
    });
    apply(client, &format!("{rbac}/roles/plugin"), &role, None).await?;
    apply(client, &format!("{rbac}/rolebindings/plugin"), &binding, None).await?;
    // The authorizer sees them a moment later.
    let begun = Instant::now();
    while let Err(error) = apply_config_map(client, "acting", 0, Some(USER)).await {
        if begun.elapsed() > Duration::from_secs(10) {
            return Err(error);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

async fn apply_config_map(client: &Client, name: &str, number: usize, user: Option<&str>) -> Outcome<()> {
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"},
        "data": {"number": number.to_string()},
    });
    apply(
        client,
        &format!("/api/v1/namespaces/default/configmaps/{name}"),
        &object,
        user,
    )
    .await
}

async fn apply(client: &Client, path: &str, object: &Value, user: Option<&str>) -> Outcome<()> {
    let mut request = Request::builder()
        .method(Method::PATCH)
        .uri(format!("{path}?fieldManager=bench&force=true"))
        .header(http::header::CONTENT_TYPE, "application/apply-patch+yaml");
    if let Some(user) = user {
        request = request.header("impersonate-user", user);
    }
    client
        .request_text(request.body(object.to_string().into_bytes())?)
        .await?;
    Ok(())
}

/// Another object each time: the API server keeps the answers of an authorizer that is a webhook, and RBAC's it does not.
async fn review(client: &Client, number: usize) -> Outcome<()> {
    let attributes =
        json!({"namespace": "default", "verb": "patch", "resource": "configmaps", "name": format!("n{number}")});
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {"user": USER, "resourceAttributes": attributes},
    });
    let request = Request::builder()
        .method(Method::POST)
        .uri("/apis/authorization.k8s.io/v1/subjectaccessreviews")
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(review.to_string().into_bytes())?;
    let answer: Value = serde_json::from_str(&client.request_text(request).await?)?;
    if answer["status"]["allowed"] == true {
        return Ok(());
    }
    Err(format!("the right is not granted: {answer}").into())
}

fn line(what: &str, mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    let (least, median, most) = (times[0], times[times.len() / 2], times[times.len() * 99 / 100]);
    println!(
        "{what}: {least:.2?} {median:.2?} {most:.2?} (minimum, median, 99th percentile of {})",
        times.len()
    );
    median
}
