//! Commands that are answered here: they are about the connection, which ends here.

use shunt_wire::resp::{Version, put_array, put_bulk, put_error, put_integer, put_map, put_nil, put_simple};

use super::apps::App;

/// The version that HELLO tells: clients decide by it what a server can do.
const REDIS_VERSION: &str = "7.0.0";

/// The answer to a command with this name in capitals and these arguments, its name not among them. All connections are to one database.
pub(super) fn answer(app: &mut App, name: &str, arguments: &[&[u8]], database: u32) -> Vec<u8> {
    let mut out = Vec::new();
    match (name, arguments) {
        ("PING", []) => put_simple(&mut out, "PONG"),
        ("PING" | "ECHO", [text]) => put_bulk(&mut out, text),
        ("SELECT", [number]) if *number == database.to_string().as_bytes() => put_simple(&mut out, "OK"),
        ("SELECT", [_]) => {
            let text =
                format!("ERR there is database {database} alone: start shunt multiget serve with another --database");
            put_error(&mut out, &text);
        }
        ("COMMAND", _) => put_array(&mut out, 0),
        ("AUTH", _) => put_error(
            &mut out,
            "ERR AUTH called without any password configured: shunt multiget logs in to the servers itself, leave the password out",
        ),
        ("QUIT", _) => {
            app.is_closing = true;
            put_simple(&mut out, "OK");
        }
        ("CLIENT", arguments) => client(app, arguments, &mut out),
        ("HELLO", arguments) => hello(app, arguments, &mut out),
        _ => put_error(&mut out, &format!("ERR wrong number of arguments for '{}' command", name.to_lowercase())),
    }
    out
}

fn is(word: &[u8], known: &str) -> bool {
    word.eq_ignore_ascii_case(known.as_bytes())
}

fn client(app: &mut App, arguments: &[&[u8]], out: &mut Vec<u8>) {
    match arguments {
        [word, name] if is(word, "SETNAME") => {
            app.name = name.to_vec();
            put_simple(out, "OK");
        }
        [word] if is(word, "GETNAME") && app.name.is_empty() => put_nil(out, app.version),
        [word] if is(word, "GETNAME") => put_bulk(out, &app.name),
        [word] if is(word, "ID") => put_integer(out, id(app)),
        [word, _, _] if is(word, "SETINFO") => put_simple(out, "OK"),
        _ => put_error(out, "ERR of CLIENT there are SETNAME, GETNAME, SETINFO and ID here"),
    }
}

fn id(app: &App) -> i64 {
    i64::from(app.conn.generation) << 32 | i64::from(app.conn.index)
}

fn hello(app: &mut App, arguments: &[&[u8]], out: &mut Vec<u8>) {
    let (version, mut rest) = match arguments {
        [] => (app.version, arguments),
        [b"2", rest @ ..] => (Version::Two, rest),
        [b"3", rest @ ..] => (Version::Three, rest),
        _ => return put_error(out, "NOPROTO unsupported protocol version"),
    };
    let mut name = None;
    while let [option, behind @ ..] = rest {
        match behind {
            [given, behind @ ..] if is(option, "SETNAME") => (name, rest) = (Some(given.to_vec()), behind),
            _ if is(option, "AUTH") => {
                return put_error(
                    out,
                    "ERR AUTH called without any password configured: shunt multiget logs in to the servers itself, leave the password out",
                );
            }
            _ => return put_error(out, "ERR syntax error in HELLO option"),
        }
    }
    app.version = version;
    if let Some(name) = name {
        app.name = name;
    }
    put_map(out, version, 7);
    let number = if version == Version::Two { 2 } else { 3 };
    for (key, value) in [("server", "redis"), ("version", REDIS_VERSION), ("mode", "standalone"), ("role", "master")] {
        put_bulk(out, key.as_bytes());
        put_bulk(out, value.as_bytes());
    }
    for (key, value) in [("proto", number), ("id", id(app))] {
        put_bulk(out, key.as_bytes());
        put_integer(out, value);
    }
    put_bulk(out, b"modules");
    put_array(out, 0);
}
