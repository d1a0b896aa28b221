//! Bounds of several columns in mixed directions, compared with their meaning row by row.

use proptest::prelude::*;
use shunt_language::ast::Statement;
use shunt_language::functions::Environment;
use shunt_language::terms::{Bindings, Scope, Value};
use shunt_language::types::CqlType;

use crate::execute::intervals::Intervals;
use crate::schema::{Schema, Table};
use crate::statement::restrictions::Restrictions;

/// No bind values.
struct Nothing;

impl Environment for Nothing {
    fn now_ms(&self) -> i64 {
        0
    }

    fn timeuuid(&self) -> [u8; 16] {
        [0; 16]
    }

    fn random(&self) -> u128 {
        0
    }

    fn token(&self, _: &[u8]) -> i64 {
        0
    }
}

impl Bindings for Nothing {
    fn value(&self, _: u16) -> Value {
        Value::Unset
    }
}

fn table(descending: [bool; 3]) -> Table {
    let order = descending.map(|descending| if descending { "DESC" } else { "ASC" });
    let text = format!(
        "CREATE TABLE t (k int, a int, b int, c int, PRIMARY KEY (k, a, b, c)) \
         WITH CLUSTERING ORDER BY (a {}, b {}, c {})",
        order[0], order[1], order[2]
    );
    let Statement::Schema(shunt_language::ast::SchemaStatement::CreateTable(create)) =
        shunt_language::parse(&text).expect("a table").statement
    else {
        panic!("{text}")
    };
    Table::create(&create, "k", &Schema::empty(), [0; 16], None).expect("a table")
}

fn intervals(table: &Table, text: &str) -> Intervals {
    let Statement::Select(select) = shunt_language::parse(text).expect(text).statement else {
        panic!("{text}")
    };
    let key = [CqlType::from(shunt_language::ast::NativeType::Int)];
    let mut scope = Scope::new(&(), Some(&key), 0, 0);
    let restrictions = Restrictions::new(table, &select.relations, &mut scope).expect(text);
    Intervals::new(table, &restrictions.clustering, &Nothing).expect(text)
}

/// A bound as text, and its meaning.
fn side(values: &[i32], symbol: &str) -> String {
    let names = ["a", "b", "c"][..values.len()].join(", ");
    let values: Vec<String> = values.iter().map(i32::to_string).collect();
    format!(" AND ({names}) {symbol} ({})", values.join(", "))
}

fn holds(row: &[i32], values: &[i32], symbol: &str) -> bool {
    let order = row[..values.len()].cmp(values);
    match symbol {
        ">" => order.is_gt(),
        ">=" => order.is_ge(),
        "<" => order.is_lt(),
        _ => order.is_le(),
    }
}

proptest! {
    #[test]
    fn intervals_have_the_rows_that_the_bounds_mean(
        descending in any::<[bool; 3]>(),
        lower in proptest::collection::vec(0..3_i32, 1..4),
        upper in proptest::collection::vec(0..3_i32, 1..4),
        which in 0..3,
        inclusive in any::<[bool; 2]>(),
    ) {
        let table = table(descending);
        let symbols = [if inclusive[0] { ">=" } else { ">" }, if inclusive[1] { "<=" } else { "<" }];
        let mut text = "SELECT * FROM t WHERE k = 1".to_owned();
        if which != 1 {
            text += &side(&lower, symbols[0]);
        }
        if which != 0 {
            text += &side(&upper, symbols[1]);
        }
        let found = intervals(&table, &text);
        prop_assert!(found.0.iter().all(|interval| interval.from < interval.to));
        prop_assert!(found.0.windows(2).all(|pair| pair[0].to <= pair[1].from));
        let mut keys = Vec::new();
        for a in 0..3 {
            for b in 0..3 {
                for c in 0..3 {
                    let row = [a, b, c];
                    let values = row.map(i32::to_be_bytes);
                    let key = super::super::keys::clustering(&table, &values).expect("a key");
                    let wanted = (which == 1 || holds(&row, &lower, symbols[0]))
                        && (which == 0 || holds(&row, &upper, symbols[1]));
                    prop_assert_eq!(found.contains(&key), wanted, "{} {:?}", &text, row);
                    keys.push((key, wanted));
                }
            }
        }
        // The remainder behind a row is the rows after it.
        keys.sort();
        for (place, (key, _)) in keys.iter().enumerate() {
            let (ahead, back) = (found.behind(key, false), found.behind(key, true));
            for (other_place, (other, wanted)) in keys.iter().enumerate() {
                prop_assert_eq!(ahead.contains(other), *wanted && other_place > place);
                prop_assert_eq!(back.contains(other), *wanted && other_place < place);
            }
        }
    }
}
