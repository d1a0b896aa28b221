//! Parses JSON text to a tree.

use crate::error::InvalidRequest;

/// Deepest nesting of arrays and objects.
const DEPTH_MAX: u32 = 64;

/// A JSON value. Numbers keep their text; objects keep the last of equal keys.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Json {
    /// `null`
    Null,
    /// `true` or `false`
    Boolean(bool),
    /// A number as written.
    Number(String),
    /// A string.
    String(String),
    /// `[..]`
    Array(Vec<Json>),
    /// `{..}`
    Object(Vec<(String, Json)>),
}

impl Json {
    /// Java class of the value in Cassandra's messages.
    pub(super) fn class(&self) -> &'static str {
        match self {
            Json::Null => "null",
            Json::Boolean(_) => "Boolean",
            Json::Number(text) if text.contains(['.', 'e', 'E']) => "Double",
            Json::Number(text) if text.parse::<i32>().is_ok() => "Integer",
            Json::Number(text) if text.parse::<i64>().is_ok() => "Long",
            Json::Number(_) => "BigInteger",
            Json::String(_) => "String",
            Json::Array(_) => "ArrayList",
            Json::Object(_) => "LinkedHashMap",
        }
    }

    /// The value as shown by Java's `toString`.
    pub(super) fn shown(&self) -> String {
        match self {
            Json::Null => "null".to_owned(),
            Json::Boolean(value) => value.to_string(),
            Json::Number(text) | Json::String(text) => text.clone(),
            Json::Array(elements) => {
                format!("[{}]", elements.iter().map(Json::shown).collect::<Vec<_>>().join(", "))
            }
            Json::Object(entries) => {
                let entries = entries.iter().map(|(key, value)| format!("{key}={}", value.shown()));
                format!("{{{}}}", entries.collect::<Vec<_>>().join(", "))
            }
        }
    }
}

/// Parses JSON text.
///
/// # Errors
/// If the text is not JSON, or nests too deeply.
pub fn parse(text: &str) -> Result<Json, InvalidRequest> {
    let mut reader = Reader { text, position: 0 };
    let value = reader.value(0)?;
    reader.blanks();
    if reader.position == text.len() {
        Ok(value)
    } else {
        Err(reader.error("unexpected text behind the value"))
    }
}

struct Reader<'a> {
    text: &'a str,
    position: usize,
}

