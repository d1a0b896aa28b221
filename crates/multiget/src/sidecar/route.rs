//! Routes of commands. Commands missing from these lists are refused: their keys are unknown, they
//! concern one server, or they change the state of a connection, and connections to servers are
//! shared.

use shunt_wire::resp::Command;

use super::split::Verb;
use crate::limits;
use crate::place::Places;

/// One key, the first argument.
const ONE_KEY: &[&str] = &[
    "SET",
    "SETNX",
    "SETEX",
    "PSETEX",
    "GETSET",
    "GETDEL",
    "GETEX",
    "APPEND",
    "STRLEN",
    "INCR",
    "DECR",
    "INCRBY",
    "DECRBY",
    "INCRBYFLOAT",
    "GETRANGE",
    "SUBSTR",
    "SETRANGE",
    "GETBIT",
    "SETBIT",
    "BITCOUNT",
    "BITPOS",
    "BITFIELD",
    "BITFIELD_RO",
    "EXPIRE",
    "PEXPIRE",
    "EXPIREAT",
    "PEXPIREAT",
    "EXPIRETIME",
    "PEXPIRETIME",
    "PERSIST",
    "TTL",
    "PTTL",
    "TYPE",
    "DUMP",
    "RESTORE",
    "HSET",
    "HGET",
    "HMGET",
    "HMSET",
    "HGETALL",
    "HDEL",
    "HEXISTS",
    "HINCRBY",
    "HINCRBYFLOAT",
    "HKEYS",
    "HLEN",
    "HRANDFIELD",
    "HSCAN",
    "HSETNX",
    "HSTRLEN",
    "HVALS",
    "LPUSH",
    "RPUSH",
    "LPUSHX",
    "RPUSHX",
    "LPOP",
    "RPOP",
    "LLEN",
    "LRANGE",
    "LINDEX",
    "LINSERT",
    "LREM",
    "LSET",
    "LTRIM",
    "LPOS",
    "SADD",
    "SREM",
    "SCARD",
    "SISMEMBER",
    "SMISMEMBER",
    "SMEMBERS",
    "SPOP",
    "SRANDMEMBER",
    "SSCAN",
    "ZADD",
    "ZREM",
    "ZCARD",
    "ZCOUNT",
    "ZINCRBY",
    "ZLEXCOUNT",
    "ZMSCORE",
    "ZPOPMAX",
    "ZPOPMIN",
    "ZRANDMEMBER",
    "ZRANGE",
    "ZRANGEBYLEX",
    "ZRANGEBYSCORE",
    "ZRANK",
    "ZREMRANGEBYLEX",
    "ZREMRANGEBYRANK",
    "ZREMRANGEBYSCORE",
    "ZREVRANGE",
    "ZREVRANGEBYLEX",
    "ZREVRANGEBYSCORE",
    "ZREVRANK",
    "ZSCAN",
    "ZSCORE",
    "PFADD",
    "GEOADD",
    "GEODIST",
    "GEOHASH",
    "GEOPOS",
    "GEOSEARCH",
    "XADD",
    "XLEN",
    "XRANGE",
    "XREVRANGE",
    "XDEL",
    "XTRIM",
];
/// Every argument is a key.
const ALL_KEYS: &[&str] = &[
    "DEL",
    "UNLINK",
    "EXISTS",
    "TOUCH",
    "SINTER",
    "SUNION",
    "SDIFF",
    "SINTERSTORE",
    "SUNIONSTORE",
    "SDIFFSTORE",
    "PFCOUNT",
    "PFMERGE",
];
/// Every other argument is a key.
const PAIRS: &[&str] = &["MSET", "MSETNX"];
/// The first two arguments are keys.
const TWO_KEYS: &[&str] =
    &["RENAME", "RENAMENX", "COPY", "LMOVE", "RPOPLPUSH", "SMOVE", "ZRANGESTORE", "GEOSEARCHSTORE"];
/// Answered here.
const LOCAL: &[&str] =
    &["PING", "ECHO", "HELLO", "CLIENT", "SELECT", "AUTH", "COMMAND", "INFO", "CONFIG", "QUIT"];

/// Route of a command.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Route {
    /// A multiget.
    Multiget,
    /// Passed on to this server.
    Server(usize),
    /// Split between several servers, or nodes that have its slots.
    Split(Verb),
    /// Answered here; the name in capitals.
    Here(&'static str),
    /// Refused, with the reason.
    Refused(String),
}

