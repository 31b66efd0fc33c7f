//! Facts: the properties of a request that a door knows, in the form the policy reads.

use std::borrow::Cow;

/// Returns the path and query of a request target; a stated query wins over one in the path.
pub(super) fn target<'a>(path: &'a str, query: &'a str) -> (&'a str, &'a str) {
    match path.split_once('?') {
        Some((path, own)) if query.is_empty() => (path, own),
        Some((path, _)) => (path, query),
        None => (path, query),
    }
}

/// Returns a host without its port, in lower case.
pub(super) fn host(text: &str) -> Cow<'_, str> {
    let name = match text.rsplit_once(':') {
        // The colons inside `[::1]` are not before a port.
        Some((name, port))
            if !port.contains(']') && (name.ends_with(']') || !name.contains(':')) =>
        {
            name
        }
        _ => text,
    };
    if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(name.to_ascii_lowercase())
    } else {
        Cow::Borrowed(name)
    }
}

/// Returns the host and target of an absolute URL; no host for a path.
pub(super) fn url(text: &str) -> (Option<&str>, &str) {
    let Some((_, rest)) = text
        .split_once("://")
        .filter(|(scheme, _)| scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()))
    else {
        return (None, text);
    };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, target) = rest.split_at(end);
    let host = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    (Some(host), if target.is_empty() { "/" } else { target })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets() {
        assert_eq!(target("/a", ""), ("/a", ""));
        assert_eq!(target("/a?b=c", ""), ("/a", "b=c"));
        assert_eq!(target("/a?b=c?d", ""), ("/a", "b=c?d"));
        assert_eq!(target("/a?b=c", "d=e"), ("/a", "d=e"));
    }

    #[test]
    fn hosts() {
        for (text, expected) in [
            ("Example.COM:8080", "example.com"),
            ("example.com", "example.com"),
            ("[::1]:80", "[::1]"),
            ("[::1]", "[::1]"),
            ("::1", "::1"),
            ("", ""),
            (":80", ""),
        ] {
            assert_eq!(host(text), expected, "{text}");
        }
    }

    #[test]
    fn urls() {
        for (text, expected) in [
            ("/a?b", (None, "/a?b")),
            ("http://h/a?b", (Some("h"), "/a?b")),
            ("https://u:p@h:1", (Some("h:1"), "/")),
            ("http://h?x=y", (Some("h"), "?x=y")),
            ("/a?u=http://h/b", (None, "/a?u=http://h/b")),
            ("", (None, "")),
        ] {
            assert_eq!(url(text), expected, "{text}");
        }
    }
}
