//! `UPDATE` and `DELETE`: changes of the pages, with the parameters that requests over HTTP have.

use std::net::{IpAddr, SocketAddr};

use serde_json::{Map, Value, json};
use shunt_admin::Pages;
use shunt_language::CqlType;
use shunt_language::ast::{
    Attributes, Comparison, Conditions, Delete, Operation, Relation, Term, Update,
};
use shunt_language::terms::{self, Bindings, Prepared, Scope};

use crate::cores::core_list;
use crate::fault::Fault;
use crate::plan;
use crate::select::known_value;
use crate::tables::{KEYSPACE, ONLY_KEY, Table};

/// A table whose clients a `DELETE` closes: its name, and the columns that its conditions may have,
/// each with its parameter of the change.
struct Closable(&'static str, &'static [(&'static str, &'static str)]);

const CLOSABLE: [Closable; 2] = [
    Closable(
        "client_groups",
        &[("role", "role"), ("address", "address"), ("application", "application")],
    ),
    Closable(
        "clients",
        &[
            ("username", "role"),
            ("address", "address"),
            ("port", PORT),
            ("application", "application"),
            ("id", "id"),
        ],
    ),
];

/// Tables that an `UPDATE` may change: the name, the column to set, and that of the condition.
const CHANGEABLE: [(&str, &str, &str); 3] =
    [("settings", "value", "name"), ("nodes", "drained", "address"), ("proxy", "draining", "key")];

/// The condition, and the parameter, that stand for all clients. No table has such a column.
const ALL: &str = "all";

/// The port, which with the address is the `id` of a client. It is no parameter of its own.
const PORT: &str = "port";

