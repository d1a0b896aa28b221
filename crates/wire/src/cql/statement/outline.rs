//! The outline of a statement: its tables, and the clauses that say how much of a table it reads.
//!
//! [`super::classify`] gives up where routing needs no more. A rule of an operator needs to know
//! whether a `SELECT` names its partition, has a limit and allows filtering, and which tables a
//! batch writes. The outline is read by the reserved words of the grammar, so no quoted name,
//! string or comment is taken for one of them.

use super::classification::Kind;
use super::identifier::Identifier;
use super::lexer::{Lexer, Token, TokenKind};

/// A part of an outline.
#[derive(Clone, Copy, Debug)]
pub enum Part<'a> {
    /// A table behind `FROM`, `INTO` or `UPDATE`: the kind of the last verb before it, its keyspace
    /// if that is written, and its name.
    Table(Kind, Option<Identifier<'a>>, Identifier<'a>),
    /// A column that `WHERE` restricts with `=` or `IN`, or inside `TOKEN(..)`.
    Restricted(Identifier<'a>),
    /// `LIMIT`, and not `PER PARTITION LIMIT`.
    Limit,
    /// `ALLOW FILTERING`.
    AllowFiltering,
    /// `IF`, which makes a write conditional.
    Condition,
}

/// The parts of a text, in its order. Reads the text to its end: the caller bounds its length.
#[must_use]
pub fn outline(text: &str) -> Outline<'_> {
    Outline { lexer: Lexer::new(text), place: Place::Clause, verb: Kind::Other, is_in_where: false }
}

/// Iterator of [`outline`].
#[derive(Clone, Debug)]
pub struct Outline<'a> {
    lexer: Lexer<'a>,
    place: Place,
    /// Kind of the last verb.
    verb: Kind,
    is_in_where: bool,
}

/// The place of the next token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Somewhere in a clause.
    Clause,
    /// At the beginning of a relation of `WHERE`.
    Relation,
    /// Inside the brackets of `TOKEN(..)`.
    TokenColumns,
    /// Behind `PARTITION`.
    BehindPartition,
}

