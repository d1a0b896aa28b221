//! Names of fields, by whom they are for. What is in no list here is nothing to whoever stands
//! between a client and a server.

/// They say where a message ends, or whom it is for.
const FRAMING: [&str; 3] = ["content-length", "transfer-encoding", "host"];

/// Fields of one connection alone, whatever Connection says (RFC 9110, section 7.6.1).
/// Transfer-Encoding is one as well, but bodies pass with the framing that they have.
const OF_ONE_CONNECTION: [&str; 5] =
    ["connection", "keep-alive", "proxy-connection", "te", "upgrade"];

/// By these a request is allowed, understood or sent on, or an answer kept and shown: they are for
/// everybody on the way.
const OF_THE_HEAD: [&str; 32] = [
    "age",
    "authentication-info",
    "authorization",
    "cache-control",
    "client-ip",
    "cookie",
    "date",
    "expect",
    "expires",
    "forwarded",
    "location",
    "max-forwards",
    "origin",
    "pragma",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-authorization",
    "range",
    "referer",
    "retry-after",
    "set-cookie",
    "true-client-ip",
    "vary",
    "via",
    "warning",
    "www-authenticate",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-real-ip",
];

/// The same, with any end.
const OF_THE_HEAD_PREFIXES: [&str; 6] =
    ["content-", "if-", "sec-", "x-forwarded-", "x-original-", "x-rewrite-"];

/// They are about bytes that have gone by, and so come behind them (RFC 9530, section 6).
const OF_THE_BODY: [&str; 2] = ["content-digest", "content-md5"];

fn is_in(list: &[&str], name: &[u8]) -> bool {
    list.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
}

pub(super) fn is_framing(name: &[u8]) -> bool {
    is_in(&FRAMING, name)
}

pub(super) fn is_of_one_connection(name: &[u8]) -> bool {
    is_in(&OF_ONE_CONNECTION, name)
}

/// It is not for one connection alone, whatever Connection says.
pub(super) fn is_of_the_head(name: &[u8]) -> bool {
    let begins = |prefix: &&str| {
        name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix.as_bytes()))
    };
    !is_in(&OF_THE_BODY, name)
        && (is_in(&OF_THE_HEAD, name) || OF_THE_HEAD_PREFIXES.iter().any(begins))
}

/// It may not stand behind a body: who looks there for it decides anew what has been decided (RFC
/// 9110, section 6.5.1).
pub(super) fn is_barred_behind(name: &[u8]) -> bool {
    let is_barred = |name: &[u8]| {
        is_framing(name)
            || is_of_one_connection(name)
            || is_of_the_head(name)
            || name.eq_ignore_ascii_case(b"trailer")
    };
    is_barred(name) || plain(name).is_some_and(|plain| is_barred(&plain))
}

/// It is a name that matters to who hands fields over as variables, where what is no letter or
/// digit is `_` (RFC 3875, section 4.1.18), but none to who reads fields.
pub(super) fn is_disguised(name: &[u8]) -> bool {
    plain(name).is_some_and(|plain| {
        is_framing(&plain) || is_of_one_connection(&plain) || is_of_the_head(&plain)
    })
}

/// The name with a hyphen for all that is no letter or digit, if it is another one.
fn plain(name: &[u8]) -> Option<Vec<u8>> {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
    let changed = || name.iter().map(|byte| if is_plain(byte) { *byte } else { b'-' }).collect();
    (!name.iter().all(is_plain)).then(changed)
}
