//! Rules: what the proxy does with certain statements (`[[rule]]` of the file).

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use shunt_wire::cql::message::Consistency;
use shunt_wire::printable::printable_to;

use super::kinds::{Readable, Written};
use super::tenant::texts;
use crate::limits;
pub use crate::rules::action::Action;
use crate::rules::keyspaces::is_of_the_system;
use crate::rules::kinds::KindSet;
use crate::rules::shared::SharedRule;

/// Lines of an example.
pub(super) const EXAMPLE: [&str; 3] = [
    r#"name = "no full scans""#,
    "match = { unbounded = true }",
    r#"refuse = "add LIMIT, or name the partition""#,
];

const KEYS: [&str; 10] = [
    "name",
    "match",
    "refuse",
    "queries_per_s",
    "timeout_ms",
    "consistency",
    "weaken",
    "hedge",
    "tag",
    "dry_run",
];
const MATCH_KEYS: [&str; 9] = [
    "digest",
    "keyspace",
    "table",
    "role",
    "application",
    "consistency",
    "kind",
    "unbounded",
    "allow_filtering",
];

/// The statements and clients of a rule. Each key that is given must fit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleMatch {
    pub(crate) digest: Vec<String>,
    pub(crate) keyspace: Vec<String>,
    /// Tables, with their keyspace if it is written.
    pub(crate) table: Vec<(Option<String>, String)>,
    pub(crate) role: Vec<String>,
    pub(crate) application: Vec<String>,
    /// A bit for each level; 0: any.
    pub(crate) consistency: u16,
    /// Empty: any.
    pub(crate) kind: KindSet,
    pub(crate) unbounded: bool,
    pub(crate) allow_filtering: bool,
}

impl RuleMatch {
    /// True if a rule without a word on this keyspace would not match there, and this one does.
    pub(crate) fn names_keyspace(&self, name: &str) -> bool {
        self.keyspace.iter().any(|known| known == name)
            || self.table.iter().any(|(keyspace, _)| keyspace.as_deref() == Some(name))
    }

    fn from_written(written: &Written) -> Result<Self, String> {
        let Written::Table(entries) = written else {
            return Err(format!(
                "`match`: expected a table such as {{ kind = \"ddl\" }}, found {written}"
            ));
        };
        let mut matches = Self::default();
        for (key, written) in entries {
            match key.as_str() {
                "digest" => matches.digest = texts(key, written)?,
                "keyspace" => matches.keyspace = texts(key, written)?,
                "table" => {
                    matches.table = texts(key, written)?.into_iter().map(table).collect();
                }
                "role" => matches.role = texts(key, written)?,
                "application" => matches.application = texts(key, written)?,
                "consistency" => {
                    for name in texts(key, written)? {
                        matches.consistency |= 1 << level("consistency", &name)?.0;
                    }
                }
                "kind" => {
                    for name in texts(key, written)? {
                        let kind = KindSet::named(&name).ok_or_else(|| {
                            let names = KindSet::all_names();
                            format!("`kind`: `{name}` is none of {names}")
                        })?;
                        matches.kind = matches.kind.with(kind);
                    }
                }
                "unbounded" => matches.unbounded = truth(key, written)?,
                "allow_filtering" => matches.allow_filtering = truth(key, written)?,
                _ => {
                    return Err(format!(
                        "unknown key `{key}` in `match`, which may have {}",
                        MATCH_KEYS.join(", ")
                    ));
                }
            }
        }
        matches.check()?;
        Ok(matches)
    }

    /// Refuses what can never match.
    fn check(&self) -> Result<(), String> {
        let keyspaces = self.table.iter().filter_map(|(keyspace, _)| keyspace.as_ref());
        let mut keyspaces = self.keyspace.iter().chain(keyspaces);
        if let Some(name) = keyspaces.find(|name| is_of_the_system(name)) {
            return Err(format!("no rule matches statements on the keyspace `{name}`"));
        }
        let most = limits::NAME_SHOWN_BYTES_MAX;
        if let Some(name) = self.application.iter().find(|it| printable_to(it, most) != **it) {
            return Err(format!(
                "`application`: `{name}` never matches: the proxy knows names of {most} printable \
                bytes at most; see the table clients"
            ));
        }
        if (self.unbounded || self.allow_filtering)
            && !self.kind.is_empty()
            && !self.kind.meets(KindSet::SELECT)
        {
            return Err("only a SELECT can be unbounded or allow filtering: add \"select\" to \
                `kind`, or leave `kind` out"
                .to_owned());
        }
        Ok(())
    }
}

/// `items` or `shop.items`.
fn table(text: String) -> (Option<String>, String) {
    match text.split_once('.') {
        Some((keyspace, table)) => (Some(keyspace.to_owned()), table.to_owned()),
        None => (None, text),
    }
}

/// The consistency level with this name.
fn level(key: &str, name: &str) -> Result<Consistency, String> {
    let mut all = (0..=10).map(Consistency);
    all.find(|level| level.to_string() == name)
        .ok_or_else(|| format!("`{key}`: `{name}` is no consistency level such as LOCAL_QUORUM"))
}

