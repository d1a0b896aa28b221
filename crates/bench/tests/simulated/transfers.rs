//! Transfers on a simulated node that keeps accounts and executes transactions on them.

use std::collections::{BTreeMap, HashMap};

use crate::talk::{addresses, take_requests};
use shunt_bench::load::{Load, LoadOptions, Phase, TransferKind, template::Layout};
use shunt_reactor::sim::{HostId, MILLISECOND, Options, SECOND, World, for_seeds};
use shunt_reactor::{Accepted, CloseReason, ConnId, Io, Service};
use shunt_wire::cql::envelope::{Header, flag, opcode};
use shunt_wire::cql::message::encode_result::{PreparedSpec, RowsWriter, native, prepared};
use shunt_wire::cql::message::{Execute, Prepare, Value, encode, put};
use shunt_wire::cql::{reader::EnvelopeReader, writer::EnvelopeWriter};

const ACCOUNTS: i32 = 40;
const OPENING: i32 = 1000;

/// A server of accounts, over CQL v4.
struct Bank {
    kind: TransferKind,
    balances: BTreeMap<i32, i32>,
    text: String,
    applied: u64,
    refused: u64,
    payers: HashMap<i32, u64>,
    /// Answers every n-th statement with an error, but executes every other one of these.
    fails: Option<u64>,
    /// Grants a lock to each client that asks, even if another holds it.
    gives_twice: bool,
    readers: HashMap<ConnId, EnvelopeReader>,
}

impl Bank {
    fn new(kind: TransferKind) -> Self {
        Self {
            kind,
            balances: (0..ACCOUNTS).map(|id| (id, OPENING)).collect(),
            text: String::new(),
            applied: 0,
            refused: 0,
            payers: HashMap::new(),
            fails: None,
            gives_twice: false,
            readers: HashMap::new(),
        }
    }

    fn total(&self) -> i64 {
        self.balances.values().map(|&balance| i64::from(balance)).sum()
    }

    fn answer(&mut self, io: &mut Io, conn: ConnId, header: Header, body: &[u8]) {
        let mut out = Vec::new();
        let kind = match header.opcode {
            opcode::STARTUP => opcode::READY,
            opcode::PREPARE => {
                Prepare::decode(4, body).expect("valid").text.clone_into(&mut self.text);
                let (id, bind) = (&[1; 16], [("v", native::INT); 7]);
                let bind = &bind[..self.text.matches('?').count()];
                let (keyspace, table, partition_key, result) = ("k", "t", &[][..], &[][..]);
                let spec = PreparedSpec {
                    id,
                    result_metadata_id: id,
                    keyspace,
                    table,
                    bind,
                    partition_key,
                    result,
                };
                prepared(&mut out, 4, &spec);
                opcode::RESULT
            }
            _ => return self.execute(io, conn, header, body),
        };
        send(io, conn, Header::response(4, header.stream, kind), &out);
    }

    fn execute(&mut self, io: &mut Io, conn: ConnId, header: Header, body: &[u8]) {
        let request = Execute::decode(4, body).expect("valid");
        let bytes = (0..request.params.values.len())
            .map(|index| request.params.values.get(index).and_then(Value::bytes));
        let values: Vec<i32> = bytes
            .map(|value| i32::from_be_bytes(value.expect("a value").try_into().expect("an int")))
            .collect();
        let asked = self.applied + self.refused;
        let fails = self.fails.is_some_and(|each| asked % each == each - 1);
        let applied =
            if fails && asked.is_multiple_of(2) { false } else { self.carry_out(&values) };
        self.applied += u64::from(applied);
        self.refused += u64::from(!applied);
        let mut out = Vec::new();
        let mut answer = Header::response(4, header.stream, opcode::RESULT);
        if fails {
            answer.opcode = opcode::ERROR;
            encode::error(&mut out, 0x1001, "no");
        } else if matches!(self.kind, TransferKind::Lwt | TransferKind::Lock) {
            let balance = self.balances[&values[1]].to_be_bytes();
            let columns = [("[applied]", native::BOOLEAN), ("balance", native::INT)];
            let mut rows =
                RowsWriter::new(&mut out, "k", "t", &columns[..if applied { 1 } else { 2 }]);
            rows.value(Some(&[u8::from(applied)]));
            if !applied {
                rows.value(Some(&balance));
            }
            rows.finish();
        } else {
            answer.flags |= flag::CUSTOM_PAYLOAD;
            put::bytes_map(&mut out, [("shunt-applied", Some(&[u8::from(applied)][..]))]);
            encode::void(&mut out);
        }
        send(io, conn, answer, &out);
    }

