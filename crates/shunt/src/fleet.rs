//! `shunt fleet`: creates a fleet of proxies, shows it, and drains one of its proxies.

mod datacentre;
mod drain;
mod status;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use shunt_fleet::schema::{FORMAT, FORMAT_MIN, Replication};
use shunt_fleet::{FleetRow, Level, MemberRow, NewFleet, Outcome, Statement};
use shunt_proxy::config::{Credentials, Secret};
use shunt_proxy::control::Access as Reach;
use shunt_proxy::control::client::{Client, Failed};
use shunt_proxy::fleet::membership::tool::{self, Founded};
use shunt_tls::{Client as TlsClient, ClientOptions, OptionNames, TlsError, Verify};
use shunt_wire::cql::message::{Consistency, error_code};

use crate::exit::Exit;
use crate::print;
use crate::times::{millis, seconds};

/// Default of the longest TTL of a lock in memory.
const MAX_TTL_MS: i32 = 30_000;
/// Time limit for a connection and for a statement.
const LIMIT: Duration = Duration::from_secs(15);

/// `shunt fleet`.
#[derive(Args, Debug)]
pub(crate) struct Fleet {
    /// The task.
    #[command(subcommand)]
    pub(crate) command: FleetCommand,
}

/// The commands about fleets.
#[derive(Debug, Subcommand)]
pub(crate) enum FleetCommand {
    /// Create the tables and the row of a fleet, once, before its first proxy starts
    #[command(
        after_help = "Examples:\n  shunt fleet init --contact-points 10.0.0.1 --datacentre dc1\n  \
                            shunt fleet init --contact-points 10.0.0.1 --replicas 3 --name orders"
    )]
    Init(Init),
    /// Show the members and their shares of the locks
    #[command(after_help = "Examples:\n  shunt fleet status --contact-points 10.0.0.1\n  \
                            shunt fleet status --contact-points 10.0.0.1 --json\n\n\
                            States:\n  live\n  leaving  was told to leave\n  left     has handed over its shards\n  \
                            dead     was silent for its lease\n  sealed   dead, and others have its shards")]
    Status(Status),
    /// Have a proxy hand over its locks, leave the fleet and stop, as SIGTERM does
    #[command(
        after_help = "Example:\n  shunt fleet drain 10.0.0.5:9042 --contact-points 10.0.0.1\n\n\
                            Exit codes:\n  0    the member has left\n  1    it has not left in time, or died"
    )]
    Drain(Drain),
}

/// Contact points and login.
#[derive(Args, Debug)]
pub(crate) struct Access {
    /// Contact points, HOST or HOST:PORT; one reachable is enough. Nodes of the ring, or for `lock`
    /// and `locks` proxies of the fleet
    #[arg(long, value_name = "HOST", value_delimiter = ',', default_value = "127.0.0.1:9042")]
    contact_points: Vec<String>,
    /// Role to log in with
    #[arg(long, value_name = "ROLE", requires = "password_file")]
    username: Option<String>,
    /// File with the password of that role in its first line
    #[arg(long, value_name = "FILE", requires = "username")]
    password_file: Option<PathBuf>,
    #[command(flatten)]
    tls: TlsAccess,
}

/// TLS with the servers of a command.
#[derive(Args, Debug)]
pub(crate) struct TlsAccess {
    /// Connect with TLS; the other options of TLS imply it
    #[arg(long)]
    tls: bool,
    /// Certificates of the authorities that sign the servers' certificates (PEM) [default: those of
    /// the system]
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// Certificate for servers that require one (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_certificate: Option<PathBuf>,
    /// Private key of that certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,
    /// Proof that a server's certificate must give: full (of an authority, for the contact point),
    /// ca or none [default: full]
    #[arg(long, value_name = "HOW")]
    tls_verify: Option<Verify>,
    /// Name that every server's certificate has, in place of the contact point
    #[arg(long, value_name = "NAME")]
    tls_name: Option<String>,
}

impl TlsAccess {
    /// The options; `None` if there are none.
    fn options(&self) -> Option<ClientOptions> {
        let Self { tls, tls_ca, tls_certificate, tls_key, tls_verify, tls_name } = self;
        let options = ClientOptions {
            names: OptionNames::COMMAND,
            ca: tls_ca.clone(),
            certificate: tls_certificate.clone(),
            key: tls_key.clone(),
            verify: tls_verify.unwrap_or_default(),
            name: tls_name.clone(),
        };
        let none = ClientOptions { names: OptionNames::COMMAND, ..ClientOptions::default() };
        (*tls || tls_verify.is_some() || options != none).then_some(options)
    }

    /// True with any option of TLS.
    pub(crate) fn is_given(&self) -> bool {
        self.options().is_some()
    }

