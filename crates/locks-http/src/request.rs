//! Parsing of a request from its method, path and query, without effects.

use hyper::{Method, StatusCode};

use crate::limits::{NAME_BYTES_MAX, PARAMETERS_MAX, WAIT_SECONDS_MAX, WAITED_TTL_SECONDS_MIN};
use crate::reply::Reply;

/// Default hold of a lock, as for `shunt lock`.
const TTL_SECONDS: u32 = 15;

/// A request about one lock.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LockRequest {
    pub(crate) name: String,
    /// Use the tables of shared locks.
    pub(crate) shared: bool,
    /// Use the tables of locks in memory.
    pub(crate) fast: bool,
    pub(crate) operation: Operation,
}

/// Operation on the lock.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// PUT: acquire the lock, or renew the owner's hold.
    Acquire { owner: String, ttl_s: u32, wait_s: u32 },
    /// PATCH: renew the hold, if it still exists.
    Renew { owner: String, ttl_s: u32, fence: Option<i64> },
    /// DELETE: release the lock.
    Release { owner: String, fence: Option<i64> },
    /// GET: the holder.
    Look,
    /// GET of the queue: all holders and waiters.
    Queue,
}

impl LockRequest {
    /// Parses a request.
    ///
    /// # Errors
    /// The answer to an invalid request.
    pub(crate) fn read(method: &Method, path: &str, query: Option<&str>) -> Result<Self, Reply> {
        let (name, is_queue) = place(path)?;
        let mut given = Given::read(query.unwrap_or_default())?;
        let (shared, fast) = (given.truth("shared")?, given.truth("fast")?);
        let operation = match *method {
            Method::GET if is_queue => Operation::Queue,
            Method::GET => Operation::Look,
            Method::PUT if !is_queue => {
                let (ttl_s, wait_s) =
                    (given.seconds("ttl", 1, u32::MAX, TTL_SECONDS)?, given.wait()?);
                if wait_s > 0 && ttl_s < WAITED_TTL_SECONDS_MIN {
                    return Err(wrong(format!(
                        "ttl={ttl_s} is too short to wait for: {WAITED_TTL_SECONDS_MIN} seconds are the least with wait"
                    )));
                }
                Operation::Acquire { owner: given.owner()?, ttl_s, wait_s }
            }
            Method::PATCH if !is_queue => {
                let ttl_s = given.seconds("ttl", 1, u32::MAX, TTL_SECONDS)?;
                Operation::Renew { owner: given.owner()?, ttl_s, fence: given.fence()? }
            }
            Method::DELETE if !is_queue => {
                Operation::Release { owner: given.owner()?, fence: given.fence()? }
            }
            _ => {
                return Err(Reply::not_allowed(
                    method,
                    if is_queue { "GET" } else { "GET, PUT, PATCH, DELETE" },
                ));
            }
        };
        given.nothing_left()?;
        if is_queue && shared {
            return Err(wrong(
                "a queue shows those who share and those who do not; leave `shared` out".to_owned(),
            ));
        }
        Ok(Self { name, shared, fast, operation })
    }

    /// True if a request without an answer may have been carried out, as a repetition would show.
    pub(crate) fn changes_something(&self) -> bool {
        !matches!(self.operation, Operation::Look | Operation::Queue)
    }

    /// Seconds that the request may wait for a lock.
    pub(crate) fn wait_s(&self) -> u32 {
        if let Operation::Acquire { wait_s, .. } = self.operation { wait_s } else { 0 }
    }
}

fn wrong(message: String) -> Reply {
    Reply::error(StatusCode::BAD_REQUEST, message)
}

/// Lock named by a path, and whether the path is its queue.
fn place(path: &str) -> Result<(String, bool), Reply> {
    let unknown = || {
        let message = format!(
            "there is no {path}; there are /v1/locks/NAME and /v1/locks/NAME/queue, and a slash in a name is written %2F"
        );
        Reply::error(StatusCode::NOT_FOUND, message)
    };
    let mut parts = path.strip_prefix("/v1/locks/").ok_or_else(unknown)?.split('/');
    let name = parts.next().unwrap_or_default();
    let is_queue = match (parts.next(), parts.next()) {
        (None, _) => false,
        (Some("queue"), None) => true,
        _ => return Err(unknown()),
    };
    let name = decoded(name, false).map_err(|why| wrong(format!("the name of the lock {why}")))?;
    match name.len() {
        0 => Err(wrong("the lock has no name".to_owned())),
        1..=NAME_BYTES_MAX => Ok((name, is_queue)),
        bytes => Err(wrong(format!(
            "the name of the lock has {bytes} bytes; the limit is {NAME_BYTES_MAX}"
        ))),
    }
}

/// Parameters of a query. Reading one removes it, so that those left over are unknown.
struct Given(Vec<(String, String)>);

