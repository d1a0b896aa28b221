//! Listening Unix sockets: their file in the file system, and the user of each client.
//!
//! The file outlives a process that dies. So the next process replaces a file that nobody listens
//! on, and never one of a living process. At its end a process removes its own file, and no file
//! that a successor has put in its place. A lock file beside the socket, which no other user can
//! open, has processes do so one after the other.

use std::ffi::c_int;
use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::mem::size_of;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::client_address::ClientAddress;

/// Longest path of a Unix socket, in bytes: the kernel's 108 with the zero behind it.
pub const UNIX_PATH_BYTES_MAX: usize = 107;

/// The owner and the permissions of a socket's file. To connect, a client needs the right to write.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct UnixAccess {
    /// Permissions, such as `0o660`.
    pub mode: u32,
    /// Owner, by number; `None`: the user of the process.
    pub user: Option<u32>,
    /// Group, by number; `None`: the group of the process, or of the directory.
    pub group: Option<u32>,
}

/// A listening Unix socket. Dropping it removes its file.
#[derive(Debug)]
pub struct UnixListener {
    socket: OwnedFd,
    path: PathBuf,
    /// Device and inode of the file.
    file: (u64, u64),
    stands_for: SocketAddr,
}

/// Opens a listening Unix socket at an absolute path. `backlog` is the number of connections that
/// may wait to be accepted. Clients are said to have connected to the address `stands_for`.
///
/// # Errors
/// Another process listens there (`AddrInUse`) or is starting to (`ResourceBusy`), the path is too
/// long, something else than a socket is there (`AlreadyExists`), the directory is missing
/// (`NotFound`), or the system refuses.
pub(crate) fn listen(
    path: &Path,
    access: UnixAccess,
    backlog: i32,
    stands_for: SocketAddr,
) -> io::Result<UnixListener> {
    if path.as_os_str().len() > UNIX_PATH_BYTES_MAX {
        let why = "Unix sockets have paths of at most 107 bytes: choose a shorter one";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let address = SocketAddrUnix::new(path)?;
    // Two processes that replace the same file must do so one after the other.
    let _turn = take_turn(path)?;
    if is_stale(path, &address)? {
        std::fs::remove_file(path)?;
    }
    let socket = open()?;
    rustix::net::bind(&socket, &address)?;
    let file = identity(path)?;
    let listener = UnixListener { socket, path: path.to_owned(), file, stands_for };
    // Nobody can connect before the socket listens.
    set_access(path, access)?;
    rustix::net::listen(&listener.socket, backlog)?;
    Ok(listener)
}

fn open() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

/// Locks the lock file until the end of the socket's replacement. The file stays: a process that
/// removed it could remove one that another process has locked.
fn take_turn(path: &Path) -> io::Result<File> {
    let mut lock = path.as_os_str().to_owned();
    lock.push(".lock");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    let lock = options.open(lock)?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            "another process is about to listen there: stop one of them, and start again",
        )),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Gives a socket's file its owner and permissions. Follows no link: whoever may write the
/// directory could put one to a file of ours there.
fn set_access(path: &Path, access: UnixAccess) -> io::Result<()> {
    let flags = libc::O_PATH | libc::O_NOFOLLOW;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let found = file.metadata()?;
    if !found.file_type().is_socket() || found.uid() != rustix::process::geteuid().as_raw() {
        let why = "another process has replaced the socket: keep others out of its directory";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
    }
    // This path leads to the opened file itself.
    let opened = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    std::fs::set_permissions(&opened, Permissions::from_mode(access.mode))?;
    if access.user.is_some() || access.group.is_some() {
        chown(&opened, access.user, access.group)?;
    }
    Ok(())
}

/// True if the file is a socket that nobody listens on, false if there is no file.
fn is_stale(path: &Path, address: &SocketAddrUnix) -> io::Result<bool> {
    match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
        Ok(found) if !found.file_type().is_socket() => {
            let why = "a file that is no socket is there: choose another path, or remove it";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
        }
        Ok(_) => {}
    }
    match rustix::net::connect(&open()?, address) {
        Err(Errno::CONNREFUSED) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        // A full backlog has a listener too.
        Ok(()) | Err(Errno::AGAIN) => {
            let why = "another process listens there: stop that process or choose another path";
            Err(io::Error::new(io::ErrorKind::AddrInUse, why))
        }
        Err(error) => Err(error.into()),
    }
}

/// Device and inode of a file.
fn identity(path: &Path) -> io::Result<(u64, u64)> {
    path.symlink_metadata().map(|file| (file.dev(), file.ino()))
}

impl UnixListener {
    /// The address that stands for the socket where a client's own end is asked for.
    pub(crate) fn stands_for(&self) -> SocketAddr {
        self.stands_for
    }
}

impl AsFd for UnixListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for UnixListener {
    fn drop(&mut self) {
        // The socket is still open, so no other file can have its inode.
        let _turn = take_turn(&self.path);
        if identity(&self.path).is_ok_and(|found| found == self.file) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// The process at the other end of a Unix socket's connection.
pub(crate) fn client(socket: &OwnedFd) -> io::Result<ClientAddress> {
    let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `found` is a `ucred`, which is what this option writes, and `length` is its size.
    let outcome: c_int = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut found).cast(),
            &raw mut length,
        )
    };
    if outcome != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(ClientAddress::Unix { user: found.uid, process: found.pid })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn a_link_in_place_of_the_socket_is_not_followed() {
        let directory = std::env::temp_dir().join(format!("shunt-{}-link", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let (secret, link) = (directory.join("secret"), directory.join("s"));
        std::fs::write(&secret, "a key").unwrap();
        std::fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink(&secret, &link).unwrap();
        let access = UnixAccess { mode: 0o666, user: None, group: None };
        for path in [&link, &secret] {
            assert_eq!(set_access(path, access).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        }
        let mode = std::fs::metadata(&secret).unwrap().permissions().mode();
        let _ = std::fs::remove_dir_all(&directory);
        assert_eq!(mode & 0o777, 0o600);
    }
}