impl Reader<'_> {
    fn error(&self, problem: &str) -> InvalidRequest {
        InvalidRequest::new(format!("{problem} at byte {}", self.position))
    }

    fn peek(&self) -> u8 {
        self.text.as_bytes().get(self.position).copied().unwrap_or(0)
    }

    fn blanks(&mut self) {
        while matches!(self.peek(), b' ' | b'\t' | b'\r' | b'\n') {
            self.position += 1;
        }
    }

    fn eat(&mut self, byte: u8) -> bool {
        self.blanks();
        let found = self.peek() == byte;
        self.position += usize::from(found);
        found
    }

    fn value(&mut self, depth: u32) -> Result<Json, InvalidRequest> {
        if depth > DEPTH_MAX {
            return Err(self.error(&format!("values nest more than {DEPTH_MAX} deep")));
        }
        self.blanks();
        match self.peek() {
            b'"' => self.string().map(Json::String),
            b'[' => self.array(depth),
            b'{' => self.object(depth),
            b'-' | b'0'..=b'9' => self.number(),
            _ => {
                let words = [
                    ("null", Json::Null),
                    ("true", Json::Boolean(true)),
                    ("false", Json::Boolean(false)),
                ];
                let rest = &self.text[self.position..];
                let found = words.into_iter().find(|(word, _)| rest.starts_with(word));
                let (word, value) = found.ok_or_else(|| self.error("unexpected character"))?;
                self.position += word.len();
                Ok(value)
            }
        }
    }

    fn array(&mut self, depth: u32) -> Result<Json, InvalidRequest> {
        self.position += 1;
        let mut elements = Vec::new();
        if self.eat(b']') {
            return Ok(Json::Array(elements));
        }
        loop {
            elements.push(self.value(depth + 1)?);
            if self.eat(b']') {
                return Ok(Json::Array(elements));
            }
            if !self.eat(b',') {
                return Err(self.error("expected a comma or the end of an array"));
            }
        }
    }

    fn object(&mut self, depth: u32) -> Result<Json, InvalidRequest> {
        self.position += 1;
        let mut entries: Vec<(String, Json)> = Vec::new();
        if self.eat(b'}') {
            return Ok(Json::Object(entries));
        }
        let mut places = std::collections::HashMap::new();
        loop {
            self.blanks();
            if self.peek() != b'"' {
                return Err(self.error("expected a key in quotes"));
            }
            let key = self.string()?;
            if !self.eat(b':') {
                return Err(self.error("expected a colon"));
            }
            let value = self.value(depth + 1)?;
            match places.get(&key) {
                Some(place) => entries[*place] = (key, value),
                None => {
                    places.insert(key.clone(), entries.len());
                    entries.push((key, value));
                }
            }
            if self.eat(b'}') {
                return Ok(Json::Object(entries));
            }
            if !self.eat(b',') {
                return Err(self.error("expected a comma or the end of an object"));
            }
        }
    }

    fn number(&mut self) -> Result<Json, InvalidRequest> {
        let start = self.position;
        let digits = |reader: &mut Self| {
            let before = reader.position;
            while reader.peek().is_ascii_digit() {
                reader.position += 1;
            }
            reader.position > before
        };
        self.position += usize::from(self.peek() == b'-');
        let leading_zero = self.peek() == b'0';
        let mut valid = digits(self)
            && !(leading_zero && self.text[start..self.position].trim_start_matches('-').len() > 1);
        if self.peek() == b'.' {
            self.position += 1;
            valid &= digits(self);
        }
        if matches!(self.peek(), b'e' | b'E') {
            self.position += 1;
            self.position += usize::from(matches!(self.peek(), b'+' | b'-'));
            valid &= digits(self);
        }
        if valid {
            Ok(Json::Number(self.text[start..self.position].to_owned()))
        } else {
            Err(self.error("no valid number"))
        }
    }

    fn string(&mut self) -> Result<String, InvalidRequest> {
        self.position += 1;
        let mut value = String::new();
        loop {
            let rest = &self.text[self.position..];
            let plain = rest.find(|next: char| next == '"' || next == '\\' || next < ' ');
            let plain = plain.ok_or_else(|| self.error("a string without an end"))?;
            value.push_str(&rest[..plain]);
            self.position += plain + 1;
            match rest.as_bytes().get(plain) {
                Some(b'"') => return Ok(value),
                Some(b'\\') => value.push(self.escape()?),
                _ => return Err(self.error("a control character in a string")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, InvalidRequest> {
        let escaped = self.peek();
        self.position += 1;
        Ok(match escaped {
            b'"' | b'\\' | b'/' => char::from(escaped),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let high = self.unit()?;
                let low = if (0xD800..0xDC00).contains(&high)
                    && self.text[self.position..].starts_with("\\u")
                {
                    self.position += 2;
                    Some(self.unit()?)
                } else {
                    None
                };
                // A lone surrogate is not a character.
                let mut units = char::decode_utf16(std::iter::once(high).chain(low));
                units.next().and_then(Result::ok).unwrap_or(char::REPLACEMENT_CHARACTER)
            }
            _ => return Err(self.error("an unknown escape in a string")),
        })
    }

    fn unit(&mut self) -> Result<u16, InvalidRequest> {
        let digits = self.text.get(self.position..self.position + 4);
        let hex = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let unit = hex.and_then(|digits| u16::from_str_radix(digits, 16).ok());
        self.position += 4;
        unit.ok_or_else(|| self.error("an escape without its four digits"))
    }
}
