//! Turns the JSON names of Kubernetes into Rust names.

/// Words that are no names in Rust.
const KEYWORDS: [&str; 9] = [
    "continue", "default", "for", "match", "ref", "static", "type", "use", "where",
];

/// A member's name as a method's: `clusterIPs` is `cluster_ips`.
pub fn method(json: &str) -> String {
    if json == "openAPIV3Schema" {
        return "open_api_v3_schema".to_owned();
    }
    let letters: Vec<char> = json.chars().filter(|letter| *letter != '$').collect();
    let mut name = String::new();
    for (index, letter) in letters.iter().enumerate() {
        let previous = index.checked_sub(1).map(|index| letters[index]);
        let next = letters.get(index + 1).copied();
        if letter.is_uppercase() {
            let after_word = previous.is_some_and(|previous| !previous.is_uppercase());
            // The last letter of an acronym begins a word, unless it is followed by the `s` of the plural.
            let plural = next == Some('s') && letters.get(index + 2).is_none_or(|letter| letter.is_uppercase());
            let begins_word = next.is_some_and(char::is_lowercase) && !plural;
            if after_word || previous.is_some() && begins_word {
                name.push('_');
            }
        }
        name.extend(letter.to_lowercase());
    }
    if KEYWORDS.contains(&name.as_str()) {
        name.push('_');
    }
    name
}

/// The name of the method that adds one element to what the method of this name sets: the singular, or `add_` in front of
/// a name that has none.
pub fn adder(method: &str) -> String {
    if method == "tls" || method.ends_with("ss") {
        return format!("add_{method}");
    }
    for (plural, singular) in [
        ("ies", "y"),
        ("sses", "ss"),
        ("ches", "ch"),
        ("iases", "ias"),
        ("s", ""),
    ] {
        if let Some(stem) = method.strip_suffix(plural) {
            return format!("{stem}{singular}");
        }
    }
    format!("add_{method}")
}

#[cfg(test)]
mod tests {
    use super::{adder, method};

    #[test]
    fn members_become_methods() {
        for (json, name) in [
            ("clusterIPs", "cluster_ips"),
            ("hostIPC", "host_ipc"),
            ("nonResourceURLs", "non_resource_urls"),
            ("setHostnameAsFQDN", "set_hostname_as_fqdn"),
            ("awsElasticBlockStore", "aws_elastic_block_store"),
            ("type", "type_"),
            ("IPBlock", "ip_block"),
        ] {
            assert_eq!(method(json), name);
        }
    }

    #[test]
    fn lists_have_an_adder_in_the_singular() {
        for (list, one) in [
            ("containers", "container"),
            ("host_aliases", "host_alias"),
            ("capabilities", "capability"),
            ("ip_addresses", "ip_address"),
            ("env", "add_env"),
            ("tls", "add_tls"),
            ("ingress", "add_ingress"),
        ] {
            assert_eq!(adder(list), one);
        }
    }
}
