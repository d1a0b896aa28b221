//! What all applications take up together. Each has bounds of its own, and many have many times as
//! much: when it is too much, those with the most are closed, until there is room again.

use shunt_reactor::{ConnId, Io};

use super::Sidecar;

const TOO_MUCH: &str = "all applications together take up too much, and it has the most that is not taken, not complete or not answered";

impl Sidecar {
    /// Applications of this event loop may take up so many bytes together. What only one may is
    /// another bound.
    pub fn set_apps_bytes_max(&mut self, bytes: usize) {
        self.apps_bytes_max = bytes;
    }

    /// There are so many bytes more. What has gone since is seen when they are weighed again.
    pub(super) fn grown(&mut self, io: &mut Io, bytes: usize) {
        self.apps_bytes += bytes;
        if self.apps_bytes > self.apps_bytes_max {
            self.weigh(io);
        }
    }

    /// Weighs all applications, and closes those with the most if that is too much.
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
        // With some room behind it, so that not each answer has all weighed again.
        let enough = self.apps_bytes_max - self.apps_bytes_max / 4;
        let mut heaviest = Vec::new();
        while self.apps_bytes > enough
            && let Some((weight, conn)) = weights.pop()
        {
            self.apps_bytes -= weight;
            heaviest.push((weight, conn));
        }
        // Others' answers may come of it, which count anew.
        for (weight, conn) in heaviest {
            self.give_up(io, conn, weight, TOO_MUCH);
        }
    }
}