    /// Reads the files; `None`: clear text.
    pub(crate) fn client(&self) -> Result<Option<Arc<TlsClient>>, TlsError> {
        let client = self.options().map(TlsClient::open).transpose();
        client.map(|client| client.map(Arc::new))
    }

    fn open(&self) -> Result<Option<Arc<TlsClient>>, Failed> {
        self.client()
            .map_err(|error| Failed { code: Some(error_code::INVALID), message: error.to_string() })
    }
}

/// `shunt fleet init`.
#[derive(Args, Debug)]
pub(crate) struct Init {
    #[command(flatten)]
    access: Access,
    /// Name of the fleet
    #[arg(long, value_name = "NAME", default_value = "main")]
    name: String,
    /// Replicas of the tables; the ring, or the datacentre, must have as many nodes
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    replicas: u32,
    /// Datacentre in which the proxies agree [default: all datacentres together]
    #[arg(long, value_name = "NAME")]
    datacentre: Option<String>,
    /// Time a silent proxy keeps its shards: milliseconds, or with a unit
    #[arg(long, value_name = "MS", default_value_t = shunt_fleet::LEASE_MS_DEFAULT, value_parser = |text: &str| millis(text, shunt_fleet::LEASE_MS))]
    lease_ms: i32,
    /// Longest TTL of locks in memory, which is also how long grants pause after a proxy dies:
    /// milliseconds, or with a unit
    #[arg(long, value_name = "MS", default_value_t = MAX_TTL_MS, value_parser = |text: &str| millis(text, 1_000..=600_000))]
    max_ttl_ms: i32,
    /// Create it although the ring has another fleet. Both would share the rows of durable locks,
    /// so never run both
    #[arg(long)]
    beside_others: bool,
}

/// `shunt fleet status`.
#[derive(Args, Debug)]
pub(crate) struct Status {
    #[command(flatten)]
    access: Access,
    /// Name of the fleet
    #[arg(long, value_name = "NAME", default_value = "main")]
    name: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// `shunt fleet drain`.
#[derive(Args, Debug)]
pub(crate) struct Drain {
    #[command(flatten)]
    access: Access,
    /// Name of the fleet
    #[arg(long, value_name = "NAME", default_value = "main")]
    name: String,
    /// Longest wait until the member has left: seconds, or with a unit, as in 2m
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = |text: &str| seconds(text, 1..=3_600))]
    wait: u32,
    /// Address of the proxy as `shunt fleet status` shows it, or its incarnation
    #[arg(value_name = "MEMBER")]
    member: String,
}

impl Access {
    /// Connects.
    ///
    /// # Errors
    /// No contact point answers, or the password file cannot be read.
    pub(crate) fn connect(&self) -> Result<Client, Failed> {
        self.connect_within(LIMIT)
    }

    /// The same, with `limit` for each step and for each later statement.
    ///
    /// # Errors
    /// See [`Access::connect`].
    pub(crate) fn connect_within(&self, limit: Duration) -> Result<Client, Failed> {
        self.connect_to(&self.contact_points, limit)
    }

    /// The same, to `hosts` instead of the contact points.
    ///
    /// # Errors
    /// See [`Access::connect`].
    pub(crate) fn connect_to(&self, hosts: &[String], limit: Duration) -> Result<Client, Failed> {
        let (credentials, tls) = (self.credentials()?, self.tls.open()?);
        let reach = Reach { credentials, by_password: false, tls, counts: None, name: None, limit };
        Client::connect(hosts, &reach)
    }

    /// The same, to a proxy of the fleet. On a node, statements on locks would only read and write
    /// rows: no locks to read, and a written row keeps no client from a lock.
    ///
    /// # Errors
    /// See [`Access::connect`]; or the server that answers keeps no locks.
    pub(crate) fn connect_to_locks(&self, limit: Duration) -> Result<Client, Failed> {
        let client = self.connect_within(limit)?;
        if client.keeps_locks() {
            return Ok(client);
        }
        let what = if client.is_proxy() { "a proxy without --fleet" } else { "a node" };
        let message = format!(
            "{} is {what}, which has no locks: --contact-points has to name proxies of the fleet",
            client.address()
        );
        Err(Failed { code: Some(error_code::INVALID), message })
    }

    /// The same, to a node. A proxy shows itself in place of the nodes, and a proxy of a fleet
    /// refuses changes of the fleet's tables.
    ///
    /// # Errors
    /// See [`Access::connect`]; or the server that answers is a proxy.
    pub(crate) fn connect_to_nodes(&self, which: &str) -> Result<Client, Failed> {
        let client = self.connect()?;
        if !client.is_proxy() {
            return Ok(client);
        }
        let message =
            format!("{} is a proxy: --contact-points has to name nodes, {which}", client.address());
        Err(Failed { code: Some(error_code::INVALID), message })
    }

