//! Statements on the tables of transactions and of their log, as a node reads them.

use shunt_language::ast::{
    Assignment, CellMetadata, Comparison, Conditions, Insert, Mutation, Operation, Relation,
    Select, SelectClause, Selector, Statement, Term,
};
use shunt_wire::cql::message::encode_result::{Column, native};

use super::tables::{Row, RowKey, TABLES, Table};

/// A fleet's name and a shard.
pub type ShardKey = (Vec<u8>, Vec<u8>);

/// A statement with its values.
#[derive(Clone, Debug)]
pub enum Request {
    /// A read of a row, or, if the second of `clustering` is true, of rows from there on.
    Read {
        table: usize,
        partition: Vec<u8>,
        clustering: (Vec<u8>, bool),
        columns: Vec<Asked>,
        limit: usize,
    },
    /// Statements of a batch, which run together or not at all.
    Several(Vec<Request>),
    Write {
        key: RowKey,
        cells: Row,
    },
    Delete {
        table: usize,
        partition: Vec<u8>,
        at_us: i64,
    },
    ReadShard {
        of: ShardKey,
    },
    First {
        of: ShardKey,
        claim: Vec<u8>,
    },
    Claim {
        of: ShardKey,
        generation: i64,
        claim: Vec<u8>,
        from: i64,
        sealed: i64,
    },
    Seal {
        of: ShardKey,
        sealed: i64,
        generation: i64,
        claim: Vec<u8>,
    },
}

impl Request {
    pub fn is_read(&self) -> bool {
        matches!(self, Request::Read { .. } | Request::ReadShard { .. })
    }

    pub fn is_conditional(&self) -> bool {
        matches!(self, Request::First { .. } | Request::Claim { .. } | Request::Seal { .. })
    }
}

#[derive(Debug)]
enum What {
    Select { columns: Vec<Asked>, from: Option<Term>, limit: usize },
    Write { cells: Vec<(usize, Term)> },
    Delete,
    Batch(Vec<Parsed>),
    ReadShard,
    First,
    Claim,
    Seal,
}

/// A selected item.
#[derive(Clone, Copy, Debug)]
pub enum Asked {
    Value(usize),
    TimeToLive,
    WriteTime(usize),
}

impl Asked {
    /// The name and type of its column in an answer.
    pub fn column(self, table: &Table) -> Column<'static> {
        match self {
            Asked::Value(column) => table.columns[column],
            // The client uses only the positions of these.
            Asked::TimeToLive => ("ttl", native::INT),
            Asked::WriteTime(_) => ("writetime", native::BIGINT),
        }
    }
}

/// A statement without its values.
#[derive(Debug)]
pub struct Parsed {
    what: What,
    table: usize,
    /// Marker of its timestamp.
    timestamp: Option<u16>,
    /// Values of the key's columns.
    key: Vec<Term>,
    /// The column of each marker.
    pub markers: Vec<usize>,
}

impl Parsed {
    /// Reads a text; `None` if it is on none of these tables.
    pub fn read(text: &str) -> Option<Parsed> {
        if text.contains("shunt_meta.txn_shard") {
            let what = match () {
                () if text.starts_with("SELECT") => What::ReadShard,
                () if text.starts_with("INSERT") => What::First,
                () if text.contains("SET generation") => What::Claim,
                () => What::Seal,
            };
            return Some(Parsed {
                what,
                table: 0,
                timestamp: None,
                key: Vec::new(),
                markers: Vec::new(),
            });
        }
        let parsed = shunt_language::parse(text).ok()?;
        if let Statement::Batch(batch) = &parsed.statement {
            let count = parsed.markers.len();
            let one = |mutation: &Mutation| {
                Parsed::of(&Statement::Mutation(mutation.clone()), count, text)
            };
            let all: Vec<Parsed> = batch.mutations.iter().map(one).collect::<Option<_>>()?;
            let markers = (0..count)
                .map(|marker| all.iter().map(|one| one.markers[marker]).max().unwrap_or(0));
            let (table, markers) = (all.first()?.table, markers.collect());
            return Some(Parsed {
                what: What::Batch(all),
                table,
                timestamp: None,
                key: Vec::new(),
                markers,
            });
        }
        Parsed::of(&parsed.statement, parsed.markers.len(), text)
    }