/// A change.
#[derive(Debug)]
pub(crate) enum Change {
    /// `UPDATE settings SET value = .. WHERE name = ..`
    Setting {
        /// Name of the option.
        name: Prepared,
        /// New value of the option.
        value: Prepared,
    },
    /// `UPDATE nodes SET drained = .. WHERE address = ..`
    Drain {
        /// Address of the node.
        address: Prepared,
        /// True to take the node out of routing, false to take it back.
        drained: Prepared,
    },
    /// `UPDATE proxy SET draining = .. WHERE key = 'local'`
    DrainProxy {
        /// Key of the only row.
        key: Prepared,
        /// True to send clients to other proxies, false to take that back.
        draining: Prepared,
    },
    /// `DELETE FROM clients WHERE ..`, or `client_groups`: the conditions, by parameter.
    Kick(Vec<(&'static str, Prepared)>),
}

/// Plans an `UPDATE`.
///
/// # Errors
/// The admin address does not offer this change.
pub(crate) fn plan_update(
    update: &Update,
    session: Option<&str>,
    scope: &mut Scope<'_>,
) -> Result<Change, Fault> {
    let table = plan::table(&update.table, session)?;
    plain(&update.attributes, &update.conditions)?;
    let other = || {
        Fault::invalid(
            "an UPDATE at the admin address is UPDATE settings SET value = '..' WHERE name = '..', \
             UPDATE nodes SET drained = .. WHERE address = '..', \
             or UPDATE proxy SET draining = .. WHERE key = 'local'",
        )
    };
    let (_, changed, key) =
        *CHANGEABLE.iter().find(|(name, ..)| is(table, name)).ok_or_else(other)?;
    let ([assignment], [relation]) = (&update.assignments[..], &update.relations[..]) else {
        return Err(other());
    };
    let Operation::Set(new) = &assignment.operation else { return Err(other()) };
    let (column, wanted) = equal(relation).ok_or_else(other)?;
    if assignment.column != changed || column != key {
        return Err(other());
    }
    let mut term = |column: &str, term: &Term| {
        terms::prepare(term, column, &table.cql_type(table.position(column)?)?, scope)
            .map_err(Fault::from)
    };
    let (new, wanted) = (term(changed, new)?, term(key, wanted)?);
    Ok(match changed {
        "value" => Change::Setting { name: wanted, value: new },
        "drained" => Change::Drain { address: wanted, drained: new },
        _ => Change::DrainProxy { key: wanted, draining: new },
    })
}

/// Plans a `DELETE`.
///
/// # Errors
/// The admin address does not offer this change.
pub(crate) fn plan_delete(
    delete: &Delete,
    session: Option<&str>,
    scope: &mut Scope<'_>,
) -> Result<Change, Fault> {
    let table = plan::table(&delete.table, session)?;
    plain(&delete.attributes, &delete.conditions)?;
    let closable = CLOSABLE
        .iter()
        .find(|Closable(name, _)| is(table, name))
        .filter(|_| delete.deletions.is_empty());
    let Some(Closable(name, columns)) = closable else {
        let why = "a DELETE at the admin address is DELETE FROM clients WHERE .., or \
            DELETE FROM client_groups WHERE ..";
        return Err(Fault::invalid(why));
    };
    let mut conditions: Vec<(&'static str, Prepared)> = Vec::new();
    for relation in &delete.relations {
        if let Some((ALL, term)) = equal(relation) {
            if delete.relations.len() > 1 {
                return Err(Fault::invalid("all = true stands alone: remove the other conditions"));
            }
            let boolean = CqlType::parse("boolean", &())?;
            conditions.push((ALL, terms::prepare(term, ALL, &boolean, scope)?));
            continue;
        }
        let found = equal(relation).and_then(|(column, term)| {
            let (name, parameter) = columns.iter().find(|(known, _)| *known == column)?;
            Some((*name, *parameter, term))
        });
        let Some((name, parameter, term)) = found else {
            let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
            let names = names.join(", ");
            return Err(Fault::invalid(format!("clients are closed by {names}, each with =")));
        };
        if conditions.iter().any(|(known, _)| *known == parameter) {
            return Err(Fault::invalid(format!("{name} has two conditions")));
        }
        let cql_type = table.cql_type(table.position(name)?)?;
        conditions.push((parameter, terms::prepare(term, name, &cql_type, scope)?));
    }
    let has = |parameter| conditions.iter().any(|(known, _)| *known == parameter);
    if conditions.is_empty() {
        return Err(Fault::invalid(format!(
            "DELETE FROM {name} needs a condition; WHERE all = true closes all clients"
        )));
    }
    if has(PORT) && (!has("address") || has("id")) {
        return Err(Fault::invalid("a port needs the address, and no id"));
    }
    Ok(Change::Kick(conditions))
}

fn is(table: &Table, name: &str) -> bool {
    table.keyspace == KEYSPACE && table.name == name
}

/// Refuses clauses that have no meaning here.
fn plain(attributes: &Attributes, conditions: &Conditions) -> Result<(), Fault> {
    if *attributes != Attributes::default() || *conditions != Conditions::None {
        return Err(Fault::invalid("USING and IF are not offered at the admin address"));
    }
    Ok(())
}

/// The column and the value of a relation with `=`.
fn equal(relation: &Relation) -> Option<(&str, &Term)> {
    match relation {
        Relation::Column { column, comparison: Comparison::Equal, value } => Some((column, value)),
        _ => None,
    }
}

impl Change {
    /// Makes the change for a client at this address. Returns its outcome in words.
    ///
    /// # Errors
    /// A bind value does not fit, or the change was refused.
    pub(crate) async fn make(
        &self,
        pages: &Pages,
        bindings: &(dyn Bindings + Sync),
        from: IpAddr,
    ) -> Result<Vec<String>, Fault> {
        match self {
            Change::Setting { name, value } => {
                let name = text_of(name, "name", bindings)?;
                let value = match value.evaluate(bindings)? {
                    terms::Value::Null => None,
                    _ => Some(text_of(value, "value", bindings)?),
                };
                set(pages, &name, value.as_deref(), from).await
            }
            Change::Drain { address, drained } => {
                let drained = boolean("drained", &known_value(drained, "drained", bindings)?)?;
                let parameters = json!({ "node": text_of(address, "address", bindings)? });
                let change = if drained { "drain_node" } else { "undrain_node" };
                let outcome = ask(pages, change, &parameters, from).await?;
                let left = &outcome["in_flight"];
                Ok(vec![format!("the node has {left} queries in flight")])
            }
            Change::DrainProxy { key, draining } => {
                let draining = boolean("draining", &known_value(draining, "draining", bindings)?)?;
                if text_of(key, "key", bindings)? != ONLY_KEY {
                    let why = format!("the key of the only row is '{ONLY_KEY}'");
                    return Err(Fault::invalid(why));
                }
                let change = if draining { "drain" } else { "undrain" };
                ask(pages, change, &json!({}), from).await?;
                Ok(vec![match draining {
                    true => {
                        "the proxy drains; SET draining = false takes the drain back".to_owned()
                    }
                    false => "the proxy serves its clients".to_owned(),
                }])
            }
            Change::Kick(conditions) => {
                let mut parameters = Map::new();
                if let [(ALL, term)] = &conditions[..] {
                    if !boolean(ALL, &known_value(term, ALL, bindings)?)? {
                        return Err(Fault::invalid("all = true closes all clients"));
                    }
                    parameters.insert(ALL.to_owned(), true.into());
                }
                let texts = conditions.iter().filter(|(name, _)| ![PORT, ALL].contains(name));
                for (name, term) in texts {
                    let text = text_of(term, name, bindings)?;
                    parameters.insert((*name).to_owned(), text.into());
                }
                if let Some((_, port)) = conditions.iter().find(|(name, _)| *name == PORT) {
                    let port = known_value(port, PORT, bindings)?;
                    let address = parameters.remove("address").unwrap_or_default();
                    parameters.insert("id".to_owned(), id(&address, &port)?.into());
                }
                let outcome = ask(pages, "kick", &parameters.into(), from).await?;
                let missing = outcome["cores_missing"].as_array().filter(|cores| !cores.is_empty());
                let closed = &outcome["closed"];
                let what = if *closed == 1 { "client" } else { "clients" };
                let mut lines = vec![format!("closed {closed} {what}")];
                lines.extend(missing.map(|cores| {
                    format!("{} did not answer in time; repeat the DELETE", core_list(cores))
                }));
                Ok(lines)
            }
        }
    }
}

/// The value of a boolean. One of CQL may be empty, which would be neither.
fn boolean(name: &str, bytes: &[u8]) -> Result<bool, Fault> {
    match bytes {
        [byte] => Ok(*byte != 0),
        _ => Err(Fault::invalid(format!("{name} must be true or false"))),
    }
}

/// The `id` of the client at an address and a port.
fn id(address: &Value, port: &[u8]) -> Result<String, Fault> {
    let wrong = || Fault::invalid("the address and the port of a client are expected");
    let address: IpAddr =
        address.as_str().and_then(|address| address.parse().ok()).ok_or_else(wrong)?;
    let port = port.first_chunk::<4>().map(|port| i32::from_be_bytes(*port));
    let port = port.and_then(|port| u16::try_from(port).ok()).ok_or_else(wrong)?;
    Ok(SocketAddr::new(address, port).to_string())
}

fn text_of(term: &Prepared, name: &str, bindings: &dyn Bindings) -> Result<String, Fault> {
    let bytes = known_value(term, name, bindings)?;
    String::from_utf8(bytes).map_err(|_| Fault::invalid(format!("{name} is not a text")))
}

/// Changes an option; without a value, the option gets the value from flags and file again.
async fn set(
    pages: &Pages,
    name: &str,
    value: Option<&str>,
    from: IpAddr,
) -> Result<Vec<String>, Fault> {
    let outcome = ask(pages, "set_option", &json!({ "name": name, "value": value }), from).await?;
    let is_same = outcome["changed"] == false;
    let line = match value {
        _ if is_same => format!("{name} has this value already"),
        Some(_) => "the value holds until the next successful reload, or a restart".to_owned(),
        None => format!("{name} has the value from flags and file again"),
    };
    Ok(vec![line])
}

/// Asks for a change of the pages.
async fn ask(
    pages: &Pages,
    change: &str,
    parameters: &Value,
    from: IpAddr,
) -> Result<Value, Fault> {
    match pages.change(change, parameters, from).await {
        Some(Ok(outcome)) => Ok(outcome),
        Some(Err(refused)) => {
            let why = refused["error"].as_str().unwrap_or("the change was refused");
            Err(Fault::invalid(why))
        }
        None => Err(Fault::invalid("this process makes no such change")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise a client that binds nothing drains a node.
    #[test]
    fn an_empty_boolean_changes_nothing() {
        let value = |bytes: &[u8]| boolean("drained", bytes).ok();
        assert_eq!([value(&[0]), value(&[1])], [Some(false), Some(true)]);
        assert_eq!([value(&[]), value(&[0, 0])], [None, None]);
    }
}