    fn credentials(&self) -> Result<Option<Credentials>, Failed> {
        let Some((username, path)) = self.username.clone().zip(self.password_file.as_ref()) else {
            return Ok(None);
        };
        // A fault on this host is no silence of a node: the exit code is that of a wrong command
        // line.
        let failed = |error| Failed {
            code: Some(error_code::INVALID),
            message: format!("--password-file: {} cannot be read: {error}", path.display()),
        };
        let text = std::fs::read_to_string(path).map_err(failed)?;
        let password = Secret::new(text.lines().next().unwrap_or_default());
        Ok(Some(Credentials { username, password }))
    }
}

/// Runs the command.
pub(crate) fn run(fleet: &Fleet) -> Exit {
    let done = match &fleet.command {
        FleetCommand::Init(init) => self::init(init),
        FleetCommand::Status(status) => status::run(status),
        FleetCommand::Drain(drain) => match drain::run(drain) {
            Ok(exit) => return exit,
            Err(failed) => Err(failed),
        },
    };
    match done {
        Ok(text) => {
            print(&text);
            Exit::Done
        }
        Err(failed) => {
            let hint = if failed.code.is_none() {
                ". --contact-points names the servers to ask"
            } else {
                ""
            };
            eprintln!("error: {}{hint}", failed.message);
            if failed.code.is_none() { Exit::NoRing } else { Exit::Configuration }
        }
    }
}

fn init(init: &Init) -> Result<String, Failed> {
    let mut client =
        init.access.connect_to_nodes("which have the fleet's tables and know the datacentres")?;
    let (level, replication) = match &init.datacentre {
        Some(name) => {
            (Level::LocalSerial, Replication::Datacentres(vec![(name.clone(), init.replicas)]))
        }
        None => (Level::Serial, Replication::Simple(init.replicas)),
    };
    let row = NewFleet {
        format: FORMAT,
        level,
        datacentre: init.datacentre.clone().unwrap_or_default(),
        max_ttl_ms: init.max_ttl_ms,
        lease_ms: init.lease_ms,
    };
    let name = &init.name;
    let known = fleets(&mut client)?;
    if !known.contains(name) {
        if let Some(other) = known.first().filter(|_| !init.beside_others) {
            let message = format!(
                "the ring has the fleet {other}: a second fleet would grant durable locks that \
                clients of the first hold, because both keep them in the same rows. Start the \
                proxies with --fleet {other}; or, if {other} no longer runs, create {name} with \
                --beside-others"
            );
            return Err(Failed { code: Some(error_code::INVALID), message });
        }
        datacentre::check(&mut client, init)?;
    }
    let replication = tool::replication(&mut client, &replication, known.contains(name))?;
    let founded = tool::found(&mut client, name, row.clone(), &replication)?;
    let tables = tables(&founded);
    if founded.is_new {
        return Ok(format!(
            "fleet {name} was created; start its proxies with --fleet {name}\n{tables}"
        ));
    }
    let (there, _) = read(&mut client, name)?;
    Ok(format!(
        "fleet {name} exists already and was not changed{}\n{tables}",
        differences(&there, &row)
    ))
}

/// Describes the tables that were created. If a table was dropped while the fleet existed, all of
/// its rows are lost.
fn tables(founded: &Founded) -> String {
    let lines = [("tables made: ", &founded.made), ("tables found: ", &founded.were_there)];
    let lines = lines.into_iter().filter(|(_, tables)| !tables.is_empty());
    lines.map(|(what, tables)| format!("{what}{}\n", tables.join(", "))).collect()
}

/// Describes how an existing fleet differs from the requested one.
fn differences(there: &FleetRow, wanted: &NewFleet) -> String {
    let pairs = [
        ("lease in ms", there.lease_ms.to_string(), wanted.lease_ms.to_string()),
        (
            "longest TTL in memory in ms",
            there.max_ttl_ms.to_string(),
            wanted.max_ttl_ms.to_string(),
        ),
        ("level", there.level.name().to_owned(), wanted.level.name().to_owned()),
        ("datacentre", format!("{:?}", there.datacentre), format!("{:?}", wanted.datacentre)),
    ];
    let differ = pairs.into_iter().filter(|(_, there, wanted)| there != wanted);
    differ.map(|(what, there, wanted)| format!("; its {what} is {there}, not {wanted}")).collect()
}

