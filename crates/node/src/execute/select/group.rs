//! Groups of rows that become one: aggregates in progress, and the first row, which gives the other
//! values.

use shunt_language::error::InvalidRequest;
use shunt_language::functions::AggregateState;
use shunt_storage::row::Row;

use super::evaluate::Evaluator;
use super::input::{Clustering, Input};
use super::output::put_row;
use crate::statement::select::SelectPlan;
use crate::statement::select::selection::{Expression, Selection};

/// Copy of the first row of a group.
#[derive(Default)]
struct First {
    partition: Vec<u8>,
    static_row: Option<Row>,
    clustering: Option<Clustering>,
    row: Option<Row>,
}

/// A group of rows.
pub(super) struct Group {
    /// Common prefix of the rows' clustering bytes.
    pub(super) prefix: Vec<u8>,
    /// Clustering bytes that the result is sorted by.
    pub(super) sort_key: Option<Vec<u8>>,
    aggregates: Vec<AggregateState>,
    first: First,
}

/// True if an expression uses the row itself, outside aggregates.
fn looks_at_row(expression: &Expression) -> bool {
    match expression {
        Expression::Column(_) | Expression::Metadata { .. } => true,
        Expression::Term(_) | Expression::Aggregate(_) => false,
        Expression::Call { arguments, .. } => arguments.iter().any(looks_at_row),
        Expression::Field { of, .. }
        | Expression::Element { of, .. }
        | Expression::Slice { of, .. } => looks_at_row(of),
        Expression::Composite { parts, .. } => parts.iter().flatten().any(looks_at_row),
    }
}

impl Group {
    pub(super) fn new(
        selection: &Selection,
        prefix: &[u8],
        sort_key: Option<Vec<u8>>,
        input: &Input<'_>,
    ) -> Group {
        let mut first = First::default();
        if selection.items.iter().any(|item| looks_at_row(&item.expression)) {
            first = First {
                partition: input.partition.to_vec(),
                static_row: input.static_row.cloned(),
                clustering: input.clustering.cloned(),
                row: input.row.cloned(),
            };
        }
        Group { prefix: prefix.to_vec(), sort_key, aggregates: start(selection), first }
    }

    /// The group without rows.
    pub(super) fn empty(selection: &Selection) -> Group {
        Group {
            prefix: Vec::new(),
            sort_key: None,
            aggregates: start(selection),
            first: First::default(),
        }
    }

    pub(super) fn add(
        &mut self,
        selection: &Selection,
        evaluator: &Evaluator<'_>,
        input: &Input<'_>,
    ) -> Result<(), InvalidRequest> {
        for (state, of) in self.aggregates.iter_mut().zip(&selection.aggregates) {
            match &of.argument {
                None => state.add(None)?,
                Some(argument) => state.add(evaluator.value(argument, input, &[])?.as_deref())?,
            }
        }
        Ok(())
    }

    pub(super) fn put(
        &self,
        plan: &SelectPlan,
        evaluator: &Evaluator<'_>,
        now: i64,
        out: &mut Vec<u8>,
    ) -> Result<(), InvalidRequest> {
        let input = Input {
            table: plan.table(),
            partition: &self.first.partition,
            static_row: self.first.static_row.as_ref(),
            clustering: self.first.clustering.as_ref(),
            row: self.first.row.as_ref(),
            now,
        };
        put_row(plan, evaluator, &input, &self.aggregates, out)
    }
}

fn start(selection: &Selection) -> Vec<AggregateState> {
    selection.aggregates.iter().map(|of| of.aggregate.start()).collect()
}
