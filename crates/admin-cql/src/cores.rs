//! Cores in warnings.

use serde_json::Value;

/// Cores in words: `core 1`, or `cores 0, 1`.
pub(crate) fn core_list(cores: &[Value]) -> String {
    let numbers: Vec<String> = cores.iter().map(Value::to_string).collect();
    let noun = if cores.len() == 1 { "core" } else { "cores" };
    format!("{noun} {}", numbers.join(", "))
}
