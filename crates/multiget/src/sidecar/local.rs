//! Commands answered here, because they concern the connection, which ends here.

use shunt_wire::resp::{
    Version, put_array, put_bulk, put_error, put_integer, put_map, put_nil, put_simple,
};

use super::apps::App;
use crate::limits;

/// Version in the answer to HELLO: clients infer a server's features from it.
const REDIS_VERSION: &str = "7.0.0";

/// Answers the command `name`, in capitals, with these arguments. All connections use one database.
pub(super) fn answer(app: &mut App, name: &str, arguments: &[&[u8]], database: u32) -> Vec<u8> {
    let mut out = Vec::new();
    match (name, arguments) {
        ("PING", []) => put_simple(&mut out, "PONG"),
        ("PING" | "ECHO", [text]) => put_bulk(&mut out, text),
        ("SELECT", [number]) if *number == database.to_string().as_bytes() => {
            put_simple(&mut out, "OK")
        }
        ("SELECT", [_]) => {
            let text = format!(
                "ERR there is database {database} alone: start shunt multiget serve with another --database"
            );
            put_error(&mut out, &text);
        }
        ("COMMAND", arguments) => command(app, arguments, &mut out),
        ("INFO", arguments) => put_bulk(&mut out, information(arguments).as_bytes()),
        ("CONFIG", [word, _, ..]) if is(word, "GET") => put_map(&mut out, app.version, 0),
        ("CONFIG", _) => {
            put_error(
                &mut out,
                "ERR the sidecar answers only CONFIG GET: send other CONFIG commands to a server",
            );
        }
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
        _ => put_error(
            &mut out,
            &format!("ERR wrong number of arguments for '{}' command", name.to_lowercase()),
        ),
    }
    out
}

fn is(word: &[u8], known: &str) -> bool {
    word.eq_ignore_ascii_case(known.as_bytes())
}

/// Facts by section from which clients infer that a server is ready, and its features.
const FACTS: [(&str, &[(&str, &str)]); 4] = [
    ("Server", &[("redis_version", REDIS_VERSION), ("redis_mode", "standalone")]),
    ("Persistence", &[("loading", "0")]),
    ("Replication", &[("role", "master"), ("connected_slaves", "0")]),
    ("Cluster", &[("cluster_enabled", "0")]),
];

/// Facts of the requested sections. The servers' resources are not among them, because there are
/// several servers.
fn information(asked: &[&[u8]]) -> String {
    let all = asked.is_empty()
        || asked
            .iter()
            .any(|word| ["ALL", "DEFAULT", "EVERYTHING"].iter().any(|all| is(word, all)));
    let line = |(name, value): &(&str, &str)| format!("{name}:{value}\r\n");
    let sections =
        FACTS.iter().filter(|(section, _)| all || asked.iter().any(|word| is(word, section)));
    let texts = sections.map(|(section, facts)| {
        format!("# {section}\r\n{}", facts.iter().map(line).collect::<String>())
    });
    texts.collect::<Vec<_>>().join("\r\n")
}

/// Describes no commands. Clients that want hints, such as `redis-cli`, work without.
fn command(app: &App, arguments: &[&[u8]], out: &mut Vec<u8>) {
    match arguments {
        [] => put_array(out, 0),
        [word] if is(word, "COUNT") => put_integer(out, 0),
        [word, ..] if is(word, "LIST") => put_array(out, 0),
        [word, ..] if is(word, "DOCS") => put_map(out, app.version, 0),
        [word, names @ ..] if is(word, "INFO") => {
            put_array(out, names.len());
            names.iter().for_each(|_| put_nil(out, app.version));
        }
        _ => put_error(out, "ERR of COMMAND there are COUNT, DOCS, INFO and LIST here"),
    }
}

fn client(app: &mut App, arguments: &[&[u8]], out: &mut Vec<u8>) {
    match arguments {
        [word, name] if is(word, "SETNAME") => match check_name(name) {
            Ok(()) => {
                app.name = name.to_vec();
                put_simple(out, "OK");
            }
            Err(why) => put_error(out, &why),
        },
        [word] if is(word, "GETNAME") && app.name.is_empty() => put_nil(out, app.version),
        [word] if is(word, "GETNAME") => put_bulk(out, &app.name),
        [word] if is(word, "ID") => put_integer(out, id(app)),
        [word, _, _] if is(word, "SETINFO") => put_simple(out, "OK"),
        [word] if is(word, "INFO") => put_bulk(out, described(app).as_bytes()),
        // These settings hold anyway.
        [word, on] if is(word, "REPLY") && is(on, "ON") => put_simple(out, "OK"),
        [word, off] if is(word, "TRACKING") && is(off, "OFF") => put_simple(out, "OK"),
        [word, off] if (is(word, "NO-EVICT") || is(word, "NO-TOUCH")) && is(off, "OFF") => {
            put_simple(out, "OK")
        }
        _ => put_error(out, "ERR of CLIENT there are SETNAME, GETNAME, SETINFO, INFO and ID here"),
    }
}

/// Refuses a name that CLIENT INFO cannot show. Each connection keeps its name, so it has a bound.
fn check_name(name: &[u8]) -> Result<(), String> {
    if name.len() > limits::APP_NAME_BYTES_MAX {
        let (bytes, most) = (name.len(), limits::APP_NAME_BYTES_MAX);
        return Err(format!("ERR the client name has {bytes} bytes: give at most {most} bytes"));
    }
    // Redis has this text.
    let why = "ERR Client names cannot contain spaces, newlines or special characters.";
    if name.iter().all(u8::is_ascii_graphic) { Ok(()) } else { Err(why.to_owned()) }
}

/// The connection in the form of `CLIENT INFO`.
fn described(app: &App) -> String {
    let version = if app.version == Version::Two { 2 } else { 3 };
    format!("id={} name={} resp={version}\n", id(app), String::from_utf8_lossy(&app.name))
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
            [given, behind @ ..] if is(option, "SETNAME") => {
                if let Err(why) = check_name(given) {
                    return put_error(out, &why);
                }
                (name, rest) = (Some(*given), behind)
            }
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
        app.name = name.to_vec();
    }
    put_map(out, version, 7);
    let number = if version == Version::Two { 2 } else { 3 };
    for (key, value) in [
        ("server", "redis"),
        ("version", REDIS_VERSION),
        ("mode", "standalone"),
        ("role", "master"),
    ] {
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
