//! The address that the scenarios connect to, the setups in which they do, and the keyspace they
//! work in.
//!
//! Environment: `SHUNT_CONTACT` (host:port), `SHUNT_RF` (replication factor), and
//! `SHUNT_EXPECT_SINGLE_HOST` (0 when pointed at a bare ring).

use std::env;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::LazyLock;
use std::time::Duration;

use scylla::client::Compression;
use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::deserialize::row::DeserializeRow;
use scylla::serialize::row::SerializeRow;
use scylla::statement::Consistency;
use tokio::runtime::Runtime;
use tokio::sync::OnceCell;

/// The keyspace of these scenarios; dropped and created when they start.
pub const KEYSPACE: &str = "driver_rust";

/// Another keyspace; it has a table items too.
pub const OTHER_KEYSPACE: &str = "driver_rust_other";
/// A keyspace of five replicas, which no ring under test has; it has a table items too.
pub const FIVE_REPLICAS: &str = "driver_rust_five";

/// The driver's patience with anything: the machines that run this are busy.
const PATIENCE: Duration = Duration::from_secs(180);

/// Creates the objects of one keyspace, in stages: nodes need a second to agree on each change,
/// however many they agree on at once.
const SCHEMA: &[&[&str]] = &[
    TABLES,
    &["CREATE TYPE person (name text, home frozen<address>, phones frozen<list<text>>)"],
    &["CREATE TABLE people (key text PRIMARY KEY, who person, known list<frozen<person>>, \
       homes map<text, frozen<address>>)"],
];

const TABLES: &[&str] = &[
    "CREATE TABLE items (key text PRIMARY KEY, number int, note text)",
    "CREATE TABLE lines (key text, line int, body text, PRIMARY KEY (key, line))",
    "CREATE TABLE scanned (key text PRIMARY KEY, number int)",
    "CREATE TABLE counts (key text PRIMARY KEY, hits counter)",
    "CREATE TABLE blobs (key text PRIMARY KEY, body blob)",
    "CREATE TABLE emptied (key text PRIMARY KEY)",
    "CREATE TABLE reborn (key text PRIMARY KEY, number int)",
    "CREATE TABLE driver_rust_other.items (key text PRIMARY KEY, number int)",
    "CREATE TABLE driver_rust_five.items (key text PRIMARY KEY)",
    "CREATE TYPE address (street text, number int, tags frozen<set<text>>)",
    "CREATE TABLE collected (key text PRIMARY KEY, l list<int>, s set<text>, m map<text, bigint>, \
     t tuple<int, text, boolean>, n map<int, frozen<list<frozen<set<int>>>>>, v vector<float, 3>)",
    "CREATE TABLE scalars (key text PRIMARY KEY, a ascii, bi bigint, bl blob, bo boolean, d date, \
     de decimal, dbl double, du duration, f float, ip inet, i int, si smallint, t time, \
     ts timestamp, tu timeuuid, ti tinyint, u uuid, vc varchar, vi varint)",
];

/// A way in which every scenario connects; all that is not named here but time-outs is the driver's
/// default. The driver speaks protocol v4 only.
pub struct Setup {
    /// Name of the scenario, also the suffix of schema objects that a scenario creates for itself.
    pub name: &'static str,
    compression: Option<Compression>,
    shared: OnceCell<Session>,
}

impl Setup {
    const fn new(name: &'static str, compression: Option<Compression>) -> Self {
        Self { name, compression, shared: OnceCell::const_new() }
    }

    /// The configuration of this setup, without a keyspace.
    pub fn builder(&self) -> SessionBuilder {
        // A busy node writes a trace some time after its answer; the driver's own patience is 15
        // ms.
        let attempts = NonZeroU32::new(3600).expect("not 0");
        let profile = ExecutionProfile::builder().request_timeout(Some(PATIENCE)).build();
        SessionBuilder::new()
            .known_node_addr(contact())
            .compression(self.compression)
            .connection_timeout(PATIENCE)
            .keepalive_timeout(PATIENCE)
            .schema_agreement_timeout(PATIENCE)
            .default_execution_profile_handle(profile.into_handle())
            .tracing_info_fetch_attempts(attempts)
            .tracing_info_fetch_interval(Duration::from_millis(50))
            // A replica that has the end of a trace may lack what came before.
            .tracing_info_fetch_consistency(Consistency::All)
    }

    /// A session of the scenario's own.
    pub async fn open(&self) -> Session {
        self.builder().build().await.expect("connect")
    }

    /// A session of the scenario's own with [`KEYSPACE`].
    pub async fn open_with_keyspace(&self) -> Session {
        self.builder().use_keyspace(KEYSPACE, false).build().await.expect("connect")
    }
}

static SETUPS: [Setup; 3] = [
    Setup::new("plain", None),
    Setup::new("lz4", Some(Compression::Lz4)),
    Setup::new("snappy", Some(Compression::Snappy)),
];

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("runtime"));

