//! A member's reports to its operator.

use super::Member;
use crate::answer::{FleetRow, MemberRow, Outcome, State};
use crate::config::Config;
use crate::ids::{Incarnation, Shards, View};
use crate::observations::Snapshot;
use crate::output::{Alarm, Output, StatementId};
use crate::statement::{Level, Statement};

fn row(ts_floor_us: i64) -> FleetRow {
    FleetRow {
        format: 1,
        level: Level::Serial,
        datacentre: String::new(),
        max_ttl_ms: 30_000,
        lease_ms: 6_000,
        epoch: 1,
        view: View::default(),
        ts_floor_us,
        handed_over: Shards::ALL,
    }
}

fn alarms_of(ts_floor_us: i64, wall_us: i64) -> Vec<Alarm> {
    let mut member =
        Member::new(Config::new("main", "10.0.0.1:9042"), Incarnation([1; 16])).expect("settings");
    let mut outputs = Vec::new();
    member.start(0, wall_us, &mut outputs);
    let asked = |output: &Output| match output {
        Output::Send { id, statement: Statement::ReadFleet { .. }, .. } => Some(*id),
        _ => None,
    };
    let id: StatementId = outputs.iter().find_map(asked).expect("the fleet is read first");
    member.outcome(id, Outcome::Fleet(Some(Box::new(row(ts_floor_us)))), 1, wall_us, &mut outputs);
    (2..9).for_each(|now_ns| member.tick(now_ns, wall_us, &mut outputs));
    let alarm = |output| match output {
        Output::Alarm(alarm) => Some(alarm),
        _ => None,
    };
    outputs.into_iter().filter_map(alarm).collect()
}

/// A member's clock was a year ahead: so are all fences from now on, and only the alarm reveals it.
#[test]
fn fences_far_ahead_of_the_clock_are_told_once() {
    const HOUR_US: i64 = 3_600_000_000;
    let wall_us = 500_000 * HOUR_US;
    assert_eq!(alarms_of(wall_us + HOUR_US, wall_us), []);
    let year_us = 8_760 * HOUR_US;
    assert_eq!(alarms_of(wall_us + year_us, wall_us), [Alarm::FencesAhead(year_us)]);
    assert_eq!(
        alarms_of(wall_us, wall_us - year_us),
        [Alarm::FencesAhead(year_us)],
        "or this clock is behind"
    );
}

/// Two processes have one configuration. The row of a restarted process also stands beside the new
/// one's for a while.
#[test]
fn another_that_lives_at_the_same_address_is_told_of_once_and_a_former_start_is_not() {
    let (me, other) = (Incarnation([1; 16]), Incarnation([2; 16]));
    let mut member = Member::new(Config::new("main", "10.0.0.1:9042"), me).expect("settings");
    let mut outputs = Vec::new();
    let mut see = |member: &mut Member, beats: [i64; 2], at_ns: u64| {
        let of = |incarnation, beat| MemberRow {
            incarnation,
            address: "10.0.0.1:9042".to_owned(),
            state: State::Live,
            beat,
            ts_limit_us: 0,
            format: 1,
            leaving: false,
        };
        let rows = vec![of(me, beats[0]), of(other, beats[1])];
        let snapshot = Snapshot {
            rows,
            unreadable: Default::default(),
            serial: true,
            sent_ns: at_ns,
            now_ns: at_ns,
        };
        member.others.take(snapshot, &member.times);
        member.tell_rivals(&mut outputs);
        outputs
            .drain(..)
            .filter(|output| matches!(output, Output::Alarm(Alarm::SameAddress { .. })))
            .count()
    };
    let told = [[1, 7], [2, 8], [3, 9], [4, 9], [5, 9]]
        .map(|beats| see(&mut member, beats, beats[0].unsigned_abs()));
    assert_eq!(told, [0; 5], "it had two statements on their way");
    assert!(member.members(6, 5).0.iter().all(|shown| !shown.is_rival));
    let told =
        [[6, 10], [7, 11], [8, 12]].map(|beats| see(&mut member, beats, beats[0].unsigned_abs()));
    assert_eq!(told, [1, 0, 0]);
    let rivals: Vec<_> = member
        .members(9, 5)
        .0
        .into_iter()
        .map(|shown| (shown.incarnation, shown.is_rival))
        .collect();
    assert_eq!(rivals, [(me, false), (other, true)]);
}

