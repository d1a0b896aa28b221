//! Functions and JSON in a selection of a system table: the proxy computes those of its own columns
//! here, because the node computed them from the node's values. It refuses what it cannot compute,
//! so that no form of a read shows a node.

use serde_json::{Map, Value as Json};
use shunt_wire::cql::message::encode_result::native;

use crate::answers::host::Host;
use crate::fault::Fault;

/// The value of a selection item other than a plain column.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Made {
    /// The node's value: it concerns no column of the proxy's own.
    OfNode,
    /// The proxy's own value.
    Own(Vec<u8>),
}

/// The value of an expression in a row that shows this host. `cql_type`: the type of the result.
///
/// # Errors
/// The expression concerns a column of the proxy's own, and is not a cast to text, JSON, or the
/// minimum or maximum of one.
pub(super) fn value(text: &str, host: &Host<'_>, cql_type: Option<&[u8]>) -> Result<Made, Fault> {
    if !names_own(without_alias(text), host) {
        return Ok(Made::OfNode);
    }
    let (name, argument) = call(without_alias(text)).ok_or_else(|| refused(text))?;
    let is = |names: &[&str]| names.iter().any(|known| name.eq_ignore_ascii_case(known));
    let made = if is(&["tojson", "to_json"]) {
        json_of(host, argument).map(|json| json.to_string().into_bytes())
    } else if is(&["max", "min"]) {
        host.value(&column(argument), cql_type)
    } else if is(&["count", "writetime", "maxwritetime", "ttl"]) {
        // It reveals no value.
        return Ok(Made::OfNode);
    } else if is(&["cast"]) {
        let (of, to) = split_as(argument).ok_or_else(|| refused(text))?;
        match to.to_ascii_lowercase().as_str() {
            "text" | "varchar" | "ascii" => text_of(host, of).map(String::into_bytes),
            _ => host.value(&column(of), cql_type),
        }
    } else {
        None
    };
    made.map(Made::Own).ok_or_else(|| refused(text))
}

/// A row as JSON: the node's text with this host's values. `items`: the texts of the selection,
/// without the word JSON.
///
/// # Errors
/// The node's text is not JSON, or an expression concerns a column of the proxy's own.
pub(super) fn json<'t>(
    of_node: &[u8],
    items: impl Iterator<Item = &'t str>,
    host: &Host<'_>,
) -> Result<Vec<u8>, Fault> {
    let unreadable =
        || Fault::invalid("Shunt: the node's JSON cannot be read; ask for columns instead");
    let mut row: Map<String, Json> = serde_json::from_slice(of_node).map_err(|_| unreadable())?;
    for item in items {
        if item == "*" {
            for (name, value) in &mut row {
                if let Some(own) = json_of(host, name) {
                    *value = own;
                }
            }
            continue;
        }
        let (of, name) = with_alias(item).unwrap_or((item, item));
        match json_of(host, of) {
            Some(own) => {
                let name = column(name);
                let place = row.get_mut(&name).ok_or_else(unreadable)?;
                *place = own;
            }
            None if names_own(of, host) => return Err(refused(item)),
            None => {}
        }
    }
    Ok(Json::Object(row).to_string().into_bytes())
}

fn refused(text: &str) -> Fault {
    let text: String = text.chars().take(64).flat_map(char::escape_debug).collect();
    Fault::invalid(format!(
        "Shunt: {text} is of a column that shows this proxy, and is not computed here: ask for the column itself"
    ))
}

/// True if a word of the text is the name of a column of the proxy's own.
fn names_own(text: &str, host: &Host<'_>) -> bool {
    let mut words = text
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty());
    words.any(|word| host.typed_value(&word.to_ascii_lowercase()).is_some())
}

/// The function of a text that is one call, and the text between its parentheses.
fn call(text: &str) -> Option<(&str, &str)> {
    let (name, rest) = text.trim().split_once('(')?;
    let argument = rest.strip_suffix(')')?;
    let mut depth = 0;
    for character in argument.chars() {
        depth += i32::from(character == '(') - i32::from(character == ')');
        if depth < 0 {
            return None;
        }
    }
    let name = name.trim();
    let name = name.strip_prefix("system.").unwrap_or(name);
    (depth == 0).then_some((name, argument.trim()))
}

/// An expression without its alias.
fn without_alias(text: &str) -> &str {
    with_alias(text).map_or(text, |(of, _)| of)
}

/// An expression and its alias.
fn with_alias(text: &str) -> Option<(&str, &str)> {
    let (of, alias) = split_as(text)?;
    let unquoted =
        alias.strip_prefix('"').and_then(|alias| alias.strip_suffix('"')).unwrap_or(alias);
    let is_name =
        !unquoted.is_empty() && unquoted.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_name.then_some((of, alias))
}

/// The two sides of AS.
fn split_as(text: &str) -> Option<(&str, &str)> {
    let lower = text.to_ascii_lowercase();
    let blanks = |before: char| before.is_ascii_whitespace();
    let (at, _) = lower.rmatch_indices("as").find(|(at, _)| {
        let (before, behind) = (lower[..*at].chars().next_back(), lower[at + 2..].chars().next());
        before.is_some_and(|c| blanks(c) || c == ')' || c == '"')
            && behind.is_some_and(|c| blanks(c) || c == '"')
    })?;
    Some((text.get(..at)?.trim(), text.get(at + 2..)?.trim()))
}

/// The name of a column as Cassandra stores it.
fn column(text: &str) -> String {
    match text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
        Some(quoted) => quoted.replace("\"\"", "\""),
        None => text.to_ascii_lowercase(),
    }
}

/// The proxy's own value as Cassandra casts it to text.
fn text_of(host: &Host<'_>, of: &str) -> Option<String> {
    match json_of(host, of)? {
        Json::String(text) => Some(text),
        Json::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// The proxy's own value in Cassandra's JSON.
fn json_of(host: &Host<'_>, of: &str) -> Option<Json> {
    let name = column(of);
    let (cql_type, bytes) = host.typed_value(&name)?;
    Some(match cql_type {
        native::UUID => Json::String(uuid(&bytes)?),
        native::INT => Json::from(i32::from_be_bytes(bytes.as_slice().try_into().ok()?)),
        native::INET => Json::String(host.address().ip().to_string()),
        native::SET_OF_TEXT => Json::from(vec![host.token()]),
        _ => Json::String(String::from_utf8(bytes).ok()?),
    })
}

fn uuid(bytes: &[u8]) -> Option<String> {
    let number = u128::from_be_bytes(bytes.try_into().ok()?);
    let hex = format!("{number:032x}");
    Some(format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]))
}
