//! The end of a loop: submits the last flush, then ends every request that refers to our memory.

use io_uring::{cqueue, opcode, types};

use super::ring::Kind;
use super::{Sending, Socket, Uring};
use crate::io::Io;

/// Number of rounds at the end of the loop that wait for cancelled requests.
const FINISH_ROUNDS: usize = 100;
const FINISH_WAIT_NS: u64 = 10_000_000;

impl Uring {
    /// Submits the last flush, then takes everything back from the kernel.
    pub(super) fn take_back(&mut self, io: &mut Io) {
        for round in 0..FINISH_ROUNDS {
            let wait = u32::from(round > 0);
            if self.ring.enter(wait, Some(FINISH_WAIT_NS)).is_err() {
                break;
            }
            self.ring.collect(&mut self.sends, &mut self.events);
            let silent = self.ring.all_submitted();
            for completion in self.sends.drain(..).chain(self.events.drain(..)) {
                let Some(socket) = self.sockets.get_mut(completion.index as usize) else {
                    continue;
                };
                match completion.kind {
                    Kind::Send => socket.sending = Sending::No,
                    Kind::Connect => socket.connecting = false,
                    Kind::Receive => socket.receiving &= cqueue::more(completion.flags),
                    Kind::Cancel => socket.cancelling = false,
                    Kind::Watch => socket.watching = false,
                    Kind::Wake => {}
                }
            }
            for socket in &mut self.sockets {
                if silent && socket.sending == Sending::Queued {
                    socket.sending = Sending::No;
                }
            }
            if !self.sockets.iter().any(Socket::is_busy) {
                break;
            }
            if round == 0 {
                let any = opcode::AsyncCancel2::new(types::CancelBuilder::any()).build();
                self.push(any.user_data(Kind::Cancel.user_data(u32::MAX)));
            }
        }
        for (index, socket) in self.sockets.iter().enumerate() {
            if socket.sending != Sending::No {
                // The kernel did not release the buffer: losing it is better than using it twice.
                std::mem::forget(std::mem::take(&mut io.connections[index].sending));
            }
        }
    }
}
