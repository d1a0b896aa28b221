//! The paths that a Rust source names, read from its tokens: imports, full paths, and the macros
//! that it defines and calls. Comments, string literals and test code are left out.

use std::iter::Peekable;
use std::str::Chars;

pub(crate) type Path = Vec<String>;

/// A path, and the modules within the file around it.
pub(crate) struct Named {
    pub(crate) within: Path,
    pub(crate) path: Path,
}

/// A name that `use` imports; `*` for every item of a module.
pub(crate) struct Import {
    pub(crate) name: String,
    pub(crate) from: Named,
}

#[derive(Default)]
pub(crate) struct Source {
    pub(crate) imports: Vec<Import>,
    pub(crate) named: Vec<Named>,
    pub(crate) macros_defined: Vec<String>,
    pub(crate) macros_called: Vec<String>,
    /// Child modules that only tests compile.
    pub(crate) test_modules: Vec<String>,
}

pub(crate) fn read(text: &str) -> Source {
    let mut source = Source::default();
    let tokens = without_tests(&tokens(text), &mut source);
    let mut reader = Reader { tokens: &tokens, at: 0, within: Vec::new(), source };
    reader.read();
    reader.source
}

/// Returns the tokens of a source without comments, string literals and test code.
pub(crate) fn product_tokens(text: &str) -> Vec<String> {
    without_tests(&tokens(text), &mut Source::default())
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Splits a source into words, `::` and single signs. A string or number is an empty token.
fn tokens(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '/' if rest.peek() == Some(&'/') => while rest.next().is_some_and(|c| c != '\n') {},
            '/' if rest.peek() == Some(&'*') => skip_comment(&mut rest),
            '"' => {
                skip_text(&mut rest);
                tokens.push(String::new());
            }
            '\'' => skip_character_or_lifetime(&mut rest, &mut tokens),
            ':' if rest.next_if_eq(&':').is_some() => tokens.push("::".to_owned()),
            c if c.is_whitespace() => {}
            c if c.is_alphanumeric() || c == '_' => {
                let mut word = String::from(c);
                while let Some(c) = rest.next_if(|c| c.is_alphanumeric() || *c == '_') {
                    word.push(c);
                }
                let is_raw = ["r", "br", "cr"].contains(&word.as_str());
                if is_raw && skip_raw_text(&mut rest) || !is_word(&word) {
                    word.clear();
                }
                tokens.push(word);
            }
            c => tokens.push(c.to_string()),
        }
    }
    tokens
}

fn skip_comment(rest: &mut Peekable<Chars>) {
    let mut depth = 0;
    while let Some(c) = rest.next() {
        if c == '*' && rest.next_if_eq(&'/').is_some() {
            depth -= 1;
        } else if c == '/' && rest.next_if_eq(&'*').is_some() {
            depth += 1;
        }
        // Reads the star of the opening first.
        if depth < 0 {
            return;
        }
    }
}

fn skip_text(rest: &mut Peekable<Chars>) {
    while let Some(c) = rest.next() {
        match c {
            '\\' => drop(rest.next()),
            '"' => return,
            _ => {}
        }
    }
}

/// Skips a raw string and returns true, if one follows; its `r` was read already.
fn skip_raw_text(rest: &mut Peekable<Chars>) -> bool {
    let mut ahead = rest.clone();
    let mut marks = 0;
    while ahead.next_if_eq(&'#').is_some() {
        marks += 1;
    }
    if ahead.next() != Some('"') {
        return false;
    }
    while let Some(c) = ahead.next() {
        if c == '"' && (0..marks).all(|_| ahead.next_if_eq(&'#').is_some()) {
            break;
        }
    }
    *rest = ahead;
    true
}

fn skip_character_or_lifetime(rest: &mut Peekable<Chars>, tokens: &mut Vec<String>) {
    let mut ahead = rest.clone();
    let first = ahead.next();
    if first == Some('\\') {
        ahead.next();
        while ahead.next().is_some_and(|c| c != '\'') {}
    } else if ahead.next() != Some('\'') {
        return;
    }
    *rest = ahead;
    tokens.push(String::new());
}

/// Leaves out the item, statement or field after a `cfg` attribute that names `test`.
fn without_tests(tokens: &[String], source: &mut Source) -> Vec<String> {
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let attribute = attribute_end(tokens, at);
        let Some(mut end) = attribute.filter(|end| is_for_tests(&tokens[at..*end])) else {
            kept.push(tokens[at].clone());
            at += 1;
            continue;
        };
        while let Some(next) = attribute_end(tokens, end) {
            end = next;
        }
        at = item_end(tokens, end);
        if let [.., before, name, last] = &tokens[end..at]
            && before == "mod"
            && last == ";"
        {
            source.test_modules.push(name.clone());
        }
    }
    kept
}

/// Returns the end of the attribute that begins at `at`.
fn attribute_end(tokens: &[String], at: usize) -> Option<usize> {
    if tokens.get(at)? != "#" || tokens.get(at + 1)? != "[" {
        return None;
    }
    let mut depth = 0;
    for (index, token) in tokens.iter().enumerate().skip(at + 1) {
        match token.as_str() {
            "[" => depth += 1,
            "]" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(index + 1);
        }
    }
    None
}

