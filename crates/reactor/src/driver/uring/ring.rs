//! The submission and completion queues: set up for one thread that does its completion work when
//! it asks for completions (`DEFER_TASKRUN`), and one system call for submitting and waiting
//! together.

use std::io;

use io_uring::{IoUring, squeue, types};

/// Requests that can be queued between two system calls; more of them cost one more call.
const SUBMISSIONS: u32 = 1024;
/// Room for completions, far beyond one turn's; beyond it the kernel keeps completions back and
/// says so.
const COMPLETIONS: u32 = 16384;

const ENTER_GETEVENTS: u32 = 1;
const ENTER_EXT_ARG: u32 = 8;

/// The operation of a completion. The number goes into the upper half of the user data.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(super) enum Kind {
    Wake,
    Connect,
    Receive,
    Send,
    Watch,
    Cancel,
}

impl Kind {
    pub(super) fn user_data(self, index: u32) -> u64 {
        (self as u64) << 32 | u64::from(index)
    }

    fn of(user_data: u64) -> Kind {
        match user_data >> 32 {
            0 => Kind::Wake,
            1 => Kind::Connect,
            2 => Kind::Receive,
            3 => Kind::Send,
            4 => Kind::Watch,
            _ => Kind::Cancel,
        }
    }
}

/// One completion, taken out of the ring.
#[derive(Copy, Clone)]
pub(super) struct Completion {
    pub(super) kind: Kind,
    pub(super) index: u32,
    /// Bytes or events, or a negated error number.
    pub(super) result: i32,
    pub(super) flags: u32,
}

pub(super) struct Ring {
    ring: IoUring,
}

impl Ring {
    pub(super) fn new() -> io::Result<Ring> {
        // Without the indirection array (Linux 6.6) submitting is a little cheaper.
        let ring = Ring::build(true).or_else(|_| Ring::build(false))?;
        if !ring.params().is_feature_ext_arg() || !ring.params().is_feature_skip_cqe_on_success() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(Ring { ring })
    }

    fn build(no_array: bool) -> io::Result<IoUring> {
        let mut builder = IoUring::builder();
        builder
            .setup_cqsize(COMPLETIONS)
            .setup_single_issuer()
            .setup_submit_all()
            .setup_defer_taskrun();
        if no_array {
            builder.setup_no_sqarray();
        }
        builder.build(SUBMISSIONS)
    }

    pub(super) fn submitter(&self) -> io_uring::Submitter<'_> {
        self.ring.submitter()
    }

    /// Queues a request.
    ///
    /// # Safety
    ///
    /// The memory that the entry points to must stay valid until its completion arrived, or, for a
    /// request that is executed while it is submitted and completes silently, until the queue was
    /// found empty after an enter.
    #[inline]
    pub(super) unsafe fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: the caller answers for the memory.
        while unsafe { self.ring.submission().push(entry) }.is_err() {
            if self.enter(0, None).is_err() {
                // The kernel lacks memory: queued requests stay queued, try again.
                std::thread::yield_now();
            }
        }
    }

    /// Submits all queued requests, runs the kernel's deferred work, and waits for `wanted`
    /// completions, at most `timeout_ns`. A timeout or a signal is no error.
    #[inline]
    pub(super) fn enter(&mut self, wanted: u32, timeout_ns: Option<u64>) -> io::Result<()> {
        let mut submission = self.ring.submission();
        submission.sync();
        let queued = submission.len() as u32;
        drop(submission);
        let outcome = match timeout_ns {
            Some(ns) if wanted > 0 => {
                let timeout = types::Timespec::new()
                    .sec(ns / 1_000_000_000)
                    .nsec((ns % 1_000_000_000) as u32);
                let arguments = types::SubmitArgs::new().timespec(&timeout);
                // SAFETY: the arguments are of the type that the flag announces, and outlive the
                // call.
                unsafe {
                    self.ring.submitter().enter(
                        queued,
                        wanted,
                        ENTER_GETEVENTS | ENTER_EXT_ARG,
                        Some(&arguments),
                    )
                }
            }
            // SAFETY: no argument is passed.
            _ => unsafe {
                self.ring.submitter().enter::<libc::sigset_t>(queued, wanted, ENTER_GETEVENTS, None)
            },
        };
        match outcome {
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error() {
                Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => Ok(()),
                _ => Err(error),
            },
        }
    }

    /// True if all queued requests have been submitted.
    #[inline]
    pub(super) fn all_submitted(&mut self) -> bool {
        let mut submission = self.ring.submission();
        submission.sync();
        submission.is_empty()
    }

    /// Takes the completions out of the ring; those of sends apart, because they come first.
    #[inline]
    pub(super) fn collect(&mut self, sends: &mut Vec<Completion>, others: &mut Vec<Completion>) {
        loop {
            for entry in self.ring.completion() {
                let user_data = entry.user_data();
                let kind = Kind::of(user_data);
                let completion = Completion {
                    kind,
                    index: user_data as u32,
                    result: entry.result(),
                    flags: entry.flags(),
                };
                if kind == Kind::Send { sends.push(completion) } else { others.push(completion) }
            }
            // A send counts as done if no completion says otherwise, so none may be left behind.
            if !self.ring.submission().cq_overflow() || self.enter(0, None).is_err() {
                return;
            }
        }
    }
}