/// Route of a command, given the placement of keys and the database of all connections to servers.
pub(super) fn route(command: &Command, bytes: &[u8], places: &Places, database: u32) -> Route {
    let name = command.argument(bytes, 0).unwrap_or_default();
    let is = |known: &&&str| name.eq_ignore_ascii_case(known.as_bytes());
    let count = command.count();
    let arity =
        || Route::Refused(format!("ERR wrong number of arguments for '{}' command", shown(name)));
    if is(&&"GET") || is(&&"MGET") {
        let fits = if is(&&"GET") { count == 2 } else { count >= 2 };
        return if fits { Route::Multiget } else { arity() };
    }
    if let Some(known) = LOCAL.iter().find(is) {
        return Route::Here(known);
    }
    let (last, step) = if ONE_KEY.iter().any(|known| is(&known)) {
        (1, 1)
    } else if ALL_KEYS.iter().any(|known| is(&known)) {
        (count.saturating_sub(1), 1)
    } else if PAIRS.iter().any(|known| is(&known)) {
        (count.saturating_sub(1), 2)
    } else if TWO_KEYS.iter().any(|known| is(&known)) {
        (2, 1)
    } else {
        return Route::Refused(format!(
            "ERR '{}' is not passed on by shunt multiget: send it to the server that it is for",
            shown(name)
        ));
    };
    if is(&&"COPY") && leaves(command, bytes, database) {
        return Route::Refused(format!(
            "ERR there is database {database} alone: copy to another one at the server itself"
        ));
    }
    if step == 2 && count.is_multiple_of(2) {
        return arity();
    }
    let mut keys = (1..=last).step_by(step).map(|index| command.argument(bytes, index));
    let Some(Some(first)) = keys.next() else { return arity() };
    let (verb, server, group) = (Verb::named(name), places.server(first), places.group(first));
    let mut is_split = false;
    for key in keys {
        let Some(key) = key else { return arity() };
        if verb.is_none() && places.server(key) != server {
            return Route::Refused(crossing(name));
        }
        is_split |= verb.is_some() && places.group(key) != group;
    }
    match verb.filter(|_| is_split) {
        None => Route::Server(server),
        Some(verb) if (count - 1) / verb.arguments_per_key() > limits::KEYS_MAX => {
            Route::Refused(format!(
                "ERR '{}' over several servers has at most {} keys: send several commands",
                shown(name),
                limits::KEYS_MAX
            ))
        }
        Some(verb) => Route::Split(verb),
    }
}

/// Reason why a command with keys on several servers is not split.
fn crossing(name: &[u8]) -> String {
    let (name, advice) = (shown(name), "keep them together with {tags}");
    match name.as_str() {
        "msetnx" => format!(
            "CROSSSLOT the keys of 'msetnx' are on several servers, which cannot set all of them or none: {advice}"
        ),
        _ => format!(
            "CROSSSLOT the keys of '{name}' are on several servers: send one command for each, or {advice}"
        ),
    }
}

/// True if a COPY leaves the database. Its options may come in any order, and repeatedly.
fn leaves(command: &Command, bytes: &[u8], database: u32) -> bool {
    let (own, mut options) = (database.to_string(), command.arguments(bytes, 1).skip(2).peekable());
    while let Some(option) = options.next() {
        if option.eq_ignore_ascii_case(b"DB")
            && options.peek().is_some_and(|named| *named != own.as_bytes())
        {
            return true;
        }
    }
    false
}

/// A name in the form that errors show.
fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(&name[..name.len().min(64)]).escape_debug().to_string().to_lowercase()
}

#[cfg(test)]
mod tests {
    use shunt_wire::resp::{put_command, read_command};

    use super::*;

    fn routed(text: &str) -> Route {
        routed_to(text, &Places::Equal(5))
    }

    fn routed_to(text: &str, places: &Places) -> Route {
        let (mut bytes, mut command) = (Vec::new(), Command::default());
        let words: Vec<&[u8]> = text.split(' ').map(str::as_bytes).collect();
        put_command(&mut bytes, words.into_iter());
        assert_eq!(read_command(&bytes, 1 << 20, &mut command), Ok(true));
        route(&command, &bytes, places, 3)
    }

