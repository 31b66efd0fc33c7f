//! Form: whether directives are those of nginx.

use super::directive::{Directive, flat};
use crate::config::{Findings, codes, error};

/// Directives of which a file of nginx has one, and each of its included files.
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

/// Returns true if a directive is one of nginx; reports the text otherwise.
pub(super) fn check(text: &str, directives: &[Directive], out: &Findings<'_>) -> bool {
    let is_of_nginx = flat(directives).iter().any(|it| is_known(&it.name));
    if !is_of_nginx {
        let start = text.len() - text.trim_start().len();
        let end = text[start..].find('\n').map_or(text.len(), |at| start + at);
        let message = "this is text without a directive of nginx, not a configuration of nginx";
        let label = "expected a directive of nginx";
        error(codes::NGINX_SYNTAX, out.at(start..end), message, label)
            .help("give it directives such as `limit_req zone=api;`, as `nginx -T` prints them");
    }
    is_of_nginx
}
