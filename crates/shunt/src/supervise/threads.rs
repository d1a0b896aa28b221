//! Threads of a part: those that report their end, and a record of the deaths already reported.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Starts a thread that runs `work`, with the caller's tracing span. Calls `told` when `work` has
/// ended in any way and is dropped, with the reason if it failed or panicked.
///
/// # Errors
/// The system refuses a thread.
pub(crate) fn spawn(
    name: &str,
    work: impl FnOnce() -> Result<(), String> + Send + 'static,
    told: impl FnOnce(Option<String>) + Send + 'static,
) -> std::io::Result<()> {
    let span = tracing::Span::current();
    let body = move || {
        let _entered = span.entered();
        let outcome = catch_unwind(AssertUnwindSafe(work));
        told(outcome.unwrap_or_else(|_| Err("it panicked; the log says where".to_owned())).err());
    };
    std::thread::Builder::new().name(name.to_owned()).spawn(body).map(drop)
}

/// Threads whose death was reported.
#[cfg(feature = "node")]
#[derive(Default)]
pub(crate) struct KnownDead(Vec<String>);

#[cfg(feature = "node")]
impl KnownDead {
    /// Returns the first of the `dead` that was not reported, and notes it as reported.
    pub(crate) fn first_new(&mut self, dead: Vec<String>) -> Option<&str> {
        let new = dead.into_iter().find(|thread| !self.0.contains(thread))?;
        self.0.push(new);
        self.0.last().map(String::as_str)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn however_a_thread_ends_it_is_told() {
        for (work, expected) in [
            (Box::new(|| Ok(())) as Box<dyn FnOnce() -> Result<(), String> + Send>, None),
            (Box::new(|| Err("the disk is gone".to_owned())), Some("the disk is gone")),
            (Box::new(|| panic!("as the test wants it")), Some("it panicked; the log says where")),
        ] {
            let (tell, told) = channel();
            spawn("test", work, move |failure| tell.send(failure).unwrap()).unwrap();
            assert_eq!(told.recv().unwrap().as_deref(), expected);
        }
    }

    #[cfg(feature = "node")]
    #[test]
    fn each_death_is_told_once() {
        let mut known = KnownDead::default();
        let dead = || vec!["a".to_owned(), "b".to_owned()];
        assert_eq!(known.first_new(Vec::new()), None);
        assert_eq!(known.first_new(dead()), Some("a"));
        assert_eq!(known.first_new(dead()), Some("b"));
        assert_eq!(known.first_new(dead()), None);
    }
}
