//! `SELECT`, and the relations of every `WHERE`.

use super::name::QualifiedName;
use super::term::{Operator, Term};
use super::type_name::{NativeType, TypeName};

/// `SELECT`
#[derive(Clone, Debug, PartialEq)]
pub struct Select {
    /// `SELECT JSON`
    pub json: bool,
    /// `SELECT DISTINCT`
    pub distinct: bool,
    /// The selection.
    pub clause: SelectClause,
    /// The table.
    pub table: QualifiedName,
    /// Relations of the `WHERE` clause, all of which must hold.
    pub relations: Vec<Relation>,
    /// `GROUP BY`
    pub group_by: Vec<Selector>,
    /// `ORDER BY`
    pub order_by: Vec<Ordering>,
    /// `PER PARTITION LIMIT`: a literal or a marker.
    pub per_partition_limit: Option<Term>,
    /// `LIMIT`: a literal or a marker.
    pub limit: Option<Term>,
    /// `ALLOW FILTERING`
    pub allow_filtering: bool,
}

/// The selection: everything, or a list.
#[derive(Clone, Debug, PartialEq)]
pub enum SelectClause {
    /// `*`
    All,
    /// A list of selectors.
    Items(Vec<SelectedItem>),
}

/// A selector with its name in the result.
#[derive(Clone, Debug, PartialEq)]
pub struct SelectedItem {
    /// The selector.
    pub selector: Selector,
    /// `AS alias`
    pub alias: Option<String>,
}

/// A selector: something computed for each row.
#[derive(Clone, Debug, PartialEq)]
pub enum Selector {
    /// A column.
    Column(String),
    /// A literal, null or marker.
    Term(Term),
    /// `COUNT(*)`
    CountRows,
    /// `writetime(a)`, `maxwritetime(a)`, `ttl(a)`; the argument is a column, or an element, field
    /// or slice of one.
    Metadata(CellMetadata, Box<Selector>),
    /// `CAST(a AS type)`
    Cast(Box<Selector>, NativeType),
    /// `f(a, b)`
    Call {
        /// The function.
        name: QualifiedName,
        /// Arguments of the function.
        arguments: Vec<Selector>,
    },
    /// `a.field`
    Field(Box<Selector>, String),
    /// `a[key]`
    Element(Box<Selector>, Term),
    /// `a[from..to]`
    Slice(Box<Selector>, Option<Term>, Option<Term>),
    /// `(type) a`
    Hint(TypeName, Box<Selector>),
    /// `(a, b)`: a tuple; with one element plain parentheses, unless a tuple is expected.
    Tuple(Vec<Selector>),
    /// `[a, b]`: a list, or a vector.
    List(Vec<Selector>),
    /// `{a, b}`
    Set(Vec<Selector>),
    /// `{a: b}`: a map, or a value of a user-defined type if the keys are columns named like its
    /// fields.
    Map(Vec<(Selector, Selector)>),
    /// `-a`
    Negation(Box<Selector>),
    /// `a + b`
    Arithmetic {
        /// The operation.
        operator: Operator,
        /// Left operand.
        left: Box<Selector>,
        /// Right operand.
        right: Box<Selector>,
    },
}

impl Selector {
    /// The selectors it consists of.
    #[must_use]
    pub fn parts(&self) -> Vec<&Selector> {
        match self {
            Selector::Column(_) | Selector::Term(_) | Selector::CountRows => Vec::new(),
            Selector::Call { arguments, .. } => arguments.iter().collect(),
            Selector::Metadata(_, of)
            | Selector::Cast(of, _)
            | Selector::Field(of, _)
            | Selector::Element(of, _)
            | Selector::Slice(of, _, _)
            | Selector::Hint(_, of)
            | Selector::Negation(of) => vec![of],
            Selector::Tuple(of) | Selector::List(of) | Selector::Set(of) => of.iter().collect(),
            Selector::Map(entries) => {
                entries.iter().flat_map(|(key, value)| [key, value]).collect()
            }
            Selector::Arithmetic { left, right, .. } => vec![left, right],
        }
    }
}

/// A property of a cell besides its value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CellMetadata {
    /// `writetime`
    WriteTime,
    /// `maxwritetime`
    MaxWriteTime,
    /// `ttl`
    TimeToLive,
}

/// Comparisons of relations and conditions.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Hash)]
pub enum Comparison {
    /// `=`
    Equal,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
    /// `!=`
    NotEqual,
    /// `LIKE`
    Like,
    /// `CONTAINS`
    Contains,
    /// `CONTAINS KEY`
    ContainsKey,
}

impl Comparison {
    /// Result of the comparison for values in this order; `None` if it does not depend on the
    /// order.
    pub fn of(self, order: std::cmp::Ordering) -> Option<bool> {
        Some(match self {
            Comparison::Equal => order.is_eq(),
            Comparison::NotEqual => order.is_ne(),
            Comparison::Less => order.is_lt(),
            Comparison::LessOrEqual => order.is_le(),
            Comparison::Greater => order.is_gt(),
            Comparison::GreaterOrEqual => order.is_ge(),
            Comparison::Like | Comparison::Contains | Comparison::ContainsKey => return None,
        })
    }
}

/// One relation of a `WHERE` clause.
#[derive(Clone, Debug, PartialEq)]
pub enum Relation {
    /// `a = 1`
    Column {
        /// The column.
        column: String,
        /// The comparison.
        comparison: Comparison,
        /// The compared value.
        value: Term,
    },
    /// `a IN (1, 2)`
    In {
        /// The column.
        column: String,
        /// The values.
        values: Vec<Term>,
    },
    /// `a IN ?`: one marker for the list.
    InMarker {
        /// The column.
        column: String,
        /// The marker.
        marker: u16,
    },
    /// `a IS NOT NULL`
    IsNotNull(String),
    /// `m['k'] = 1`
    Element {
        /// The column.
        column: String,
        /// The key of the element.
        key: Term,
        /// The comparison.
        comparison: Comparison,
        /// The compared value.
        value: Term,
    },
    /// `token(a, b) > 1`
    Token {
        /// The columns.
        columns: Vec<String>,
        /// The comparison.
        comparison: Comparison,
        /// The compared value.
        value: Term,
    },
    /// `(a, b) > (1, 2)`; the value is a tuple or a marker.
    Tuple {
        /// The columns.
        columns: Vec<String>,
        /// The comparison.
        comparison: Comparison,
        /// The compared value.
        value: Term,
    },
    /// `(a, b) IN ((1, 2), (3, 4))`; the values are all tuples or all markers.
    TupleIn {
        /// The columns.
        columns: Vec<String>,
        /// The values.
        values: Vec<Term>,
    },
    /// `(a, b) IN ?`
    TupleInMarker {
        /// The columns.
        columns: Vec<String>,
        /// The marker.
        marker: u16,
    },
    /// `expr(index, value)`
    Custom {
        /// The index.
        index: QualifiedName,
        /// The expression.
        value: Term,
    },
}

/// One part of `ORDER BY`.
#[derive(Clone, Debug, PartialEq)]
pub struct Ordering {
    /// The thing to order by.
    pub by: OrderingBy,
    /// `DESC`
    pub descending: bool,
}

/// A thing that rows can be ordered by.
#[derive(Clone, Debug, PartialEq)]
pub enum OrderingBy {
    /// A column.
    Column(String),
    /// `a ANN OF [..]`
    NearestNeighbours(String, Term),
}
