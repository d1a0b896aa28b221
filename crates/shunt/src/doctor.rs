//! `shunt doctor`: checks that the ring meets the needs of a fleet's locks, and advises where it
//! does not.
//!
//! The command only reads. It asks each node for the node's own settings and clock. A proxy does
//! not show these, so the command refuses to ask one.

mod answer;
mod layout;
mod report;
mod settings;

use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use shunt_fleet::schema::{FORMAT, FORMAT_MIN, LOCKS_KEYSPACE, LOCKS_TABLES, META_KEYSPACE};
use shunt_fleet::{
    BadRow, CLOCK_OFFSET_MAX_US, FleetRow, Incarnation, Level, MemberRow, Outcome, State, Statement,
};
use shunt_language::functions::time_of_timeuuid_us;
use shunt_proxy::control::client::{Client, Failed, Table};
use shunt_proxy::fleet::membership::tool::{self, There};
use shunt_wire::cql::message::{Consistency, error_code};

use crate::exit::Exit;
use crate::fleet::Access;
use crate::print;
use answer::{address, replicas, text};
use report::{Level as Grade, Report};

/// Time limit for one node to connect, and for each statement.
const LIMIT: Duration = Duration::from_secs(10);
/// Most nodes that are asked for their own settings and clock.
const NODES_MAX: usize = 64;
/// Pause between two readings of the member rows.
const LOOK: Duration = Duration::from_millis(500);