impl Given {
    fn read(query: &str) -> Result<Self, Reply> {
        let mut all: Vec<(String, String)> = Vec::new();
        for part in query.split('&').filter(|part| !part.is_empty()) {
            if all.len() == PARAMETERS_MAX {
                return Err(wrong(format!("there are more than {PARAMETERS_MAX} parameters")));
            }
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            let key =
                decoded(key, true).map_err(|why| wrong(format!("a parameter's name {why}")))?;
            let value =
                decoded(value, true).map_err(|why| wrong(format!("the value of `{key}` {why}")))?;
            if all.iter().any(|(known, _)| *known == key) {
                return Err(wrong(format!("`{key}` is given twice")));
            }
            all.push((key, value));
        }
        Ok(Self(all))
    }

    fn take(&mut self, key: &str) -> Option<String> {
        let place = self.0.iter().position(|(known, _)| known == key)?;
        Some(self.0.swap_remove(place).1)
    }

    fn owner(&mut self) -> Result<String, Reply> {
        let owner = self.take("owner").filter(|owner| !owner.is_empty());
        owner.ok_or_else(|| {
            wrong("`owner` is missing: who you are, a host and a process, say".to_owned())
        })
    }

    fn truth(&mut self, key: &str) -> Result<bool, Reply> {
        match self.take(key).as_deref() {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(other) => Err(wrong(format!("`{key}={other}`: true and false are allowed"))),
        }
    }

    fn wait(&mut self) -> Result<u32, Reply> {
        self.seconds("wait", 0, WAIT_SECONDS_MAX, 0)
    }

    fn seconds(&mut self, key: &str, least: u32, most: u32, default: u32) -> Result<u32, Reply> {
        let Some(text) = self.take(key) else { return Ok(default) };
        let number = text.parse::<u32>().ok().filter(|number| (least..=most).contains(number));
        number.ok_or_else(|| match most {
            // The proxy decides which holds are too long.
            u32::MAX => {
                wrong(format!("`{key}={text}`: whole seconds are allowed, {least} or more"))
            }
            _ => wrong(format!("`{key}={text}`: whole seconds are allowed, {least} to {most}")),
        })
    }

    fn fence(&mut self) -> Result<Option<i64>, Reply> {
        let Some(text) = self.take("fence") else { return Ok(None) };
        text.parse().map(Some).map_err(|_| {
            wrong(format!("`fence={text}`: the number that the grant came with is meant"))
        })
    }

    fn nothing_left(self) -> Result<(), Reply> {
        match self.0.first() {
            None => Ok(()),
            Some((key, _)) => Err(wrong(format!("`{key}` is no parameter of this request"))),
        }
    }
}