fn is_for_tests(attribute: &[String]) -> bool {
    let test = attribute.iter().position(|token| token == "test");
    attribute.get(2).is_some_and(|word| word == "cfg")
        && test.is_some_and(|at| attribute.get(at.saturating_sub(2)).is_none_or(|w| w != "not"))
}

/// Returns the end of the item, statement or field that begins at `start`.
fn item_end(tokens: &[String], start: usize) -> usize {
    const ITEMS: [&str; 15] = [
        "fn", "mod", "impl", "struct", "enum", "use", "const", "static", "type", "trait", "async",
        "unsafe", "union", "extern", "let",
    ];
    let mut head = tokens[start..].iter().enumerate().filter(|(_, token)| is_word(token));
    let mut first = head.next();
    if first.is_some_and(|(_, word)| word == "pub") {
        let limits = ["crate", "super", "self", "in"];
        first = head.find(|(_, word)| !limits.contains(&word.as_str()));
    }
    let word = first.map_or("", |(_, word)| word.as_str());
    let ends_with_brace = !["use", "const", "static", "type", "let"].contains(&word);
    let mut depth = 0;
    for (index, token) in tokens.iter().enumerate().skip(start) {
        match token.as_str() {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => {
                if depth == 0 {
                    return index;
                }
                depth -= 1;
                if token == "}" && depth == 0 && ends_with_brace {
                    return index + 1;
                }
            }
            ";" if depth == 0 => return index + 1,
            "," if depth == 0 && !ITEMS.contains(&word) => return index + 1,
            _ => {}
        }
    }
    tokens.len()
}

struct Reader<'a> {
    tokens: &'a [String],
    at: usize,
    within: Path,
    source: Source,
}

impl<'a> Reader<'a> {
    fn read(&mut self) {
        // Ends of the modules within the file, as depths of their braces.
        let (mut depth, mut ends) = (0, Vec::new());
        while let Some(token) = self.tokens.get(self.at) {
            self.at += 1;
            match token.as_str() {
                "{" => depth += 1,
                "}" => {
                    depth -= 1;
                    if ends.last() == Some(&depth) {
                        ends.pop();
                        self.within.pop();
                    }
                }
                "mod" if self.peek_at(1) == "{" => {
                    self.within.push(self.peek_at(0).to_owned());
                    ends.push(depth);
                    self.at += 1;
                }
                "mod" => self.at += 1,
                // A visibility names a module but uses nothing of it.
                "pub" if self.peek_at(0) == "(" && self.peek_at(1) == "in" => {
                    while self.tokens.get(self.at).is_some_and(|token| token != ")") {
                        self.at += 1;
                    }
                }
                "use" if self.peek_at(0) != "<" => self.tree(&mut Vec::new()),
                "macro_rules" if self.peek_at(0) == "!" => {
                    self.source.macros_defined.push(self.peek_at(1).to_owned());
                    self.at += 2;
                }
                word if is_word(word) => self.path(word),
                _ => {}
            }
        }
    }

    fn peek_at(&self, ahead: usize) -> &'a str {
        self.tokens.get(self.at + ahead).map_or("", String::as_str)
    }

    /// Reads a path in code whose first word was read already.
    fn path(&mut self, first: &str) {
        let is_whole = self.at < 2 || self.tokens[self.at - 2] != "::";
        let mut path = vec![first.to_owned()];
        while self.peek_at(0) == "::" && is_word(self.peek_at(1)) {
            path.push(self.peek_at(1).to_owned());
            self.at += 2;
        }
        if self.peek_at(0) == "!" && path.len() == 1 && self.peek_at(1) != "=" {
            self.source.macros_called.push(first.to_owned());
        }
        if is_whole && path.len() > 1 {
            self.source.named.push(Named { within: self.within.clone(), path });
        }
    }

    /// Reads a tree of imports below a path, up to the sign that ends it.
    fn tree(&mut self, prefix: &mut Path) {
        let depth = prefix.len();
        let mut name = None;
        let mut is_open = true;
        while let Some(token) = self.tokens.get(self.at) {
            self.at += 1;
            match token.as_str() {
                "{" => {
                    is_open = false;
                    while self.tokens.get(self.at).is_some_and(|token| token != "}") {
                        self.tree(prefix);
                        self.at += usize::from(self.peek_at(0) == ",");
                    }
                    self.at += 1;
                }
                "," | "}" | ";" => {
                    self.at -= 1;
                    break;
                }
                "as" => {
                    name = Some(self.peek_at(0).to_owned());
                    self.at += 1;
                }
                "::" => {}
                part => prefix.push(part.to_owned()),
            }
        }
        if is_open && !prefix.is_empty() {
            let mut path = prefix.clone();
            if path.len() > 1 {
                path.pop_if(|last| last == "self");
            }
            let name = name.unwrap_or_else(|| path[path.len() - 1].clone());
            let from = Named { within: self.within.clone(), path };
            self.source.imports.push(Import { name, from });
        }
        prefix.truncate(depth);
    }
}