    fn of(statement: &Statement, markers: usize, text: &str) -> Option<Parsed> {
        let name = match statement {
            Statement::Select(select) => &select.table,
            Statement::Mutation(mutation) => mutation.table(),
            _ => return None,
        };
        let is_it = |keyspace: &str, table: &str| {
            name.keyspace.as_deref() == Some(keyspace) && name.name == table
        };
        let table = TABLES.iter().position(|table| is_it(table.keyspace, table.name))?;
        let of = &TABLES[table];
        let mut terms: Vec<(usize, Term)> = Vec::new();
        let mut place = |column: &str, term: &Term| {
            terms.push((of.column(column), term.clone()));
            of.column(column)
        };
        let (mut from, mut key) = (None, vec![None; of.partition + of.clustering]);
        let mut relate = |relations: &[Relation], place: &mut dyn FnMut(&str, &Term) -> usize| {
            for relation in relations {
                let Relation::Column { column, comparison, value } = relation else {
                    panic!("{text}")
                };
                let at = place(column, value);
                match comparison {
                    Comparison::Equal => key[at] = Some(value.clone()),
                    Comparison::GreaterOrEqual => from = Some(value.clone()),
                    _ => panic!("{text}"),
                }
            }
        };
        let mut timestamp = None;
        if let Statement::Mutation(mutation) = statement
            && let Some(Term::Marker(marker)) = &mutation.attributes().timestamp
        {
            timestamp = Some(*marker);
        }
        let what = match statement {
            Statement::Select(Select {
                clause: SelectClause::Items(items),
                relations,
                limit,
                ..
            }) => {
                relate(relations, &mut place);
                let named = |selector: &Selector| match selector {
                    Selector::Column(name) => of.column(name),
                    other => panic!("{other:?} is selected: {text}"),
                };
                let column = |selector: &Selector| match selector {
                    Selector::Metadata(CellMetadata::TimeToLive, _) => Asked::TimeToLive,
                    Selector::Metadata(_, inner) => Asked::WriteTime(named(inner)),
                    other => Asked::Value(named(other)),
                };
                let columns = items.iter().map(|item| column(&item.selector)).collect();
                let limit = match limit {
                    Some(Term::Literal(limit)) => limit.text.parse().expect("a number"),
                    _ => usize::MAX,
                };
                What::Select { columns, from: None, limit }
            }
            Statement::Mutation(Mutation::Update(update)) => {
                let set = |Assignment { column, operation }: &Assignment| match operation {
                    Operation::Set(term) => (place(column, term), term.clone()),
                    other => panic!("{other:?} is not computed: {text}"),
                };
                let cells = update.assignments.iter().map(set).collect();
                relate(&update.relations, &mut place);
                if let Conditions::All(all) = &update.conditions {
                    all.iter()
                        .for_each(|condition| _ = place(&condition.column, &condition.values[0]));
                }
                What::Write { cells }
            }
            Statement::Mutation(Mutation::Insert(Insert { columns, values, .. })) => {
                let mut cells = Vec::new();
                for (column, term) in columns.iter().zip(values) {
                    match place(column, term) {
                        at if at < key.len() => key[at] = Some(term.clone()),
                        at => cells.push((at, term.clone())),
                    }
                }
                What::Write { cells }
            }
            Statement::Mutation(Mutation::Delete(delete)) => {
                relate(&delete.relations, &mut place);
                What::Delete
            }
            _ => panic!("a node is asked this: {text}"),
        };
        let mut markers = vec![0; markers];
        for (column, term) in &terms {
            if let Term::Marker(marker) = term {
                markers[usize::from(*marker)] = *column;
            }
        }
        let what = match what {
            What::Select { columns, limit, .. } => What::Select { columns, from, limit },
            what => what,
        };
        let key = key.into_iter().flatten().collect();
        Some(Parsed { what, table, timestamp, key, markers })
    }