    fn carry_out(&mut self, values: &[i32]) -> bool {
        match (self.kind, values) {
            (TransferKind::TwoRows, &[from, to, least, less, payer, more, payee]) => {
                assert!(from == payer && to == payee && from != to && less == more, "{values:?}");
                if self.balances[&from] < least {
                    return false;
                }
                *self.payers.entry(from).or_default() += 1;
                *self.balances.get_mut(&from).expect("an account") -= less;
                *self.balances.get_mut(&to).expect("an account") += more;
            }
            (TransferKind::OneRow, &[id, least, less, payer]) => {
                assert!(id == payer && self.balances[&id] >= least, "{values:?}");
                *self.payers.entry(id).or_default() += 1;
                *self.balances.get_mut(&id).expect("an account") -= less;
            }
            (TransferKind::Lwt | TransferKind::Lock, &[balance, id, before]) => {
                if self.balances[&id] != before && !(self.gives_twice && before == 0) {
                    return false;
                }
                *self.payers.entry(id).or_default() += 1;
                self.balances.insert(id, balance);
            }
            _ => panic!("{values:?} are not the values of {}", self.text),
        }
        true
    }
}

fn send(io: &mut Io, conn: ConnId, header: Header, body: &[u8]) {
    EnvelopeWriter::default().push(io.output(conn), header, body);
}

impl Service for Bank {
    type Mail = ();

    fn started(&mut self, _io: &mut Io) {}
    fn accepted(&mut self, _io: &mut Io, _conn: ConnId, _origin: &Accepted) {}
    fn connected(&mut self, _io: &mut Io, _conn: ConnId) {}

    fn received(&mut self, io: &mut Io, conn: ConnId, data: &[u8]) -> usize {
        let mut reader = self.readers.remove(&conn).unwrap_or_default();
        let used =
            take_requests(&mut reader, data, |header, body| self.answer(io, conn, header, body));
        self.readers.insert(conn, reader);
        used
    }

    fn closed(&mut self, _io: &mut Io, _conn: ConnId, _reason: CloseReason) {}
    fn drained(&mut self, _io: &mut Io, _conn: ConnId) {}
    fn timer(&mut self, _io: &mut Io, _key: u64) {}
    fn mail(&mut self, _io: &mut Io, (): ()) {}
    fn turn_ended(&mut self, _io: &mut Io) {}
}

/// Runs a load of 15 stream ids over these accounts.
fn run(seed: u64, bank: Bank, accounts: u64) -> (World, HostId<Load>, HostId<Bank>) {
    let mut world = World::new(seed, Options::crumbs());
    let targets = addresses(1);
    let load = LoadOptions {
        targets: targets.clone(),
        stops_loop: false,
        connections: 5,
        outstanding: 3,
        keys: accounts,
        transfers: Some(bank.kind),
        layout: Layout { version: 4, consistency: 4, key_bytes: 16, value_bytes: 40 },
        warm_up_ns: 100 * MILLISECOND,
        duration_ns: 400 * MILLISECOND,
        ..LoadOptions::default()
    };
    let bank = world.add("bank", bank);
    world.listen(bank, targets[0]);
    let load = world.add("load", Load::new(load, Box::new(|_| {})));
    assert!(world.run_until(200 * SECOND, |world| world.host(load).phase() == Phase::Done));
    assert_eq!(world.host(load).failure(), None);
    (world, load, bank)
}

#[test]
fn transfers_keep_the_sum_of_all_accounts() {
    for_seeds(8, |seed| {
        let (world, load, bank) = run(seed, Bank::new(TransferKind::TwoRows), ACCOUNTS as u64);
        let (counts, bank) = (world.host(load).counts(), world.host(bank));
        assert_eq!(bank.total(), i64::from(ACCOUNTS * OPENING));
        assert!(
            bank.applied > 200 && bank.payers.len() == ACCOUNTS as usize,
            "{} of {:?}",
            bank.applied,
            bank.payers
        );
        assert_eq!(
            (counts.applied, counts.not_applied, counts.wrong_answers),
            (bank.applied, 0, 0)
        );
        let round = &world.host(load).rounds()[0];
        assert_eq!((round.applied_so_far, round.in_doubt_so_far), (bank.applied, 0));
        assert!(
            round.counts.applied < bank.applied && round.latency.len() > 50,
            "the warm-up counts in no round"
        );
    });
}

