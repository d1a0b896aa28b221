//! The client side of Redis (RESP 2): commands, and the parser of answers. One request at a time on
//! a connection.

use crate::load::locks::{NAME_BYTES, OWNER_BYTES};

/// Deletes a lock if the caller owns it: the release that the documentation of `SET` recommends.
const RELEASE_SCRIPT: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end";

/// An answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Reply<'a> {
    /// `OK`, or the number 1.
    Applied,
    /// Nil, or the number 0.
    NotApplied,
    /// A string.
    Text(&'a [u8]),
    /// An error.
    Error(&'a [u8]),
}

fn command(out: &mut Vec<u8>, parts: &[&[u8]]) {
    header(out, b'*', parts.len());
    for part in parts {
        header(out, b'$', part.len());
        out.extend_from_slice(part);
        out.extend_from_slice(b"\r\n");
    }
}

fn header(out: &mut Vec<u8>, kind: u8, number: usize) {
    out.push(kind);
    let digits = number.checked_ilog10().unwrap_or(0) + 1;
    for place in (0..digits).rev() {
        out.push(b'0' + (number / 10usize.pow(place) % 10) as u8);
    }
    out.extend_from_slice(b"\r\n");
}

/// Loads the script of [`release`]; the answer is the script's name.
pub(super) fn load_script(out: &mut Vec<u8>) {
    command(out, &[b"SCRIPT", b"LOAD", RELEASE_SCRIPT.as_bytes()]);
}

/// Takes a lock. `ttl_ms` is in decimal digits.
pub(super) fn acquire(
    out: &mut Vec<u8>,
    name: &[u8; NAME_BYTES],
    owner: &[u8; OWNER_BYTES],
    ttl_ms: &[u8],
) {
    command(out, &[b"SET", name, owner, b"NX", b"PX", ttl_ms]);
}

/// Releases a lock with the script of this name.
pub(super) fn release(
    out: &mut Vec<u8>,
    script: &[u8],
    name: &[u8; NAME_BYTES],
    owner: &[u8; OWNER_BYTES],
) {
    command(out, &[b"EVALSHA", script, b"1", name, owner]);
}

/// Parses the first answer in `data`; returns its length as well, or `None` if it is incomplete.
///
/// # Errors
/// These commands have no such answer.
pub(super) fn reply(data: &[u8]) -> Result<Option<(usize, Reply<'_>)>, String> {
    let Some(end) = data.windows(2).position(|pair| pair == b"\r\n") else { return Ok(None) };
    let (line, after) = (&data[..end], end + 2);
    let number = || std::str::from_utf8(&line[1..]).ok().and_then(|text| text.parse::<i64>().ok());
    let found = match line.first() {
        Some(b'+') if line == b"+OK" => Reply::Applied,
        Some(b':') if number() == Some(1) => Reply::Applied,
        Some(b':') if number() == Some(0) => Reply::NotApplied,
        Some(b'$') if number() == Some(-1) => Reply::NotApplied,
        Some(b'-') => Reply::Error(&line[1..]),
        Some(b'$') if number().is_some_and(|length| (0..1 << 20).contains(&length)) => {
            let length = number().unwrap_or(0) as usize;
            let text = data.get(after..after + length + 2).map(|text| &text[..length]);
            return Ok(text.map(|text| (after + length + 2, Reply::Text(text))));
        }
        _ => {
            return Err(format!(
                "'{}' does not answer the request to Redis",
                String::from_utf8_lossy(line)
            ));
        }
    };
    Ok(Some((after, found)))
}

#[cfg(test)]
mod tests {
    use super::{Reply, acquire, release, reply};

    #[test]
    fn commands_as_redis_reads_them() {
        let mut out = Vec::new();
        acquire(&mut out, b"0000000007", b"0000000012", b"30000");
        let wanted = "*6\r\n$3\r\nSET\r\n$10\r\n0000000007\r\n$10\r\n0000000012\r\n$2\r\nNX\r\n$2\r\nPX\r\n$5\r\n30000\r\n";
        assert_eq!(String::from_utf8_lossy(&out), wanted);
        out.clear();
        release(&mut out, b"abc", b"0000000007", b"0000000012");
        let wanted = "*5\r\n$7\r\nEVALSHA\r\n$3\r\nabc\r\n$1\r\n1\r\n$10\r\n0000000007\r\n$10\r\n0000000012\r\n";
        assert_eq!(String::from_utf8_lossy(&out), wanted);
    }

    #[test]
    fn answers_and_what_is_none() {
        for (data, wanted) in [
            ("+OK\r\n", Reply::Applied),
            (":1\r\n", Reply::Applied),
            (":0\r\n", Reply::NotApplied),
            ("$-1\r\n", Reply::NotApplied),
            ("$3\r\nabc\r\n", Reply::Text(b"abc")),
            ("-ERR no\r\n", Reply::Error(b"ERR no")),
        ] {
            let more = format!("{data}+OK\r\n");
            assert_eq!(reply(more.as_bytes()), Ok(Some((data.len(), wanted))), "{data}");
            for length in 0..data.len() {
                assert_eq!(reply(&data.as_bytes()[..length]), Ok(None), "{length} bytes of {data}");
            }
        }
        for wrong in ["+QUEUED\r\n", ":2\r\n", "$-2\r\n", "\r\n", "hello\r\n"] {
            assert!(reply(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