/// The declaration of a death clears `leaving` in the row, which this member reads again some time
/// later.
#[test]
fn a_leaving_member_that_is_declared_dead_has_not_left() {
    let (me, other) = (Incarnation([1; 16]), Incarnation([2; 16]));
    let mut member = Member::new(Config::new("main", "10.0.0.1:9042"), me).expect("settings");
    let address = "10.0.0.2:9042".to_owned();
    let row = MemberRow {
        incarnation: other,
        address,
        state: State::Live,
        beat: 3,
        ts_limit_us: 0,
        format: 1,
        leaving: true,
    };
    let snapshot = Snapshot {
        rows: vec![row],
        unreadable: Default::default(),
        serial: true,
        sent_ns: 1,
        now_ns: 1,
    };
    member.others.take(snapshot, &member.times);
    let word = |member: &Member| {
        member.members(2, 1).0.first().map(|shown| shown.state.word(shown.leaving))
    };
    assert_eq!(word(&member), Some("leaving"));
    for (state, expected) in [(State::Dead, "dead"), (State::Sealed, "sealed")] {
        member.others.set_state(other, state, 2);
        assert_eq!(word(&member), Some(expected));
    }
}

#[test]
fn members_are_shown_with_this_one_and_those_that_live_however_many_are_dead() {
    let me = Incarnation([9; 16]);
    let mut member = Member::new(Config::new("main", "10.0.0.9:9042"), me).expect("settings");
    let of = |number: u8, state| MemberRow {
        incarnation: Incarnation([number; 16]),
        address: format!("10.0.0.{number}:9042"),
        state,
        beat: 3,
        ts_limit_us: 0,
        format: 1,
        leaving: number == 2,
    };
    let mut rows: Vec<MemberRow> = (10..100).map(|number| of(number, State::Sealed)).collect();
    rows.extend([of(1, State::Live), of(2, State::Live), of(9, State::Live), of(200, State::Dead)]);
    let snapshot =
        Snapshot { rows, unreadable: Default::default(), serial: true, sent_ns: 100, now_ns: 150 };
    member.others.take(snapshot, &member.times);
    let mut view = View::default();
    (0..5).for_each(|shard| view.give(shard, Some(Incarnation([2; 16]))));
    member.fleet = Some(FleetRow { view, ..row(0) });
    let (shown, left_out) = member.members(1_150, 3);
    let brief: Vec<_> =
        shown.iter().map(|one| (&*one.address, one.leaving, one.shards, one.silent_ns)).collect();
    let expected = [
        ("10.0.0.1:9042", false, 0, 1_000),
        ("10.0.0.2:9042", true, 5, 1_000),
        ("10.0.0.9:9042", false, 0, 1_000),
    ];
    assert_eq!((&brief[..], left_out), (&expected[..], 91));
    assert_eq!(member.members(1_150, 1).0[0].incarnation, me);
    assert_eq!(member.members(1_150, 500).1, 0);
}

/// Two processes have one address (a copied configuration). The other proxies must not announce a
/// change to their clients at each renewal.
#[test]
fn two_at_one_address_are_one_change_for_the_clients_of_others_and_an_alarm() {
    let (me, one, two) = (Incarnation([9; 16]), Incarnation([1; 16]), Incarnation([2; 16]));
    let mut member = Member::new(Config::new("main", "10.0.0.3:9042"), me).expect("settings");
    let mut outputs = Vec::new();
    const HALF_NS: u64 = 500_000_000;
    let (mut changes, mut alarms) = (0, 0);
    for step in 1..=120_u64 {
        let of = |incarnation, address: &str, beat| MemberRow {
            incarnation,
            address: address.to_owned(),
            state: State::Live,
            beat,
            ts_limit_us: 0,
            format: 1,
            leaving: false,
        };
        // Each renews every 2 s, as with a lease of 6 s; rows are read every half second.
        let rows = vec![
            of(me, "10.0.0.3:9042", (step / 4) as i64),
            of(one, "10.0.0.1:9042", (step / 4) as i64),
            of(two, "10.0.0.1:9042", ((step + 2) / 4) as i64),
        ];
        let now_ns = step * HALF_NS;
        let snapshot = Snapshot {
            rows,
            unreadable: Default::default(),
            serial: true,
            sent_ns: now_ns,
            now_ns,
        };
        member.others.take(snapshot, &member.times);
        member.tell(now_ns, &mut outputs);
        member.tell_rivals(&mut outputs);
        for output in outputs.drain(..) {
            changes += usize::from(matches!(output, Output::Peers(_)));
            alarms += usize::from(matches!(output, Output::Alarm(_)));
        }
    }
    assert_eq!(
        (changes, alarms),
        (1, 1),
        "lists of peers told in a minute, and alarms of this member"
    );
}

