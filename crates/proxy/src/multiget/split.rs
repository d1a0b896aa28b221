//! Splits one request: keys in the order in which Cassandra answers them, in runs that share a
//! replica.

use std::cmp::Ordering;

use shunt_language::CqlType;
use shunt_language::ast::NativeType;
use shunt_language::values::{compare, validate};
use shunt_topology::{KeyspaceIndex, NodeId, RoutingTable, Token, token};
use shunt_wire::cql::envelope::{Header, flag};
use shunt_wire::cql::message::{
    Consistency, Execute, QueryParams, Reader, Value, ValueList, encode, put, query_flag,
};
use shunt_wire::cql::statement::Identifier;
use shunt_wire::cql::types::{self, partition_key};

use crate::limits;
use crate::multiget::Wanted;
use crate::multiget::form::{Keys, Limit, Split};
use crate::multiget::reasons::Whole;

/// Flags of an EXECUTE that a part may have too.
const FLAGS_KNOWN: u32 = query_flag::VALUES
    | query_flag::SKIP_METADATA
    | query_flag::PAGE_SIZE
    | query_flag::SERIAL_CONSISTENCY
    | query_flag::TIMESTAMP
    | query_flag::NOW_IN_SECONDS;

/// Longest `varint` or `decimal` among keys: comparing longer ones takes too long.
const NUMBER_BYTES_MAX: usize = 128;
/// Longest key. Nodes refuse longer ones.
const KEY_BYTES_MAX: usize = u16::MAX as usize;

/// Neighbours in the order of the keys that share a replica.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Run<'a> {
    pub(crate) keys: Vec<&'a [u8]>,
    /// Token of the first key.
    pub(crate) token: Token,
    /// Nodes of the local datacentre that have all of the keys.
    pub(crate) replicas: Vec<NodeId>,
}

/// A request to split.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub(crate) execute: Execute<'a>,
    pub(crate) wanted: Wanted,
    pub(crate) keyspace: KeyspaceIndex,
    pub(crate) runs: Vec<Run<'a>>,
}

/// The reason why a request is not split; and the best node for the whole, if all of its keys are
/// in one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) whole: Whole,
    pub(crate) placement: Option<(KeyspaceIndex, Token)>,
}

impl From<Whole> for Refused {
    fn from(whole: Whole) -> Self {
        Self { whole, placement: None }
    }
}

/// Reads a request.
pub(crate) fn read<'a>(
    form: &Split,
    routing: &RoutingTable,
    header: &Header,
    body: &'a [u8],
    keys_max: usize,
) -> Result<Request<'a>, Refused> {
    let execute = plain_execute(header, body)?;
    let values = execute.params.values;
    if values.is_named() || values.len() != form.markers {
        return Err(Whole::Markers.into());
    }
    let values: Vec<Value<'a>> = values.iter().map(|(_, value)| value).collect();
    let wanted = Wanted {
        version: header.version,
        skips_metadata: execute.params.skips_metadata(),
        page_rows: execute
            .params
            .page_size
            .and_then(|rows| usize::try_from(rows).ok())
            .filter(|rows| *rows > 0),
        limit: limit(form, &values)?,
    };
    let keys = keys(form, &values, keys_max)?;
    let (keyspace, before, after) = place(form, routing, &values)?;
    let runs = runs(routing, keyspace, keys, &before, &after)?;
    if let [only] = &runs[..] {
        let whole = if only.keys.len() == 1 { Whole::OneKey } else { Whole::OneReplica };
        return Err(Refused { whole, placement: Some((keyspace, only.token)) });
    }
    if bytes_of_parts(form, &values, body.len(), &runs) > limits::MULTIGET_PARTS_BYTES_MAX {
        return Err(Whole::Bytes.into());
    }
    Ok(Request { execute, wanted, keyspace, runs })
}

/// Reads an EXECUTE that asks only for its rows, from the first on.
fn plain_execute<'a>(header: &Header, body: &'a [u8]) -> Result<Execute<'a>, Whole> {
    if header.flags & flag::TRACING != 0 {
        return Err(Whole::Tracing);
    }
    if header.flags & flag::CUSTOM_PAYLOAD != 0 {
        return Err(Whole::Payload);
    }
    let execute = Execute::decode(header.version, body).map_err(|_| Whole::Parameters)?;
    let params = &execute.params;
    if params.flags & query_flag::PAGING_STATE != 0 {
        return Err(Whole::PagingState);
    }
    if params.flags & query_flag::NAMES != 0 {
        return Err(Whole::Markers);
    }
    if header.flags != 0 || params.flags & !FLAGS_KNOWN != 0 || params.is_doubtful() {
        return Err(Whole::Parameters);
    }
    match params.consistency {
        Consistency::SERIAL | Consistency::LOCAL_SERIAL => Err(Whole::Serial),
        Consistency::ANY => Err(Whole::Parameters),
        _ => Ok(execute),
    }
}