#[test]
fn transfers_that_are_not_applied_are_counted() {
    let mut bank = Bank::new(TransferKind::TwoRows);
    bank.balances = (0..ACCOUNTS).map(|id| (id, 2)).collect();
    let (world, load, bank) = run(1, bank, ACCOUNTS as u64);
    let (counts, bank) = (world.host(load).counts(), world.host(bank));
    assert!(
        bank.refused > 10 && bank.total() == i64::from(2 * ACCOUNTS),
        "{} refused",
        bank.refused
    );
    assert_eq!((counts.applied, counts.not_applied), (bank.applied, bank.refused));
}

#[test]
fn stream_ids_have_accounts_of_their_own_or_share_them() {
    for kind in [TransferKind::OneRow, TransferKind::Lwt] {
        for (accounts, of_payers) in [(ACCOUNTS as u64, 15), (1, 1)] {
            let (world, load, bank) = run(2, Bank::new(kind), accounts);
            let (counts, bank) = (world.host(load).counts(), world.host(bank));
            assert!(
                bank.applied > 50 && bank.payers.len() == of_payers,
                "{} of {:?}",
                bank.applied,
                bank.payers
            );
            let taken = i64::from(ACCOUNTS * OPENING) - bank.total();
            assert_eq!((counts.applied as i64, counts.wrong_answers), (taken, 0));
            let contended = kind == TransferKind::Lwt && accounts == 1;
            assert_eq!(counts.not_applied, bank.refused);
            assert_eq!(
                contended,
                counts.not_applied > 15,
                "each learns its balance once: {}",
                counts.not_applied
            );
        }
    }
}

#[test]
fn a_lightweight_transaction_is_over_when_it_is_applied() {
    let (world, load, bank) = run(3, Bank::new(TransferKind::Lwt), 1);
    let (counts, bank) = (world.host(load).counts(), world.host(bank));
    let latency = &world.host(load).rounds()[0].latency;
    assert!(
        latency.len() < world.host(load).rounds()[0].counts.answered / 2,
        "each answer counts as one"
    );
    assert!(
        counts.answered > 2 * bank.applied && latency.len() <= bank.applied,
        "{}",
        latency.len()
    );
}

fn locks() -> Bank {
    Bank { balances: (0..ACCOUNTS).map(|id| (id, 0)).collect(), ..Bank::new(TransferKind::Lock) }
}

#[test]
fn locks_are_taken_and_released_also_after_errors() {
    for fails in [None, Some(5)] {
        for (accounts, of_locks) in [(ACCOUNTS as u64, 15), (1, 1)] {
            let (world, load, bank) = run(5, Bank { fails, ..locks() }, accounts);
            let (counts, bank) = (world.host(load).counts(), world.host(bank));
            assert!(
                bank.applied > 50 && bank.payers.len() == of_locks,
                "{} of {:?}",
                bank.applied,
                bank.payers
            );
            assert_eq!(counts.wrong_answers, 0);
            assert_eq!(
                accounts == 1 || fails.is_some(),
                counts.not_applied > 0,
                "nobody else's lock is asked for"
            );
            let held = bank.balances.values().filter(|&&holder| holder != 0).count();
            assert!(held <= of_locks, "{held} are held by {of_locks}");
        }
    }
}

#[test]
fn a_lock_with_two_holders_is_a_wrong_answer() {
    let (world, load, _) = run(6, Bank { gives_twice: true, ..locks() }, 1);
    assert!(world.host(load).counts().wrong_answers > 10);
}

#[test]
fn an_error_leaves_a_transfer_in_doubt() {
    for kind in [TransferKind::TwoRows, TransferKind::OneRow, TransferKind::Lwt] {
        let bank = Bank { fails: Some(5), ..Bank::new(kind) };
        let (world, load, bank) = run(4, bank, ACCOUNTS as u64);
        let (round, bank) = (&world.host(load).rounds()[0], world.host(bank));
        assert!(
            round.in_doubt_so_far > 10 && round.counts.errors.contains_key(&0x1001),
            "{:?}",
            round.counts.errors
        );
        let told = round.applied_so_far..=round.applied_so_far + round.in_doubt_so_far;
        assert!(
            bank.applied > round.applied_so_far && told.contains(&bank.applied),
            "{} not in {told:?}",
            bank.applied
        );
    }
}