/// `shunt doctor`.
#[derive(Args, Debug)]
pub(crate) struct Doctor {
    #[command(flatten)]
    access: Access,
    /// Name of the fleet
    #[arg(long, value_name = "NAME", default_value = "main")]
    name: String,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

/// The ring's own view of itself.
struct Ring {
    /// Addresses of the nodes other than the one that answered; `None`: address unknown.
    others: Vec<Option<String>>,
    datacentres: BTreeSet<String>,
}

/// Member rows in a form that no proxy writes.
type Unreadable = Vec<(Incarnation, BadRow)>;

/// Runs all checks and prints them; the exit code is that of the worst finding.
pub(crate) fn run(doctor: &Doctor) -> Exit {
    let mut report = Report::new(doctor.json);
    let done = doctor
        .access
        .connect_within(LIMIT)
        .and_then(|mut client| look(doctor, &mut client, &mut report));
    if let Err(failed) = done {
        report.error(
            "ring",
            "",
            &failed.message,
            "make a node reachable, and use a role that may read shunt_meta",
        );
    }
    print(&report.text());
    match report.worst() {
        Grade::Ok => Exit::Done,
        Grade::Warning => Exit::Failed,
        Grade::Error => Exit::Configuration,
    }
}

fn look(doctor: &Doctor, client: &mut Client, report: &mut Report) -> Result<(), Failed> {
    let first = client.address().to_string();
    if client.is_proxy() {
        let message = format!(
            "{first} is a proxy: --contact-points has to name nodes, because only a node shows \
            its settings"
        );
        return Err(Failed { code: Some(0), message });
    }
    let ring = ring(client, report)?;
    let gc_grace = gc_grace(client)?;
    node(client, &first, gc_grace, report)?;
    for other in ring.others.iter().take(NODES_MAX) {
        let Some(other) = other else { continue };
        let asked = doctor.access.connect_to(std::slice::from_ref(other), LIMIT);
        if let Err(failed) = asked.and_then(|mut client| node(&mut client, other, gc_grace, report))
        {
            let what = format!("cannot be asked: {}", failed.message);
            report.warning(
                "node",
                other,
                &what,
                "check this node; with too few nodes no lock is granted",
            );
        }
    }
    let Some(fleet) = fleet(doctor, client, &ring, report)? else { return Ok(()) };
    keyspace(client, &fleet, report)?;
    layout::check(client, report)?;
    members(doctor, client, &fleet, report)?;
    lock_tables(client, report)
}

/// Checks schema agreement, and reads the list of nodes.
fn ring(client: &mut Client, report: &mut Report) -> Result<Ring, Failed> {
    let columns = "schema_version, data_center";
    let local = one(client, &format!("SELECT {columns} FROM system.local"))?;
    let peers = one(
        client,
        &format!("SELECT {columns}, native_address, native_port FROM system.peers_v2"),
    )?;
    let versions: BTreeSet<Option<&[u8]>> = (0..peers.rows.len())
        .map(|row| peers.get(row, "schema_version"))
        .chain([local.get(0, "schema_version")])
        .collect();
    match versions.len() {
        1 => report.ok("schema", "", &format!("{} nodes agree", peers.rows.len() + 1)),
        different => report.warning(
            "schema",
            "",
            &format!("the nodes have {different} versions of the schema"),
            "wait if the schema was just changed; otherwise see which node is down or was away \
            for long (nodetool describecluster)",
        ),
    }
    let datacentres = (0..peers.rows.len()).filter_map(|row| text(&peers, row, "data_center"));
    Ok(Ring {
        others: (0..peers.rows.len())
            .map(|row| address(&peers, row).map(|at| at.to_string()))
            .collect(),
        datacentres: datacentres.chain(text(&local, 0, "data_center")).collect(),
    })
}

/// Reads `gc_grace_seconds` of the table of lock rows; `None` without such a table.
fn gc_grace(client: &mut Client) -> Result<Option<u64>, Failed> {
    let table = one(
        client,
        "SELECT gc_grace_seconds FROM system_schema.tables WHERE keyspace_name = 'shunt_meta' AND table_name = 'lock'",
    )?;
    let seconds = table
        .get(0, "gc_grace_seconds")
        .and_then(|bytes| Some(i32::from_be_bytes(bytes.try_into().ok()?)));
    Ok(seconds.and_then(|seconds| u64::try_from(seconds).ok()))
}

/// Checks one node's own settings and clock.
fn node(
    client: &mut Client,
    name: &str,
    gc_grace: Option<u64>,
    report: &mut Report,
) -> Result<(), Failed> {
    match one(client, "SELECT name, value FROM system_views.settings") {
        Ok(table) => {
            let all = (0..table.rows.len())
                .filter_map(|row| Some((text(&table, row, "name")?, text(&table, row, "value"))));
            settings::check(&all.collect(), gc_grace, name, report);
        }
        Err(failed) if failed.code == Some(error_code::INVALID) => {
            report.ok(
                "settings",
                name,
                "it has no system_views.settings (an embedded node has none), so its settings are \
                not checked",
            );
        }
        Err(failed) if failed.code.is_some() => report.warning(
            "settings",
            name,
            &format!(
                "its settings cannot be read, so paxos, commitlog, hints and guardrails are not \
                checked: {}",
                failed.message
            ),
            "use a role that may read system_views (--username), a superuser if no other role may",
        ),
        Err(failed) => return Err(failed),
    }
    let (began, wall) = (Instant::now(), SystemTime::now());
    let table = one(client, "SELECT now() AS now FROM system.local")?;
    let took_us = i64::try_from(began.elapsed().as_micros()).unwrap_or(i64::MAX);
    let here_us = i64::try_from(wall.duration_since(UNIX_EPOCH).unwrap_or_default().as_micros())
        .unwrap_or(i64::MAX);
    let Some(there_us) = table.get(0, "now").and_then(time_of_timeuuid_us) else { return Ok(()) };
    // The node read its clock at an unknown moment while the statement was under way.
    let off_us = there_us - here_us.saturating_add(took_us / 2);
    let sure_us = off_us.unsigned_abs().saturating_sub(took_us.unsigned_abs() / 2 + 1_000);
    if sure_us > CLOCK_OFFSET_MAX_US {
        let what = format!("its wall clock is {} ms off this host's", off_us / 1_000);
        report.warning(
            "clock",
            name,
            &what,
            "make nodes and proxies follow one source of time (chrony, ntpd)",
        );
    } else {
        report.ok("clock", name, "its wall clock agrees with this host's");
    }
    Ok(())
}

fn fleet(
    doctor: &Doctor,
    client: &mut Client,
    ring: &Ring,
    report: &mut Report,
) -> Result<Option<FleetRow>, Failed> {
    let read = Statement::ReadFleet { serial: false };
    let init = format!("shunt fleet init --name {}", doctor.name);
    let fleet = match tool::ask(client, &doctor.name, &read, &read.consistencies(Level::Serial)) {
        Ok(Outcome::Fleet(Some(row))) => *row,
        Ok(Outcome::UnknownFormat(format)) => {
            let what = format!(
                "its rows have format {format}, this version knows {FORMAT_MIN} to {FORMAT}"
            );
            report.error("format", "", &what, "use the version of Shunt that the proxies have");
            return Ok(None);
        }
        Ok(Outcome::Unreadable(bad)) => {
            report.error(
                "fleet",
                "",
                &bad.to_string(),
                "find out which client wrote to shunt_meta",
            );
            return Ok(None);
        }
        Ok(_) => {
            let what = crate::fleet::no_fleet(client, &doctor.name);
            report.error(
                "fleet",
                "",
                &what,
                "name an existing fleet (--name), or create one (`shunt fleet init`)",
            );
            return Ok(None);
        }
        Err(failed) if failed.code.is_some() => {
            let is_missing = failed.code == Some(error_code::INVALID);
            let advice = if is_missing {
                &init
            } else {
                "check which nodes are down, and whether the role may read shunt_meta"
            };
            report.error(
                "fleet",
                "",
                &format!("its row cannot be read: {}", failed.message),
                advice,
            );
            return Ok(None);
        }
        Err(failed) => return Err(failed),
    };
    let (level, datacentre) = (fleet.level.name(), &fleet.datacentre);
    match fleet.level {
        Level::LocalSerial if !ring.datacentres.contains(datacentre) => report.error(
            "level",
            "",
            &format!("{level} in {datacentre}, but the ring has no such datacentre"),
            "create a fleet with the nodes' name of the datacentre (--datacentre)",
        ),
        Level::Serial if ring.datacentres.len() > 1 => report.warning(
            "level",
            "",
            &format!(
                "{level} over {} datacentres: every renewal waits for the far ones",
                ring.datacentres.len()
            ),
            "create a fleet of one datacentre (--datacentre) if all its proxies run there",
        ),
        Level::LocalSerial => report.ok("level", "", &format!("{level} in {datacentre}")),
        Level::Serial => report.ok("level", "", level),
    }
    Ok(Some(fleet))
}

/// Checks how the fleet's rows are replicated.
fn keyspace(client: &mut Client, fleet: &FleetRow, report: &mut Report) -> Result<(), Failed> {
    let text = format!(
        "SELECT replication, durable_writes FROM system_schema.keyspaces WHERE keyspace_name = '{META_KEYSPACE}'"
    );
    let table = one(client, &text)?;
    let datacentre = (fleet.level == Level::LocalSerial).then_some(fleet.datacentre.as_str());
    match table.get(0, "replication").and_then(|value| replicas(value, datacentre)) {
        Some(count @ 0..3) => report.warning(
            "replicas",
            META_KEYSPACE,
            &format!(
                "{count} where the fleet agrees: if a node is lost, no lock is granted, or \
            one is granted twice"
            ),
            replicas_advice(count),
        ),
        Some(count) => report.ok("replicas", META_KEYSPACE, &count.to_string()),
        None => report.warning(
            "replicas",
            META_KEYSPACE,
            "its replication cannot be parsed",
            "3 replicas are needed",
        ),
    }
    if table.get(0, "durable_writes") == Some(&[0]) {
        let what = "durable_writes is off: nodes lose acknowledged writes when they end";
        report.error(
            "durable",
            META_KEYSPACE,
            what,
            "ALTER KEYSPACE shunt_meta WITH durable_writes = true",
        );
    }
    Ok(())
}

/// Says how to get to three replicas. A step of two lets a quorum miss every replica that has a
/// row.
fn replicas_advice(count: u32) -> &'static str {
    match count {
        0 | 1 => {
            "raise shunt_meta and shunt to 2 replicas by ALTER KEYSPACE, run `nodetool repair --full` for both on all nodes, and then do \
             the same for 3 replicas"
        }
        _ => {
            "raise shunt_meta and shunt to 3 replicas by ALTER KEYSPACE, and run `nodetool repair --full` for both on all nodes"
        }
    }
}

