//! Answers of other proxies become outcomes of forwarded requests.

use shunt_language::lock_tables::OWNER_BYTES_MAX;
use shunt_locks::{Holder, Mode, NotServed, Quota};
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::{
    ErrorMessage, ResultMessage, Rows, error_code, split_response_prefix,
};

use crate::fleet::forwarding::VERSION;
use crate::locks::reply::{Held, Reply, Verdict};
use crate::locks::request::Operation;
use crate::locks::{answer, listing};

/// Decodes an answer; `None` if it is not valid. `list` is the buffer for the entries of a list.
pub(super) fn outcome<'a>(
    operation: Operation,
    flags: u8,
    op: u8,
    body: &'a [u8],
    list: &'a mut Vec<u8>,
) -> Option<Reply<'a>> {
    let (_, body) = split_response_prefix(flags, body).ok()?;
    match op {
        opcode::ERROR => {
            Some(verdict(operation, &ErrorMessage::decode(VERSION, body).ok()?).into())
        }
        opcode::RESULT => match ResultMessage::decode(VERSION, body).ok()? {
            ResultMessage::Rows(rows) => read_rows(operation, &rows, list),
            _ => None,
        },
        _ => None,
    }
}

fn verdict(operation: Operation, error: &ErrorMessage<'_>) -> Verdict {
    match error.code {
        error_code::IS_BOOTSTRAPPING => Verdict::NotServed(answer::reason(error.message)),
        error_code::UNAUTHORIZED if error.message == answer::OTHER_ROLE => Verdict::Unauthorized,
        error_code::UNAUTHORIZED => Verdict::NotAllowed,
        error_code::OVERLOADED => Verdict::Quota(Quota::Requests),
        error_code::INVALID if error.message == answer::OTHER_MODE => Verdict::OtherMode,
        error_code::INVALID => Verdict::NotAccepted,
        _ => unknown(operation),
    }
}

/// Verdict on a request that was sent and has no answer.
pub(super) fn unknown(operation: Operation) -> Verdict {
    match operation {
        Operation::Look | Operation::List { .. } => Verdict::NotServed(NotServed::Elsewhere),
        Operation::Acquire { .. }
        | Operation::Renew { .. }
        | Operation::Release { .. }
        | Operation::GiveBack { .. } => Verdict::InDoubt,
    }
}

/// The values of a row, by their columns' names.
struct Named<'a> {
    names: Vec<&'a str>,
    values: Vec<Option<&'a [u8]>>,
}

impl<'a> Named<'a> {
    fn get(&self, name: &str) -> Option<&'a [u8]> {
        let place = self.names.iter().position(|known| *known == name)?;
        self.values.get(place).copied().flatten()
    }

    fn int(&self, name: &str) -> Option<u32> {
        Some(i32::from_be_bytes(self.get(name)?.try_into().ok()?).max(0).cast_unsigned())
    }

    fn mode(&self) -> Mode {
        if self.get("mode") == Some(b"S") { Mode::Shared } else { Mode::Exclusive }
    }

    fn fence(&self) -> Option<i64> {
        Some(i64::from_be_bytes(self.get("fence")?.try_into().ok()?))
    }

    fn held(&self) -> Option<Held<'a>> {
        let (owner, fence) = (self.get("owner")?, self.fence()?);
        Some(Held { owner, mode: self.mode(), fence, ttl_ms: self.int("ttl_ms")? })
    }
}

fn read_rows<'a>(
    operation: Operation,
    rows: &Rows<'a>,
    list: &'a mut Vec<u8>,
) -> Option<Reply<'a>> {
    if rows.row_count > listing::ROWS_MAX {
        return None;
    }
    let names: Vec<&str> = rows.metadata.columns().map(|column| column.name).collect();
    let mut named = Vec::with_capacity(rows.row_count);
    for row in rows.rows() {
        named.push(Named { names: names.clone(), values: row.ok()?.values().collect() });
    }
    let first = named.first();
    let waiters = first.and_then(|row| row.int("waiters")).unwrap_or(0);
    let holder = first.and_then(Named::held);
    let verdict = match operation {
        Operation::Look => Verdict::Seen,
        Operation::List { .. } => {
            // The tables of shared locks say how many requests wait, and `lock_queue` says which.
            let mut waiters = waiters;
            for row in &named {
                let waits = row.get("state") == Some(b"waiting");
                waiters += u32::from(waits);
                let (owner, role) = (row.get("owner")?, row.get("role").unwrap_or_default());
                if owner.len() > OWNER_BYTES_MAX || role.len() > usize::from(u16::MAX) {
                    return None;
                }
                let fence = row.fence().unwrap_or(0);
                let holder = Holder { owner, mode: row.mode(), fence, ttl_ms: row.int("ttl_ms")? };
                listing::put(list, row.get("fast") == Some(&[1]), waits, &holder, role);
            }
            return Some(Reply { waiters, list, ..Verdict::Listed.into() });
        }
        Operation::Acquire { .. }
        | Operation::Renew { .. }
        | Operation::Release { .. }
        | Operation::GiveBack { .. } => match (first?.get("[applied]")? == [1], operation) {
            (false, _) => Verdict::Refused,
            (true, Operation::Release { .. } | Operation::GiveBack { .. }) => Verdict::Released,
            (true, _) => Verdict::Granted,
        },
    };
    if verdict == Verdict::Granted && holder.is_none() {
        return None;
    }
    Some(Reply { holder, waiters, ..verdict.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A proxy with another limit refuses a request for a reason that this proxy cannot know.
    #[test]
    fn only_the_owner_of_a_hold_hears_that_its_mode_is_the_other_one() {
        for known in [Verdict::OtherMode, Verdict::Unauthorized, Verdict::NotAllowed] {
            let told = answer::error(&known).expect("an error");
            assert_eq!(verdict(Operation::Look, &told), known);
        }
        let other = ErrorMessage::plain(error_code::INVALID, "Shunt: wait_ms is 3000: 1500 ..");
        let read = verdict(Operation::Look, &other);
        assert_eq!(read, Verdict::NotAccepted);
        let told = answer::error(&read).expect("an error");
        assert!(told.code == error_code::INVALID && !told.message.contains("holds"), "{told:?}");
    }

    #[test]
    fn why_the_owner_does_not_serve_a_lock_is_told_on() {
        for why in [NotServed::Grace, NotServed::Loading, NotServed::Store, NotServed::Elsewhere] {
            let said = answer::error(&Verdict::NotServed(why)).expect("an error");
            assert_eq!(verdict(Operation::Look, &said), Verdict::NotServed(why));
        }
        // Whoever takes the shards of a proxy over that has no lease is asked again.
        let said = answer::error(&Verdict::NotServed(NotServed::LeaseOver)).expect("an error");
        assert_eq!(verdict(Operation::Look, &said), Verdict::NotServed(NotServed::Elsewhere));
    }
}
