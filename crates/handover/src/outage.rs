//! Reasons why an agent cannot be reached. The log has each reason once per outage.

/// Reasons of one outage in the log. An agent's answers are part of some, so their number is
/// bounded.
const REASONS_MAX: usize = 4;
/// Bytes of a reason that are kept and compared.
const REASON_BYTES_MAX: usize = 256;

/// The reasons of the present outage that the log has.
#[derive(Debug, Default)]
pub struct Reasons(Vec<Box<[u8]>>);

impl Reasons {
    /// Notes a failed attempt; true if the log lacks its reason and has room for it.
    pub fn note(&mut self, why: &str) -> bool {
        let why = &why.as_bytes()[..why.len().min(REASON_BYTES_MAX)];
        let is_new = self.0.len() < REASONS_MAX && self.0.iter().all(|known| **known != *why);
        if is_new {
            self.0.push(why.into());
        }
        is_new
    }

    /// Ends the outage: the agent was reached.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_of_an_outage_is_new_once_and_few_are() {
        let mut reasons = Reasons::default();
        assert!(reasons.note("lost") && !reasons.note("lost"));
        assert!(reasons.note("it does not answer"), "the second reason says more");
        assert!(!reasons.note("lost") && !reasons.note("it does not answer"));
        let others = (0..10).filter(|number| reasons.note(&format!("answer {number}"))).count();
        assert_eq!(others, REASONS_MAX - 2);
        reasons.clear();
        assert!(reasons.note("lost"));
        assert!(reasons.note(&"x".repeat(300)) && !reasons.note(&"x".repeat(400)));
    }
}
