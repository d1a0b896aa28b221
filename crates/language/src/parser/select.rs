//! `SELECT`

use super::Parser;
use crate::ast::{Ordering, OrderingBy, Select, SelectClause, SelectedItem};
use crate::error::SyntaxError;

impl Parser<'_> {
    pub(super) fn select(&mut self) -> Result<Select, SyntaxError> {
        self.expect_word("select")?;
        let json = self.select_keyword("json");
        let distinct = self.select_keyword("distinct");
        let clause = self.select_clause()?;
        self.expect_word("from")?;
        let table = self.qualified_name("table")?;
        let relations = if self.eat_word("where") { self.relations()? } else { Vec::new() };
        let group_by = if self.eat_words(&["group", "by"]) {
            self.list(Parser::selector)?
        } else {
            Vec::new()
        };
        let order_by = match self.eat_word("order") {
            true => {
                self.expect_word("by")?;
                self.list(Parser::ordering)?
            }
            false => Vec::new(),
        };
        let per_partition_limit = match self.eat_word("per") {
            true => {
                self.expect_words(&["partition", "limit"])?;
                Some(self.integer_or_marker()?)
            }
            false => None,
        };
        let limit = self.eat_word("limit").then(|| self.integer_or_marker()).transpose()?;
        let allow_filtering = self.eat_word("allow");
        if allow_filtering {
            self.expect_word("filtering")?;
        }
        Ok(Select {
            json,
            distinct,
            clause,
            table,
            relations,
            group_by,
            order_by,
            per_partition_limit,
            limit,
            allow_filtering,
        })
    }

    /// `JSON` or `DISTINCT`, which can also be columns: they are keywords if a selector follows.
    fn select_keyword(&mut self, word: &str) -> bool {
        let selects = self.is_ahead(1, "*") || self.is_ahead(1, "-") || self.starts_selector(1);
        let is_keyword = self.is_word(word) && selects && !self.is_word_ahead(1, "as");
        self.at += usize::from(is_keyword);
        is_keyword
    }

    /// `*` or a list of selectors.
    pub(super) fn select_clause(&mut self) -> Result<SelectClause, SyntaxError> {
        if self.eat("*") {
            return Ok(SelectClause::All);
        }
        let item = |parser: &mut Self| {
            let selector = parser.selector()?;
            let alias = parser.eat_word("as").then(|| parser.identifier()).transpose()?;
            Ok(SelectedItem { selector, alias })
        };
        self.list(item).map(SelectClause::Items)
    }

    fn ordering(&mut self) -> Result<Ordering, SyntaxError> {
        let column = self.column()?;
        let by = match self.eat_words(&["ann", "of"]) {
            true => OrderingBy::NearestNeighbours(column, self.term()?),
            false => OrderingBy::Column(column),
        };
        let descending = self.eat_word("desc");
        if !descending {
            let _ = self.eat_word("asc");
        }
        Ok(Ordering { by, descending })
    }
}