fn members(
    doctor: &Doctor,
    client: &mut Client,
    fleet: &FleetRow,
    report: &mut Report,
) -> Result<(), Failed> {
    let (rows, unreadable) = read_members(doctor, client, fleet)?;
    let (silent, last) = silent(doctor, client, fleet, &rows)?;
    for address in &silent {
        let what = "its row says that it lives, but it did not renew its lease during the check";
        let advice = "check that it runs and reaches the nodes; without another live member, no \
        proxy declares it dead and none serves its locks";
        report.warning("members", address, what, advice);
    }
    for address in shared_addresses(&rows, &last) {
        let what = "two live members have this address: requests for the locks of one reach the \
        other, which refuses them";
        report.error(
            "members",
            address,
            what,
            "give each proxy a different address (--advertise), and stop one of the two",
        );
    }
    for (incarnation, bad) in &unreadable {
        report.error(
            "members",
            &incarnation.to_string(),
            &bad.to_string(),
            "find out which client wrote to shunt_meta.member",
        );
    }
    let of_state = |state| rows.iter().filter(move |row| row.state == state);
    for row in of_state(State::Live).filter(|row| row.format > FORMAT || row.format < FORMAT_MIN) {
        let what =
            format!("it knows formats up to {}, this version {FORMAT_MIN} to {FORMAT}", row.format);
        report.warning(
            "members",
            &row.address,
            &what,
            "finish the upgrade: all proxies of one version",
        );
    }
    for row in of_state(State::Dead) {
        let what = "it is dead, and no member has finished its work yet";
        report.warning(
            "members",
            &row.address,
            what,
            "check again in a minute; it takes long only if no proxy lives",
        );
    }
    match of_state(State::Live).filter(|row| !row.leaving).count().saturating_sub(silent.len()) {
        0 => report.warning(
            "members",
            "",
            "no proxy is a member, so no locks are served",
            "start proxies with --fleet",
        ),
        1 => report.warning(
            "members",
            "",
            "one proxy: no other takes over when it dies",
            "start another",
        ),
        count => report.ok("members", "", &format!("{count} live")),
    }
    Ok(())
}

