//! Transfers. A stream id moves an amount, waits for the answer, and continues with the next
//! transfer.
//!
//! Transfers between two accounts draw both from all accounts. For transfers on one account, each
//! stream id has its own account if there are enough, otherwise they share. A lightweight
//! transaction is repeated, with the balance from its answer, until it is applied. A stream id
//! learns its first balance that way; later it knows the balance from its last transaction.
//! Accounts that are locks are taken and released in the same way.

use shunt_reactor::Io;
use shunt_wire::cql::message::{ResponsePrefix, ResultMessage};

use crate::load::{
    generator::{Generator, Phase},
    locks::owner_of,
    mix::Operation,
    session::{SessionRest, Slot},
    template::Statement,
    transfers::{TransferKind, holder, left, together, turned},
};

/// Key of the outcome in the answer to a transaction; the value is 1 or 0.
const APPLIED: &str = "shunt-applied";

impl Generator {
    /// Begins the next transfer of a stream id.
    pub(super) fn begin_transfer(
        &mut self,
        io: &mut Io,
        rest: &mut SessionRest,
        stream: u16,
        intended_ns: u64,
    ) {
        let accounts = self.options.keys;
        let key = if self.options.transfers == Some(TransferKind::TwoRows) {
            let payer = self.random.below(accounts);
            let others = accounts.saturating_sub(1).max(1);
            together(payer, (payer + 1 + self.random.below(others)) % accounts)
        } else {
            together(owner_of(rest.index, self.options.outstanding, stream) % accounts, 0)
        };
        let slot = Slot {
            intended_ns,
            key,
            operation: Operation::Transfer,
            statement: Statement::TRANSFER,
        };
        self.put(io, rest, stream, slot);
    }

    /// Returns `true` if the transfer continues after an answer without success.
    pub(super) fn transfer_goes_on(
        &mut self,
        io: &mut Io,
        rest: &mut SessionRest,
        stream: u16,
        asked: Slot,
    ) -> bool {
        let is_repeated = self.options.transfers.is_some_and(TransferKind::is_repeated);
        let goes_on = is_repeated && matches!(self.phase, Phase::WarmUp | Phase::Round(_));
        if goes_on {
            self.put(io, rest, stream, asked);
        }
        goes_on
    }

    /// Returns whether the amount was moved, according to a result.
    pub(super) fn check_transfer(
        &mut self,
        owner: u64,
        version: u8,
        prefix: &ResponsePrefix<'_>,
        message: &[u8],
    ) -> bool {
        let applied = if let Some(kind) = self.options.transfers.filter(|kind| kind.is_repeated()) {
            self.check_balance(kind, owner, version, message)
        } else {
            let mut payload = prefix.custom_payload.iter().flat_map(|payload| payload.iter());
            match payload.find(|(name, _)| *name == APPLIED) {
                Some((_, Some([1]))) => Some(true),
                Some((_, Some([0]))) => Some(false),
                _ => None,
            }
        };
        match applied {
            Some(true) => self.counts.applied += 1,
            Some(false) => self.counts.not_applied += 1,
            None => self.counts.wrong_answers += 1,
        }
        applied == Some(true)
    }

    /// Reads the answer to a lightweight transaction and updates the client's knowledge of the
    /// balance. A lock that a client holds and asks to release must have no other holder.
    fn check_balance(
        &mut self,
        kind: TransferKind,
        owner: u64,
        version: u8,
        message: &[u8],
    ) -> Option<bool> {
        let balance = self.balances.get_mut(owner as usize)?;
        let holds = self.holds.get_mut(owner as usize)?;
        let Ok(ResultMessage::Rows(rows)) = ResultMessage::decode(version, message) else {
            return None;
        };
        let row = rows.rows().next().and_then(Result::ok)?;
        let applied = match row.get(0) {
            Some([1]) if kind == TransferKind::Lock => {
                *balance = turned(*balance, owner);
                true
            }
            Some([1]) => {
                *balance = left(*balance);
                true
            }
            Some([0]) => {
                *balance = i32::from_be_bytes(*row.get(1)?.first_chunk()?);
                false
            }
            _ => return None,
        };
        let held =
            std::mem::replace(holds, kind == TransferKind::Lock && *balance == holder(owner));
        if held && !applied { None } else { Some(applied) }
    }

    /// Handles an error: the client no longer knows whether it holds a lock.
    pub(super) fn in_doubt(&mut self, owner: u64) {
        if let Some(holds) = self.holds.get_mut(owner as usize) {
            *holds = false;
        }
    }
}