impl<'a> Outline<'a> {
    /// The name behind the token that was just read.
    fn table(&mut self) -> Option<Part<'a>> {
        let first = self.lexer.peek().identifier()?;
        self.lexer.next();
        if !self.lexer.peek().is(b'.') {
            return Some(Part::Table(self.verb, None, first));
        }
        self.lexer.next();
        let table = self.lexer.next().identifier()?;
        Some(Part::Table(self.verb, Some(first), table))
    }

    /// Reads the beginning of a relation, such as `k =`, `k IN` or `TOKEN(`.
    fn relation(&mut self, first: &Token<'a>) -> Option<Part<'a>> {
        if first.is(b'(') {
            // A relation in brackets, or a list of clustering columns.
            self.place = Place::Relation;
            return None;
        }
        let ahead = self.lexer.peek();
        if first.is_word("TOKEN") && ahead.is(b'(') {
            self.place = Place::TokenColumns;
            return None;
        }
        let column = first.identifier()?;
        (ahead.is(b'=') || ahead.is_word("IN")).then_some(Part::Restricted(column))
    }

    fn clause(&mut self, token: &Token<'a>, is_behind_partition: bool) -> Option<Part<'a>> {
        if token.kind != TokenKind::Word {
            return None;
        }
        self.verb = match token.text.len() {
            6 if token.is_word("SELECT") => Kind::Select,
            6 if token.is_word("INSERT") => Kind::Insert,
            6 if token.is_word("UPDATE") => Kind::Update,
            6 if token.is_word("DELETE") => Kind::Delete,
            _ => self.verb,
        };
        if token.is_any_word(&["FROM", "INTO", "UPDATE"]) {
            self.is_in_where = false;
            return self.table();
        }
        if token.is_word("WHERE") {
            (self.is_in_where, self.place) = (true, Place::Relation);
        } else if token.is_word("AND") && self.is_in_where {
            self.place = Place::Relation;
        } else if token.is_word("IF") {
            self.is_in_where = false;
            return Some(Part::Condition);
        } else if token.is_word("PARTITION") {
            self.place = Place::BehindPartition;
        } else if token.is_word("LIMIT") {
            self.is_in_where = false;
            return (!is_behind_partition).then_some(Part::Limit);
        } else if token.is_word("ALLOW") && self.lexer.peek().is_word("FILTERING") {
            self.is_in_where = false;
            return Some(Part::AllowFiltering);
        }
        None
    }
}

impl<'a> Iterator for Outline<'a> {
    type Item = Part<'a>;

    fn next(&mut self) -> Option<Part<'a>> {
        loop {
            let token = self.lexer.next();
            if matches!(token.kind, TokenKind::End | TokenKind::Bad) {
                return None;
            }
            let place = std::mem::replace(&mut self.place, Place::Clause);
            let part = match place {
                Place::Relation => self.relation(&token),
                Place::TokenColumns if token.is(b')') => None,
                Place::TokenColumns => {
                    self.place = Place::TokenColumns;
                    token.identifier().map(Part::Restricted)
                }
                Place::Clause => self.clause(&token, false),
                Place::BehindPartition => self.clause(&token, true),
            };
            if part.is_some() {
                return part;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Vec<String> {
        let part = |part| match part {
            Part::Table(_, Some(keyspace), table) => format!("{keyspace}.{table}"),
            Part::Table(_, None, table) => table.to_string(),
            Part::Restricted(column) => format!("={column}"),
            Part::Limit => "limit".to_owned(),
            Part::AllowFiltering => "filtering".to_owned(),
            Part::Condition => "if".to_owned(),
        };
        outline(text).map(part).collect()
    }

    #[test]
    fn selects_show_their_restrictions_and_limits() {
        for (text, expected) in [
            ("SELECT * FROM shop.items", vec!["shop.items"]),
            ("select a from Items where K = ? and c > 5 limit 7", vec!["items", "=k", "limit"]),
            ("SELECT * FROM t WHERE a IN (1, 2) AND \"B\" = 'LIMIT'", vec!["t", "=a", "=B"]),
            ("SELECT * FROM t PER PARTITION LIMIT 1", vec!["t"]),
            ("SELECT * FROM t PER PARTITION LIMIT 1 LIMIT 2", vec!["t", "limit"]),
            (
                "SELECT * FROM t WHERE token(a, b) > ? ALLOW FILTERING",
                vec!["t", "=a", "=b", "filtering"],
            ),
            ("SELECT * FROM t WHERE (a, b) IN ((1, 2)) AND (k = 1)", vec!["t", "=k"]),
            ("SELECT * FROM t WHERE m[5] = 1 AND l CONTAINS 3 AND c BETWEEN 1 AND 2", vec!["t"]),
            ("SELECT * FROM t -- LIMIT 5\n WHERE a = /* ALLOW FILTERING */ 1", vec!["t", "=a"]),
            ("SELECT \"limit\" FROM t WHERE \"allow\" = 'x' ", vec!["t", "=allow"]),
            ("SELECT * FROM t WHERE a = 'it''s' ORDER BY c LIMIT ?;", vec!["t", "=a", "limit"]),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
    }

    #[test]
    fn batches_show_all_tables() {
        let text = "BEGIN UNLOGGED BATCH INSERT INTO a.t (k) VALUES ('UPDATE x'); \
            UPDATE \"B\" USING TTL 5 SET v = 1 WHERE k = 2 DELETE v FROM c WHERE k = 3 APPLY BATCH";
        let tables: Vec<_> = shown(text).into_iter().filter(|it| !it.starts_with('=')).collect();
        assert_eq!(tables, ["a.t", "B", "c"]);
        let verb = |part| if let Part::Table(verb, ..) = part { Some(verb) } else { None };
        let verbs: Vec<_> = outline(text).filter_map(verb).collect();
        assert_eq!(verbs, [Kind::Insert, Kind::Update, Kind::Delete]);
        let odd = "UPDATE t SET v = 1 WHERE k = f(?) + {}[3] IF \"if\" = 2";
        assert_eq!(shown(odd), ["t", "=k", "if"], "whatever stands before it");
        assert_eq!(shown("INSERT INTO"), Vec::<String>::new());
        assert_eq!(shown("SELECT a FROM k."), Vec::<String>::new());
    }
}
