//! Point reads on one event loop: reads per second, and the effect of a `count(*)` of the same
//! table on their duration.
//!
//! `cargo run --release -p shunt-node --example latency [ROWS] [DIRECTORY] [cache]`

use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use shunt_node::run::{Nodes, NodesOptions};
use shunt_storage::StoreOptions;
use shunt_storage::row_cache::RowCacheOptions;
use shunt_wire::cql::envelope::{HEADER_BYTES, Header, opcode};
use shunt_wire::cql::message::{
    Consistency, QueryParams, ResultMessage, Value, ValueList, encode, query_flag,
};

type Failure = Box<dyn Error + Send + Sync>;

const VERSION: u8 = 4;
/// Rows that are read repeatedly.
const HOT_ROWS: i32 = 10_000;
const IN_FLIGHT: usize = 64;
const PHASE: Duration = Duration::from_secs(5);

struct Client {
    stream: TcpStream,
    body: Vec<u8>,
}

impl Client {
    fn connect(address: SocketAddr) -> Result<Client, Failure> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let mut client = Client { stream, body: Vec::new() };
        client.send(opcode::STARTUP, |body| encode::startup(body, [("CQL_VERSION", "3.0.0")]))?;
        client.receive()?;
        Ok(client)
    }

    fn send(&mut self, opcode: u8, write: impl FnOnce(&mut Vec<u8>)) -> Result<(), Failure> {
        let mut body = Vec::new();
        write(&mut body);
        let mut header = Header::request(VERSION, 0, opcode);
        header.length = body.len() as u32;
        self.stream.write_all(&[&header.to_bytes()[..], &body].concat())?;
        Ok(())
    }

    /// Waits for an answer, which must not be an error.
    fn receive(&mut self) -> Result<(), Failure> {
        let mut head = [0; HEADER_BYTES];
        self.stream.read_exact(&mut head)?;
        let header = Header::decode(&head).ok_or("no header of an envelope")?;
        self.body.resize(header.length as usize, 0);
        self.stream.read_exact(&mut self.body)?;
        match header.opcode {
            opcode::ERROR => Err(String::from_utf8_lossy(&self.body).into_owned().into()),
            _ => Ok(()),
        }
    }

    fn run(&mut self, text: &str) -> Result<(), Failure> {
        self.send(opcode::QUERY, |body| {
            encode::query_simple(body, VERSION, text, Consistency::ONE)
        })?;
        self.receive()
    }

    fn prepare(&mut self, text: &str) -> Result<Vec<u8>, Failure> {
        self.send(opcode::PREPARE, |body| encode::prepare(body, VERSION, text, None))?;
        self.receive()?;
        match ResultMessage::decode(VERSION, &self.body)? {
            ResultMessage::Prepared(prepared) => Ok(prepared.id.to_vec()),
            _ => Err("PREPARE was answered with something else".into()),
        }
    }

    fn send_read(&mut self, id: &[u8], row: i32) -> Result<(), Failure> {
        let mut values = ValueList::positional(VERSION);
        values.push(Value::Bytes(&row.to_be_bytes()));
        let mut params = QueryParams::simple(Consistency::ONE);
        params.flags |= query_flag::VALUES;
        params.values = values.values();
        self.send(opcode::EXECUTE, |body| encode::execute(body, VERSION, id, None, &params))
    }
}

fn fill(client: &mut Client, rows: i32) -> Result<(), Failure> {
    client.run(
        "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1} \
                AND durability = 'periodic'",
    )?;
    client.run("CREATE TABLE k.t (a int PRIMARY KEY, b text, c text, d int)")?;
    for first in (0..rows).step_by(100) {
        let insert = |row| {
            format!(
                "INSERT INTO k.t (a, b, c, d) VALUES ({row}, 'some text', 'more of it', {row});"
            )
        };
        let inserts: String = (first..rows.min(first + 100)).map(insert).collect();
        client.run(&format!("BEGIN UNLOGGED BATCH {inserts} APPLY BATCH"))?;
    }
    Ok(())
}

/// A row from the hot set, another one for each read.
fn hot(read: usize) -> i32 {
    (read * 7919 % HOT_ROWS as usize) as i32
}

/// Reads one after another until told to stop; returns the duration of each in microseconds,
/// sorted.
fn one_by_one(
    client: &mut Client,
    id: &[u8],
    mut stop: impl FnMut() -> bool,
) -> Result<Vec<u64>, Failure> {
    let mut times = Vec::new();
    while !stop() {
        let begun = Instant::now();
        client.send_read(id, hot(times.len()))?;
        client.receive()?;
        times.push(begun.elapsed().as_micros() as u64);
    }
    times.sort_unstable();
    Ok(times)
}

fn show(name: &str, times: &[u64]) {
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    let (median, most) = (at(0.5), times[times.len() - 1]);
    let count = times.len();
    println!(
        "{name:32} {count:7} reads, p50 {median} us, p99 {} us, p99.9 {} us, max {most} us",
        at(0.99),
        at(0.999)
    );
}

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let rows = arguments.next().map_or(Ok(1_000_000), |rows| rows.parse::<i32>())?;
    let parent: PathBuf = arguments.next().map_or_else(std::env::temp_dir, Into::into);
    let row_cache = arguments.next().map(|_| RowCacheOptions::default());
    let directory = tempfile::tempdir_in(parent)?;
    println!(
        "{rows} rows, {}",
        if row_cache.is_some() { "with a row cache" } else { "without a row cache" }
    );
    let store = StoreOptions { row_cache, ..StoreOptions::default() };
    let listen = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
    let nodes = Nodes::start(NodesOptions {
        store,
        ..NodesOptions::new(directory.path().to_owned(), listen)
    })?;
    let mut client = Client::connect(nodes.addresses()[0])?;
    fill(&mut client, rows)?;
    let id = client.prepare("SELECT b, c, d FROM k.t WHERE a = ?")?;
    for read in 0..HOT_ROWS as usize {
        client.send_read(&id, hot(read))?;
        client.receive()?;
    }
    let until = Instant::now() + PHASE;
    show("alone", &one_by_one(&mut client, &id, || Instant::now() > until)?);
    let counted = AtomicBool::new(false);
    let mut other = Client::connect(nodes.addresses()[0])?;
    let (took, times) = std::thread::scope(|scope| {
        let count = scope.spawn(|| {
            let begun = Instant::now();
            let outcome = other.run("SELECT count(*) FROM k.t");
            counted.store(true, Ordering::SeqCst);
            outcome.map(|()| begun.elapsed())
        });
        let times = one_by_one(&mut client, &id, || counted.load(Ordering::SeqCst));
        let took = count.join().map_err(|_| Failure::from("the client that counts panicked"))?;
        Ok::<_, Failure>((took?, times?))
    })?;
    show("while count(*) goes on", &times);
    println!("count(*) took {:.2} s", took.as_secs_f64());
    let (begun, mut reads) = (Instant::now(), 0);
    (0..IN_FLIGHT).try_for_each(|read| client.send_read(&id, hot(read)))?;
    while begun.elapsed() < PHASE {
        client.receive()?;
        reads += 1;
        client.send_read(&id, hot(reads))?;
    }
    println!("{:.0} reads/s, {IN_FLIGHT} in flight", reads as f64 / begun.elapsed().as_secs_f64());
    drop(client);
    drop(other);
    nodes.stop(PHASE);
    Ok(())
}
