//! Results of the proxy's own statements go to the step of the transaction that needs them.

use shunt_reactor::Io;

use super::modes::{self, rules};
use super::{
    conditional, confirmation, evaluation, execute, log, planning, recovery, table_identity, writes,
};
use crate::core::Core;
use crate::fleet::statements::Heard;
use crate::transactions::part::Part;

/// Delivers a result. `raw` is its body as the node sent it, without prefixes.
pub(crate) fn deliver(core: &mut Core, io: &mut Io, part: Part, heard: &Heard<'_>, raw: &[u8]) {
    writes::statement_done(core, io, part);
    match part {
        Part::Schema { planning, question, .. } => {
            planning::schema_answered(core, io, planning, question, heard)
        }
        Part::Text { planning, place, .. } => {
            planning::text_prepared(core, io, planning, place, heard)
        }
        Part::Read { job, read, .. } => evaluation::row_answered(core, io, (job, read), heard, raw),
        Part::Unlogged { id, .. } => conditional::answered(core, io, id, heard, raw),
        Part::Passed { job, .. } => execute::pass_answered(core, io, job, heard, raw),
        Part::Record { id, .. } => log::record_answered(core, io, id, log::written(heard)),
        Part::Write { write, .. } => writes::answered(core, io, write, heard),
        Part::Name { number, .. } => table_identity::answered(core, io, number, heard),
        Part::Opening { claim, part } => recovery::step_answered(core, io, claim, part, heard),
        Part::Low { shard, generation, low } => {
            log::low_answered(core, io, (shard, generation, low), log::written(heard))
        }
        Part::Change(number) | Part::MayChange { number, .. } => {
            modes::change_answered(core, io, number, heard)
        }
        Part::Confirm(member) => confirmation::answered(core, io, member, heard),
        Part::Modes(poll) => modes::modes_read(core, io, poll, heard),
        Part::Rules(poll) => rules::rules_read(core, io, poll, heard),
        Part::Nothing => {}
    }
}
