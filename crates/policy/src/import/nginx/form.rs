//! Form: whether a text is a configuration of nginx, and otherwise what it is.

use super::directive::MESSAGE;
use crate::config::{Findings, codes, shown};

/// Directives that a file of nginx begins with, or one of its included files.
const KNOWN: &str = "\
    http server location events upstream map geo stream mail include user pid daemon \
    load_module error_log access_log log_format root index listen server_name return if \
    set types default_type gzip sendfile add_header tcp_nopush set_real_ip_from allow \
    deny split_clients";
/// Beginnings of the names of further ones.
const FAMILIES: &str = "\
    limit_ proxy_ ssl_ real_ip_ worker_ client_ keepalive_ fastcgi_ uwsgi_ gzip_ server_ \
    resolver";

fn is_known(name: &str) -> bool {
    KNOWN.split(' ').any(|known| known == name)
        || FAMILIES.split(' ').any(|start| name.starts_with(start))
}

/// Returns true if a line begins as one of nginx; reports the form of the text otherwise.
pub(super) fn check(text: &str, out: &mut Findings<'_>) -> bool {
    let mut words = text
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    let found = match foreign(text) {
        None if words.any(is_known) => return true,
        None => "text without a directive of nginx".to_owned(),
        Some(form) => form,
    };
    let help = if found.contains("Kubernetes") {
        "give it the nginx.conf of the controller: kubectl exec POD -- nginx -T"
    } else {
        "give it directives such as `limit_req zone=api;`, as `nginx -T` prints them"
    };
    let start = text.len() - text.trim_start().len();
    let end = text[start..].find('\n').map_or(text.len(), |at| start + at);
    let message = format!("this is {found}, not a configuration of nginx");
    let label = "expected a directive of nginx";
    out.error(codes::NGINX_SYNTAX, start..end, message, label)
        .help(help);
    false
}

/// Returns the form of a text in another language, if it is a well-known one.
fn foreign(text: &str) -> Option<String> {
    let is_key = |line: &str| {
        let (name, rest) = line.split_once(':').unwrap_or((" ", ""));
        let name = name.trim_start_matches("- ");
        let is_name = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
        (rest.is_empty() || rest.starts_with(' ')) && !name.is_empty() && name.chars().all(is_name)
    };
    let mut lines = text.lines().map(str::trim);
    let blank = |line: &&str| {
        line.is_empty() || line.starts_with('#') || *line == "---" || line.starts_with(MESSAGE)
    };
    let first = lines.find(|line| !blank(line))?;
    let mut rest = text.lines();
    Some(match first.chars().next()? {
        '{' => "JSON".to_owned(),
        '<' => "XML or HTML".to_owned(),
        '[' => "TOML or JSON".to_owned(),
        _ if is_key(first) => match rest.find_map(|line| line.strip_prefix("kind:")) {
            Some(kind) => {
                let kind = shown(kind.trim());
                format!("a resource of Kubernetes (kind: {kind})")
            }
            None => "YAML".to_owned(),
        },
        _ => return None,
    })
}