/// A restarted proxy is no rival of its former start, for any observer and however long that one
/// lived.
#[test]
fn a_proxy_that_was_started_again_is_no_rival_of_what_it_was_for_those_who_look() {
    let (me, before, after) = (Incarnation([9; 16]), Incarnation([2; 16]), Incarnation([1; 16]));
    let mut member = Member::new(Config::new("main", "10.0.0.3:9042"), me).expect("settings");
    let mut outputs = Vec::new();
    for step in 1..=40_u64 {
        let of = |incarnation, beat: u64| MemberRow {
            incarnation,
            address: "10.0.0.1:9042".to_owned(),
            state: State::Live,
            beat: beat as i64,
            ts_limit_us: 0,
            format: 1,
            leaving: false,
        };
        // Two of its renewals were on their way when it ended.
        let mut rows = vec![of(before, step.min(22))];
        rows.extend((step > 20).then(|| of(after, step)));
        let snapshot = Snapshot {
            rows,
            unreadable: Default::default(),
            serial: true,
            sent_ns: step,
            now_ns: step,
        };
        member.others.take(snapshot, &member.times);
        member.tell(step, &mut outputs);
        member.tell_rivals(&mut outputs);
    }
    let peers: Vec<_> =
        outputs.iter().filter(|output| matches!(output, Output::Peers(_))).collect();
    assert_eq!((peers.len(), outputs.len()), (2, 2), "{outputs:?}");
    assert!(member.members(50, 9).0.iter().all(|shown| !shown.is_rival));
}

/// An attempt that timed out may have written the beat, though a read in between did not show it
/// and another attempt followed. A lease counted from the later attempt would outlast the time that
/// others allow it.
#[test]
fn a_lease_counts_from_the_first_of_the_attempts_that_may_have_written_its_beat() {
    const SECOND_NS: u64 = 1_000_000_000;
    let me = Incarnation([1; 16]);
    let mut member = Member::new(Config::new("main", "10.0.0.1:9042"), me).expect("settings");
    member.phase = super::Phase::Live;
    member.own.beat = Some(1);
    let seen = |beat| MemberRow {
        incarnation: me,
        address: "10.0.0.1:9042".to_owned(),
        state: State::Live,
        beat,
        ts_limit_us: 0,
        format: 1,
        leaving: false,
    };
    let (first_ns, second_ns) = (10 * SECOND_NS, 14 * SECOND_NS);
    let steps = [
        (first_ns, true, Outcome::Timeout),
        (12 * SECOND_NS, false, Outcome::Member(Some(Box::new(seen(1))))),
        (second_ns, true, Outcome::Timeout),
        (16 * SECOND_NS, false, Outcome::Member(Some(Box::new(seen(2))))),
    ];
    for (at_ns, renews, outcome) in steps {
        let mut outputs = Vec::new();
        member.step_own(at_ns, 1, &mut outputs);
        let sent = outputs.iter().find_map(|output| match output {
            Output::Send { id, statement, .. } => {
                Some((*id, matches!(statement, Statement::Renew { .. })))
            }
            _ => None,
        });
        let (id, is_renewal) = sent.expect("a statement is due");
        assert_eq!(is_renewal, renews, "at {at_ns}");
        let flight = member.own_lane.take(id).expect("it is in flight");
        member.own_outcome(flight, outcome, at_ns + 1, &mut outputs);
    }
    assert_eq!(member.own.beat, Some(2));
    assert_eq!(member.own.valid_until_ns, first_ns + member.times.valid_ns);
}
