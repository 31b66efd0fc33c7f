//! Form: whether directives are those of nginx, and whether a gateway does without them.

use super::directive::{Directive, flat};
use crate::config::{Findings, codes, error};

/// Directives of which a file of nginx has one, and each of its included files.
const KNOWN: &str = "return if set add_header allow deny location";
/// Those that are read, or that change neither which requests are served nor how.
const SETTINGS: &str = "\
    http server events upstream map geo stream mail include user pid daemon env load_module \
    error_log access_log log_format log_not_found root alias index listen server_name types \
    default_type charset gzip brotli sendfile aio tcp_nopush tcp_nodelay set_real_ip_from \
    split_clients ssl http2 http3 etag merge_slashes underscores_in_headers ignore_invalid_headers \
    chunked_transfer_encoding send_timeout reset_timedout_connection port_in_redirect \
    absolute_redirect recursive_error_pages master_process thread_pool pcre_jit timer_resolution";
/// Beginnings of the names of further ones.
const FAMILIES: &str = "\
    proxy_ ssl_ real_ip_ worker_ client_ keepalive_ fastcgi_ uwsgi_ gzip_ brotli_ server_ \
    resolver http2_ http3_ quic_ open_file_cache types_hash_ variables_hash_ map_hash_ \
    large_client_ lingering_ output_buffers lua_";

/// Directives about limits that have no counterpart, and the reason.
const UNSUPPORTED: [(&str, &str); 6] = [
    (
        "$limit_rate limit_rate limit_rate_after proxy_limit_rate proxy_download_rate proxy_upload_rate",
        "bandwidth is not limited here",
    ),
    ("limit_zone", "nginx has it no more; write limit_conn_zone"),
    (
        "limit_req_log_level limit_conn_log_level",
        "refusals are logged by `log_denials`, without levels",
    ),
    (
        "access_by_lua_block access_by_lua_file rewrite_by_lua_block rewrite_by_lua_file",
        "not imported, with the limits that it may have",
    ),
    ("auth_delay", "answers to wrong passwords are not held back"),
    (
        "grpc_pass",
        "its receiver is not imported: write it with h2c:// as `upstream` in [listen.proxy]",
    ),
];

/// Directives that are read where they hold, and one that limits no rate.
pub(super) const OF_LIMITS: &str = "limit_req limit_conn limit_req_status limit_conn_status \
    limit_req_dry_run limit_conn_dry_run limit_except";

/// Returns why a directive is not imported, wherever it is; `None` if nothing is lost.
pub(super) fn lost(directive: &Directive) -> Option<&'static str> {
    let name = match (&directive.name[..], &directive.words[..]) {
        ("set", [variable, ..]) => variable,
        (name, _) => name,
    };
    let is_it = |(names, _): &&(&str, _)| names.split(' ').any(|it| it == name);
    let odd = || name.starts_with("limit_") && !directive.is_one_of(OF_LIMITS);
    let known = UNSUPPORTED.iter().find(is_it).map(|(_, why)| *why);
    known.or_else(|| odd().then_some("nginx itself has no such directive"))
}

/// Returns true for a directive that needs no counterpart in a gateway.
pub(super) fn is_setting(directive: &Directive) -> bool {
    let mut families = FAMILIES.split(' ');
    let is_of_limits = directive.is_one_of(OF_LIMITS) && directive.name != "limit_except";
    is_of_limits
        || directive.is_one_of(SETTINGS)
        || families.any(|start| directive.name.starts_with(start))
}

fn is_known(directive: &Directive) -> bool {
    is_setting(directive) || directive.is_one_of(KNOWN) || directive.name.starts_with("limit_")
}

/// Returns true if a directive is one of nginx; reports the text otherwise.
pub(super) fn check(text: &str, directives: &[Directive], out: &Findings<'_>) -> bool {
    let is_of_nginx = flat(directives).iter().any(|it| is_known(it));
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
