//! Reads the API server's refusal of a grant that exceeds the grantor's own rights (RBAC escalation check). The rules
//! are in the form of `CompactString`:
//! <https://github.com/kubernetes/kubernetes/blob/v1.36.0/pkg/apis/rbac/v1/evaluation_helpers.go>.

use std::fmt::Write as _;

use super::words::qualified;

/// The text before the rules.
const REFUSAL: &str = "attempting to grant RBAC permissions not currently held";

/// The highest number of listed rules.
const MOST_NAMED: usize = 20;

/// The missing rights, for messages; none if the message is about something else.
pub fn missing(message: &str) -> Option<String> {
    let (_, rules) = message.split_once(REFUSAL)?;
    let mut named: Vec<String> = rules.split('{').skip(1).filter_map(rule).collect();
    let more = named.len().saturating_sub(MOST_NAMED);
    named.truncate(MOST_NAMED);
    let mut text = named.join("; ");
    if more > 0 {
        let _ = write!(text, "; and {more} more");
    }
    // If the rules have another form, show the server's text.
    Some(if text.is_empty() {
        rules.trim_matches([':', ' ', '\n']).to_owned()
    } else {
        text
    })
}

/// Formats a rule: `create, delete deployments.apps named x`.
fn rule(text: &str) -> Option<String> {
    let text = text.split('}').next()?;
    let groups = values(text, "APIGroups");
    let names = values(text, "ResourceNames");
    let verbs = values(text, "Verbs").join(", ");
    let mut resources = Vec::new();
    for resource in values(text, "Resources") {
        for group in &groups {
            resources.push(qualified(group, resource));
        }
    }
    let mut rule = format!("{verbs} {}", resources.join(", "));
    if !names.is_empty() {
        let _ = write!(rule, " named {}", names.join(", "));
    }
    (!verbs.is_empty() && !resources.is_empty()).then_some(rule)
}

/// The values of one list, as in `Verbs:["create" "delete"]`.
fn values<'a>(rule: &'a str, list: &str) -> Vec<&'a str> {
    let list = rule.split_once(&format!("{list}:[")).map(|(_, rest)| rest);
    let values = list.and_then(|rest| rest.split(']').next());
    values.map_or_else(Vec::new, |values| values.split('"').skip(1).step_by(2).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The message of kube-apiserver 1.36.
    const MESSAGE: &str = "clusterroles.rbac.authorization.k8s.io \"x\" is forbidden: user \"u\" (groups=[\"g\"]) is attempting \
        to grant RBAC permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"configmaps\"], ResourceNames:[\"a\" \
        \"b\"], Verbs:[\"list\" \"watch\"]}\n{APIGroups:[\"apps\"], Resources:[\"deployments/status\"], Verbs:[\"create\"]}";

    #[test]
    fn the_rights_that_are_missing_are_named() {
        assert_eq!(
            missing(MESSAGE).as_deref(),
            Some("list, watch configmaps named a, b; create deployments.apps/status")
        );
        assert_eq!(
            missing("clusterroles \"x\" is forbidden: User \"u\" cannot patch"),
            None
        );
        let other = "is attempting to grant RBAC permissions not currently held: all of them";
        assert_eq!(missing(other).as_deref(), Some("all of them"));
    }
}