/// A key that may only be `true`.
fn truth(key: &str, written: &Written) -> Result<bool, String> {
    match written {
        Written::Truth(true) => Ok(true),
        other => Err(format!("`{key}`: expected true, found {other}; or leave it out")),
    }
}

/// A consistency level in place of the client's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pin {
    /// The level.
    pub level: Consistency,
    /// True if it may be weaker than the client's.
    pub weakens: bool,
}

/// The effects of a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleActions {
    /// Words for clients whose statements are refused; empty: later rules do not refuse them.
    pub refuse: Option<Arc<str>>,
    /// Statements per second of this process; those beyond get OVERLOADED.
    pub queries_per_s: Option<u64>,
    /// Deadline of the query, milliseconds.
    pub timeout_ms: Option<u16>,
    /// Consistency level in place of the client's.
    pub consistency: Option<Pin>,
    /// True if the query goes to no second replica.
    pub hedges_off: bool,
    /// Mark of the query among the slow queries.
    pub tag: Option<Arc<str>>,
    /// Counts what the rule would do, and does nothing.
    pub dry_run: bool,
}

impl RuleActions {
    /// True if the rule decides an action.
    pub fn has(&self, action: Action) -> bool {
        match action {
            Action::Refuse => self.refuse.is_some(),
            Action::Limit => self.queries_per_s.is_some(),
            Action::Timeout => self.timeout_ms.is_some(),
            Action::Consistency => self.consistency.is_some(),
            Action::Hedge => self.hedges_off,
            Action::Tag => self.tag.is_some(),
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        match self.refuse.as_deref() {
            Some("") => text.push_str(" refuse false"),
            Some(_) => text.push_str(" refuse"),
            None => {}
        }
        // Writing to a String cannot fail.
        if let Some(limit) = self.queries_per_s {
            let _ = write!(text, " queries_per_s {limit}");
        }
        if let Some(timeout_ms) = self.timeout_ms {
            let _ = write!(text, " timeout_ms {timeout_ms}");
        }
        if let Some(Pin { level, weakens }) = self.consistency {
            let _ = write!(text, " consistency {level}{}", if weakens { " weaken" } else { "" });
        }
        if let Some(tag) = &self.tag {
            let _ = write!(text, " tag {tag}");
        }
        text.push_str(if self.hedges_off { " hedge off" } else { "" });
        let _ = write!(text, "{}", if self.dry_run { " dry_run" } else { "" });
        text
    }
}

/// One rule.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Name of the rule.
    pub name: Arc<str>,
    /// The statements and clients of the rule.
    pub matches: RuleMatch,
    /// The effects of the rule.
    pub actions: RuleActions,
    /// The numbers of all cores; a reload keeps those of the same name.
    pub shared: Arc<SharedRule>,
}

impl PartialEq for Rule {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, &self.matches, &self.actions) == (&other.name, &other.matches, &other.actions)
    }
}

impl Rule {
    /// A rule with numbers of its own.
    pub fn new(name: &str, matches: RuleMatch, actions: RuleActions) -> Rule {
        Rule { name: name.into(), matches, actions, shared: Arc::default() }
    }

    /// True if it exempts statements from later rules.
    pub(crate) fn is_exception(&self) -> bool {
        self.actions.refuse.as_deref() == Some("")
    }

    /// The rule, or its name, if it has a valid one, and the fault.
    fn from_written(written: &Written) -> Result<Self, (Option<String>, String)> {
        let Written::Table(entries) = written else {
            return Err((None, format!("expected a table, found {written}")));
        };
        let named = |key: &str| entries.iter().find(|(known, _)| known == key);
        let entry = |key: &str| named(key).map(|(_, value)| value);
        let name = label("name", entry("name")).map_err(|why| (None, why))?;
        Self::read(&name, entries, entry).map_err(|why| (Some(name), why))
    }

    fn read<'w>(
        name: &str,
        entries: &[(String, Written)],
        entry: impl Fn(&str) -> Option<&'w Written>,
    ) -> Result<Self, String> {
        if let Some((unknown, _)) = entries.iter().find(|(key, _)| !KEYS.contains(&key.as_str())) {
            let inside = if MATCH_KEYS.contains(&unknown.as_str()) {
                format!("put it into `match = {{ {unknown} = .. }}`")
            } else {
                format!(
                    "a rule may have {}; put options of the proxy before the first [[rule]]",
                    KEYS.join(", ")
                )
            };
            return Err(format!("unknown key `{unknown}`: {inside}"));
        }
        let number = |key: &str, most: u64| match entry(key) {
            None => Ok(None),
            Some(Written::Number(number)) if (1..=most.into()).contains(number) => {
                Ok(u64::try_from(*number).ok())
            }
            Some(other) => Err(format!("`{key}`: expected a number of 1 to {most}, found {other}")),
        };
        let switch = |key: &str| match entry(key) {
            None => Ok(false),
            Some(Written::Truth(truth)) => Ok(*truth),
            Some(other) => Err(format!("`{key}`: expected true or false, found {other}")),
        };
        let matches = entry("match").map_or(Ok(RuleMatch::default()), RuleMatch::from_written)?;
        let actions = RuleActions {
            refuse: entry("refuse").map(words).transpose()?,
            queries_per_s: number("queries_per_s", limits::RULE_QUERIES_PER_SECOND_MAX)?,
            timeout_ms: number("timeout_ms", u16::MAX.into())?
                .and_then(|number| u16::try_from(number).ok()),
            consistency: pin(entry("consistency"), switch("weaken")?)?,
            hedges_off: match entry("hedge") {
                None => false,
                Some(Written::Text(text)) if text == "off" => true,
                Some(other) => return Err(format!("`hedge`: expected \"off\", found {other}")),
            },
            tag: entry("tag").map(|tag| label("tag", Some(tag))).transpose()?.map(Into::into),
            dry_run: switch("dry_run")?,
        };
        if !Action::ALL.iter().any(|action| actions.has(*action)) {
            let why = "does nothing: give it refuse, queries_per_s, timeout_ms, consistency, hedge or \
                tag";
            return Err(why.to_owned());
        }
        Ok(Self::new(name, matches, actions))
    }
}