    #[test]
    fn commands_go_where_their_keys_are() {
        let foo = Places::Equal(5).server(b"foo");
        for text in [
            "set foo x",
            "HGETALL foo",
            "DEL foo",
            "MSET foo 1 {foo}x 2",
            "rename foo {foo}y",
            "lmove foo {foo}2 LEFT RIGHT",
        ] {
            assert_eq!(routed(text), Route::Server(foo), "{text}");
        }
        for text in ["GET foo", "mget foo bar"] {
            assert_eq!(routed(text), Route::Multiget, "{text}");
        }
        for (text, verb) in [
            ("del foo bar hello", Verb::Del),
            ("UNLINK foo bar hello foo", Verb::Unlink),
            ("EXISTS foo bar", Verb::Exists),
            ("Touch foo bar", Verb::Touch),
            ("MSET foo 1 bar 2 foo 3", Verb::Mset),
        ] {
            assert_eq!(routed(text), Route::Split(verb), "{text}");
        }
        assert_eq!(routed("ping"), Route::Here("PING"));
    }

    #[test]
    fn keys_of_a_node_of_a_cluster_are_split_by_slot() {
        let places = Places::Slots(vec![7; crate::place::SLOTS]);
        let routed = |text| routed_to(text, &places);
        assert_eq!(routed("DEL foo bar"), Route::Split(Verb::Del));
        assert_eq!(routed("MSET {a}1 x {a}2 y"), Route::Server(7));
        // The node refuses it.
        assert_eq!(routed("SUNION foo bar"), Route::Server(7));
    }

    #[test]
    fn a_split_command_has_a_bound_of_keys() {
        let keys = |count: usize| format!("DEL{}", " foo bar".repeat(count / 2));
        assert_eq!(routed(&keys(limits::KEYS_MAX)), Route::Split(Verb::Del));
        let Route::Refused(text) = routed(&keys(limits::KEYS_MAX + 2)) else {
            panic!("it goes somewhere")
        };
        assert!(text.contains("at most 10000 keys"), "{text}");
        // Keys on one server are not limited here.
        let one = format!("DEL{}", " foo".repeat(limits::KEYS_MAX + 1));
        assert_eq!(routed(&one), Route::Server(Places::Equal(5).server(b"foo")));
    }

    #[test]
    fn no_copy_leaves_the_database() {
        let foo = Places::Equal(5).server(b"foo");
        for text in [
            "COPY foo {foo}2",
            "COPY foo {foo}2 REPLACE",
            "copy foo {foo}2 replace db 3",
            "COPY foo {foo}2 DB",
        ] {
            assert_eq!(routed(text), Route::Server(foo), "{text}");
        }
        for text in [
            "COPY foo foo DB 5",
            "copy foo {foo}2 REPLACE db 0",
            "COPY foo foo DB 5 DB 3",
            "COPY foo foo DB x DB 5",
        ] {
            let Route::Refused(why) = routed(text) else { panic!("{text} goes somewhere") };
            assert!(why.contains("database 3 alone"), "{text}: {why}");
        }
        // Keys may have this name.
        assert!(matches!(routed("COPY DB 5"), Route::Server(_) | Route::Refused(_)));
        assert_eq!(routed("COPY {foo}DB {foo}DB"), Route::Server(foo));
    }

    #[test]
    fn unroutable_commands_get_the_reason() {
        for (text, why) in [
            ("GET", "wrong number"),
            ("GET a b", "wrong number"),
            ("MGET", "wrong number"),
            ("SET", "wrong number"),
            ("RENAME a", "wrong number"),
            ("SUNION foo bar hello", "CROSSSLOT the keys of 'sunion'"),
            (
                "MSETNX foo 1 bar 2",
                "CROSSSLOT the keys of 'msetnx' are on several servers, which cannot set all",
            ),
            ("MSET foo 1 bar", "wrong number of arguments for 'mset'"),
            ("MSET foo", "wrong number"),
            ("MSET", "wrong number"),
            ("DEL", "wrong number"),
            ("MULTI", "'multi' is not passed on"),
            ("SUBSCRIBE x", "not passed on"),
            ("KEYS *", "not passed on"),
            ("FLUSHALL", "not passed on"),
        ] {
            let Route::Refused(text) = routed(text) else { panic!("{text} goes somewhere") };
            assert!(text.contains(why), "{text}");
        }
    }
}
