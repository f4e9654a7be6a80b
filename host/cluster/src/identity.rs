//! Owns in whose name a request is made: as the host, or as a ServiceAccount that the host impersonates, so that API servers
//! check the rights of that account.

use http::HeaderValue;
use kube::client::Body;

use crate::permissions::Permission;

/// The header that names the user to be impersonated:
/// <https://kubernetes.io/docs/reference/access-authn-authz/authentication/#user-impersonation>.
const IMPERSONATE_USER: &str = "impersonate-user";

/// A ServiceAccount that the host acts as. No groups are named: for a ServiceAccount the API server adds its groups itself,
/// and the host then needs the right to impersonate this account only, and no group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Impersonation {
    namespace: String,
    name: String,
    user: HeaderValue,
}

impl Impersonation {
    /// Of a ServiceAccount by its namespace and name; none if these are no names.
    pub fn of_service_account(namespace: &str, name: &str) -> Option<Self> {
        let user = HeaderValue::try_from(format!("system:serviceaccount:{namespace}:{name}"));
        Some(Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            user: user.ok()?,
        })
    }

    /// The namespace of the ServiceAccount.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The name of the ServiceAccount.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The user that API servers take it for.
    pub fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }

    /// The groups that API servers give to every ServiceAccount of its namespace:
    /// <https://kubernetes.io/docs/reference/access-authn-authz/authentication/#service-account-tokens>.
    pub(crate) fn groups(&self) -> [String; 3] {
        [
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{}", self.namespace),
            "system:authenticated".to_owned(),
        ]
    }

    /// The right that the host needs to act so.
    pub fn permission(&self) -> Permission {
        Permission {
            group: String::new(),
            resource: "serviceaccounts".to_owned(),
            namespace: Some(self.namespace.clone()),
            name: Some(self.name.clone()),
            verb: "impersonate",
        }
    }

    /// Has a request made in this name.
    pub(crate) fn apply(&self, request: &mut http::Request<Body>) {
        request.headers_mut().insert(IMPERSONATE_USER, self.user.clone());
    }
}
