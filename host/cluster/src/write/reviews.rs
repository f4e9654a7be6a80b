//! Authenticates a client of the host by its token, and checks the rights of that user, both through the API server.
//! Which rights a client needs is left to host/runtime.

use http::{Method, Request};
use kube::Client;
use kube::client::Body;
use serde_json::{Map, Value, json};

use crate::error::RequestError;
use crate::write::permissions::Permission;
use crate::write::send::send;

/// A user, as an authenticator of the API server reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Its name.
    pub name: String,
    /// Uid, groups and more, in the form of TokenReview.
    info: Map<String, Value>,
}

impl User {
    /// The user as one value, equal for the same user with the same groups.
    pub fn as_value(&self) -> Value {
        Value::Object(self.info.clone())
    }
}

/// The user of a token; none if it is invalid. The token must be issued for the audience, or for the API server itself
/// if there is none. An unknown token takes one review.
pub async fn authenticate(client: &Client, token: &str, audience: Option<&str>) -> Result<Option<User>, RequestError> {
    let for_audience = audience.map(|audience| json!({"token": token, "audiences": [audience]}));
    for spec in for_audience.into_iter().chain([json!({"token": token})]) {
        let review = review(client, "authentication.k8s.io", "TokenReview", &spec).await?;
        let status = &review["status"];
        // An authenticator that knows no audiences omits them, and its answer says nothing about ours.
        let has_audience = |audience: &str| {
            let audiences = status["audiences"].as_array();
            audiences.is_some_and(|audiences| audiences.iter().any(|it| it == audience))
        };
        if status["authenticated"] != true {
            return Ok(None);
        }
        if spec.get("audiences").is_none() || audience.is_some_and(has_audience) {
            return Ok(user(&status["user"]));
        }
    }
    Ok(None)
}

fn user(info: &Value) -> Option<User> {
    let info = info.as_object()?.clone();
    let name = info
        .get("username")?
        .as_str()
        .filter(|name| !name.is_empty())?
        .to_owned();
    Some(User { name, info })
}

/// Reports whether a user has a right.
pub async fn allows(client: &Client, user: &User, right: &Permission) -> Result<bool, RequestError> {
    let (resource, subresource) = right.resource.split_once('/').unwrap_or((&right.resource, ""));
    let mut spec = json!({
        "user": user.name,
        "resourceAttributes": {
            "group": right.group, "resource": resource, "subresource": subresource, "verb": right.verb,
            "namespace": right.namespace.as_deref().unwrap_or_default(),
            "name": right.name.as_deref().unwrap_or_default(),
        },
    });
    for member in ["uid", "groups", "extra"] {
        if let Some(value) = user.info.get(member) {
            spec[member] = value.clone();
        }
    }
    let review = review(client, "authorization.k8s.io", "SubjectAccessReview", &spec).await?;
    let status = &review["status"];
    Ok(status["allowed"] == true && status["denied"] != true)
}

async fn review(client: &Client, group: &str, kind: &str, spec: &Value) -> Result<Value, RequestError> {
    let garbled = |error: &dyn std::fmt::Display| RequestError::Garbled(error.to_string());
    let body = json!({"apiVersion": format!("{group}/v1"), "kind": kind, "spec": spec});
    let request = Request::builder()
        .method(Method::POST)
        .uri(format!("/apis/{group}/v1/{}s", kind.to_lowercase()))
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(Body::from(body.to_string().into_bytes()))
        .map_err(|error| garbled(&error))?;
    let (_, text) = send(client, request).await?;
    serde_json::from_str(&text).map_err(|error| garbled(&error))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use http::Response;

    use super::*;

    /// A cluster that answers reviews with these statuses, one after the other, and what it was asked.
    fn cluster(statuses: Vec<Value>) -> (Client, Arc<Mutex<Vec<Value>>>) {
        let asked = Arc::<Mutex<Vec<Value>>>::default();
        let (said, statuses) = (asked.clone(), Arc::new(Mutex::new(statuses.into_iter())));
        let service = tower::service_fn(move |request: Request<Body>| {
            let (said, statuses) = (said.clone(), statuses.clone());
            async move {
                let body = request.into_body().collect_bytes().await?;
                said.lock().unwrap().push(serde_json::from_slice(&body).unwrap());
                let status = statuses.lock().unwrap().next().unwrap();
                let answer = json!({"status": status}).to_string();
                Ok::<_, kube::Error>(
                    Response::builder()
                        .status(201)
                        .body(Body::from(answer.into_bytes()))
                        .unwrap(),
                )
            }
        });
        (Client::new(service, "default"), asked)
    }

    #[tokio::test]
    async fn a_token_counts_for_our_audience_or_for_the_api_server() {
        let ann = json!({"username": "ann", "groups": ["g"], "extra": {"k": ["v"]}});
        let ours = json!({"authenticated": true, "audiences": ["us"], "user": ann});
        let (client, asked) = cluster(vec![ours]);
        let user = authenticate(&client, "t", Some("us")).await.unwrap().unwrap();
        assert_eq!((&*user.name, user.as_value()), ("ann", ann.clone()));
        assert_eq!(
            asked.lock().unwrap()[0]["spec"],
            json!({"token": "t", "audiences": ["us"]})
        );
        // An authenticator that ignores audiences says nothing about ours, so it is asked without.
        let ignored = json!({"authenticated": true, "user": {"username": "eve"}});
        let (client, asked) = cluster(vec![ignored, json!({"authenticated": true, "user": ann})]);
        assert_eq!(
            authenticate(&client, "t", Some("us")).await.unwrap(),
            Some(user.clone())
        );
        assert_eq!(asked.lock().unwrap()[1]["spec"], json!({"token": "t"}));
        for nobody in [
            json!({}),
            json!({"authenticated": true, "audiences": ["us"], "user": {"username": ""}}),
        ] {
            for audience in [None, Some("us")] {
                let (client, asked) = cluster(vec![nobody.clone()]);
                assert_eq!(authenticate(&client, "t", audience).await.unwrap(), None);
                assert_eq!(asked.lock().unwrap().len(), 1);
            }
        }
        let right = Permission {
            group: "x.dev".to_owned(),
            resource: "things".to_owned(),
            namespace: Some("a".to_owned()),
            name: Some("b".to_owned()),
            verb: "get",
        };
        let answers = [
            json!({"allowed": true}),
            json!({"allowed": true, "denied": true}),
            json!({}),
        ];
        let (client, asked) = cluster(answers.to_vec());
        let mut allowed = Vec::new();
        for _ in 0..3 {
            allowed.push(allows(&client, &user, &right).await.unwrap());
        }
        assert_eq!(allowed, [true, false, false]);
        let spec = &asked.lock().unwrap()[0]["spec"];
        assert_eq!(
            (&spec["user"], &spec["groups"], &spec["extra"]),
            (&json!("ann"), &ann["groups"], &ann["extra"])
        );
        assert_eq!(spec["resourceAttributes"]["namespace"], "a");
    }
}
