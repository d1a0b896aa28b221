//! The host names under which a request may ask for the pages. A browser sends the name that it
//! looked up. The check rejects a page of an attacker whose own name has been pointed at this
//! address (DNS rebinding).

use std::net::Ipv6Addr;

use axum::http::{Request, header};

/// True if the request is meant for this machine: it names an address, `localhost`, one of `names`,
/// or no host at all. Other HTTP listeners of this machine ask this, too.
pub fn is_meant<B>(request: &Request<B>, names: &[String]) -> bool {
    let fields = request.headers().get_all(header::HOST).iter();
    let mut given = fields.map(|field| field.to_str().unwrap_or_default());
    let target = request.uri().authority().map(|authority| authority.as_str());
    given.all(|host| is_known(host, names)) && target.is_none_or(|host| is_known(host, names))
}

fn is_known(given: &str, names: &[String]) -> bool {
    if let Some(rest) = given.strip_prefix('[') {
        return rest
            .split_once(']')
            .is_some_and(|(ip, port)| ip.parse::<Ipv6Addr>().is_ok() && is_port(port));
    }
    let (host, port) = given.split_at(given.find(':').unwrap_or(given.len()));
    let is = |name: &str| host.eq_ignore_ascii_case(name);
    // An attacker cannot rebind an address as he can rebind a name.
    is_port(port)
        && (host.parse::<std::net::Ipv4Addr>().is_ok()
            || is("localhost")
            || names.iter().any(|name| is(name)))
}

fn is_port(text: &str) -> bool {
    text.is_empty()
        || text
            .strip_prefix(':')
            .is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
}