    /// Bind markers and columns, and the markers of the partition key, as in the answer to PREPARE.
    pub fn shown(
        &self,
    ) -> (&'static str, &'static str, Vec<Column<'static>>, Vec<Column<'static>>, Vec<u16>) {
        let of = &TABLES[self.table];
        let columns = match &self.what {
            What::Select { columns, .. } => columns.iter().map(|asked| asked.column(of)).collect(),
            _ => Vec::new(),
        };
        let markers = self.markers.iter().map(|column| of.columns[*column]).collect();
        let marker_of = |column: usize| match self.key.get(column) {
            Some(Term::Marker(marker)) => Some(*marker),
            _ => None,
        };
        let partition: Option<Vec<u16>> = (0..of.partition).map(marker_of).collect();
        (of.keyspace, of.name, markers, columns, partition.unwrap_or_default())
    }

    /// The statement with these values. Without a timestamp of its client it has that of its node.
    pub fn request(&self, values: &[Vec<u8>], timestamp_us: i64) -> Request {
        let number = |place: usize| {
            i64::from_be_bytes(values[place].as_slice().try_into().expect("eight bytes"))
        };
        let timestamp_us =
            self.timestamp.map_or(timestamp_us, |marker| number(usize::from(marker)));
        let shard = |place: usize| (values[place].clone(), values[place + 1].clone());
        let of = &TABLES[self.table];
        let value = |term: &Term, column: usize| match term {
            Term::Marker(marker) => values[usize::from(*marker)].clone(),
            Term::Literal(literal) => {
                let number: i64 =
                    literal.text.parse().expect("numbers are all the literals that there are");
                if of.columns[column].1 == native::INT {
                    (number as i32).to_be_bytes().to_vec()
                } else {
                    number.to_be_bytes().to_vec()
                }
            }
            other => panic!("{other:?} is no value of the simulation"),
        };
        let key: Vec<Vec<u8>> =
            self.key.iter().enumerate().map(|(column, term)| value(term, column)).collect();
        let parts = key.iter().take(of.partition);
        let partition = parts
            .flat_map(|part| [&(part.len() as u16).to_be_bytes()[..], part].concat())
            .collect();
        let clustering = key.get(of.partition).cloned().unwrap_or_default();
        match &self.what {
            What::Select { columns, from, limit } => {
                let clustering = match from {
                    Some(from) => (value(from, of.partition), true),
                    None => (clustering, key.len() == of.partition && of.clustering > 0),
                };
                Request::Read {
                    table: self.table,
                    partition,
                    clustering,
                    columns: columns.clone(),
                    limit: *limit,
                }
            }
            What::Write { cells } => {
                let cells = cells
                    .iter()
                    .map(|(column, term)| (*column, (timestamp_us, value(term, *column))));
                Request::Write { key: (self.table, partition, clustering), cells: cells.collect() }
            }
            What::Batch(all) => {
                Request::Several(all.iter().map(|one| one.request(values, timestamp_us)).collect())
            }
            What::Delete => Request::Delete { table: self.table, partition, at_us: timestamp_us },
            What::ReadShard => Request::ReadShard { of: shard(0) },
            What::First => Request::First { of: shard(0), claim: values[2].clone() },
            What::Claim => Request::Claim {
                of: shard(2),
                generation: number(0),
                claim: values[1].clone(),
                from: number(4),
                sealed: number(5),
            },
            What::Seal => Request::Seal {
                of: shard(1),
                sealed: number(0),
                generation: number(3),
                claim: values[4].clone(),
            },
        }
    }
}

/// The parts of a partition's key.
pub fn parts_of(mut partition: &[u8]) -> Vec<Vec<u8>> {
    let mut parts = Vec::new();
    while let Some((length, rest)) = partition.split_first_chunk::<2>() {
        let (part, rest) = rest.split_at(usize::from(u16::from_be_bytes(*length)));
        parts.push(part.to_vec());
        partition = rest;
    }
    parts
}
