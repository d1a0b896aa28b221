//! The kinds of transfers that a load can make, and their statements.

use clap::ValueEnum;

use crate::load::args::LoadArgs;

/// Amount of each transfer.
const AMOUNT: i32 = 1;
/// Most values of a statement.
const VALUES_MAX: usize = 7;

/// The kind of a transfer.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum TransferKind {
    /// From one account to another, by a transaction of the proxy.
    TwoRows,
    /// Out of one account, by a transaction of the proxy.
    OneRow,
    /// Out of one account, by Cassandra's lightweight transactions.
    Lwt,
    /// No amount: an account is a lock, taken and released by lightweight transactions.
    Lock,
    /// No amount: an account is written under a lock, held with the fence of `--fence`.
    Guarded,
}

/// Balance of an account that is a free lock; otherwise the balance is the holder's number.
const NOBODY: i32 = 0;

/// The values of a statement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Values {
    values: [i32; VALUES_MAX],
    count: usize,
}

impl Values {
    fn of<const COUNT: usize>(given: [i32; COUNT]) -> Self {
        let mut values = [0; VALUES_MAX];
        values[..COUNT].copy_from_slice(&given);
        Self { values, count: COUNT }
    }

    /// The values in the order of the statement's markers.
    pub(super) fn as_slice(&self) -> &[i32] {
        &self.values[..self.count]
    }
}

impl TransferKind {
    /// Reads the kind from the command line; `None` without `--transfers`.
    pub(super) fn from_args(args: &LoadArgs) -> Result<Option<Self>, String> {
        let Some(kind) = args.transfers else { return Ok(None) };
        if args.keys > i32::MAX as u64 {
            return Err(format!("--keys {}: there are {} accounts", args.keys, i32::MAX));
        }
        if kind == Self::TwoRows && args.keys < 2 {
            return Err(
                "--transfers two-rows is between two accounts: --keys must be 2 or more".into()
            );
        }
        if (kind == Self::Guarded) != args.fence.is_some() {
            return Err("--transfers guarded and --fence go together".into());
        }
        if !kind.is_repeated() && args.protocol < 4 {
            return Err(
                "--transfers: the outcome of a transaction needs --protocol 4 or later".into()
            );
        }
        Ok(Some(kind))
    }

    /// True if a statement is repeated, with the balance from its answer, until it is applied.
    pub(super) fn is_repeated(self) -> bool {
        matches!(self, Self::Lwt | Self::Lock)
    }

    /// Returns the text of the statement. `fence` is that of the lock `transfers`.
    pub(super) fn text(self, table: &str, fence: i64) -> String {
        match self {
            Self::TwoRows => format!(
                "BEGIN TRANSACTION \
                 LET payer = (SELECT balance FROM {table} WHERE id = ?); \
                 LET payee = (SELECT balance FROM {table} WHERE id = ?); \
                 IF payer.balance >= ? AND payee IS NOT NULL THEN \
                 UPDATE {table} SET balance -= ? WHERE id = ?; \
                 UPDATE {table} SET balance += ? WHERE id = ?; \
                 END IF \
                 COMMIT TRANSACTION"
            ),
            Self::OneRow => format!(
                "BEGIN TRANSACTION \
                 LET payer = (SELECT balance FROM {table} WHERE id = ?); \
                 IF payer.balance >= ? THEN \
                 UPDATE {table} SET balance -= ? WHERE id = ?; \
                 END IF \
                 COMMIT TRANSACTION"
            ),
            Self::Lwt | Self::Lock => {
                format!("UPDATE {table} SET balance = ? WHERE id = ? IF balance = ?")
            }
            Self::Guarded => format!(
                "UPDATE {table} SET balance = ? WHERE id = ? IF \"shunt:lock\" = 'transfers' AND \"shunt:fence\" = {fence}"
            ),
        }
    }

    /// Returns the values of the statement for these accounts. `balance` is the last known balance
    /// of the first account; `client` is the client's number.
    #[inline]
    pub(super) fn values(self, accounts: u64, balance: i32, client: u64) -> Values {
        let (payer, payee) = apart(accounts);
        match self {
            Self::TwoRows => Values::of([payer, payee, AMOUNT, AMOUNT, payer, AMOUNT, payee]),
            Self::OneRow => Values::of([payer, AMOUNT, AMOUNT, payer]),
            Self::Lwt => Values::of([left(balance), payer, balance]),
            Self::Lock if balance == holder(client) => Values::of([NOBODY, payer, balance]),
            Self::Lock => Values::of([holder(client), payer, NOBODY]),
            Self::Guarded => Values::of([balance, payer]),
        }
    }
}

/// Returns the balance after a transfer.
#[inline]
pub(super) fn left(balance: i32) -> i32 {
    balance.wrapping_sub(AMOUNT)
}

/// Returns the balance of a lock that this client holds.
#[inline]
pub(super) fn holder(client: u64) -> i32 {
    (client as i32).wrapping_add(1)
}

/// Returns the balance of a lock after this client's statement was applied: taken or released.
#[inline]
pub(super) fn turned(balance: i32, client: u64) -> i32 {
    if balance == holder(client) { NOBODY } else { holder(client) }
}

/// Packs two accounts into one number.
#[inline]
pub(super) fn together(payer: u64, payee: u64) -> u64 {
    payer << 32 | payee
}

fn apart(accounts: u64) -> (i32, i32) {
    ((accounts >> 32) as i32, accounts as i32)
}

#[cfg(test)]
mod tests {
    use super::{TransferKind, together, turned};

    #[test]
    fn each_marker_has_its_value() {
        for kind in [
            TransferKind::TwoRows,
            TransferKind::OneRow,
            TransferKind::Lwt,
            TransferKind::Lock,
            TransferKind::Guarded,
        ] {
            let text = kind.text("bank.accounts", 7);
            assert_eq!(
                text.matches('?').count(),
                kind.values(together(3, 5), 9, 0).as_slice().len(),
                "{text}"
            );
        }
        assert_eq!(
            TransferKind::TwoRows.values(together(3, 5), 9, 0).as_slice(),
            [3, 5, 1, 1, 3, 1, 5]
        );
        assert_eq!(TransferKind::Lwt.values(together(3, 5), 9, 0).as_slice(), [8, 3, 9]);
        assert!(TransferKind::Guarded.text("bank.accounts", 7).ends_with("\"shunt:fence\" = 7"));
    }

    #[test]
    fn a_lock_is_released_by_who_was_heard_to_hold_it_and_else_taken() {
        let asks =
            |balance| TransferKind::Lock.values(together(3, 0), balance, 6).as_slice().to_vec();
        assert_eq!((asks(0), turned(0, 6)), (vec![7, 3, 0], 7));
        assert_eq!((asks(7), turned(7, 6)), (vec![0, 3, 7], 0));
        assert_eq!(asks(4), [7, 3, 0], "another's is asked for again");
    }
}
