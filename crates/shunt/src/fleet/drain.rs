//! `shunt fleet drain`: orders a member to leave, through its row, and waits until it has left.

use std::time::{Duration, Instant};

use shunt_fleet::{FleetRow, MemberRow, Outcome, State, Statement};
use shunt_proxy::control::client::Failed;
use shunt_proxy::fleet::membership::tool;

use super::{Drain, read};
use crate::exit::Exit;
use crate::print;

/// Interval at which the rows are read while the member leaves.
const LOOK: Duration = Duration::from_millis(500);

/// Longest silence of the server: it may be the proxy that leaves, or end with it.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// Orders the member to leave, and waits.
///
/// # Errors
/// No such live member exists, or the nodes refuse a statement.
pub(super) fn run(drain: &Drain) -> Result<Exit, Failed> {
    let mut client = drain.access.connect()?;
    let name = &drain.name;
    let (fleet, members) = read(&mut client, name)?;
    let member = find(&members, &drain.member)?.clone();
    let is_other = |other: &&MemberRow| other.incarnation != member.incarnation && can_take(other);
    if members.iter().find(is_other).is_none() {
        eprintln!(
            "warning: no other member can take over its locks: they are not served until one joins"
        );
    }
    let tell = Statement::TellToLeave(member.incarnation);
    let (address, shards) = (&member.address, shards_of(&fleet, &member));
    let wait = Duration::from_secs(u64::from(drain.wait));
    let (until, levels) = (Instant::now() + wait, tell.consistencies(fleet.level));
    let told = tool::ask_until_known(&mut client, name, &tell, &levels, tool::DOUBT_MAX.min(wait));
    match told.map_err(|failed| Failed { message: in_doubt(address, &failed), ..failed })? {
        // An attempt whose answer was lost may have reached the member, which may have left since.
        // The row shows its state.
        (Outcome::Applied, _) | (Outcome::NotApplied, true) => {
            print(&format!("{address} was told to leave; it has {shards} shards\n"));
        }
        (Outcome::NotApplied, false) => {
            return refuse(format!("{address} has left already, or was declared dead"));
        }
        (other, _) => {
            return refuse(format!(
                "it is not known whether {address} was told to leave; run the command again: \
                {other:?}"
            ));
        }
    }
    let mut answered = Instant::now();
    loop {
        client.pause(LOOK);
        let found = read(&mut client, name);
        let row = found
            .as_ref()
            .map(|(_, members)| members.iter().find(|row| row.incarnation == member.incarnation));
        match row.map(|row| row.map_or(Became::Left, Became::of)) {
            Ok(Became::Left) => {
                print(&format!("{address} has left the fleet\n"));
                return Ok(Exit::Done);
            }
            Ok(Became::Dead) => {
                eprintln!(
                    "{address} was declared dead before it had left: the other members take over \
                    its shards, as after a kill. A process that answers there is a new member"
                );
                return Ok(Exit::Failed);
            }
            _ if Instant::now() < until => {}
            _ => {
                let seen = seen(&found, &member);
                eprintln!("{address} {seen}; see its log. The order stands: it leaves when it can");
                return Ok(Exit::Failed);
            }
        }
        // A leaving proxy closes its connections, and a node may restart meanwhile.
        match found {
            Err(failed) if failed.code.is_none() => match drain.access.connect() {
                Ok(again) => client = again,
                Err(_) if answered.elapsed() < SILENCE_MAX => {}
                Err(failed) => {
                    let message = format!(
                        "no server answers any more, so it is not known whether {address} has \
                        left: {}",
                        failed.message
                    );
                    return Err(Failed { code: None, message });
                }
            },
            _ => answered = Instant::now(),
        }
    }
}

/// Describes a member when the wait is over.
fn seen(found: &Result<(FleetRow, Vec<MemberRow>), Failed>, member: &MemberRow) -> String {
    match found {
        Ok((fleet, _)) => {
            format!("is still leaving and has {} shards", shards_of(fleet, member))
        }
        Err(failed) => {
            format!("may still be leaving: its row cannot be read: {}", failed.message)
        }
    }
}

/// State of a member that was told to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Became {
    /// The member has not left yet.
    Leaving,
    /// The member has left.
    Left,
    /// The member was declared dead before it left.
    Dead,
}

impl Became {
    fn of(row: &MemberRow) -> Became {
        match row.state {
            State::Live => Became::Leaving,
            State::Sealed if row.leaving => Became::Left,
            // Other members have taken over its shards.
            State::Sealed | State::Dead => Became::Dead,
        }
    }
}

fn in_doubt(address: &str, failed: &Failed) -> String {
    if failed.code.is_none() || tool::is_open(failed) {
        return format!(
            "it is not known whether {address} was told to leave; run the command again: {}",
            failed.message
        );
    }
    failed.message.clone()
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

/// Finds the live member that the user means.
fn find<'a>(members: &'a [MemberRow], wanted: &str) -> Result<&'a MemberRow, Failed> {
    let live = || members.iter().filter(|member| member.state == State::Live);
    let meant =
        |member: &&MemberRow| member.address == wanted || member.incarnation.to_string() == wanted;
    let found: Vec<&MemberRow> = live().filter(meant).collect();
    let failed = |message| Failed { code: Some(0), message };
    match found[..] {
        [one] => Ok(one),
        [] => {
            let there: Vec<&str> = live().map(|member| member.address.as_str()).collect();
            let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
            Err(failed(format!("there is no live member {wanted}; the live members are: {there}")))
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
        MemberRow {
            incarnation,
            address,
            state,
            beat: 1,
            ts_limit_us: 1,
            format: 1,
            leaving: false,
        }
    }

    #[test]
    fn a_member_that_was_declared_dead_has_not_left() {
        let became = |state, leaving| Became::of(&MemberRow { leaving, ..member(1, "a:1", state) });
        assert_eq!(became(State::Live, true), Became::Leaving);
        assert_eq!(
            (became(State::Sealed, true), became(State::Sealed, false)),
            (Became::Left, Became::Dead)
        );
        assert_eq!(
            (became(State::Dead, true), became(State::Dead, false)),
            (Became::Dead, Became::Dead)
        );
    }

    #[test]
    fn a_member_is_found_by_address_or_incarnation_and_only_if_that_is_one_live_member() {
        let mut members = vec![
            member(1, "a:1", State::Sealed),
            member(2, "a:1", State::Live),
            member(3, "b:1", State::Live),
        ];
        let found = |members: &[MemberRow], wanted: &str| {
            find(members, wanted).map(|found| found.incarnation.0[0])
        };
        assert_eq!(found(&members, "a:1"), Ok(2));
        assert_eq!(found(&members, &Incarnation([3; 16]).to_string()), Ok(3));
        let gone =
            found(&members, &Incarnation([1; 16]).to_string()).map_err(|failed| failed.message);
        assert!(gone.is_err_and(|why| why.contains("a:1, b:1")));
        members.push(member(4, "a:1", State::Live));
        assert!(
            found(&members, "a:1").is_err_and(|failed| failed.message.contains("2 live members"))
        );
    }
}
