//! A service's knowledge of the peer of each connection.

use crate::ConnId;

/// A service's value for each connection, by its index; the value of an index's former connection
/// does not apply to the next.
#[derive(Clone, Debug)]
pub struct Peers<P>(Vec<(u32, P)>);

impl<P> Default for Peers<P> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<P: Copy + Default + PartialEq> Peers<P> {
    /// The value of a connection; the default if none was set.
    #[inline]
    pub fn of(&self, conn: ConnId) -> P {
        let found = self
            .0
            .get(conn.index as usize)
            .filter(|(generation, _)| *generation == conn.generation);
        found.map(|(_, peer)| *peer).unwrap_or_default()
    }

    /// Sets the value of a connection; the default clears it.
    pub fn set(&mut self, conn: ConnId, peer: P) {
        let index = conn.index as usize;
        if self.0.len() <= index {
            self.0.resize(index + 1, (0, P::default()));
        }
        // The index of a connection that moved away may belong to another one now.
        if peer != P::default() || self.0[index].0 == conn.generation {
            self.0[index] = (conn.generation, peer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reused_index_keeps_nothing_of_its_former_connection() {
        let mut peers = Peers::default();
        let conn = |index, generation| ConnId { index, generation };
        peers.set(conn(3, 1), 'a');
        assert_eq!(
            (peers.of(conn(3, 1)), peers.of(conn(3, 2)), peers.of(conn(2, 1))),
            ('a', '\0', '\0')
        );
        peers.set(conn(3, 2), 'b');
        // The value for the former connection comes late.
        peers.set(conn(3, 1), '\0');
        assert_eq!((peers.of(conn(3, 1)), peers.of(conn(3, 2))), ('\0', 'b'));
        peers.set(conn(3, 2), '\0');
        assert_eq!(peers.of(conn(3, 2)), '\0');
    }
}