/// Decodes percent-encoding (RFC 3986, section 2.1). In a query `+` is a space, as HTML forms
/// encode it.
///
/// # Errors
/// A description of the fault, to follow the name of the encoded part.
fn decoded(text: &str, is_query: bool) -> Result<String, &'static str> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16));
                let (high, low) = (digit(), digit());
                let value = high
                    .zip(low)
                    .map(|(high, low)| high << 4 | low)
                    .and_then(|value| u8::try_from(value).ok());
                value.ok_or(
                    "has a `%` without two hexadecimal digits behind it; `%` itself is written %25",
                )?
            }
            b'+' if is_query => b' ',
            other => other,
        });
    }
    String::from_utf8(bytes).map_err(|_| "is not UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(method: Method, path: &str) -> Result<LockRequest, Reply> {
        let (path, query) =
            path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
        LockRequest::read(&method, path, query)
    }

    fn request(
        name: &str,
        shared: bool,
        fast: bool,
        operation: Operation,
    ) -> Result<LockRequest, Reply> {
        Ok(LockRequest { name: name.to_owned(), shared, fast, operation })
    }

    fn owner() -> String {
        "host-7".to_owned()
    }

    #[test]
    fn each_request_is_read() {
        let acquire = |ttl_s, wait_s| Operation::Acquire { owner: owner(), ttl_s, wait_s };
        assert_eq!(
            read(Method::PUT, "/v1/locks/a?owner=host-7"),
            request("a", false, false, acquire(15, 0))
        );
        assert_eq!(
            read(Method::PUT, "/v1/locks/a?fast=true&wait=60&ttl=30&shared=true&owner=host-7"),
            request("a", true, true, acquire(30, 60))
        );
        let renew = Operation::Renew { owner: owner(), ttl_s: 20, fence: Some(-3) };
        assert_eq!(
            read(Method::PATCH, "/v1/locks/a?owner=host-7&ttl=20&fence=-3"),
            request("a", false, false, renew)
        );
        let release = Operation::Release { owner: owner(), fence: None };
        assert_eq!(
            read(Method::DELETE, "/v1/locks/a?owner=host-7&fast=false"),
            request("a", false, false, release)
        );
        assert_eq!(read(Method::GET, "/v1/locks/a"), request("a", false, false, Operation::Look));
        assert_eq!(
            read(Method::GET, "/v1/locks/a/queue?fast=true"),
            request("a", false, true, Operation::Queue)
        );
    }

    #[test]
    fn names_may_have_any_character() {
        for (path, name) in [
            ("/v1/locks/a%2Fb", "a/b"),
            ("/v1/locks/queue", "queue"),
            ("/v1/locks/%C3%A9+%3f", "\u{e9}+?"),
            ("/v1/locks/a:acquire", "a:acquire"),
            ("/v1/locks/%25", "%"),
        ] {
            assert_eq!(
                read(Method::GET, path),
                request(name, false, false, Operation::Look),
                "{path}"
            );
        }
        let longest = "n".repeat(NAME_BYTES_MAX);
        assert!(read(Method::GET, &format!("/v1/locks/{longest}")).is_ok());
        let release = Operation::Release { owner: "a b&c=d+e".to_owned(), fence: None };
        let path = "/v1/locks/a?owner=a+b%26c%3Dd%2Be";
        assert_eq!(
            read(Method::DELETE, path),
            request("a", false, false, release),
            "in a query + is a space"
        );
    }

    #[test]
    fn errors_name_the_fault() {
        let long = format!("/v1/locks/{}", "%61".repeat(NAME_BYTES_MAX + 1));
        for (method, path, status, says) in [
            (Method::GET, "/", StatusCode::NOT_FOUND, "/v1/locks/NAME"),
            (Method::GET, "/v1/locks", StatusCode::NOT_FOUND, "/v1/locks/NAME"),
            (Method::GET, "/v1/locks/a/b", StatusCode::NOT_FOUND, "%2F"),
            (Method::GET, "/v1/locks/a/queue/b", StatusCode::NOT_FOUND, "%2F"),
            (Method::GET, "/v1/locks/", StatusCode::BAD_REQUEST, "no name"),
            (Method::GET, "/v1/locks//queue", StatusCode::BAD_REQUEST, "no name"),
            (Method::GET, &long, StatusCode::BAD_REQUEST, "1025 bytes"),
            (Method::GET, "/v1/locks/%", StatusCode::BAD_REQUEST, "%25"),
            (Method::GET, "/v1/locks/%4", StatusCode::BAD_REQUEST, "%25"),
            (Method::GET, "/v1/locks/%+1", StatusCode::BAD_REQUEST, "%25"),
            (Method::GET, "/v1/locks/%ff", StatusCode::BAD_REQUEST, "UTF-8"),
            (Method::GET, "/v1/locks/a?owner=o", StatusCode::BAD_REQUEST, "`owner`"),
            (Method::GET, "/v1/locks/a/queue?shared=true", StatusCode::BAD_REQUEST, "`shared`"),
            (Method::PUT, "/v1/locks/a", StatusCode::BAD_REQUEST, "`owner` is missing"),
            (Method::PUT, "/v1/locks/a?a&b&c&d&e&f&g&h&i", StatusCode::BAD_REQUEST, "more than 8"),
            (Method::PUT, "/v1/locks/a?owner=", StatusCode::BAD_REQUEST, "`owner` is missing"),
            (Method::PUT, "/v1/locks/a?owner=o&owner=p", StatusCode::BAD_REQUEST, "twice"),
            (Method::PUT, "/v1/locks/a?owner=o&ttl=0", StatusCode::BAD_REQUEST, "`ttl=0`"),
            (Method::PUT, "/v1/locks/a?owner=o&ttl=1.5", StatusCode::BAD_REQUEST, "`ttl=1.5`"),
            (Method::PUT, "/v1/locks/a?owner=o&ttl=2&wait=1", StatusCode::BAD_REQUEST, "too short"),
            (Method::PUT, "/v1/locks/a?owner=o&wait=61", StatusCode::BAD_REQUEST, "0 to 60"),
            (Method::PUT, "/v1/locks/a?owner=o&wait=-1", StatusCode::BAD_REQUEST, "0 to 60"),
            (Method::PUT, "/v1/locks/a?owner=o&fast=1", StatusCode::BAD_REQUEST, "true and false"),
            (Method::PUT, "/v1/locks/a?owner=o&fence=1", StatusCode::BAD_REQUEST, "`fence`"),
            (Method::DELETE, "/v1/locks/a?owner=o&fence=x", StatusCode::BAD_REQUEST, "`fence=x`"),
            (Method::DELETE, "/v1/locks/a?owner=o&ttl=1", StatusCode::BAD_REQUEST, "`ttl`"),
            (
                Method::POST,
                "/v1/locks/a?owner=o",
                StatusCode::METHOD_NOT_ALLOWED,
                "GET, PUT, PATCH, DELETE",
            ),
            (Method::PUT, "/v1/locks/a/queue?owner=o", StatusCode::METHOD_NOT_ALLOWED, "only GET"),
        ] {
            let reply = read(method.clone(), path).expect_err(path);
            assert_eq!(reply.status(), status, "{method} {path}");
            assert!(reply.text().contains(says), "{method} {path}: {}", reply.text());
        }
    }
}