fn limit(form: &Split, values: &[Value<'_>]) -> Result<Option<usize>, Whole> {
    let index = match form.limit {
        Limit::None => return Ok(None),
        Limit::Rows(rows) => return Ok(Some(rows)),
        Limit::Marker(index) => index,
    };
    let bytes =
        values.get(index).and_then(|value| value.bytes()).and_then(|bytes| bytes.try_into().ok());
    let rows = bytes.map(i32::from_be_bytes).filter(|rows| *rows > 0).ok_or(Whole::Limit)?;
    Ok(Some(rows as usize))
}

/// The keys in Cassandra's order, each once.
fn keys<'a>(form: &Split, values: &[Value<'a>], keys_max: usize) -> Result<Vec<&'a [u8]>, Whole> {
    let mut keys = match &form.keys {
        Keys::List(index) => {
            let list = values.get(*index).and_then(|value| value.bytes()).ok_or(Whole::Values)?;
            elements(list, keys_max)?
        }
        Keys::Each(each) if each.len() > keys_max => return Err(Whole::Keys),
        Keys::Each(each) => {
            let value = |index: &usize| {
                values.get(*index).and_then(|value| value.bytes()).ok_or(Whole::Values)
            };
            each.iter().map(value).collect::<Result<_, _>>()?
        }
    };
    // Some releases reject empty values as keys, and a value of another type has no place in the
    // order.
    let bytes_max = match form.key_type {
        CqlType::Native(NativeType::Varint | NativeType::Decimal) => NUMBER_BYTES_MAX,
        _ => KEY_BYTES_MAX,
    };
    let fits = |key: &[u8]| (1..=bytes_max).contains(&key.len());
    if keys.iter().any(|key| !fits(key) || validate(&form.key_type, key).is_err()) {
        return Err(Whole::Values);
    }
    keys.sort_by(|left, right| compare(&form.key_type, left, right));
    keys.dedup();
    // 1.0 and 1.00 are one key to `IN` and two partitions; only Cassandra knows which of them
    // answers.
    let is_ambiguous =
        |pair: &[&[u8]]| compare(&form.key_type, pair[0], pair[1]) == Ordering::Equal;
    if keys.windows(2).any(is_ambiguous) {
        return Err(Whole::Values);
    }
    Ok(keys)
}

/// The elements of a bound list.
fn elements(list: &[u8], keys_max: usize) -> Result<Vec<&[u8]>, Whole> {
    let mut reader = Reader::new(list);
    let count = reader.count("keys").map_err(|_| Whole::Values)?;
    if count > keys_max {
        return Err(Whole::Keys);
    }
    let mut keys = Vec::with_capacity(count);
    for _ in 0..count {
        keys.push(reader.bytes("key").ok().flatten().ok_or(Whole::Values)?);
    }
    if keys.is_empty() || !reader.rest().is_empty() {
        return Err(Whole::Values);
    }
    Ok(keys)
}

/// The values of the partition key's columns before or after the column of `IN`.
type Fixed<'a> = Vec<&'a [u8]>;

