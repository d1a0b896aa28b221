//! `shunt ready`: a health check for containers and scripts. It needs neither a shell nor curl.

use clap::Args;
use hyper::StatusCode;
use serde_json::Value;

use super::http::{AdminAccess, Answer, complain};
use super::table;
use crate::exit::{Exit, Failure};
use crate::print;

/// `shunt ready`.
#[derive(Args, Debug)]
pub(crate) struct Ready {
    #[command(flatten)]
    access: AdminAccess,
}

impl Ready {
    /// Asks `/readyz`, and prints the answer.
    pub(crate) fn run(&self) -> Exit {
        match self.access.ask("/readyz").and_then(|answer| verdict(&answer)) {
            Ok(None) => {
                print("ready\n");
                Exit::Done
            }
            Ok(Some(reason)) => {
                eprintln!("not ready: {}", table::printable(&reason));
                Exit::Failed
            }
            Err(failure) => complain(&failure),
        }
    }
}

/// `None`: ready; otherwise the reason of the process. A process of Shunt always gives one.
fn verdict(answer: &Answer) -> Result<Option<String>, Failure> {
    if answer.status != StatusCode::SERVICE_UNAVAILABLE {
        return answer.clone().page().map(|_| None);
    }
    let reason = answer.body.get("reason").and_then(Value::as_str);
    reason.map(|reason| Some(reason.to_owned())).ok_or_else(|| answer.refusal())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_the_page_of_a_ready_process_is_ready() {
        let verdict = |status, body| verdict(&Answer { status, body });
        let draining = json!({ "status": "not ready", "reason": "draining" });
        assert!(matches!(verdict(StatusCode::OK, json!({ "status": "ready" })), Ok(None)));
        let reason = verdict(StatusCode::SERVICE_UNAVAILABLE, draining).expect("an answer");
        assert_eq!(reason.as_deref(), Some("draining"));
        for status in [StatusCode::SERVICE_UNAVAILABLE, StatusCode::BAD_REQUEST] {
            let failure = verdict(status, json!({})).expect_err("no reason");
            assert_eq!(failure.exit, Exit::Configuration, "{status}");
        }
    }
}
