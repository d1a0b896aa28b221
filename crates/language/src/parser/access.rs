//! Roles, users, identities and permissions: parsed in full and kept as a name.
//!
//! The node refuses all of them. It parses them so that a misspelt one is a syntax error, as it is
//! in Cassandra, and so that a right one is refused by its name.

use super::Parser;
use crate::error::SyntaxError;
use crate::lexer::Kind;

/// The permissions that can be granted.
const PERMISSIONS: [&str; 10] = [
    "create",
    "alter",
    "drop",
    "select",
    "modify",
    "authorize",
    "describe",
    "execute",
    "unmask",
    "select_masked",
];

impl Parser<'_> {
    /// True if `CREATE`, `ALTER` or `DROP` concerns a role, user or identity.
    pub(super) fn is_access(&self) -> bool {
        let identity = self.is_word("drop") && self.is_word_ahead(1, "identity");
        self.is_word_ahead(1, "role") || self.is_word_ahead(1, "user") || identity
    }

    /// The first words of the statement, such as `CREATE ROLE` or `GRANT PERMISSION`.
    pub(super) fn access(&mut self) -> Result<&'static str, SyntaxError> {
        let verb = self.lower();
        self.advance();
        match (verb.as_str(), self.lower().as_str()) {
            ("create", "role") => self.role("CREATE ROLE"),
            ("alter", "role") => self.role("ALTER ROLE"),
            ("drop", "role") => self.role("DROP ROLE"),
            ("create", "user") => self.user("CREATE USER"),
            ("alter", "user") => self.user("ALTER USER"),
            ("drop", "user") => self.user("DROP USER"),
            ("add" | "drop", "identity") => self.identity(&verb),
            ("grant", _) => self.grant("to", "GRANT PERMISSION", "GRANT ROLE"),
            ("revoke", _) => self.grant("from", "REVOKE PERMISSION", "REVOKE ROLE"),
            ("list", _) => self.list_access(),
            _ => Err(self.no_alternative()),
        }
    }

    /// `IF EXISTS`, or `IF NOT EXISTS` where something is created.
    fn if_condition(&mut self, name: &str) -> Result<bool, SyntaxError> {
        let creates = name.starts_with("CREATE") || name.starts_with("ADD");
        if creates { self.if_not_exists() } else { self.if_exists() }
    }

    fn role(&mut self, name: &'static str) -> Result<&'static str, SyntaxError> {
        self.advance();
        self.if_condition(name)?;
        self.role_name()?;
        if name != "DROP ROLE" && self.eat_word("with") {
            self.and_list(Parser::role_option)?;
        }
        Ok(name)
    }

    fn role_name(&mut self) -> Result<String, SyntaxError> {
        if self.peek().kind == Kind::String { self.string() } else { self.name("role") }
    }

    fn role_option(&mut self) -> Result<(), SyntaxError> {
        match () {
            () if self.eat_word("password") || self.eat_words(&["hashed", "password"]) => {
                self.expect("=")?;
                self.string().map(drop)
            }
            () if self.eat_word("options") => {
                self.expect("=")?;
                self.property_map().map(drop)
            }
            () if self.eat_word("superuser") || self.eat_word("login") => {
                self.expect("=")?;
                if self.eat_word("true") || self.eat_word("false") {
                    Ok(())
                } else {
                    Err(self.mismatch("BOOLEAN"))
                }
            }
            () if self.eat_words(&["access", "to", "all", "datacenters"])
                || self.eat_words(&["access", "from", "all", "cidrs"]) =>
            {
                Ok(())
            }
            () if self.eat_words(&["access", "to", "datacenters"])
                || self.eat_words(&["access", "from", "cidrs"]) =>
            {
                self.expect("{")?;
                self.list(Parser::string)?;
                self.expect("}")
            }
            () => Err(self.no_alternative()),
        }
    }

    fn user(&mut self, name: &'static str) -> Result<&'static str, SyntaxError> {
        self.advance();
        self.if_condition(name)?;
        self.user_name("user names and USER is deprecated, please use ROLE")?;
        if name != "DROP USER" {
            if self.eat_word("with") {
                let _ = self.eat_word("hashed");
                self.expect_word("password")?;
                self.string()?;
            }
            let _ = self.eat_word("superuser") || self.eat_word("nosuperuser");
        }
        Ok(name)
    }

    fn user_name(&mut self, whose: &str) -> Result<String, SyntaxError> {
        match self.peek().kind {
            Kind::String => self.string(),
            Kind::QuotedName => Err(SyntaxError::unplaced(format!(
                "Quoted strings are are not supported for {whose}"
            ))),
            _ => self.plain_word(),
        }
    }

    fn identity(&mut self, verb: &str) -> Result<&'static str, SyntaxError> {
        self.advance();
        let name = if verb == "add" { "ADD IDENTITY" } else { "DROP IDENTITY" };
        self.if_condition(name)?;
        self.user_name("identity")?;
        if verb == "add" {
            self.expect_words(&["to", "role"])?;
            self.user_name("identity")?;
        }
        Ok(name)
    }

    fn grant(
        &mut self,
        towards: &str,
        permission: &'static str,
        role: &'static str,
    ) -> Result<&'static str, SyntaxError> {
        let permissions = self.starts_permissions();
        if permissions {
            self.permissions()?;
            self.expect_word("on")?;
            self.resource()?;
        } else {
            self.role_name()?;
        }
        self.expect_word(towards)?;
        self.role_name()?;
        Ok(if permissions { permission } else { role })
    }

    /// Some permissions are words that can be roles: the following words decide.
    fn starts_permissions(&self) -> bool {
        let word = self.lower();
        let next = ["on", "permission", "permissions", "of", "norecursive"];
        let listed = self.is_ahead(1, ",") || next.iter().any(|word| self.is_word_ahead(1, word));
        (PERMISSIONS.contains(&word.as_str()) || word == "all")
            && (listed || crate::keyword::is_reserved(&word) || self.ahead(1).kind == Kind::End)
    }

    fn permissions(&mut self) -> Result<(), SyntaxError> {
        if self.eat_word("all") {
            let _ = self.eat_word("permissions");
            return Ok(());
        }
        let permission = |parser: &mut Self| {
            if !PERMISSIONS.contains(&parser.lower().as_str()) {
                return Err(parser.no_alternative());
            }
            parser.advance();
            let _ = parser.eat_word("permission");
            Ok(())
        };
        self.list(permission).map(drop)
    }

    fn resource(&mut self) -> Result<(), SyntaxError> {
        let function = |parser: &mut Self| {
            parser.function_name()?;
            parser.argument_types().map(drop)
        };
        match () {
            () if self.eat_words(&["all", "keyspaces"])
                || self.eat_words(&["all", "roles"])
                || self.eat_words(&["all", "mbeans"]) =>
            {
                Ok(())
            }
            () if self.eat_words(&["all", "functions"]) || self.eat_words(&["all", "tables"]) => {
                if self.eat_words(&["in", "keyspace"]) {
                    self.name("keyspace")?;
                }
                Ok(())
            }
            () if self.eat_keyspace() => self.name("keyspace").map(drop),
            () if self.is_word("role")
                && !self.is_word_ahead(1, "to")
                && !self.is_word_ahead(1, "from") =>
            {
                self.advance();
                self.role_name().map(drop)
            }
            () if (self.is_word("mbean") || self.is_word("mbeans"))
                && self.ahead(1).kind == Kind::String =>
            {
                self.advance();
                self.string().map(drop)
            }
            () if self.is_word("function") && self.identifier_ahead(1).is_some() => {
                self.advance();
                function(self)
            }
            () => {
                let _ = self.eat_table();
                self.qualified_name("table").map(drop)
            }
        }
    }

    fn list_access(&mut self) -> Result<&'static str, SyntaxError> {
        if self.eat_word("users") {
            return Ok("LIST USERS");
        }
        let roles = self.eat_word("roles");
        if !roles {
            if !self.starts_permissions() {
                return Err(self.no_alternative());
            }
            self.permissions()?;
            if self.eat_word("on") {
                self.resource()?;
            }
        }
        if self.eat_word("of") {
            self.role_name()?;
        }
        let _ = self.eat_word("norecursive");
        Ok(if roles { "LIST ROLES" } else { "LIST PERMISSIONS" })
    }
}
