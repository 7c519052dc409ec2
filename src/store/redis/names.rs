//! What a store in Redis calls things: the keys of a breaker, the channel, and servers without their passwords.

use std::fmt::Write;

/// The keys and the channel of one prefix.
#[derive(Debug, Clone)]
pub(super) struct Names {
    /// Escaped, with no colon, so that prefix and name cannot be cut at another place.
    prefix: String,
}

impl Names {
    pub(super) fn new(prefix: &str) -> Self {
        Self {
            prefix: escaped(prefix, &[':']),
        }
    }

    /// The three keys of a breaker. What is in the braces is what a Cluster hashes, so they are in one slot.
    pub(super) fn keys(&self, breaker: &str) -> [String; 3] {
        let record = format!("{{{}:{}}}", self.prefix, escaped(breaker, &[]));
        let failures = format!("{record}:f");
        let probes = format!("{record}:p");
        [record, failures, probes]
    }

    /// A key of no breaker.
    pub(super) fn contact(&self) -> String {
        format!("{{{}}}:contact", self.prefix)
    }

    pub(super) fn channel(&self) -> String {
        format!("{}:changes", self.prefix)
    }
}

/// Writes what could be taken for a part of the key itself as `%7B`, byte by byte, so that no two texts
/// become the same.
fn escaped(text: &str, also: &[char]) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '{' | '}' | '%') || c.is_control() || also.contains(&c) {
            let mut bytes = [0; 4];
            for byte in c.encode_utf8(&mut bytes).bytes() {
                // Writing to a text cannot fail.
                let _ = write!(escaped, "%{byte:02X}");
            }
        } else {
            escaped.push(c);
        }
    }
    escaped
}

/// A server's address as it may be shown: without user, password and options, also if it is no address.
pub(super) fn shown(url: &str) -> String {
    if url.is_empty() {
        return "\"\"".to_owned();
    }
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let rest = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest);
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    // What should be a port may be a password, where an address was forgotten.
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (rest, None),
    };
    let is_port = |port: &str| {
        let number = port.split('/').next().unwrap_or_default();
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    };
    let mut shown = String::new();
    if !scheme.is_empty() {
        shown.push_str(scheme);
        shown.push_str("://");
    }
    match port {
        Some(port) if is_port(port) || host.starts_with('[') => {
            shown.push_str(rest);
        }
        Some(_) => {
            shown.push_str(host.split(':').next().unwrap_or_default());
            shown.push_str(":…");
        }
        None => shown.push_str(host),
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    // case 143
    #[test]
    fn no_two_names_have_the_same_keys() {
        let names = [
            "a:b", "a", "{x}", "x", "", "%7Bx%7D", "{", "}", "\n", "%0A", "a:f", "ä",
        ];
        let prefixes = ["p", "p:a", "p{", "p%7B", "{p}"];
        let mut keys: Vec<_> = prefixes
            .iter()
            .flat_map(|prefix| names.iter().flat_map(|name| Names::new(prefix).keys(name)))
            .collect();
        let number = keys.len();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), number);
        for key in keys {
            let (tag, _) = key[1..].split_once('}').unwrap();
            assert!(
                key.starts_with('{') && !tag.is_empty() && !tag.contains('{'),
                "{key}"
            );
        }
    }

    #[test]
    fn a_password_is_not_shown() {
        for (url, expected) in [
            ("redis://localhost:6379/0", "redis://localhost:6379/0"),
            ("redis://me:secret@host:1", "redis://host:1"),
            ("redis://:sec@ret@host", "redis://host"),
            ("redis://me:secret", "redis://me:…"),
            ("me:secret:x", "me:…"),
            (
                "redis+unix:///run/r.sock?pass=secret",
                "redis+unix:///run/r.sock",
            ),
            ("rediss://[::1]:6379", "rediss://[::1]:6379"),
            ("", "\"\""),
        ] {
            assert_eq!(shown(url), expected);
        }
    }
}