static SCHEMA_CREATED: OnceCell<()> = OnceCell::const_new();

/// The address under test.
pub fn contact() -> SocketAddr {
    let text = env::var("SHUNT_CONTACT").unwrap_or("127.0.0.1:9042".into());
    text.parse().unwrap_or_else(|error| panic!("SHUNT_CONTACT {text:?}: {error}"))
}

/// True if the server under test shows itself as the only host (a proxy does, a bare ring does
/// not).
pub fn single_host_expected() -> bool {
    env::var("SHUNT_EXPECT_SINGLE_HOST").map_or(true, |value| value != "0")
}

/// The replication factor of the keyspaces the scenarios create.
pub fn replication_factor() -> usize {
    env::var("SHUNT_RF").map_or(1, |value| value.parse().expect("SHUNT_RF"))
}

/// The same as a replication map in CQL.
pub fn replication() -> String {
    format!("{{'class': 'SimpleStrategy', 'replication_factor': {}}}", replication_factor())
}

/// The means of a scenario: the setup, its shared session, and a partition key nobody else uses.
pub struct Scenario {
    /// The setup of this run.
    pub setup: &'static Setup,
    /// Shared by all scenarios of the setup; its keyspace is [`KEYSPACE`].
    pub session: &'static Session,
    /// A key of this run's own.
    pub key: String,
}

/// Runs a scenario once per setup.
pub fn in_every_setup(run: impl AsyncFn(&Scenario)) {
    in_setups(&SETUPS, run);
}

/// Runs a scenario in the first setup alone: changes of the schema take nodes seconds, and
/// compression is around what is said of them. With `SHUNT_EVERY_SETUP=1` in all.
pub fn in_one_setup(run: impl AsyncFn(&Scenario)) {
    let every = env::var("SHUNT_EVERY_SETUP").is_ok_and(|value| value == "1");
    in_setups(if every { &SETUPS } else { &SETUPS[..1] }, run);
}

fn in_setups(setups: &'static [Setup], run: impl AsyncFn(&Scenario)) {
    RUNTIME.block_on(async {
        SCHEMA_CREATED.get_or_init(create_schema).await;
        for setup in setups {
            eprintln!("setup {}", setup.name);
            let session = setup.shared.get_or_init(|| setup.open_with_keyspace()).await;
            run(&Scenario { setup, session, key: uuid::Uuid::new_v4().to_string() }).await;
        }
    });
}

async fn create_schema() {
    let session = SETUPS[0].open().await;
    let five = "{'class': 'SimpleStrategy', 'replication_factor': 5}".to_owned();
    let keyspaces =
        [(KEYSPACE, replication()), (OTHER_KEYSPACE, replication()), (FIVE_REPLICAS, five)];
    change(&session, keyspaces.iter().map(|(name, _)| format!("DROP KEYSPACE IF EXISTS {name}")))
        .await;
    let create = |(name, replication): &(&str, String)| {
        format!("CREATE KEYSPACE {name} WITH replication = {replication}")
    };
    change(&session, keyspaces.iter().map(create)).await;
    session.use_keyspace(KEYSPACE, false).await.expect("USE");
    for stage in SCHEMA {
        change(&session, stage.iter().map(|statement| (*statement).to_owned())).await;
    }
}

/// Makes changes of the schema at once.
async fn change(session: &Session, statements: impl Iterator<Item = String>) {
    let made = statements.map(async |statement| {
        session
            .query_unpaged(&*statement, ())
            .await
            .unwrap_or_else(|error| panic!("{statement}: {error:?}"));
    });
    futures::future::join_all(made).await;
}

impl Scenario {
    /// Runs a statement that must succeed.
    pub async fn exec(&self, statement: &str, values: impl SerializeRow) {
        self.session
            .query_unpaged(statement, values)
            .await
            .unwrap_or_else(|error| panic!("{statement}: {error:?}"));
    }

    /// The rows of a query that must succeed.
    pub async fn rows<R>(&self, query: &str, values: impl SerializeRow) -> Vec<R>
    where
        R: for<'frame, 'metadata> DeserializeRow<'frame, 'metadata>,
    {
        let result = self.session.query_unpaged(query, values).await;
        let rows = result
            .unwrap_or_else(|error| panic!("{query}: {error:?}"))
            .into_rows_result()
            .expect("rows");
        rows.rows::<R>().expect("types").map(|row| row.expect("row")).collect()
    }

    /// The one row of a query that must succeed.
    pub async fn row<R>(&self, query: &str, values: impl SerializeRow) -> R
    where
        R: for<'frame, 'metadata> DeserializeRow<'frame, 'metadata>,
    {
        let mut rows = self.rows(query, values).await;
        assert_eq!(rows.len(), 1, "{query}");
        rows.remove(0)
    }

    /// Column `number` of a row of table items, which most scenarios use.
    pub async fn number(&self, key: &str) -> i32 {
        self.row::<(i32,)>("SELECT number FROM items WHERE key = ?", (key,)).await.0
    }
}
