//! Part: the key parts that stand for variables of nginx.

/// Returns the key part for a variable without its `$`.
pub(crate) fn nginx_part(variable: &str) -> Option<String> {
    let dashed = |name: &str| name.replace('_', "-");
    let named = [
        ("http_", "header"),
        ("cookie_", "cookie"),
        ("arg_", "query"),
    ];
    Some(match variable {
        // Every IPv6 address by itself, as in nginx.
        "binary_remote_addr" | "remote_addr" => "ip/128".to_owned(),
        "server_name" | "host" | "http_host" => "host".to_owned(),
        "uri" | "document_uri" => "path".to_owned(),
        "request_method" => "method".to_owned(),
        _ => named.iter().find_map(|(start, kind)| {
            let name = variable.strip_prefix(start)?;
            let name = if *kind == "header" {
                dashed(name)
            } else {
                name.to_owned()
            };
            Some(format!("{kind}:{name}"))
        })?,
    })
}