/// A short text that tables, metrics and logs show.
fn label(key: &str, written: Option<&Written>) -> Result<String, String> {
    let most = limits::RULE_NAME_BYTES_MAX;
    let mut names = texts(key, written.ok_or_else(|| format!("`{key}` is missing"))?)?;
    let name = names.pop().filter(|name| names.is_empty() && printable_to(name, most) == *name);
    name.ok_or_else(|| format!("`{key}` must be one printable text of 1 to {most} bytes"))
}

/// The level that a rule sets, if it sets one.
fn pin(written: Option<&Written>, weakens: bool) -> Result<Option<Pin>, String> {
    let Some(written) = written else {
        let unused = "`weaken` needs `consistency`".to_owned();
        return if weakens { Err(unused) } else { Ok(None) };
    };
    let [name] = &texts("consistency", written)?[..] else {
        return Err("`consistency`: expected one level".to_owned());
    };
    let level = level("consistency", name)?;
    match level {
        Consistency::ANY | Consistency::SERIAL | Consistency::LOCAL_SERIAL => Err(format!(
            "`consistency`: a rule cannot set {level}; it can set ONE, TWO, THREE, QUORUM, ALL, \
            LOCAL_QUORUM, EACH_QUORUM or LOCAL_ONE"
        )),
        _ => Ok(Some(Pin { level, weakens })),
    }
}

/// The words of a refusal; `false` becomes none.
fn words(written: &Written) -> Result<Arc<str>, String> {
    let most = limits::RULE_WORDS_BYTES_MAX;
    match written {
        Written::Truth(false) => Ok(Arc::from("")),
        Written::Text(text) if !text.is_empty() && printable_to(text, most) == *text => {
            Ok(Arc::from(text.as_str()))
        }
        _ => Err(format!(
            "`refuse`: expected the words that clients get, 1 to {most} printable bytes, or false"
        )),
    }
}

/// The rules, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuleList(pub Vec<Rule>);

impl RuleList {
    /// Keeps the numbers of former rules with the same names.
    pub(super) fn adopt(&mut self, former: &RuleList) {
        for rule in &mut self.0 {
            if let Some(known) = former.0.iter().find(|known| known.name == rule.name) {
                rule.shared = Arc::clone(&known.shared);
            }
        }
    }

    /// Names and actions; `None` without rules.
    pub(super) fn text(&self) -> Option<String> {
        let texts = self.0.iter().map(|rule| format!("{}{}", rule.name, rule.actions.text()));
        let texts: Vec<String> = texts.collect();
        (!texts.is_empty()).then(|| texts.join(","))
    }

    /// Faults between rules.
    pub(super) fn faults(&self) -> Vec<String> {
        let (mut faults, mut names) = (Vec::new(), BTreeSet::new());
        let most = limits::RULES_MAX;
        if self.0.len() > most {
            faults.push(format!("{} are too many: {most} are allowed", self.0.len()));
        }
        for (index, Rule { name, .. }) in self.0.iter().enumerate() {
            if !names.insert(name) {
                let why = format!("an earlier rule already has the name `{name}`");
                faults.push(numbered(index, None, &why));
            }
        }
        faults
    }
}

fn numbered(index: usize, name: Option<&str>, why: &str) -> String {
    let name = name.map(|name| format!(" (`{name}`)")).unwrap_or_default();
    format!("[[rule]] number {}{name}: {why}", index + 1)
}

impl Readable for RuleList {
    const IS_LIST: bool = true;

    fn read(written: &Written, faults: &mut Vec<String>) -> Option<Self> {
        let Written::List(items) = written else {
            faults.push("expected tables, each below a line [[rule]]".to_owned());
            return None;
        };
        let mut all = Vec::new();
        for (index, item) in items.iter().enumerate() {
            match Rule::from_written(item) {
                Ok(rule) => all.push(rule),
                Err((name, why)) => faults.push(numbered(index, name.as_deref(), &why)),
            }
        }
        Some(Self(all))
    }
}

#[cfg(test)]
mod tests;
