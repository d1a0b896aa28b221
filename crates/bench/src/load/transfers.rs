//! Which transfers are a load, and in which words they are asked for.

use clap::ValueEnum;

use crate::load::args::LoadArgs;

/// What is taken from an account each time.
const AMOUNT: i32 = 1;
/// As many values as a statement has at most.
const VALUES_MAX: usize = 7;

/// What is moved, and how.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum TransferKind {
    /// From one account to another, by a transaction of the proxy.
    TwoRows,
    /// Away from one account, by a transaction of the proxy.
    OneRow,
    /// Away from one account, by Cassandra's lightweight transactions.
    Lwt,
    /// Nothing: an account is a lock, which is taken and released by lightweight transactions.
    Lock,
    /// Nothing: an account is written, under a lock that is held with the fence of `--fence`.
    Guarded,
}

/// What an account has that is a lock which nobody holds; else the number of who holds it.
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

    /// In the order of the statement's markers.
    pub(super) fn as_slice(&self) -> &[i32] {
        &self.values[..self.count]
    }
}

impl TransferKind {
    /// The kind of the command line; `None` without `--transfers`.
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
                "--transfers: what a transaction has done is told from --protocol 4 on".into()
            );
        }
        Ok(Some(kind))
    }

    /// Whether a statement is repeated, by what its answer tells, until it is applied.
    pub(super) fn is_repeated(self) -> bool {
        matches!(self, Self::Lwt | Self::Lock)
    }

    /// The text of the statement. `fence`: with which the lock `transfers` is held.
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

    /// The values of the statement for these accounts; `balance` is what the first was last heard
    /// to have, by the client with this number.
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

/// What is left of a balance when the amount is taken.
#[inline]
pub(super) fn left(balance: i32) -> i32 {
    balance.wrapping_sub(AMOUNT)
}

/// What an account has that is a lock which this client holds.
#[inline]
pub(super) fn holder(client: u64) -> i32 {
    (client as i32).wrapping_add(1)
}

/// What a lock's account has when what this client asked for is applied: it was taken, or released.
#[inline]
pub(super) fn turned(balance: i32, client: u64) -> i32 {
    if balance == holder(client) { NOBODY } else { holder(client) }
}

/// Two accounts as one number.
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
