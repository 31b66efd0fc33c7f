//! Part: the key parts that stand for variables of nginx.

/// Returns the key part for a variable without its `$`.
pub(crate) fn nginx_part(variable: &str) -> Option<String> {
    let ends_name = |c: char| c != '_' && !c.is_ascii_alphanumeric();
    Some(match variable {
        // Every IPv6 address by itself, as in nginx.
        "binary_remote_addr" | "remote_addr" => "ip/128".to_owned(),
        "server_name" | "host" | "http_host" => "host".to_owned(),
        "uri" | "document_uri" => "path".to_owned(),
        "request_method" => "method".to_owned(),
        _ if variable.contains(ends_name) => return None,
        _ => match variable.split_once('_')? {
            ("http", name) => format!("header:{}", name.replace('_', "-")),
            ("cookie", name) => format!("cookie:{name}"),
            ("arg", name) => format!("query:{name}"),
            _ => return None,
        },
    })
}
