//! Parses the parts of `WHERE` other than equalities: several keys with `IN`, and rows from a token
//! on.
//!
//! The parser accepts the forms that load generators and drivers write. Any other text is planned
//! as a plain SELECT.

use shunt_wire::cql::types;

use crate::stub::plan::{Keys, Operand, blob};

/// A parsed selection.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Selection {
    /// `k IN ..`
    Keys(Keys),
    /// `token(k) >= token(..) [LIMIT ..]`
    From {
        /// The key at whose token the rows begin.
        key: Operand,
        /// The LIMIT, an int.
        rows: Option<Operand>,
    },
}

/// Parses the `WHERE` of a SELECT from a table whose partition key is the column `key`.
pub(super) fn selection(text: &str, key: &str) -> Option<Selection> {
    let mut cursor = Cursor { tokens: tokens(text), position: 0, markers: 0 };
    while !cursor.next()?.eq_ignore_ascii_case("WHERE") {}
    let first = cursor.next()?;
    if first.eq_ignore_ascii_case(key) && cursor.eat("IN") {
        return Some(Selection::Keys(cursor.keys()?));
    }
    let from_token = first.eq_ignore_ascii_case("token") && cursor.eat_all(&["(", key, ")", ">"]);
    if !from_token {
        return None;
    }
    cursor.eat("=");
    if !cursor.eat_all(&["token", "("]) {
        return None;
    }
    let key = cursor.operand(blob)?;
    let rows = if cursor.eat_all(&[")", "LIMIT"]) { Some(cursor.operand(int)?) } else { None };
    Some(Selection::From { key, rows })
}

fn int(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    types::literal(&types::CqlType::Int, text, &mut bytes).then_some(bytes)
}

/// Splits a text into words and single characters.
fn tokens(text: &str) -> Vec<&str> {
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let word = rest.find(|letter| !is_word(letter)).unwrap_or(rest.len());
        let (token, after) =
            rest.split_at(word.max(if is_word(first) { 0 } else { first.len_utf8() }));
        tokens.push(token);
        rest = after.trim_start();
    }
    tokens
}

struct Cursor<'a> {
    tokens: Vec<&'a str>,
    position: usize,
    markers: u16,
}

impl<'a> Cursor<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let token = *self.tokens.get(self.position)?;
        self.position += 1;
        self.markers += u16::from(token == "?" || token == ":");
        Some(token)
    }

    fn eat(&mut self, wanted: &str) -> bool {
        let found =
            self.tokens.get(self.position).is_some_and(|token| token.eq_ignore_ascii_case(wanted));
        self.position += usize::from(found);
        found
    }

    fn eat_all(&mut self, wanted: &[&str]) -> bool {
        wanted.iter().all(|token| self.eat(token))
    }

    fn operand(&mut self, serialize: impl FnOnce(&str) -> Option<Vec<u8>>) -> Option<Operand> {
        let index = self.markers;
        match self.next()? {
            "?" => Some(Operand::Marker(index)),
            ":" => Some(Operand::Named(self.next()?.to_ascii_lowercase(), index)),
            literal => serialize(literal).map(Operand::Literal),
        }
    }

    fn keys(&mut self) -> Option<Keys> {
        if !self.eat("(") {
            return self.operand(|_| None).map(Keys::List);
        }
        let mut keys = vec![self.operand(blob)?];
        while self.eat(",") {
            keys.push(self.operand(blob)?);
        }
        self.eat(")").then_some(Keys::Each(keys))
    }
}

#[cfg(test)]
mod tests {
    use super::{Selection, selection};
    use crate::stub::plan::{Keys, Operand};

    #[test]
    fn several_keys() {
        let list = Selection::Keys(Keys::List(Operand::Marker(0)));
        assert_eq!(selection("SELECT k, v FROM bench.kv WHERE k IN ?", "k"), Some(list));
        let named = Selection::Keys(Keys::List(Operand::Named("all".into(), 0)));
        assert_eq!(selection("select v from kv where K in :All", "k"), Some(named));
        let each = vec![Operand::Marker(0), Operand::Literal(vec![0xAB]), Operand::Marker(1)];
        let each = Selection::Keys(Keys::Each(each));
        assert_eq!(selection("SELECT v FROM kv WHERE k IN (?,0xab, ?) LIMIT 4", "k"), Some(each));
    }

    #[test]
    fn rows_from_a_token() {
        let (key, rows) = (Operand::Marker(0), Some(Operand::Marker(1)));
        let text = "SELECT k, v FROM bench.kv WHERE token(k) >= token(?) LIMIT ?";
        assert_eq!(selection(text, "k"), Some(Selection::From { key: key.clone(), rows }));
        let rows = Some(Operand::Literal(vec![0, 0, 0, 7]));
        let text = "SELECT v FROM kv WHERE token(k)>token(?) LIMIT 7";
        assert_eq!(selection(text, "k"), Some(Selection::From { key: key.clone(), rows }));
        let text = "SELECT v FROM kv WHERE token(k) > token(?)";
        assert_eq!(selection(text, "k"), Some(Selection::From { key, rows: None }));
    }

    #[test]
    fn anything_else_is_a_plain_select() {
        for text in [
            "SELECT v FROM kv",
            "SELECT v FROM kv WHERE k = ?",
            "SELECT v FROM kv WHERE other IN ?",
            "SELECT v FROM kv WHERE k IN (?",
            "SELECT v FROM kv WHERE token(k) < token(?)",
            "SELECT v FROM kv WHERE token(k) >= 5",
        ] {
            assert_eq!(selection(text, "k"), None, "{text}");
        }
    }
}
