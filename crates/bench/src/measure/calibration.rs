//! The unit of cost: CPU time of one 70-byte TCP send and receive on loopback, without a wake-up,
//! measured at the same time as the compared figures. The speed of a shared machine varies by tens
//! of percent; ratios to this unit vary less.

use std::{
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
};

use crate::measure::cpu::thread_cpu_ns;

const MESSAGE_BYTES: usize = 70;

/// A connected pair of loopback sockets for the measurement.
#[derive(Debug)]
pub struct Calibration {
    ends: [TcpStream; 2],
}

impl Calibration {
    /// Connects the pair.
    ///
    /// # Errors
    /// No loopback, or no file descriptors left.
    pub fn new() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let near = TcpStream::connect(listener.local_addr()?)?;
        let (far, _) = listener.accept()?;
        near.set_nodelay(true)?;
        far.set_nodelay(true)?;
        let mut pair = Self { ends: [near, far] };
        pair.measure(200)?; // opens the windows, warms the caches
        Ok(pair)
    }

    /// Returns the mean CPU nanoseconds of one send plus one receive over `rounds` of them.
    ///
    /// # Errors
    /// The sockets failed.
    pub fn measure(&mut self, rounds: u32) -> io::Result<f64> {
        let message = [7u8; MESSAGE_BYTES];
        let mut received = [0u8; 128];
        let start = thread_cpu_ns();
        for round in 0..rounds as usize {
            self.ends[round & 1].write_all(&message)?;
            let mut missing = MESSAGE_BYTES;
            while missing > 0 {
                match self.ends[(round + 1) & 1].read(&mut received)? {
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    count => missing = missing.saturating_sub(count),
                }
            }
        }
        Ok((thread_cpu_ns() - start) as f64 / f64::from(rounds.max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::Calibration;

    #[test]
    fn a_message_costs_something() {
        let mut pair = Calibration::new().expect("loopback");
        assert!(pair.measure(100).expect("loopback") > 0.0);
    }
}
