//! Rows of the result as bytes.

use shunt_language::error::InvalidRequest;
use shunt_language::functions::AggregateState;
use shunt_language::values::json;
use shunt_wire::cql::message::put;

use super::evaluate::Evaluator;
use super::input::Input;
use crate::statement::select::SelectPlan;

/// Appends a row.
pub(super) fn put_row(
    plan: &SelectPlan,
    evaluator: &Evaluator<'_>,
    input: &Input<'_>,
    aggregates: &[AggregateState],
    out: &mut Vec<u8>,
) -> Result<(), InvalidRequest> {
    if let Some(positions) = &plan.plain {
        positions.iter().for_each(|position| put::bytes(out, input.value(*position).as_deref()));
        return Ok(());
    }
    if plan.json {
        let text = json_row(plan, evaluator, input, aggregates)?;
        put::bytes(out, Some(text.as_bytes()));
        return Ok(());
    }
    for item in &plan.selection.items {
        let value = evaluator.value(&item.expression, input, aggregates)?;
        put::bytes(out, value.as_deref());
    }
    Ok(())
}

fn json_row(
    plan: &SelectPlan,
    evaluator: &Evaluator<'_>,
    input: &Input<'_>,
    aggregates: &[AggregateState],
) -> Result<String, InvalidRequest> {
    let mut text = String::from("{");
    for (index, item) in plan.selection.items.iter().enumerate() {
        if index > 0 {
            text.push_str(", ");
        }
        text.push_str(&json::json_key(&item.name));
        text.push_str(": ");
        let (name, value) = (&item.name, evaluator.value(&item.expression, input, aggregates)?);
        let shown = json::to_json(&item.cql_type, value.as_deref());
        text.push_str(&shown.ok_or_else(|| {
            InvalidRequest::new(format!("the value of {name} is not of its type"))
        })?);
    }
    text.push('}');
    Ok(text)
}
