//! Functions, operations and aggregates of selectors: the types of the arguments determine the
//! overload.

use shunt_language::ast::{NativeType, QualifiedName, Selector, Term};
use shunt_language::error::InvalidRequest;
use shunt_language::functions::{self, Aggregate, AggregateKind, Argument, Function};
use shunt_language::terms::{Scope, known_type, prepare};
use shunt_language::types::CqlType;

use super::metadata::metadata_type;
use super::name::counts_rows;
use super::{AggregateOf, Expression, Preparer, Typed, element_types, field_of, name_of};
use crate::schema::Table;
use crate::statement::restrictions::invalid;

impl Preparer<'_, '_, '_> {
    fn types(&self) -> TypeOf<'_> {
        TypeOf { table: self.table, scope: self.scope }
    }

    /// Type of a selector, if independent of its receiver.
    pub(super) fn known(&self, selector: &Selector) -> Option<CqlType> {
        self.types().known(selector)
    }

    /// Also for a literal: its own type.
    pub(super) fn known_or_literal(&self, selector: &Selector) -> Option<CqlType> {
        match selector {
            Selector::Term(term) => known_type(term, self.scope),
            _ => self.known(selector),
        }
    }

    pub(super) fn fits(&self, selector: &Selector, cql_type: &CqlType) -> Option<bool> {
        self.types().fits(selector, cql_type)
    }

    pub(super) fn call(
        &mut self,
        name: &QualifiedName,
        arguments: &[Selector],
        expected: Option<&CqlType>,
    ) -> Result<Typed, InvalidRequest> {
        let native = native_name(name)?;
        if counts_rows(name, arguments) {
            return self.aggregate(AggregateKind::CountRows, None);
        }
        if let Some(kind) = aggregate_kind(native) {
            return match arguments {
                [only] => self.aggregate(kind, Some(only)),
                _ => invalid(format!(
                    "Invalid number of arguments in call to function {native}: 1 required"
                )),
            };
        }
        self.operation(native, &arguments.iter().collect::<Vec<_>>(), expected)
    }

    pub(super) fn operation(
        &mut self,
        name: &str,
        arguments: &[&Selector],
        expected: Option<&CqlType>,
    ) -> Result<Typed, InvalidRequest> {
        let function = match self.types().resolve(name, arguments, expected) {
            Ok(function) => function,
            Err(error) if expected.is_some() => {
                self.types().resolve(name, arguments, None).map_err(|_| error)?
            }
            Err(error) => return Err(error),
        };
        self.called(function, arguments)
    }

    /// Prepares a call of a known function.
    pub(super) fn called(
        &mut self,
        function: Function,
        arguments: &[&Selector],
    ) -> Result<Typed, InvalidRequest> {
        let mut prepared = Vec::with_capacity(arguments.len());
        for (argument, wanted) in arguments.iter().zip(&function.arguments) {
            prepared.push(self.prepare(argument, Some(wanted))?.0);
        }
        let returns = function.returns.clone();
        Ok((Expression::Call { function, arguments: prepared }, returns))
    }

    pub(super) fn aggregate(
        &mut self,
        kind: AggregateKind,
        argument: Option<&Selector>,
    ) -> Result<Typed, InvalidRequest> {
        if self.in_aggregate {
            return invalid(
                "aggregate functions cannot be used as arguments of aggregate functions",
            );
        }
        let (argument, cql_type) = match argument {
            None => (None, NativeType::Bigint.into()),
            Some(selector) => {
                self.in_aggregate = true;
                // A literal has its own type.
                let known = self.known_or_literal(selector);
                let prepared = self.prepare(selector, known.as_ref());
                self.in_aggregate = false;
                let (expression, cql_type) = prepared?;
                (Some(expression), cql_type)
            }
        };
        let aggregate = Aggregate::new(kind, cql_type)?;
        let returns = aggregate.returns();
        self.selection.aggregates.push(AggregateOf { aggregate, argument });
        Ok((Expression::Aggregate(self.selection.aggregates.len() - 1), returns))
    }
}

