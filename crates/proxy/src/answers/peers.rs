//! Rows of `system.peers` and `system.peers_v2`: the other proxies of the fleet.
//!
//! The node that was asked has told the columns and their types; which rows are asked for is read
//! from the request itself, because the node's rows are others. Equalities are understood, with
//! literals and with bind values, and `LIMIT`: drivers ask for all rows or for those of an address.
//! Any other condition is refused, so that nobody gets rows that do not meet it. All rows come in
//! one page.

use std::borrow::Cow;

use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::encode_result::native;
use shunt_wire::cql::message::{
    Execute, Query, Rows, Values, metadata_flag, put, split_request_prefix,
};
use shunt_wire::cql::statement::{self, Bind, Identifier, KeyTerm, Selected, Statement, Term};
use shunt_wire::cql::types::{CqlType, literal};

use crate::answers::expressions::{self, Made};
use crate::answers::host::Host;
use crate::fault::Fault;
use crate::link::Pending;

/// A read of a system table: its text and the values bound to it.
pub(super) struct Asked<'a> {
    statement: Statement<'a>,
    values: Values<'a>,
}

/// A column of a result. Its source is the column of the table that its values are of; `None`: they
/// are a function's.
pub(super) struct Column<'c> {
    pub(super) source: Option<Cow<'c, str>>,
    pub(super) cql_type: Option<&'c [u8]>,
    /// The text of such a function.
    pub(super) expression: Option<&'c str>,
}

impl<'a> Asked<'a> {
    /// Reads the body of the request that was `sent`. `prepared`: the text of the statement that it
    /// executes, if that is kept.
    pub(super) fn read(
        version: u8,
        pending: &Pending,
        sent: &'a [u8],
        prepared: Option<&'a str>,
    ) -> Option<Self> {
        let (_, request) = split_request_prefix(pending.flags, sent).ok()?;
        let (text, params) = if pending.opcode == opcode::QUERY {
            let query = Query::decode(version, request).ok()?;
            (query.text, query.params)
        } else {
            (prepared?, Execute::decode(version, request).ok()?.params)
        };
        Some(Self::new(text, params.values))
    }

    pub(super) fn new(text: &'a str, values: Values<'a>) -> Self {
        Self { statement: statement::classify(text), values }
    }

    /// The columns of the result with the columns of the table that they are of, whatever they are
    /// called in the result. `None`: it cannot be told which.
    pub(super) fn with_sources<'c>(&self, columns: Vec<Column<'c>>) -> Option<Vec<Column<'c>>>
    where
        'a: 'c,
    {
        let items: Vec<Selected<'a>> = self.statement.selected_columns().collect();
        if items[..] == [Selected::All] {
            return Some(columns);
        }
        if items.len() != columns.len() {
            return None;
        }
        let distinct = self.begins_with("DISTINCT");
        let texts = self.statement.selected_texts();
        let sources =
            columns.into_iter().zip(items).zip(texts).map(|((column, item), text)| match item {
                Selected::Column { name, .. } => {
                    Column { source: Some(Cow::Owned(name.to_string())), ..column }
                }
                _ if distinct => column,
                // A function of something.
                _ => Column { source: None, expression: Some(text), ..column },
            });
        Some(sources.collect())
    }

    /// The items of a selection whose rows are JSON.
    pub(super) fn json_items(&self) -> Option<impl Iterator<Item = &'a str>> {
        let is_json = self.begins_with("JSON");
        let items = self.statement.selected_texts().enumerate();
        is_json.then(|| {
            items.map(|(place, text)| if place == 0 { text[4..].trim_start() } else { text })
        })
    }

    /// True if the selection begins with this word.
    fn begins_with(&self, word: &str) -> bool {
        let selection = self.statement.selection().trim_start();
        let (first, rest) = selection.split_at_checked(word.len()).unwrap_or((selection, ""));
        first.eq_ignore_ascii_case(word)
            && !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_')
    }

    /// True if the number of rows is asked for. It has a type that no column of these tables has.
    fn counts(&self, columns: &[Column<'_>]) -> bool {
        let [only] = columns else { return false };
        only.source.is_none() && only.cql_type == Some(native::BIGINT) && self.begins_with("count")
    }

    /// Most rows wanted; `None`: all.
    fn limit(&self) -> Option<usize> {
        let mut words = self.statement.tail().split_ascii_whitespace();
        if !words.next()?.eq_ignore_ascii_case("LIMIT") {
            return None;
        }
        match words.next()? {
            // Nothing that follows it can have another marker.
            "?" => {
                let bind = Bind {
                    index: self.statement.markers.checked_sub(1)?,
                    name: Identifier::exact("[limit]"),
                };
                let value = <[u8; 4]>::try_from(bind.of(&self.values)?.bytes()?).ok()?;
                usize::try_from(i32::from_be_bytes(value)).ok()
            }
            number => number.parse().ok(),
        }
    }

    /// True if a host meets all that `WHERE` asks for; `None`: it cannot be told.
    fn is_met_by(&self, host: &Host<'_>, conditions: &[KeyTerm<'a>]) -> Option<bool> {
        let mut met = true;
        for KeyTerm { column, term } in conditions {
            // A column without a value equals nothing.
            let Some((type_option, value)) = host.typed_value(&column.to_string()) else {
                met = false;
                continue;
            };
            let bind = match *term {
                Term::Literal(text) => {
                    let mut wanted = Vec::new();
                    literal(&CqlType::decode(&mut &*type_option)?, text, &mut wanted)
                        .then_some(())?;
                    met &= wanted == value;
                    continue;
                }
                Term::Marker(index) => Bind { index, name: *column },
                Term::NamedMarker { name, index } => Bind { index, name },
            };
            met &= bind.of(&self.values)?.bytes()? == value;
        }
        Some(met)
    }
}

