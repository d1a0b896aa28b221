//! Answers to the proxy's own statements that are part of a transaction.

use shunt_reactor::Io;

use super::part::Part;
use super::{
    carry, confirm, log, lone, modes, names, openings, planning, reads, ruled, run, writes,
};
use crate::core::Core;
use crate::fleet::statements::Heard;

/// Gives an answer to whom it is for. `raw`: its body, as a node sent it, behind what may come
/// before.
pub(crate) fn take(core: &mut Core, io: &mut Io, part: Part, heard: &Heard<'_>, raw: &[u8]) {
    writes::come_back(core, io, part);
    match part {
        Part::Schema { planning, question, .. } => {
            planning::heard_schema(core, io, planning, question, heard)
        }
        Part::Text { planning, place, .. } => {
            planning::heard_text(core, io, planning, place, heard)
        }
        Part::Read { job, read, .. } => reads::heard(core, io, (job, read), heard, raw),
        Part::Alone { id, .. } => lone::heard(core, io, id, heard, raw),
        Part::Passed { job, .. } => run::passed(core, io, job, heard, raw),
        Part::Record { id, .. } => carry::recorded(core, io, id, log::written(heard)),
        Part::Write { write, .. } => writes::heard(core, io, write, heard),
        Part::Name { number, .. } => names::heard(core, io, number, heard),
        Part::Opening { claim, part } => openings::heard(core, io, claim, part, heard),
        Part::Low { shard, generation, low } => {
            carry::low_written(core, io, (shard, generation, low), log::written(heard))
        }
        Part::Change(number) | Part::MayChange { number, .. } => {
            modes::heard_change(core, io, number, heard)
        }
        Part::Confirm(member) => confirm::heard(core, io, member, heard),
        Part::Modes => modes::heard(core, io, heard),
        Part::Rules => ruled::heard(core, io, heard),
        Part::Nothing => {}
    }
}
