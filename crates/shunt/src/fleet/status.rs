//! `shunt fleet status`: present and past members, and their shares of the locks. As a table for
//! people, or as JSON for programs.

use std::fmt::Write as _;

use shunt_admin::{Json, Map};
use shunt_fleet::{FleetRow, MemberRow};
use shunt_proxy::control::client::Failed;

use super::{Status, read};
use crate::logging::Printable;

/// Reads the rows and formats them.
///
/// # Errors
/// The fleet does not exist, or its rows cannot be read.
pub(super) fn run(status: &Status) -> Result<String, Failed> {
    let name = &status.name;
    let (fleet, members) = read(&mut status.access.connect()?, name)?;
    Ok(if status.json { as_json(name, &fleet, &members) } else { as_text(name, &fleet, &members) })
}

/// The field names are documented in docs/fleet.md and must stay: programs rely on them.
fn as_json(name: &str, fleet: &FleetRow, members: &[MemberRow]) -> String {
    let object = |fields: Vec<(&str, Json)>| -> Json {
        fields
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect::<Map<_, _>>()
            .into()
    };
    let shown = |member: &MemberRow| {
        object(vec![
            ("address", member.address.as_str().into()),
            ("incarnation", member.incarnation.to_string().into()),
            ("state", member.state.word(member.leaving).into()),
            ("shards", fleet.view.shards_of(member.incarnation).len().into()),
            ("beat", member.beat.into()),
            ("format", member.format.into()),
        ])
    };
    let datacentre = Some(fleet.datacentre.as_str()).filter(|name| !name.is_empty());
    let all = object(vec![
        ("name", name.into()),
        ("format", fleet.format.into()),
        ("epoch", fleet.epoch.into()),
        ("lease_ms", fleet.lease_ms.into()),
        ("max_ttl_ms", fleet.max_ttl_ms.into()),
        ("level", fleet.level.name().into()),
        ("datacentre", datacentre.into()),
        ("members", members.iter().map(shown).collect()),
    ]);
    format!("{all}\n")
}

fn as_text(name: &str, fleet: &FleetRow, members: &[MemberRow]) -> String {
    let mut text = format!(
        "fleet {name}: epoch {}, lease {} ms, locks in memory {} ms at most, {}\n",
        fleet.epoch,
        fleet.lease_ms,
        fleet.max_ttl_ms,
        fleet.level.name()
    );
    let _ = writeln!(
        text,
        "{:<22} {:<8} {:>6} {:>10}  incarnation",
        "address", "state", "shards", "beat"
    );
    for member in members {
        let state = member.state.word(member.leaving);
        let shards = fleet.view.shards_of(member.incarnation).len();
        let (address, beat, incarnation) = (&member.address, member.beat, member.incarnation);
        // The text comes from rows, which any client with write access may have changed.
        let _ = write!(
            Printable(&mut text),
            "{address:<22} {state:<8} {shards:>6} {beat:>10}  {incarnation}"
        );
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use shunt_fleet::{Incarnation, State};

    use super::super::tests::row;
    use super::*;

    fn members() -> Vec<MemberRow> {
        let states = [
            (State::Live, false),
            (State::Live, true),
            (State::Dead, false),
            (State::Sealed, true),
            (State::Sealed, false),
        ];
        let of = |(number, (state, leaving))| MemberRow {
            incarnation: Incarnation([number; 16]),
            address: format!("10.0.0.{number}:9042"),
            state,
            beat: 7,
            ts_limit_us: 1,
            format: 1,
            leaving,
        };
        (1..).zip(states).map(of).collect()
    }

    /// A declaration of death clears a member's mark of leaving, so the rows can tell the two
    /// apart.
    #[test]
    fn members_that_left_and_members_that_died_differ() {
        let text = as_text("main", &row(), &members());
        let states: Vec<&str> =
            text.lines().skip(2).filter_map(|line| line.split_whitespace().nth(1)).collect();
        assert_eq!(states, ["live", "leaving", "dead", "left", "sealed"]);
    }

    /// A client with write access can put any text into the rows.
    #[test]
    fn an_address_makes_no_line_of_its_own() {
        let mut members = members();
        members[0].address = "10.0.0.1:9042\n\u{1b}[2J".to_owned();
        let text = as_text("main", &row(), &members);
        assert!(text.lines().count() == 7 && text.contains(r"10.0.0.1:9042\n\u{1b}[2J "), "{text}");
    }

    /// Programs read the fields as docs/fleet.md lists them.
    #[test]
    fn the_fields_of_the_json_form_stay_what_they_are() {
        let mut fleet = row();
        fleet.view.give(5, Some(Incarnation([1; 16])));
        let json = |fleet: &FleetRow| -> serde_json::Value {
            let text = as_json("a\"b", fleet, &members());
            assert_eq!(text.lines().count(), 1);
            serde_json::from_str(&text).expect("JSON")
        };
        let first = serde_json::json!({
            "address": "10.0.0.1:9042", "incarnation": "01010101-0101-0101-0101-010101010101", "state": "live", "shards": 1, "beat": 7,
            "format": 1,
        });
        let mut all = json(&fleet);
        let members = all["members"].take();
        assert_eq!(
            (&members[0], &members[3]["state"], &members[4]["state"]),
            (&first, &"left".into(), &"sealed".into())
        );
        let expected = serde_json::json!({
            "name": "a\"b", "format": 1, "epoch": 3, "lease_ms": 6000, "max_ttl_ms": 30000, "level": "SERIAL", "datacentre": null,
            "members": null,
        });
        assert_eq!(all, expected);
        fleet.datacentre = "dc1".to_owned();
        assert_eq!(json(&fleet)["datacentre"], "dc1");
    }
}
