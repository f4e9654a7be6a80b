//! The user of a kubeconfig: selects its credentials as client-go does, and configures its credential helper.

use std::collections::{BTreeMap, HashMap};
use std::io::IsTerminal as _;
use std::path::PathBuf;

use k8s_openapi::ByteString;
use kube::config::AuthInfo;
use serde::Deserialize;
use serde_json::json;

use super::Cluster;
use crate::connect::credentials::{Credential, Helper, Source, Tokens};

/// The supported versions of the protocol of credential helpers.
const HELPER_VERSIONS: [&str; 2] = [
    "client.authentication.k8s.io/v1",
    "client.authentication.k8s.io/v1beta1",
];
#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub(super) struct User {
    token: Option<String>,
    #[serde(rename = "tokenFile")]
    token_file: Option<PathBuf>,
    username: Option<String>,
    password: Option<String>,
    client_certificate: Option<String>,
    client_certificate_data: Option<String>,
    client_key: Option<String>,
    client_key_data: Option<String>,
    #[serde(rename = "as")]
    impersonate: Option<String>,
    as_uid: Option<String>,
    as_groups: Vec<String>,
    as_user_extra: HashMap<String, Vec<String>>,
    auth_provider: Option<AuthProvider>,
    exec: Option<Exec>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AuthProvider {
    name: String,
    config: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Exec {
    api_version: String,
    command: String,
    args: Vec<String>,
    env: Vec<Variable>,
    install_hint: Option<String>,
    interactive_mode: Option<String>,
    provide_cluster_info: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Variable {
    name: String,
    value: String,
}

impl User {
    pub(super) fn impersonation(&self) -> Result<AuthInfo, String> {
        if self.impersonate.is_none()
            && (self.as_uid.is_some() || !self.as_groups.is_empty() || !self.as_user_extra.is_empty())
        {
            return Err("has as-uid, as-groups or as-user-extra without as; name the user".to_owned());
        }
        Ok(AuthInfo {
            impersonate: self.impersonate.clone(),
            impersonate_uid: self.as_uid.clone(),
            impersonate_groups: Some(self.as_groups.clone()),
            impersonate_user_extra: Some(self.as_user_extra.clone()),
            ..AuthInfo::default()
        })
    }

    /// Sets the credentials that client-go would use. A certificate is used beside the others; a token and a password
    /// exclude each other, and both exclude a helper.
    pub(super) fn authenticate(
        self,
        name: &str,
        cluster: &Cluster,
        auth: &mut AuthInfo,
    ) -> Result<Option<Tokens>, String> {
        let token = self.token.filter(|token| !token.trim().is_empty());
        if token.is_some() && (self.username.is_some() || self.password.is_some()) {
            return Err("has both a token and a user name or password; remove one".to_owned());
        }
        if self.exec.is_some() && self.auth_provider.is_some() {
            return Err("has both exec and auth-provider; remove one".to_owned());
        }
        let has_certificate = self.client_certificate.is_some() || self.client_certificate_data.is_some();
        if has_certificate {
            if self.client_key.is_none() && self.client_key_data.is_none() {
                return Err("has a client certificate without client-key or client-key-data".to_owned());
            }
            let unwrapped = |data: String| data.split_ascii_whitespace().collect::<String>();
            auth.client_certificate = self.client_certificate;
            auth.client_certificate_data = self.client_certificate_data.map(unwrapped);
            auth.client_key = self.client_key;
            auth.client_key_data = self.client_key_data.map(|data| unwrapped(data).into());
        }
        let source = match (self.token_file, token, self.username) {
            (Some(file), token, _) => Source::File(file, token),
            (None, Some(token), _) => Source::Fixed(token),
            (None, None, Some(username)) => {
                auth.username = Some(username);
                auth.password = Some(self.password.unwrap_or_default().into());
                return Ok(None);
            }
            (None, None, None) => match (self.auth_provider, self.exec) {
                (Some(provider), _) => Source::Fixed(provider.token()?),
                (None, Some(exec)) if !has_certificate => return exec.tokens(name, cluster, auth).map(Some),
                _ => return Ok(None),
            },
        };
        Tokens::new(source)
            .map(Some)
            .map_err(|problem| format!("cannot be used: {problem}"))
    }
}

impl AuthProvider {
    fn token(&self) -> Result<String, String> {
        match (&*self.name, self.config.get("id-token")) {
            ("oidc", Some(token)) => Ok(token.clone()),
            ("oidc", None) => Err(
                "has the auth-provider oidc without an id-token; log in again, or use a credential helper (exec)"
                    .to_owned(),
            ),
            (name, _) => Err(format!(
                "has the auth-provider {name:?}, which Kubernetes has removed; use a credential helper (exec), such as \
                 gke-gcloud-auth-plugin or kubelogin"
            )),
        }
    }
}

impl Exec {
    fn tokens(self, user: &str, cluster: &Cluster, auth: &mut AuthInfo) -> Result<Tokens, String> {
        if self.command.is_empty() {
            return Err("has exec without a command".to_owned());
        }
        if !HELPER_VERSIONS.contains(&&*self.api_version) {
            let [v1, v1beta1] = HELPER_VERSIONS;
            return Err(format!(
                "has exec with the apiVersion {:?}; write {v1} or {v1beta1}",
                self.api_version
            ));
        }
        if self.env.iter().any(|variable| variable.name.is_empty()) {
            return Err("has exec with an env without a name".to_owned());
        }
        let has_terminal = std::io::stdin().is_terminal();
        let is_interactive = match self.interactive_mode.as_deref() {
            Some("Never") => false,
            Some("IfAvailable") => has_terminal,
            None if self.api_version == HELPER_VERSIONS[1] => has_terminal,
            Some("Always") if has_terminal => true,
            Some("Always") => {
                return Err("has exec with interactiveMode Always, and standard input is no terminal".to_owned());
            }
            _ => return Err("has exec without an interactiveMode; write Never, IfAvailable or Always".to_owned()),
        };
        let helper = Helper {
            user: user.to_owned(),
            command: self.command,
            args: self.args,
            env: self.env.into_iter().map(|it| (it.name, it.value)).collect(),
            api_version: self.api_version,
            install_hint: self.install_hint,
            is_interactive,
            cluster: self.provide_cluster_info.then(|| cluster.helper_info()).transpose()?,
        };
        let unusable = |problem| format!("cannot be used: {problem}");
        let first: Credential = helper.run().map_err(unusable)?;
        if let Some((certificate, key)) = &first.certificate {
            let data = |pem: &str| json!(ByteString(pem.as_bytes().to_vec())).as_str().map(str::to_owned);
            auth.client_certificate_data = data(certificate);
            auth.client_key_data = data(key).map(Into::into);
        }
        Tokens::of_helper(helper, &first).map_err(unusable)
    }
}
