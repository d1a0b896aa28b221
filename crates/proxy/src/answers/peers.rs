//! Rows of `system.peers` and `system.peers_v2`: the other proxies of the fleet.
//!
//! The node's answer has the columns and their types; the proxy reads from the request itself which
//! rows the client wants, because the node has other rows. It understands equalities, with literals
//! and bind values, and `LIMIT`: drivers ask for all rows or for those of an address. It refuses
//! any other condition, so that no client gets rows that do not meet it. All rows come in one page.

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
use crate::limits;
use crate::link::Pending;

/// A read of a system table: its text and the values bound to it.
pub(super) struct Asked<'a> {
    statement: Statement<'a>,
    values: Values<'a>,
}

/// A column of a result. The source is the table's column that it shows; `None` for the value of a
/// function.
pub(super) struct Column<'c> {
    pub(super) source: Option<Cow<'c, str>>,
    pub(super) cql_type: Option<&'c [u8]>,
    /// Text of that function.
    pub(super) expression: Option<&'c str>,
}

impl<'a> Asked<'a> {
    /// Reads the body of the request that was `sent`. `prepared`: the text of the executed
    /// statement, if the proxy keeps it.
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

    /// Adds to the columns of the result the table's columns that they show, whatever their names
    /// in the result. `None` if these cannot be determined.
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
                // The text is a function.
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

    /// True if the client asks for the number of rows. The count has a type that no column of these
    /// tables has.
    fn counts(&self, columns: &[Column<'_>]) -> bool {
        let [only] = columns else { return false };
        only.source.is_none() && only.cql_type == Some(native::BIGINT) && self.begins_with("count")
    }

    /// Largest number of rows wanted; `None`: all.
    fn limit(&self) -> Option<usize> {
        let mut words = self.statement.tail().split_ascii_whitespace();
        if !words.next()?.eq_ignore_ascii_case("LIMIT") {
            return None;
        }
        match words.next()? {
            // No later word can hold another marker.
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

    /// True if a host meets all conditions of `WHERE`; `None` if that cannot be determined.
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

/// The beginning of a result with these rows, up to their number and without a paging state.
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

/// Writes a number of rows in the form of `count(*)`.
pub(super) fn put_count(out: &mut Vec<u8>, count: usize) {
    put::int(out, 1);
    put::bytes(out, Some(&(count as i64).to_be_bytes()));
}

/// Writes the number of rows and the wanted rows of these hosts.
///
/// # Errors
/// The wanted rows cannot be determined, or the answer would have too many values or be longer than
/// `bytes_max`.
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
    if wanted.len().saturating_mul(columns.len()) > limits::PEERS_VALUES_MAX {
        return Err(Fault::invalid(format!(
            "Shunt: {} columns of {} proxies exceed {} values; select fewer columns",
            columns.len(),
            wanted.len(),
            limits::PEERS_VALUES_MAX
        )));
    }
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
                "Shunt: the hosts' rows exceed the proxy's frame_bytes_max; select fewer columns",
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
