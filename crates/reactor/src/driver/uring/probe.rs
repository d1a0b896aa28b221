//! Setting up io_uring, and checking whether that is possible here.

use io_uring::opcode;

use super::buffers::Buffers;
use super::ring::Ring;

/// Checks whether io_uring can be used here; the error says why not.
pub fn probe_uring() -> Result<(), String> {
    // Use a separate thread: the kernel interrupts system calls of a thread that has given up a
    // ring.
    let probe = std::thread::Builder::new().name("probe".into()).spawn(|| set_up().map(drop));
    match probe.map(std::thread::JoinHandle::join) {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(_)) => Err("probing io_uring failed".to_owned()),
        Err(error) => Err(format!("no thread to probe io_uring with: {error}")),
    }
}

/// A ring with its receive buffers, on a kernel with all required features.
pub(super) fn set_up() -> Result<(Ring, Buffers), String> {
    let ring = Ring::new().map_err(|error| match error.raw_os_error() {
        Some(libc::ENOSYS) => "the kernel has no io_uring".to_owned(),
        Some(libc::EPERM | libc::EACCES) => {
            "io_uring is forbidden here (kernel.io_uring_disabled or the container's seccomp profile)".to_owned()
        }
        Some(libc::EINVAL) => "the kernel's io_uring is too old (Linux 6.1 is needed)".to_owned(),
        _ => format!("setting up io_uring failed: {error}"),
    })?;
    let mut probe = io_uring::Probe::new();
    ring.submitter()
        .register_probe(&mut probe)
        .map_err(|error| format!("probing io_uring failed: {error}"))?;
    let needed = [
        (opcode::RecvMulti::CODE, "recv"),
        (opcode::Send::CODE, "send"),
        (opcode::PollAdd::CODE, "poll"),
        (opcode::AsyncCancel2::CODE, "cancel"),
    ];
    if let Some((_, name)) = needed.iter().find(|(code, _)| !probe.is_supported(*code)) {
        return Err(format!("the kernel's io_uring has no '{name}' operation"));
    }
    match Buffers::new(&ring) {
        Ok(buffers) => Ok((ring, buffers)),
        Err(error) => Err(format!("io_uring takes no receive buffers: {error}")),
    }
}