/// The keyspace, and the values of the other columns of the partition key.
fn place<'a>(
    form: &Split,
    routing: &RoutingTable,
    values: &[Value<'a>],
) -> Result<(KeyspaceIndex, Fixed<'a>, Fixed<'a>), Whole> {
    let keyspace = Identifier::exact(&form.keyspace);
    let table =
        routing.resolve_table(&keyspace, &Identifier::exact(&form.table)).ok_or(Whole::Schema)?;
    let keyspace = routing.resolve_keyspace(&keyspace).ok_or(Whole::Schema)?;
    let columns = &table.partition_key;
    let at = columns.iter().position(|column| *column.name == *form.column).ok_or(Whole::Where)?;
    if form.equal.len() + 1 != columns.len() {
        return Err(Whole::Where);
    }
    // A table that was dropped and recreated has the same statement under the same id, and may have
    // keys in another order.
    if !is_same_type(&form.key_type, &columns[at].cql_type) {
        return Err(Whole::Schema);
    }
    let fixed = |name: &str| {
        let (_, index) =
            form.equal.iter().find(|(equal, _)| **equal == *name).ok_or(Whole::Where)?;
        values.get(*index).and_then(|value| value.bytes()).ok_or(Whole::Values)
    };
    let of = |columns: &[shunt_topology::Column]| {
        columns.iter().map(|column| fixed(&column.name)).collect()
    };
    let (before, after): (Result<Fixed<'a>, Whole>, _) =
        (of(&columns[..at]), of(&columns[at + 1..]));
    Ok((keyspace, before?, after?))
}

fn is_same_type(told: &CqlType, now: &types::CqlType) -> bool {
    matches!(told, CqlType::Native(native) if types::CqlType::parse(native.name()) == *now)
}

fn runs<'a>(
    routing: &RoutingTable,
    keyspace: KeyspaceIndex,
    keys: Vec<&'a [u8]>,
    before: &Fixed<'_>,
    after: &Fixed<'_>,
) -> Result<Vec<Run<'a>>, Whole> {
    let mut runs: Vec<Run<'a>> = Vec::new();
    let mut whole_key = Vec::new();
    for key in keys {
        let parts: Vec<_> =
            before.iter().copied().chain([key]).chain(after.iter().copied()).map(Some).collect();
        if !partition_key(parts, &mut whole_key) || whole_key.len() > usize::from(u16::MAX) {
            return Err(Whole::Values);
        }
        let token = token::token(&whole_key);
        let replicas = routing.replicas(keyspace, token);
        let local = &replicas.nodes[..replicas.local.min(replicas.nodes.len())];
        if local.is_empty() {
            return Err(Whole::Schema);
        }
        if let Some(run) = runs.last_mut()
            && run.replicas.iter().any(|node| local.contains(node))
        {
            run.replicas.retain(|node| local.contains(node));
            run.keys.push(key);
        } else {
            runs.push(Run { keys: vec![key], token, replicas: local.to_vec() });
        }
    }
    Ok(runs)
}

/// Bytes of all parts together. Each has the places of all keys, and the values of the other
/// columns: a small request may become a very large output.
fn bytes_of_parts(form: &Split, values: &[Value<'_>], body: usize, runs: &[Run<'_>]) -> usize {
    let length =
        |index: &usize| values.get(*index).and_then(|value| value.bytes()).map_or(0, <[u8]>::len);
    // All keys in the request, the places of a part, and the prefix of each key that is not there
    // otherwise.
    let (keys, places, prefix) = match &form.keys {
        Keys::List(index) => (length(index).saturating_sub(4), 0, 4),
        Keys::Each(each) => (each.iter().map(length).sum::<usize>(), each.len(), 0),
    };
    let of_run = |run: &Run<'_>| {
        let left_over =
            places.saturating_sub(run.keys.len()).saturating_mul(filler(&run.keys).len());
        let each = run.keys.iter().map(|key| prefix + key.len()).sum::<usize>();
        body.saturating_sub(keys).saturating_add(each).saturating_add(left_over)
    };
    runs.iter().map(of_run).fold(0, usize::saturating_add)
}

/// The key that fills the unused places of a part.
fn filler<'a>(keys: &[&'a [u8]]) -> &'a [u8] {
    keys.iter().copied().min_by_key(|key| key.len()).unwrap_or_default()
}

/// Writes the EXECUTE of a part: the same, for these keys. It asks for metadata, so that parts can
/// be compared.
pub(crate) fn write_part(
    out: &mut Vec<u8>,
    form: &Split,
    version: u8,
    execute: &Execute<'_>,
    keys: &[&[u8]],
) {
    let mut list = Vec::new();
    if matches!(form.keys, Keys::List(_)) {
        put::int(&mut list, keys.len() as i32);
        keys.iter().for_each(|key| put::bytes(&mut list, Some(key)));
    }
    let filler = filler(keys);
    let mut values = ValueList::positional(version);
    for (index, (_, value)) in execute.params.values.iter().enumerate() {
        values.push(match &form.keys {
            Keys::List(at) if *at == index => Value::Bytes(&list),
            // Markers are numbered in the order of the text. Unused places repeat a short key.
            Keys::Each(each) => match each.binary_search(&index) {
                Ok(place) => Value::Bytes(keys.get(place).copied().unwrap_or(filler)),
                Err(_) => value,
            },
            Keys::List(_) => value,
        });
    }
    let flags = execute.params.flags & !query_flag::SKIP_METADATA;
    let params = QueryParams { flags, values: values.values(), ..execute.params };
    out.clear();
    encode::execute(out, version, execute.id, execute.result_metadata_id, &params);
}

#[cfg(test)]
mod tests;
