//! A core's state of tables' modes, and changes of modes that are under way.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use shunt_fleet::{Level, Shard};
use shunt_language::transaction::mode::TransactionalMode;
use shunt_locks::Ticket;
use shunt_transactions::catalogue::switching::{Full, Held};

use crate::client::account::Account;
use crate::fleet::forwarding::Login;
use crate::ids::PoolId;
use crate::transactions::modes::polling::Polling;

/// Changes under way on one core. One role gets half of them: it may have any number of logins.
const CHANGES_MAX: usize = 64;

/// A change of a table's mode.
pub(crate) struct Change {
    pub(crate) ticket: Ticket,
    /// The client's pool and the pool's login. Another login may have the pool by the time that a
    /// node is asked.
    pub(crate) pool: PoolId,
    pub(crate) login: Login,
    /// The role whose share the change counts against.
    pub(crate) account: Account,
    pub(crate) keyspace: String,
    pub(crate) table: String,
    pub(crate) mode: TransactionalMode,
    pub(crate) step: Step,
}

/// Steps of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// No node could be asked for the table yet, since this time: the core has just begun.
    Unasked(u64),
    /// The table is looked up.
    Table,
    /// The table's columns are checked against the mode.
    Columns,
    /// A node says whether the client may change the table.
    Allowed,
    /// The fleet's row is read.
    Current,
    /// The fleet's row is written.
    Row,
}

/// A node's answer on a table with the mode `observe` that differs from the proxies'.
#[derive(Debug)]
pub(crate) struct Difference {
    pub(crate) keyspace: Box<str>,
    pub(crate) table: Box<str>,
    pub(crate) statement: Arc<str>,
    pub(crate) applied_by_node: Option<bool>,
    pub(crate) applied_by_proxy: Option<bool>,
    /// Time of the answer.
    pub(crate) seen_ns: u64,
}

/// A core's state of modes.
#[derive(Default)]
pub(crate) struct Modes {
    /// Shards of keyspaces that have a table with a mode.
    pub(crate) shards: BTreeSet<Shard>,
    /// Questions for the modes.
    pub(crate) polling: Polling,
    /// The fleet's level, as last known.
    pub(crate) level: Option<Level>,
    pub(crate) changes: HashMap<u64, Change>,
    pub(crate) number: u64,
    /// Time of the last tick; there are four a second.
    pub(crate) ticked_ns: u64,
    /// The end of this process's last pause: answers to earlier questions are void.
    pub(crate) woke_ns: u64,
    /// The time of the control plane's question for the modes with which this core began; none: it
    /// has not begun.
    pub(crate) began_ns: Option<u64>,
    /// This core has known modes and rules: it began with young ones that a quorum told, or has
    /// read them since, or there are no tables of them.
    pub(crate) has_known: bool,
    /// Modes are in doubt still, and the wait is over: statements on tables are refused.
    pub(crate) refuses: bool,
    /// From this time on, every proxy knows which tables are observed.
    pub(crate) compares_from_ns: u64,
    /// Differences that count if the tables' modes are still the same.
    pub(crate) differences: Vec<Difference>,
    /// Tables between two modes.
    pub(crate) held: Held,
    /// Tables that transactions read, and since when.
    pub(crate) full: Full,
}

impl Modes {
    /// True if one more change of this role may be under way.
    pub(crate) fn has_room(&self, account: Account) -> bool {
        let of_role = self.changes.values().filter(|change| change.account == account).count();
        self.changes.len() < CHANGES_MAX && of_role < CHANGES_MAX / 2
    }
}

/// Polling state of the rules table.
#[derive(Debug, Default)]
pub(crate) struct RulesPolling {
    /// Questions for the rules.
    pub(crate) polling: Polling,
    /// Rows that are rules of no table.
    pub(crate) unread: Vec<Box<str>>,
    /// More rules may exist than are read.
    pub(crate) is_full: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_one_role_leave_room_for_those_of_others_whatever_its_logins() {
        let login = |token: &str| -> Login { Some(Arc::from(token.as_bytes())) };
        let mut modes = Modes::default();
        let of_ann = |number: u64| login(&format!("{number}\0ann\0secret"));
        let bob = login("\0bob\0secret");
        assert_eq!(fill(&mut modes, of_ann), CHANGES_MAX / 2, "its logins differ");
        assert_eq!(fill(&mut modes, |_| None), CHANGES_MAX / 2, "clients without a login");
        assert_eq!(fill(&mut modes, |_| bob.clone()), 0, "there is no room at all");
        modes.changes.remove(&1);
        assert!(modes.has_room(Account::of(bob.as_deref())));
    }

    /// Begins changes as long as there is room. Returns their number.
    fn fill(modes: &mut Modes, login: impl Fn(u64) -> Login) -> usize {
        let before = modes.changes.len();
        loop {
            let login = login(modes.number);
            let account = Account::of(login.as_deref());
            if !modes.has_room(account) {
                return modes.changes.len() - before;
            }
            begin(modes, login, account);
        }
    }

    fn begin(modes: &mut Modes, login: Login, account: Account) {
        modes.number += 1;
        let change = Change {
            ticket: Ticket(modes.number),
            pool: PoolId::NONE,
            login,
            account,
            keyspace: String::new(),
            table: String::new(),
            mode: TransactionalMode::Full,
            step: Step::Table,
        };
        modes.changes.insert(modes.number, change);
    }
}
