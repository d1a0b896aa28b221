//! A client whose statements are huge: nobody else has to prepare theirs again, and its own can be executed.

use shunt_bench::stub::StubMail;
use shunt_reactor::sim::SECOND;
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::error_code;

use super::bytes;
use super::town::Town;

/// A SELECT of so many bytes, the first of them as this number says.
fn select(number: usize, bytes: usize) -> String {
    let mut text = format!("SELECT v FROM bench.kv WHERE k = ? /* {number} */");
    text.extend(std::iter::repeat_n(' ', bytes - text.len()));
    text
}

#[test]
fn statements_of_many_megabytes_push_nobody_elses_out() {
    let mut town = Town::new();
    let offender = town.started_offender(4);
    let mut ids = Vec::new();
    for number in 0..5 {
        town.send(offender, &bytes::prepare(4, 1, &select(number, 15 << 20)));
        town.answered(offender, 1);
        ids.push(bytes::prepared_id(&town.take_answers(offender)[0]));
    }
    // Their statements are known: none of them is asked to prepare again.
    town.begin_work();
    town.at_work();
    for forgotten in [false, true] {
        if forgotten {
            for (index, node) in town.scene.nodes.clone().into_iter().enumerate() {
                town.scene.world.post(node, StubMail::ForgetStatements(index));
            }
        }
        for (number, id) in ids.iter().enumerate().take(if forgotten { 1 } else { 5 }) {
            // As with a node: who is asked to prepare does so, and then it works.
            let mut asked = 0;
            for key in 0u8..9 {
                town.send(offender, &bytes::execute(4, 2, id, &[&[key]]));
                town.answered(offender, 1);
                let answer = town.take_answers(offender).remove(0);
                if answer.header.opcode == opcode::RESULT {
                    continue;
                }
                assert_eq!((answer.error().0, forgotten), (error_code::UNPREPARED, true));
                asked += 1;
                town.send(offender, &bytes::prepare(4, 1, &select(number, 15 << 20)));
                town.answered(offender, 1);
                town.take_answers(offender);
                town.pass(SECOND);
            }
            assert!(asked <= 1, "asked to prepare {asked} times");
        }
    }
    town.scene.world.with(offender, |offender, io| offender.vanish(io));
    town.at_peace();
}
