//! The loop: wait, hand over, flush, again.

use std::io;

use crate::driver::epoll::Epoll;
use crate::driver::uring::Uring;
use crate::driver::{self, SocketDriver, clock};
use crate::heap;
use crate::io::Io;
use crate::mailbox::{Inbox, Item};
use crate::options::{IoChoice, LoopOptions};
use crate::service::Service;

/// Mail and adopted connections handed over in one turn; the others wait for the next.
const MAIL_PER_TURN: usize = 256;

/// Runs one loop on the calling thread until the service calls [`Io::stop`]. Fails if the driver
/// cannot be set up or waiting for events fails, which leaves no way to go on.
pub fn run<S: Service>(
    choice: IoChoice,
    options: LoopOptions,
    service: &mut S,
    inbox: Inbox<S::Mail>,
) -> io::Result<()> {
    clock::sleep_precisely();
    let mut io = Io::new(&options, choice.driver_name());
    match choice {
        IoChoice::Auto | IoChoice::Epoll => {
            let driver = Epoll::new(inbox.wake_fd(), options.datagrams.clone())?;
            turns(&mut io, driver, service, inbox)
        }
        IoChoice::Uring => {
            if options.datagrams.is_some() {
                return Err(io::Error::new(
                    io::ErrorKind::Unsupported,
                    "datagrams need the epoll driver",
                ));
            }
            let driver = Uring::new(inbox.wake_fd())?;
            turns(&mut io, driver, service, inbox)
        }
    }
}

fn turns<S: Service, D: SocketDriver>(
    io: &mut Io,
    mut driver: D,
    service: &mut S,
    mut inbox: Inbox<S::Mail>,
) -> io::Result<()> {
    io.now_ns = clock::now_ns();
    service.started(io);
    driver::flush(io, &mut driver);
    let mut outcome = Ok(());
    while outcome.is_ok() && !io.stopping {
        outcome = turn(io, &mut driver, service, &mut inbox);
    }
    driver.finish(io);
    outcome
}

#[inline]
fn turn<S: Service, D: SocketDriver>(
    io: &mut Io,
    driver: &mut D,
    service: &mut S,
    inbox: &mut Inbox<S::Mail>,
) -> io::Result<()> {
    let timeout_ns = match io.wait_ns(io.now_ns) {
        Some(0) => Some(0),
        _ if !inbox.is_empty() => Some(0),
        None => None,
        // Read the clock again only if it matters: the last turn may have taken long.
        Some(_) => io.wait_ns(clock::now_ns()),
    };
    driver.wait(io, timeout_ns)?;
    io.now_ns = clock::now_ns();
    if driver.dispatch(io, service) {
        inbox.collect();
    }
    if !inbox.is_empty() {
        hand_over(io, driver, service, inbox);
    }
    driver::finish_turn(io, driver, service);
    if let Some(freed_ns) = io.pool.freed_much_ns()
        && heap::give_back(freed_ns, io.now_ns)
    {
        io.pool.given_back();
    }
    Ok(())
}

/// Hands over mail and accepted connections.
#[cold]
fn hand_over<S: Service, D: SocketDriver>(
    io: &mut Io,
    driver: &mut D,
    service: &mut S,
    inbox: &mut Inbox<S::Mail>,
) {
    for _ in 0..MAIL_PER_TURN {
        match inbox.next() {
            None => break,
            Some(Item::Mail(mail)) => service.mail(io, mail),
            Some(Item::Connection((socket, arrival), origin)) => {
                let Some(index) = io.admit() else {
                    io.unload();
                    continue;
                };
                match driver.adopt(io, index, socket) {
                    Ok(()) => match arrival {
                        Some(arrival) => io.arrived(index, *arrival, &origin, service),
                        None => {
                            let conn = io.id(index);
                            service.accepted(io, conn, &origin);
                        }
                    },
                    Err(_) => io.abort(io.id(index)),
                }
            }
        }
    }
}
