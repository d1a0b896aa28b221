//! Intended misbehaviour: before a request is answered, a hook may choose another reaction than the
//! right answer.

use crate::random::Random;

/// A request as the hook sees it.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Index of the node in its ring.
    pub node: usize,
    /// Protocol version of the request.
    pub version: u8,
    /// Stream id of the request.
    pub stream: i16,
    /// Opcode of the request.
    pub opcode: u8,
    /// Body of the request as received (uncompressed).
    pub body: &'a [u8],
    /// True if the request came in an aggregated frame.
    pub aggregated: bool,
}

/// The hook's decision about a request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Action {
    /// The right answer.
    Answer,
    /// The right answer after this many nanoseconds; at once in an aggregated frame, which is
    /// answered as a whole.
    Delay(u64),
    /// No answer.
    Silence,
    /// The right answer under another stream id.
    UnknownStream(i16),
    /// An error with this code and no extra fields, such as 0x1001 Overloaded.
    Error(i32),
    /// UNPREPARED for an EXECUTE; other requests get the right answer.
    Unprepared,
    /// Sends these bytes, outside any frame, in place of an answer's envelope.
    Garbage(Vec<u8>),
    /// Close the connection.
    Close,
}

/// Chooses the reaction to each request.
pub type Hook = Box<dyn FnMut(&Request<'_>) -> Action + Send>;

/// Applies `action` to the first request for which `matches` holds; answers all others.
pub fn once(
    action: Action,
    mut matches: impl FnMut(&Request<'_>) -> bool + Send + 'static,
) -> Hook {
    let mut left = Some(action);
    Box::new(move |request| {
        if left.is_some() && matches(request) {
            left.take().unwrap_or(Action::Answer)
        } else {
            Action::Answer
        }
    })
}

/// Applies one of `faults` with its probability to each QUERY, EXECUTE, PREPARE and BATCH, seeded.
pub fn random(seed: u64, faults: Vec<(f64, Action)>) -> Hook {
    use shunt_wire::cql::envelope::opcode::{BATCH, EXECUTE, PREPARE, QUERY};
    let mut random = Random::new(seed);
    Box::new(move |request| {
        if !matches!(request.opcode, QUERY | EXECUTE | PREPARE | BATCH) {
            return Action::Answer;
        }
        let mut position = random.unit();
        for (probability, action) in &faults {
            position -= probability;
            if position < 0.0 {
                return action.clone();
            }
        }
        Action::Answer
    })
}

/// Parses `KIND=PROBABILITY`; `delay_ns` is the length of the fault `delay`.
///
/// # Errors
/// The text is invalid; the message says why.
pub fn parse_fault(text: &str, delay_ns: u64) -> Result<(f64, Action), String> {
    let (kind, probability) =
        text.split_once('=').ok_or_else(|| format!("fault '{text}' is not KIND=PROBABILITY"))?;
    let action = match kind {
        "unprepared" => Action::Unprepared,
        "overloaded" => Action::Error(shunt_wire::cql::message::error_code::OVERLOADED),
        "unknown-stream" => Action::UnknownStream(i16::MAX),
        "garbage" => Action::Garbage(vec![0xA5; 64]),
        "silence" => Action::Silence,
        "close" => Action::Close,
        "delay" => Action::Delay(delay_ns),
        _ => return Err(format!("unknown fault '{kind}'")),
    };
    match probability.parse::<f64>() {
        Ok(probability) if (0.0..=1.0).contains(&probability) => Ok((probability, action)),
        _ => Err(format!("the probability of fault '{text}' is not a number from 0 to 1")),
    }
}

#[cfg(test)]
mod tests {
    use super::{Action, Request, once, parse_fault, random};
    use shunt_wire::cql::envelope::opcode;

    fn request(opcode: u8) -> Request<'static> {
        Request { node: 0, version: 4, stream: 1, opcode, body: &[], aggregated: false }
    }

    #[test]
    fn once_is_once() {
        let mut hook = once(Action::Close, |request| request.opcode == opcode::EXECUTE);
        let actions =
            [opcode::QUERY, opcode::EXECUTE, opcode::EXECUTE].map(|opcode| hook(&request(opcode)));
        assert_eq!(actions, [Action::Answer, Action::Close, Action::Answer]);
    }

    #[test]
    fn random_keeps_its_share_and_spares_the_handshake() {
        let mut hook = random(3, vec![(0.25, Action::Silence), (0.25, Action::Unprepared)]);
        let silent =
            (0..10_000).filter(|_| hook(&request(opcode::EXECUTE)) == Action::Silence).count();
        assert!((2200..2800).contains(&silent), "{silent}");
        assert!((0..100).all(|_| hook(&request(opcode::STARTUP)) == Action::Answer));
    }

    #[test]
    fn faults_by_name() {
        assert_eq!(parse_fault("delay=0.5", 7), Ok((0.5, Action::Delay(7))));
        assert!(
            parse_fault("delay=2", 7).is_err()
                && parse_fault("dely=0.1", 7).is_err()
                && parse_fault("x", 7).is_err()
        );
    }
}
