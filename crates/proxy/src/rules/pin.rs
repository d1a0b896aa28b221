//! Consistency levels that rules set: where a request has its level, and which level may take the
//! place of another.
//!
//! A pin must never:
//! - touch a statement of a transaction or a lock, a conditional statement, or a serial read: their
//!   levels decide what is true;
//! - replace a level by one that may ask fewer replicas, unless the rule says `weaken`;
//! - set a level that nodes refuse for a read: EACH_QUORUM.

use shunt_wire::cql::envelope::{Header, opcode};
use shunt_wire::cql::message::{Batch, Consistency, Reader, split_request_prefix};

use crate::config::Pin;
use crate::metrics::QueryKind;
use crate::plan::{After, Plan, Work};

/// The level that a query gets in place of its own.
pub(super) fn replacing(pin: Pin, plan: &Plan) -> Option<Consistency> {
    let own = Consistency(plan.consistency);
    let is_open = matches!(plan.work, Work::Read | Work::Write)
        && matches!(plan.after, After::Deliver | After::Multiget)
        && plan.kind != QueryKind::Prepare
        && !plan.conditional
        && own.is_known()
        && ![Consistency::SERIAL, Consistency::LOCAL_SERIAL].contains(&own)
        && !(pin.level == Consistency::EACH_QUORUM && plan.work == Work::Read);
    let changes = pin.level != own && (pin.weakens || covers(pin.level, own));
    (is_open && changes).then_some(pin.level)
}

/// True if a level asks at least the replicas that the other one asks, for every replication.
fn covers(level: Consistency, other: Consistency) -> bool {
    const ANY: Consistency = Consistency::ANY;
    const ONE: Consistency = Consistency::ONE;
    const LOCAL_ONE: Consistency = Consistency::LOCAL_ONE;
    const QUORUM: Consistency = Consistency::QUORUM;
    const LOCAL_QUORUM: Consistency = Consistency::LOCAL_QUORUM;
    let covered: &[Consistency] = match level {
        Consistency::ALL => return true,
        Consistency::EACH_QUORUM => &[ANY, ONE, LOCAL_ONE, QUORUM, LOCAL_QUORUM],
        LOCAL_QUORUM => &[ANY, ONE, LOCAL_ONE],
        QUORUM | Consistency::TWO => &[ANY, ONE],
        Consistency::THREE => &[ANY, ONE, Consistency::TWO],
        LOCAL_ONE => &[ANY, ONE],
        ONE => &[ANY],
        _ => &[],
    };
    level == other || covered.contains(&other)
}

/// The place of the consistency level in a request.
pub(crate) fn place_in(header: &Header, body: &[u8]) -> Option<usize> {
    let (_, message) = split_request_prefix(header.flags, body).ok()?;
    let before = body.len() - message.len();
    let mut reader = Reader::new(message);
    let place = match header.opcode {
        opcode::QUERY => {
            reader.long_string("query text").ok()?;
            reader.position()
        }
        opcode::EXECUTE => {
            reader.short_bytes("prepared id").ok()?;
            if header.version >= 5 {
                reader.short_bytes("result metadata id").ok()?;
            }
            reader.position()
        }
        opcode::BATCH => Batch::decode(header.version, message).ok()?.params_at(),
        _ => return None,
    };
    Some(before + place)
}

/// Writes a request with another level to `out`.
pub(crate) fn write(out: &mut Vec<u8>, body: &[u8], place: usize, level: u16) {
    out.clear();
    out.extend_from_slice(body);
    if let Some(written) = out.get_mut(place..place + size_of::<u16>()) {
        written.copy_from_slice(&level.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEVELS: [Consistency; 8] = [
        Consistency::ONE,
        Consistency::TWO,
        Consistency::THREE,
        Consistency::QUORUM,
        Consistency::ALL,
        Consistency::LOCAL_QUORUM,
        Consistency::EACH_QUORUM,
        Consistency::LOCAL_ONE,
    ];

    /// Fewest replicas that a level asks in the local datacentre, and in all.
    fn asked(level: Consistency, (local, remote): (usize, usize)) -> (usize, usize) {
        let quorum = |replicas: usize| if replicas == 0 { 0 } else { replicas / 2 + 1 };
        match level {
            Consistency::ONE => (0, 1),
            Consistency::TWO => (0, 2),
            Consistency::THREE => (0, 3),
            Consistency::QUORUM => {
                let all = quorum(local + remote);
                (all.saturating_sub(remote), all)
            }
            Consistency::ALL => (local, local + remote),
            Consistency::LOCAL_QUORUM => (quorum(local), quorum(local)),
            Consistency::EACH_QUORUM => (quorum(local), quorum(local) + quorum(remote)),
            _ => (1, 1),
        }
    }

    #[test]
    fn a_level_that_covers_another_never_asks_fewer_replicas() {
        for level in LEVELS {
            assert!(covers(level, level));
            for other in LEVELS.into_iter().filter(|other| covers(level, *other)) {
                for replicas in (1..=5).flat_map(|local| (0..=5).map(move |remote| (local, remote)))
                {
                    // A ring with fewer replicas than the level asks refuses it.
                    let (here, all) = asked(level, replicas);
                    let (here_other, all_other) = asked(other, replicas);
                    let is_possible = all_other <= replicas.0 + replicas.1;
                    let is_weaker = here < here_other || all < all_other;
                    assert!(!is_possible || !is_weaker, "{level} {other} {replicas:?}");
                }
            }
        }
    }

    #[test]
    fn pins_leave_what_they_may_not_touch() {
        let plan = Plan {
            work: Work::Read,
            kind: QueryKind::Query,
            consistency: Consistency::ONE.0,
            ..Plan::anywhere()
        };
        let up = Pin { level: Consistency::LOCAL_QUORUM, weakens: false };
        let down = Pin { level: Consistency::LOCAL_ONE, weakens: true };
        assert_eq!(replacing(up, &plan), Some(Consistency::LOCAL_QUORUM));
        let with = |consistency: Consistency| Plan { consistency: consistency.0, ..plan };
        assert_eq!(replacing(up, &with(Consistency::ALL)), None, "it would weaken");
        assert_eq!(replacing(down, &with(Consistency::ALL)), Some(Consistency::LOCAL_ONE));
        for level in [Consistency::SERIAL, Consistency::LOCAL_SERIAL, Consistency(11)] {
            assert_eq!(replacing(down, &with(level)), None, "{level}");
        }
        for untouched in [
            Plan { conditional: true, ..plan },
            Plan { after: After::Transaction, ..plan },
            Plan { after: After::Lock, ..plan },
            Plan { work: Work::Schema, ..plan },
            Plan { work: Work::Other, ..plan },
            Plan { kind: QueryKind::Prepare, ..plan },
        ] {
            assert_eq!((replacing(up, &untouched), replacing(down, &untouched)), (None, None));
        }
        let each = Pin { level: Consistency::EACH_QUORUM, weakens: true };
        assert_eq!(replacing(each, &plan), None, "nodes refuse it for reads");
        let write = Plan { work: Work::Write, ..plan };
        assert_eq!(replacing(each, &write), Some(Consistency::EACH_QUORUM));
    }
}