/// The beginning of a result with these rows, up to their number, and without a paging state.
pub(super) fn head(body: &[u8], prefix_bytes: usize, rows: &Rows<'_>) -> Option<Vec<u8>> {
    let metadata = &rows.metadata;
    let more = metadata.flags & metadata_flag::HAS_MORE_PAGES != 0;
    let state_bytes =
        if more { size_of::<i32>() + metadata.paging_state.map_or(0, <[u8]>::len) } else { 0 };
    let mut out = body.get(..prefix_bytes + metadata.offset)?.to_vec();
    put::int(&mut out, metadata.flags & !metadata_flag::HAS_MORE_PAGES);
    put::int(&mut out, i32::try_from(metadata.column_count).ok()?);
    out.extend_from_slice(metadata.raw.get(2 * size_of::<i32>() + state_bytes..)?);
    Some(out)
}

/// A number of rows as `count(*)` tells it.
pub(super) fn put_count(out: &mut Vec<u8>, count: usize) {
    put::int(out, 1);
    put::bytes(out, Some(&(count as i64).to_be_bytes()));
}

/// The number of rows and the rows that are asked for, of these hosts.
///
/// # Errors
/// It cannot be told which rows are asked for, or the answer would be longer than `bytes_max`.
pub(super) fn put_rows(
    out: &mut Vec<u8>,
    columns: &[Column<'_>],
    hosts: &[Host<'_>],
    asked: Option<&Asked<'_>>,
    bytes_max: usize,
) -> Result<(), Fault> {
    let asked = asked.filter(|asked| asked.statement.plain_where).ok_or_else(not_understood)?;
    let conditions: Vec<_> = asked.statement.key_terms().collect();
    let mut wanted = Vec::new();
    for host in hosts {
        if asked.is_met_by(host, &conditions).ok_or_else(not_understood)? {
            wanted.push(host);
        }
    }
    if asked.counts(columns) {
        put_count(out, wanted.len());
        return Ok(());
    }
    if asked.json_items().is_some() {
        return Err(Fault::invalid(
            "Shunt: these rows are the proxies of a fleet, and are not there as JSON",
        ));
    }
    wanted.truncate(asked.limit().unwrap_or(usize::MAX));
    put::int(out, wanted.len() as i32);
    for host in wanted {
        for column in columns {
            let value = match (column.source.as_deref(), column.expression) {
                (Some(source), _) => host.value(source, column.cql_type),
                (None, Some(text)) => match expressions::value(text, host, column.cql_type)? {
                    Made::Own(value) => Some(value),
                    Made::OfNode => None,
                },
                (None, None) => None,
            };
            put::bytes(out, value.as_deref());
        }
        if out.len() > bytes_max {
            return Err(Fault::invalid(
                "Shunt: the hosts' rows are longer than the proxy's frame_bytes_max; ask for fewer columns",
            ));
        }
    }
    Ok(())
}

fn not_understood() -> Fault {
    Fault::invalid(
        "Shunt: these rows are the proxies of a fleet; all can be asked for, or those with given values \
         (column = value, joined by AND), and no others",
    )
}
