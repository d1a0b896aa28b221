//! Limit on the memory of all applications together. Each application has bounds of its own, but
//! their sum may be too much: then those with the most are closed until there is room again.

use shunt_reactor::{ConnId, Io};

use super::Sidecar;

const TOO_MUCH: &str = "all applications together take up too much, and it has the most that is not taken, not complete or not answered";

impl Sidecar {
    /// Sets the limit on the bytes of all applications of this event loop; limits per application
    /// are separate.
    pub fn set_apps_bytes_max(&mut self, bytes: usize) {
        self.apps_bytes_max = bytes;
    }

    /// Adds bytes. Bytes that have gone since are noticed at the next weighing.
    pub(super) fn grown(&mut self, io: &mut Io, bytes: usize) {
        self.apps_bytes += bytes;
        if self.apps_bytes > self.apps_bytes_max {
            self.weigh(io);
        }
    }

    /// Weighs all applications, and closes those with the most if the sum exceeds the limit.
    pub(super) fn weigh(&mut self, io: &mut Io) {
        let mut weights: Vec<usize> = Vec::new();
        for (index, app) in &self.apps {
            weights.resize(index + 1, 0);
            weights[index] = app.weight(io);
        }
        for (user, bytes) in self.client.gathered() {
            let asker = self.askers.get(user as usize);
            if let Some(weight) = asker.and_then(|asker| weights.get_mut(self.app_of(asker.app)?)) {
                *weight += bytes;
            }
        }
        self.apps_bytes = weights.iter().sum();
        if self.apps_bytes > self.apps_bytes_max {
            let weights = self.apps.iter().map(|(index, app)| (weights[index], app.conn)).collect();
            self.close_heaviest(io, weights);
        }
    }

    fn close_heaviest(&mut self, io: &mut Io, mut weights: Vec<(usize, ConnId)>) {
        weights.sort_unstable_by_key(|(weight, _)| *weight);
        // The spare quarter avoids weighing all applications for every answer.
        let enough = self.apps_bytes_max - self.apps_bytes_max / 4;
        let mut heaviest = Vec::new();
        while self.apps_bytes > enough
            && let Some((weight, conn)) = weights.pop()
        {
            self.apps_bytes -= weight;
            heaviest.push((weight, conn));
        }
        // Closing one may produce answers for others, which are counted again.
        for (weight, conn) in heaviest {
            self.give_up(io, conn, weight, TOO_MUCH);
        }
    }
}
