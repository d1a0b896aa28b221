//! Room for requests that wait, of which one role gets half.

use std::collections::HashMap;

use crate::transactions::part::Who;

/// Requests that wait and their bytes, in total and of each role.
#[derive(Debug)]
pub(crate) struct RoleShares {
    count_max: usize,
    bytes_max: usize,
    all: Usage,
    by_role: HashMap<Who, Usage>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Usage {
    count: usize,
    bytes: usize,
}

impl Usage {
    fn has_room(self, bytes: usize, count_max: usize, bytes_max: usize) -> bool {
        self.count < count_max && self.bytes + bytes <= bytes_max
    }

    fn add(&mut self, bytes: usize) {
        (self.count, self.bytes) = (self.count + 1, self.bytes + bytes);
    }

    fn remove(&mut self, bytes: usize) {
        (self.count, self.bytes) = (self.count - 1, self.bytes - bytes);
    }
}

impl RoleShares {
    /// Room for this many requests, with this many bytes together.
    pub(crate) fn new(count_max: usize, bytes_max: usize) -> Self {
        Self { count_max, bytes_max, all: Usage::default(), by_role: HashMap::new() }
    }

    /// True if one more request of this role, with this many bytes, may wait.
    pub(crate) fn has_room(&self, who: Who, bytes: usize) -> bool {
        let of_role = self.by_role.get(&who).copied().unwrap_or_default();
        self.all.has_room(bytes, self.count_max, self.bytes_max)
            && of_role.has_room(bytes, self.count_max / 2, self.bytes_max / 2)
    }

    /// Counts a request that waits.
    pub(crate) fn take(&mut self, who: Who, bytes: usize) {
        self.all.add(bytes);
        self.by_role.entry(who).or_default().add(bytes);
    }

    /// Gives the room of a request back, which was taken for this role with these bytes.
    pub(crate) fn give_back(&mut self, who: Who, bytes: usize) {
        let Some(of_role) = self.by_role.get_mut(&who) else { return };
        of_role.remove(bytes);
        if *of_role == Usage::default() {
            self.by_role.remove(&who);
        }
        self.all.remove(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_role_leaves_room_for_the_others_and_its_share_comes_back() {
        let mut shares = RoleShares::new(100, 1_000);
        (0..50).for_each(|_| {
            assert!(shares.has_room(Who(1), 4));
            shares.take(Who(1), 4);
        });
        assert!(!shares.has_room(Who(1), 0), "it has half of the places");
        assert!(shares.has_room(Who(2), 500) && !shares.has_room(Who(2), 501), "half of the bytes");
        shares.take(Who(2), 500);
        assert!(shares.has_room(Who(3), 300) && !shares.has_room(Who(3), 301), "all bytes");
        (0..50).for_each(|_| shares.give_back(Who(1), 4));
        shares.give_back(Who(2), 500);
        assert!(shares.by_role.is_empty() && shares.all == Usage::default());
    }
}