fn aggregate_kind(name: &str) -> Option<AggregateKind> {
    Some(match name {
        "count" => AggregateKind::Count,
        "min" => AggregateKind::Min,
        "max" => AggregateKind::Max,
        "sum" => AggregateKind::Sum,
        "avg" => AggregateKind::Average,
        _ => return None,
    })
}

/// Name of a native function; there are no others.
fn native_name(name: &QualifiedName) -> Result<&str, InvalidRequest> {
    match name.keyspace.as_deref() {
        None | Some("system") => Ok(&name.name),
        Some(_) => invalid(format!("Unknown function '{name}'")),
    }
}

/// Finds types without preparing selectors.
struct TypeOf<'p> {
    table: &'p Table,
    scope: &'p Scope<'p>,
}

impl TypeOf<'_> {
    fn resolve(
        &self,
        name: &str,
        arguments: &[&Selector],
        expected: Option<&CqlType>,
    ) -> Result<Function, InvalidRequest> {
        let shown = |selector: &&Selector| SelectorArgument {
            selector: (*selector).clone(),
            known: self.known(selector),
            types: self,
        };
        let arguments: Vec<_> = arguments.iter().map(shown).collect();
        let arguments: Vec<&dyn Argument> =
            arguments.iter().map(|argument| argument as &dyn Argument).collect();
        functions::resolve(name, &arguments, expected, self.scope.key_types)
    }

    fn known(&self, selector: &Selector) -> Option<CqlType> {
        match selector {
            Selector::Column(name) => self.table.column(name).map(|column| column.cql_type.clone()),
            Selector::Term(Term::Hint(..) | Term::Call { .. } | Term::Cast(..)) => {
                self.term(selector)
            }
            Selector::Term(_) => None,
            Selector::CountRows => Some(NativeType::Bigint.into()),
            Selector::Metadata(what, of) => {
                let single = match &**of {
                    Selector::Column(name) => !self.table.column(name)?.is_multi_cell(),
                    Selector::Slice(..) => false,
                    _ => true,
                };
                Some(metadata_type(*what, single))
            }
            Selector::Cast(_, native) => Some((*native).into()),
            Selector::Call { name, arguments } => self.of_call(name, arguments),
            Selector::Field(of, field) => {
                field_of(of, &self.known(of)?, field).ok().map(|found| found.1)
            }
            Selector::Element(of, _) => {
                element_types(of, &self.known(of)?, "Element").ok().map(|found| found.2)
            }
            Selector::Slice(of, ..) => self.known(of),
            Selector::Hint(type_name, _) => CqlType::resolve(type_name, self.scope.types).ok(),
            Selector::Tuple(parts) => match &parts[..] {
                // Parentheses or a tuple of one: only the receiver decides.
                [_] => None,
                several => several
                    .iter()
                    .map(|part| self.known(part))
                    .collect::<Option<_>>()
                    .map(CqlType::tuple),
            },
            Selector::List(parts) => {
                parts.iter().find_map(|part| self.known(part)).map(CqlType::list)
            }
            Selector::Set(parts) => {
                parts.iter().find_map(|part| self.known(part)).map(CqlType::set)
            }
            Selector::Map(entries) => {
                let key = entries.iter().find_map(|(key, _)| self.known(key))?;
                Some(CqlType::map(key, entries.iter().find_map(|(_, value)| self.known(value))?))
            }
            Selector::Negation(of) => {
                self.resolve("_negate", &[of], None).ok().map(|found| found.returns)
            }
            Selector::Arithmetic { operator, left, right } => {
                let found = self.resolve(&format!("_{}", operator.symbol()), &[left, right], None);
                found.ok().map(|found| found.returns)
            }
        }
    }

    fn term(&self, selector: &Selector) -> Option<CqlType> {
        if let Selector::Term(term) = selector { known_type(term, self.scope) } else { None }
    }

    fn of_call(&self, name: &QualifiedName, arguments: &[Selector]) -> Option<CqlType> {
        let native = native_name(name).ok()?;
        if counts_rows(name, arguments) {
            return Some(NativeType::Bigint.into());
        }
        if let Some(kind) = aggregate_kind(native) {
            let argument = self.known(arguments.first()?)?;
            return Aggregate::new(kind, argument).ok().map(|aggregate| aggregate.returns());
        }
        self.resolve(native, &arguments.iter().collect::<Vec<_>>(), None)
            .ok()
            .map(|found| found.returns)
    }

    /// Like [`Argument::fits`].
    fn fits(&self, selector: &Selector, cql_type: &CqlType) -> Option<bool> {
        let all = |parts: &[Selector], element: &CqlType| {
            parts
                .iter()
                .try_fold(true, |exact, part| self.fits(part, element).map(|fits| exact && fits))
        };
        if let Some(known) = self.known(selector) {
            return cql_type.accepts(&known).then_some(known == *cql_type);
        }
        match (selector, cql_type) {
            (Selector::Term(Term::Null | Term::Marker(_)), _) => Some(false),
            (Selector::Term(term), _) => {
                // Markers inside are found when the term is finally prepared.
                let mut apart =
                    Scope::new(self.scope.types, self.scope.key_types, self.scope.now_ms, 0);
                prepare(term, "", cql_type, &mut apart).ok()?;
                Some(known_type(term, self.scope).as_ref() == Some(cql_type))
            }
            (Selector::Tuple(parts), CqlType::Tuple(types)) if parts.len() <= types.len() => {
                let fits =
                    parts.iter().zip(types.iter()).map(|(part, wanted)| self.fits(part, wanted));
                fits.collect::<Option<Vec<_>>>().map(|exact| exact.into_iter().all(|exact| exact))
            }
            (Selector::Tuple(parts), _) if parts.len() == 1 => self.fits(&parts[0], cql_type),
            (
                Selector::List(parts),
                CqlType::List { element, .. } | CqlType::Vector { element, .. },
            )
            | (Selector::Set(parts), CqlType::Set { element, .. }) => all(parts, element),
            (Selector::Set(parts), CqlType::Map { .. }) if parts.is_empty() => Some(false),
            (Selector::Map(entries), CqlType::Map { key, value, .. }) => {
                let keys = entries.iter().map(|(own, _)| self.fits(own, key));
                let values = entries.iter().map(|(_, own)| self.fits(own, value));
                keys.chain(values)
                    .collect::<Option<Vec<_>>>()
                    .map(|exact| exact.into_iter().all(|exact| exact))
            }
            (Selector::Map(entries), CqlType::Udt { definition, .. }) => {
                let fits = entries.iter().map(|(field, value)| {
                    let index = definition.field(&name_of(field))?;
                    self.fits(value, &definition.fields[index].1)
                });
                fits.collect::<Option<Vec<_>>>().map(|exact| exact.into_iter().all(|exact| exact))
            }
            // The receiver decides.
            (Selector::Call { name, .. }, _)
                if matches!(name.name.as_str(), "from_json" | "fromjson") =>
            {
                Some(false)
            }
            _ => None,
        }
    }
}

/// A selector as an argument for overload resolution.
struct SelectorArgument<'p> {
    selector: Selector,
    known: Option<CqlType>,
    types: &'p TypeOf<'p>,
}

impl Argument for SelectorArgument<'_> {
    fn known_type(&self) -> Option<CqlType> {
        self.known.clone()
    }

    fn fits(&self, cql_type: &CqlType) -> Option<bool> {
        match &self.known {
            // A counter that was read is an ordinary number.
            Some(known) if known.is_counter() && *cql_type == NativeType::Bigint.into() => {
                Some(true)
            }
            Some(known) => cql_type.accepts(known).then_some(known == cql_type),
            None => self.types.fits(&self.selector, cql_type),
        }
    }

    fn shown(&self) -> String {
        name_of(&self.selector)
    }

    fn list_length(&self) -> Option<usize> {
        match &self.selector {
            Selector::List(parts) => Some(parts.len()),
            Selector::Term(Term::List(terms)) => Some(terms.len()),
            _ => None,
        }
    }
}
