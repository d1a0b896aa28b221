//! The limit on open files: every connection needs one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit on open files to `wanted`, as far as the hard limit allows; never lowers
/// it. Returns the present soft limit and the hard limit (`u64::MAX`: none).
pub fn raise_fd_limit(wanted: u64) -> (u64, u64) {
    let limit = getrlimit(Resource::Nofile);
    let current = limit.current.unwrap_or(u64::MAX);
    let hard = limit.maximum.unwrap_or(u64::MAX);
    let raised = wanted.min(hard);
    if raised <= current {
        return (current, hard);
    }
    match setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum: limit.maximum }) {
        Ok(()) => (raised, hard),
        Err(_) => (current, hard),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_lowers_and_never_exceeds_the_hard_limit() {
        let (before, hard) = raise_fd_limit(0);
        assert!(before > 0 && before <= hard);
        let (after, _) = raise_fd_limit(before.saturating_add(1));
        assert!(after >= before && after <= hard);
    }
}
