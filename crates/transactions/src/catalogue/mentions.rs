//! Finds names of columns or tables in a text, all of them in one pass.
//!
//! A text may have megabytes, and there may be ten thousand names: searching the text for each name
//! would keep a core busy for a minute. Each word of the text is looked up among the names instead.
//!
//! This must never miss a name that the text has: a write would go where it must not. It may report
//! a name that the text does not have, since words in strings and comments count too.

use std::borrow::Cow;
use std::collections::HashSet;

/// Names to find.
#[derive(Debug, Default)]
pub struct Mentions<'n> {
    /// Names that may stand in a text as a word, quoted or not, in lower case.
    words: HashSet<Cow<'n, str>>,
    /// Bytes of the longest name.
    longest: usize,
    /// Some names need quotes wherever they stand.
    has_quoted: bool,
}

impl<'n> FromIterator<&'n str> for Mentions<'n> {
    fn from_iter<T: IntoIterator<Item = &'n str>>(names: T) -> Mentions<'n> {
        let mut all = Mentions::default();
        for name in names {
            if name.is_empty() || !name.chars().all(is_of_word) {
                all.has_quoted = true;
                continue;
            }
            all.longest = all.longest.max(name.len());
            let is_lower = !name.bytes().any(|byte| byte.is_ascii_uppercase());
            all.words.insert(if is_lower { name.into() } else { name.to_ascii_lowercase().into() });
        }
        all
    }
}

/// True of characters of unquoted names. In a statement that parses, no other characters touch such
/// a name.
fn is_of_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_'
}

/// The words of a text.
fn words_of(text: &str) -> impl Iterator<Item = &str> {
    text.split(|character| !is_of_word(character)).filter(|word| !word.is_empty())
}

impl Mentions<'_> {
    /// True if the text may contain one of the names.
    pub fn may_be_in(&self, text: &str) -> bool {
        self.has_quoted && text.contains('"')
            || !self.words.is_empty() && self.is_any_of(words_of(text))
    }

    fn is_any_of<'t>(&self, mut words: impl Iterator<Item = &'t str>) -> bool {
        let mut lower = String::with_capacity(self.longest);
        words.any(|word| {
            word.len() <= self.longest && {
                lower.clear();
                lower.push_str(word);
                lower.make_ascii_lowercase();
                self.words.contains(lower.as_str())
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|number| format!("Name{number}")).collect()
    }

    #[test]
    fn names_are_words_of_a_text_in_any_case() {
        let named = ["plain", "Mixed", "_low", "9th"];
        let mentions: Mentions<'_> = named.into_iter().collect();
        for text in [
            "plain",
            "a.PLAIN=",
            "\"Mixed\"",
            "mixed",
            "(_LOW)",
            "/*9th*/",
            "'plain'",
            "\u{e9}plain\u{e9}",
        ] {
            assert!(mentions.may_be_in(text), "{text}");
        }
        for text in
            ["", "plains", "a_plain", "aplain", "low", "9", "th", "\"pl\"\"ain\"", "\"\u{e9}\""]
        {
            assert!(!mentions.may_be_in(text), "{text}");
        }
        assert!(!Mentions::default().may_be_in("plain \"\""));
    }

    #[test]
    fn names_that_need_quotes_may_be_wherever_there_are_some() {
        for name in ["", "a b", "a\"b", "\u{e9}", "a-b", "\u{212a}"] {
            let mentions: Mentions<'_> = [name].into_iter().collect();
            assert!(mentions.may_be_in(&format!("x \"{}\"", name.replace('"', "\"\""))), "{name}");
            assert!(!mentions.may_be_in("a b, a-b, k"), "{name}: without quotes it is none");
        }
    }

    #[test]
    fn each_word_of_a_text_is_looked_at_once_however_many_names_there_are() {
        let text = "name ".repeat((1 << 20) / 5);
        for count in [10, 100, 1_000, 10_000] {
            let names = names(count);
            let mentions: Mentions<'_> = names.iter().map(String::as_str).collect();
            let mut steps = 0;
            assert!(!mentions.is_any_of(words_of(&text).inspect(|_| steps += 1)));
            assert_eq!(steps, (1 << 20) / 5, "{count}");
            assert!(mentions.may_be_in(&format!("{text}nAME{}", count - 1)));
        }
    }
}
