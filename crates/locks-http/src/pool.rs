//! Idle connections to the proxy, each for the login that it was made with.
//!
//! The pool must never give a connection to another login, or one whose login is older than logins
//! are trusted for, or keep more than the bounds allow.

use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, Instant};

use crate::limits::{IDLE_MAX, IDLE_OF_LOGIN_MAX};
use crate::login::Login;

/// A connection, and when its login began to be trusted: before it was sent.
#[derive(Debug)]
pub(crate) struct LoggedIn<T> {
    pub(crate) client: T,
    pub(crate) since: Instant,
}

impl<T> LoggedIn<T> {
    fn is_fresh(&self, now: Instant, age_max: Duration) -> bool {
        now.saturating_duration_since(self.since) < age_max
    }
}

/// Idle connections by login.
pub(crate) struct Pool<T> {
    idle: HashMap<Option<Login>, Vec<LoggedIn<T>>>,
    count: usize,
    is_closed: bool,
}

/// Omits logins.
impl<T> fmt::Debug for Pool<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("count", &self.count)
            .field("is_closed", &self.is_closed)
            .finish()
    }
}

impl<T> Default for Pool<T> {
    fn default() -> Self {
        Self { idle: HashMap::new(), count: 0, is_closed: false }
    }
}

impl<T> Pool<T> {
    /// Takes a connection of this login that is not older than `age_max`, if there is one.
    pub(crate) fn take(
        &mut self,
        login: &Option<Login>,
        now: Instant,
        age_max: Duration,
    ) -> Option<LoggedIn<T>> {
        let idle = self.idle.get_mut(login)?;
        // If this one is too old, a younger one may remain; a new connection is right too.
        let found = idle.pop();
        self.count -= usize::from(found.is_some());
        if idle.is_empty() {
            self.idle.remove(login);
        }
        found.filter(|found| found.is_fresh(now, age_max))
    }

    /// True if [`Pool::take`] would return a connection.
    pub(crate) fn has(&self, login: &Option<Login>, now: Instant, age_max: Duration) -> bool {
        let last = self.idle.get(login).and_then(|idle| idle.last());
        last.is_some_and(|one| one.is_fresh(now, age_max))
    }

    /// Keeps a connection for the next request, if there is room.
    pub(crate) fn put(&mut self, login: &Option<Login>, client: LoggedIn<T>) {
        if self.is_closed || self.count >= IDLE_MAX {
            return;
        }
        let idle = self.idle.entry(login.clone()).or_default();
        if idle.len() < IDLE_OF_LOGIN_MAX {
            idle.push(client);
            self.count += 1;
        }
    }

    /// Closes connections that are too old.
    pub(crate) fn sweep(&mut self, now: Instant, age_max: Duration) {
        self.idle.retain(|_, idle| {
            idle.retain(|one| one.is_fresh(now, age_max));
            !idle.is_empty()
        });
        self.count = self.idle.values().map(Vec::len).sum();
    }

    /// Closes all connections, and keeps no more.
    pub(crate) fn close(&mut self) {
        *self = Self { is_closed: true, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGE_MAX: Duration = Duration::from_secs(2);

    fn login(basic: &str) -> Option<Login> {
        Some(Login::read(basic.as_bytes()).expect("credentials"))
    }

    /// ann:1, ann:2, bob:1, and no login.
    fn logins() -> [Option<Login>; 4] {
        [login("Basic YW5uOjE="), login("Basic YW5uOjI="), login("Basic Ym9iOjE="), None]
    }

    #[test]
    fn a_connection_is_for_exactly_its_login() {
        let (mut pool, now) = (Pool::default(), Instant::now());
        let logins = logins();
        for (number, login) in logins.iter().enumerate() {
            for other in &logins {
                assert!(pool.take(other, now, AGE_MAX).is_none());
            }
            pool.put(login, LoggedIn { client: number, since: now });
            for other in logins.iter().filter(|other| *other != login) {
                assert!(pool.take(other, now, AGE_MAX).is_none(), "of role, password, or nobody");
            }
            assert_eq!(pool.take(login, now, AGE_MAX).map(|found| found.client), Some(number));
        }
        assert_eq!(pool.count, 0);
    }

    #[test]
    fn a_login_is_believed_no_longer_however_often_it_is_used() {
        let (mut pool, now) = (Pool::default(), Instant::now());
        let [login, ..] = logins();
        pool.put(&login, LoggedIn { client: (), since: now });
        for _ in 0..3 {
            let used = pool.take(&login, now + AGE_MAX / 2, AGE_MAX).expect("it is young");
            pool.put(&login, used);
        }
        assert!(pool.take(&login, now + AGE_MAX, AGE_MAX).is_none());
        pool.put(&login, LoggedIn { client: (), since: now });
        assert!(pool.take(&login, now, Duration::ZERO).is_none(), "auth_cache_ms = 0");
        pool.put(&login, LoggedIn { client: (), since: now });
        pool.sweep(now + AGE_MAX, AGE_MAX);
        assert!(pool.idle.is_empty() && pool.count == 0);
    }

    #[test]
    fn no_more_are_kept_than_the_bounds_say() {
        let (mut pool, now) = (Pool::default(), Instant::now());
        for login in &logins() {
            for _ in 0..=IDLE_OF_LOGIN_MAX {
                pool.put(login, LoggedIn { client: (), since: now });
            }
        }
        assert_eq!(pool.count, IDLE_MAX.min(4 * IDLE_OF_LOGIN_MAX));
        assert!(pool.idle.values().all(|idle| idle.len() <= IDLE_OF_LOGIN_MAX));
        pool.put(&login("Basic Ym9iOjI="), LoggedIn { client: (), since: now });
        assert_eq!(pool.count, IDLE_MAX);
        pool.close();
        pool.put(&None, LoggedIn { client: (), since: now });
        assert!(pool.idle.is_empty() && pool.count == 0);
    }
}