/// Reads the names of the ring's fleets.
fn fleets(client: &mut Client) -> Result<Vec<String>, Failed> {
    let fleets = match client.query(
        "SELECT cluster FROM shunt_meta.fleet",
        &[],
        Consistency::QUORUM,
        None,
    ) {
        Ok(fleets) => fleets,
        // The keyspace or table does not exist yet.
        Err(failed) if failed.code == Some(error_code::INVALID) => return Ok(Vec::new()),
        Err(failed) => return Err(failed),
    };
    let names = (0..fleets.rows.len()).filter_map(|row| fleets.get(row, "cluster"));
    Ok(names.map(|name| String::from_utf8_lossy(name).into_owned()).collect())
}

/// Builds the message for a fleet that does not exist. A second fleet is refused beside the first.
pub(crate) fn no_fleet(client: &mut Client, name: &str) -> String {
    match fleets(client) {
        Ok(known) if !known.is_empty() => {
            format!("there is no fleet {name}; the ring has {}", known.join(", "))
        }
        _ => format!("there is no fleet {name}: `shunt fleet init` creates it"),
    }
}

/// Creates a fleet with the defaults and `replicas` replicas, unless one exists.
///
/// # Errors
/// The nodes cannot be reached, or refuse a statement.
#[cfg(feature = "node")]
pub(crate) fn make(contact_points: &[String], name: &str, replicas: u32) -> Result<(), Failed> {
    let mut client = Client::connect(contact_points, &Reach::plain(None, LIMIT))?;
    let row = NewFleet {
        format: FORMAT,
        level: Level::Serial,
        datacentre: String::new(),
        max_ttl_ms: MAX_TTL_MS,
        lease_ms: shunt_fleet::LEASE_MS_DEFAULT,
    };
    tool::found(&mut client, name, row, &Replication::Simple(replicas)).map(|_| ())
}

/// Reads the fleet's row and the rows of its members.
fn read(client: &mut Client, name: &str) -> Result<(FleetRow, Vec<MemberRow>), Failed> {
    let read = Statement::ReadFleet { serial: false };
    // Read at a quorum of all datacentres: the row itself says on which level the fleet agrees.
    let fleet = match tool::ask(client, name, &read, &read.consistencies(Level::Serial))? {
        Outcome::Fleet(Some(fleet)) => fleet,
        other => {
            let message = match other {
                Outcome::UnknownFormat(format) => format!(
                    "the rows of fleet {name} have format {format}, and this version knows {FORMAT_MIN} to {FORMAT}: use the version \
                     of Shunt that the proxies have"
                ),
                Outcome::Unreadable(bad) => {
                    format!("{bad}: find out which client wrote to shunt_meta")
                }
                _ => no_fleet(client, name),
            };
            return Err(Failed { code: Some(0), message });
        }
    };
    let read = Statement::ReadMembers { serial: false };
    match tool::ask(client, name, &read, &read.consistencies(fleet.level))? {
        Outcome::Members { rows, .. } => Ok((*fleet, rows)),
        other => {
            Err(Failed { code: Some(0), message: format!("the members cannot be read: {other:?}") })
        }
    }
}

#[cfg(test)]
mod tests {
    use shunt_fleet::{Shards, View};

    use super::*;

    /// A fleet's row with three epochs.
    pub(super) fn row() -> FleetRow {
        FleetRow {
            format: FORMAT,
            level: Level::Serial,
            datacentre: String::new(),
            max_ttl_ms: 30_000,
            lease_ms: 6_000,
            epoch: 3,
            view: View::default(),
            ts_floor_us: 0,
            handed_over: Shards::ALL,
        }
    }

    #[test]
    fn new_and_existing_tables_are_told_apart() {
        let named = |tables: &[&str]| tables.iter().map(|table| (*table).to_owned()).collect();
        let mut founded =
            Founded { is_new: true, made: named(&["a.b", "a.c"]), were_there: Vec::new() };
        assert_eq!(tables(&founded), "tables made: a.b, a.c\n");
        founded.were_there = named(&["a.d"]);
        assert_eq!(tables(&founded), "tables made: a.b, a.c\ntables found: a.d\n");
        founded.made.clear();
        assert_eq!(tables(&founded), "tables found: a.d\n");
    }

    #[test]
    fn differing_settings_of_a_fleet_are_named() {
        let wanted = NewFleet {
            format: FORMAT,
            level: Level::Serial,
            datacentre: String::new(),
            max_ttl_ms: 30_000,
            lease_ms: 6_000,
        };
        let mut there = row();
        assert_eq!(differences(&there, &wanted), "");
        (there.lease_ms, there.level, there.datacentre) =
            (9_000, Level::LocalSerial, "dc1".to_owned());
        let said = differences(&there, &wanted);
        assert_eq!(
            said,
            "; its lease in ms is 9000, not 6000; its level is LOCAL_SERIAL, not SERIAL; its datacentre is \"dc1\", not \"\""
        );
    }
}