/// Returns addresses that more than one live member has, counting only members that renewed their
/// lease between two readings. Any other member may be an earlier start of a proxy, or may have
/// ended meanwhile.
fn shared_addresses<'a>(first: &[MemberRow], last: &'a [MemberRow]) -> Vec<&'a str> {
    let has_renewed = |row: &&MemberRow| {
        let before = first.iter().find(|before| before.incarnation == row.incarnation);
        row.state == State::Live && before.is_some_and(|before| row.beat > before.beat)
    };
    let mut live: Vec<&str> =
        last.iter().filter(has_renewed).map(|row| row.address.as_str()).collect();
    live.sort_unstable();
    live.chunk_by(|one, next| one == next)
        .filter(|same| same.len() > 1)
        .map(|same| same[0])
        .collect()
}

fn read_members(
    doctor: &Doctor,
    client: &mut Client,
    fleet: &FleetRow,
) -> Result<(Vec<MemberRow>, Unreadable), Failed> {
    let read = Statement::ReadMembers { serial: false };
    match tool::ask(client, &doctor.name, &read, &read.consistencies(fleet.level))? {
        Outcome::Members { rows, unreadable } => Ok((rows, unreadable)),
        other => {
            Err(Failed { code: Some(0), message: format!("the members cannot be read: {other:?}") })
        }
    }
}

/// Returns the addresses of members that count as live but do not renew their lease within one
/// lease period (a healthy member renews three times as often), and the rows of the last reading.
fn silent(
    doctor: &Doctor,
    client: &mut Client,
    fleet: &FleetRow,
    rows: &[MemberRow],
) -> Result<(Vec<String>, Vec<MemberRow>), Failed> {
    let mut silent: Vec<&MemberRow> =
        rows.iter().filter(|row| row.state == State::Live && !row.leaving).collect();
    let mut last = rows.to_vec();
    let until = Instant::now() + Duration::from_millis(u64::try_from(fleet.lease_ms).unwrap_or(0));
    while !silent.is_empty() && Instant::now() < until {
        client.pause(LOOK);
        (last, _) = read_members(doctor, client, fleet)?;
        // The next run reports a member that has left or died meanwhile, by its new state.
        silent.retain(|seen| {
            last.iter().any(|row| {
                row.incarnation == seen.incarnation
                    && (row.state, row.beat) == (State::Live, seen.beat)
            })
        });
    }
    Ok((silent.into_iter().map(|row| row.address.clone()).collect(), last))
}

