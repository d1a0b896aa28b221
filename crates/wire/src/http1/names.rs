//! Names of fields, grouped by their recipient. An intermediary ignores fields in none of these
//! lists.

/// Fields that say where a message ends or which host it is for.
const FRAMING: [&str; 3] = ["content-length", "transfer-encoding", "host"];

/// Hop-by-hop fields, whatever Connection says (RFC 9110, section 7.6.1). Transfer-Encoding is one
/// too, but bodies keep their framing.
const OF_ONE_CONNECTION: [&str; 5] =
    ["connection", "keep-alive", "proxy-connection", "te", "upgrade"];

/// End-to-end fields: they decide whether a request is allowed, understood or forwarded, or whether
/// an answer is kept and shown.
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

/// Prefixes of end-to-end fields.
const OF_THE_HEAD_PREFIXES: [&str; 6] =
    ["content-", "if-", "sec-", "x-forwarded-", "x-original-", "x-rewrite-"];

/// Digests of the preceding body, which therefore follow it (RFC 9530, section 6).
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

/// True for an end-to-end field, whatever Connection says.
pub(super) fn is_of_the_head(name: &[u8]) -> bool {
    let begins = |prefix: &&str| {
        name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix.as_bytes()))
    };
    !is_in(&OF_THE_BODY, name)
        && (is_in(&OF_THE_HEAD, name) || OF_THE_HEAD_PREFIXES.iter().any(begins))
}

/// True if a trailer must not contain the field: a reader of trailers would decide again what the
/// head has decided (RFC 9110, section 6.5.1).
pub(super) fn is_barred_behind(name: &[u8]) -> bool {
    let is_barred = |name: &[u8]| {
        is_framing(name)
            || is_of_one_connection(name)
            || is_of_the_head(name)
            || name.eq_ignore_ascii_case(b"trailer")
    };
    is_barred(name) || plain(name).is_some_and(|plain| is_barred(&plain))
}

/// True if the name equals a significant one for servers that pass fields as variables, where any
/// character but letters and digits becomes `_` (RFC 3875, section 4.1.18), but not for servers
/// that read fields.
pub(super) fn is_disguised(name: &[u8]) -> bool {
    plain(name).is_some_and(|plain| {
        is_framing(&plain) || is_of_one_connection(&plain) || is_of_the_head(&plain)
    })
}

/// The name with every character but letters and digits replaced by a hyphen; `None` if unchanged.
fn plain(name: &[u8]) -> Option<Vec<u8>> {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
    let changed = || name.iter().map(|byte| if is_plain(byte) { *byte } else { b'-' }).collect();
    (!name.iter().all(is_plain)).then(changed)
}

/// True if a token may contain the byte (RFC 9110, section 5.6.2), as in a method or a field name.
pub(super) const fn is_token(byte: u8) -> bool {
    matches!(
        byte,
        b'!' | b'#'
            | b'$'
            | b'%'
            | b'&'
            | b'\''
            | b'*'
            | b'+'
            | b'-'
            | b'.'
            | b'^'
            | b'_'
            | b'`'
            | b'|'
            | b'~'
    ) || byte.is_ascii_alphanumeric()
}
