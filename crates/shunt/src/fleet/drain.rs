//! `shunt fleet drain`: tells a member to leave, by its row, and waits until it has.

use std::time::{Duration, Instant};

use shunt_fleet::{FleetRow, MemberRow, Outcome, State, Statement};
use shunt_proxy::control::client::Failed;
use shunt_proxy::membership::tool;

use super::{Drain, read};
use crate::exit::Exit;
use crate::print;

/// How often the rows are read while it leaves.
const LOOK: Duration = Duration::from_millis(500);

/// Tells it, and waits.
///
/// # Errors
/// There is no such live member, or the nodes refuse a statement.
pub(super) fn run(drain: &Drain) -> Result<Exit, Failed> {
    let mut client = drain.access.connect()?;
    let name = &drain.name;
    let (fleet, members) = read(&mut client, name)?;
    let member = find(&members, &drain.member)?.clone();
    let is_other = |other: &&MemberRow| other.incarnation != member.incarnation && can_take(other);
    if members.iter().find(is_other).is_none() {
        eprintln!("warning: no other member can take its locks over: nobody serves them until one joins");
    }
    let tell = Statement::TellToLeave(member.incarnation);
    let (address, shards) = (&member.address, shards_of(&fleet, &member));
    match tool::ask(&mut client, name, &tell, &tell.consistencies(fleet.level))? {
        Outcome::Applied => print(&format!("{address} is told to leave; it has {shards} shards\n")),
        Outcome::NotApplied => return refuse(format!("{address} has left by now, or was declared dead")),
        other => return refuse(format!("nobody knows if {address} was told to leave, ask again: {other:?}")),
    }
    let began = Instant::now();
    loop {
        client.pause(LOOK);
        let (fleet, members) = read(&mut client, name)?;
        let row = members.iter().find(|row| row.incarnation == member.incarnation);
        let shards = shards_of(&fleet, &member);
        match row.map(|row| row.state) {
            Some(State::Live) if began.elapsed() < Duration::from_secs(u64::from(drain.wait)) => {}
            Some(State::Live) => {
                eprintln!(
                    "{address} is still leaving and has {shards} shards; see its log. What was told stands: it leaves when it can"
                );
                return Ok(Exit::Failed);
            }
            Some(State::Dead) => {
                eprintln!("{address} was declared dead: others take over what it had, as if it had been killed");
                return Ok(Exit::Failed);
            }
            Some(State::Sealed) | None => {
                print(&format!("{address} has left the fleet\n"));
                return Ok(Exit::Done);
            }
        }
    }
}

fn refuse(message: String) -> Result<Exit, Failed> {
    Err(Failed { code: Some(0), message })
}

fn shards_of(fleet: &FleetRow, member: &MemberRow) -> usize {
    fleet.view.shards_of(member.incarnation).len()
}

fn can_take(member: &MemberRow) -> bool {
    member.state == State::Live && !member.leaving
}

/// The live member that is meant.
fn find<'a>(members: &'a [MemberRow], wanted: &str) -> Result<&'a MemberRow, Failed> {
    let live = || members.iter().filter(|member| member.state == State::Live);
    let meant = |member: &&MemberRow| member.address == wanted || member.incarnation.to_string() == wanted;
    let found: Vec<&MemberRow> = live().filter(meant).collect();
    let failed = |message| Failed { code: Some(0), message };
    match found[..] {
        [one] => Ok(one),
        [] => {
            let there: Vec<&str> = live().map(|member| member.address.as_str()).collect();
            let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
            Err(failed(format!("there is no live member {wanted}; live are: {there}")))
        }
        _ => Err(failed(format!(
            "there are {} live members at {wanted}, one of which is about to be declared dead: name the incarnation that \
             `shunt fleet status` shows",
            found.len()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use shunt_fleet::Incarnation;

    use super::*;

    fn member(number: u8, address: &str, state: State) -> MemberRow {
        let (address, incarnation) = (address.to_owned(), Incarnation([number; 16]));
        MemberRow { incarnation, address, state, beat: 1, ts_limit_us: 1, format: 1, leaving: false }
    }

    #[test]
    fn a_member_is_found_by_address_or_incarnation_and_only_if_that_is_one_live_member() {
        let mut members =
            vec![member(1, "a:1", State::Sealed), member(2, "a:1", State::Live), member(3, "b:1", State::Live)];
        let found = |members: &[MemberRow], wanted: &str| find(members, wanted).map(|found| found.incarnation.0[0]);
        assert_eq!(found(&members, "a:1"), Ok(2));
        assert_eq!(found(&members, &Incarnation([3; 16]).to_string()), Ok(3));
        let gone = found(&members, &Incarnation([1; 16]).to_string()).map_err(|failed| failed.message);
        assert!(gone.is_err_and(|why| why.contains("a:1, b:1")));
        members.push(member(4, "a:1", State::Live));
        assert!(found(&members, "a:1").is_err_and(|failed| failed.message.contains("2 live members")));
    }
}