/// Checks that the tables that clients see exist and are empty.
fn lock_tables(client: &mut Client, report: &mut Report) -> Result<(), Failed> {
    let (mut empty, all) = (0, LOCKS_TABLES.len());
    for statement in LOCKS_TABLES {
        let start = format!("CREATE TABLE IF NOT EXISTS {LOCKS_KEYSPACE}.");
        let name = statement
            .strip_prefix(start.as_str())
            .and_then(|rest| rest.split(' ').next())
            .unwrap_or_default();
        let table = format!("{LOCKS_KEYSPACE}.{name}");
        if let There::Anothers(why) = tool::look(client, statement)? {
            report.error(
                "lock_tables",
                &table,
                &why,
                "rename it, or drop it if it is not needed; then run `shunt fleet init` again",
            );
            continue;
        }
        match client.query(
            &format!("SELECT * FROM {table} LIMIT 1"),
            &[],
            Consistency::QUORUM,
            None,
        ) {
            Ok(found) if found.rows.is_empty() => empty += 1,
            Ok(_) => {
                let advice = format!(
                    "find out who writes to it past the proxies, take MODIFY from that role, and TRUNCATE {table} at a node"
                );
                report.error(
                    "lock_tables",
                    &table,
                    "it has a row, which looks like a lock but has no holder",
                    &advice,
                );
            }
            Err(failed) if failed.code.is_some() => {
                let is_missing = failed.code == Some(error_code::INVALID);
                let makes = "run `shunt fleet init` again to create what is missing";
                let advice = if is_missing {
                    makes
                } else {
                    "check which nodes are down, and whether the role may read shunt"
                };
                report.error("lock_tables", &table, &failed.message, advice);
            }
            Err(failed) => return Err(failed),
        }
    }
    if empty == all {
        report.ok("lock_tables", LOCKS_KEYSPACE, "its tables have no rows");
    }
    Ok(())
}

fn one(client: &mut Client, text: &str) -> Result<Table, Failed> {
    client.query(text, &[], Consistency::ONE, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(number: u8, address: &str, beat: i64) -> MemberRow {
        MemberRow {
            incarnation: Incarnation([number; 16]),
            address: address.to_owned(),
            state: State::Live,
            beat,
            ts_limit_us: 0,
            format: FORMAT,
            leaving: false,
        }
    }

    #[test]
    fn replicas_are_raised_by_one_at_a_time() {
        for count in 0..3 {
            let advice = replicas_advice(count);
            let (steps, repairs) =
                (advice.matches("repair").count(), advice.matches("replicas").count());
            assert!(advice.contains(&format!("to {} replicas", count.max(1) + 1)), "{advice}");
            assert_eq!((steps, repairs), if count < 2 { (1, 2) } else { (1, 1) });
        }
    }

    #[test]
    fn only_members_that_were_seen_to_renew_share_an_address() {
        let first = [member(1, "a:1", 5), member(2, "a:1", 9), member(3, "b:1", 1)];
        let last = |beats: [i64; 2]| {
            vec![member(1, "a:1", beats[0]), member(2, "a:1", beats[1]), member(3, "b:1", 2)]
        };
        assert_eq!(shared_addresses(&first, &last([6, 10])), ["a:1"]);
        assert_eq!(
            shared_addresses(&first, &last([5, 10])),
            [""; 0],
            "a former start, not declared dead yet"
        );
        let mut dead = last([6, 10]);
        dead[0].state = State::Dead;
        assert_eq!(shared_addresses(&first, &dead), [""; 0], "it was declared dead meanwhile");
        assert_eq!(
            shared_addresses(&first, &[member(3, "b:1", 2), member(4, "b:1", 1)]),
            [""; 0],
            "it is new"
        );
    }
}
