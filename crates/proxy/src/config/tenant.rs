//! Tenants: groups of clients with limits of their own (`[[tenant]]` of the file).

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use shunt_reactor::{ClientAddress, ClientHost, PeerName};
use shunt_wire::printable::printable_to;

use super::certificate_name::name_from;
use super::kinds::{Kind as _, Readable, Written};
use super::network::Network;
use crate::limits;
use crate::tenants::shared::{Counted, SharedTenant};

/// Lines of an example.
pub(super) const EXAMPLE: [&str; 3] =
    [r#"name = "reports""#, r#"match = { role = "reports" }"#, "queries_per_s = 100"];

const KEYS: [&str; 9] = [
    "name",
    "match",
    "queries_per_s",
    "burst",
    "bytes_per_s",
    "in_flight_max",
    "clients_max",
    "on_excess",
    "dry_run",
];
const MATCH_KEYS: [&str; 5] = ["role", "keyspace", "address", "application", "certificate"];

/// The effect of a limit that is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnExcess {
    /// The client is not read from until there is room.
    #[default]
    Wait,
    /// The client gets OVERLOADED.
    Overloaded,
}

/// The limits of a tenant. They hold for all cores of this process together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TenantLimits {
    /// Queries per second.
    pub queries_per_s: Option<u64>,
    /// Queries that a tenant may send at once after a pause.
    pub burst: Option<u64>,
    /// Bytes of requests and answers per second.
    pub bytes_per_s: Option<u64>,
    /// Queries in flight at nodes.
    pub in_flight_max: Option<u32>,
    /// Connected clients.
    pub clients_max: Option<u32>,
    /// The effect of a limit that is reached.
    pub on_excess: OnExcess,
    /// Counts what the limits would do, and does nothing.
    pub dry_run: bool,
}

impl TenantLimits {
    /// True if there is a limit for queries.
    pub fn any(&self) -> bool {
        self.queries_per_s.is_some() || self.bytes_per_s.is_some() || self.in_flight_max.is_some()
    }

    /// Queries that a tenant may send at once: by default those of a second.
    pub fn burst(&self) -> u64 {
        self.burst.or(self.queries_per_s).unwrap_or(1)
    }
}

impl fmt::Display for TenantLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers = [
            ("queries_per_s", self.queries_per_s),
            ("burst", self.burst),
            ("bytes_per_s", self.bytes_per_s),
            ("in_flight_max", self.in_flight_max.map(u64::from)),
            ("clients_max", self.clients_max.map(u64::from)),
        ];
        for (key, number) in numbers {
            number.map_or(Ok(()), |number| write!(f, " {key} {number}"))?;
        }
        if self.on_excess == OnExcess::Overloaded {
            f.write_str(" overloaded")?;
        }
        if self.dry_run { f.write_str(" dry_run") } else { Ok(()) }
    }
}

/// A client as sections see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'a> {
    pub(crate) role: Option<&'a str>,
    pub(crate) keyspace: Option<&'a str>,
    pub(crate) application: Option<&'a str>,
    pub(crate) address: ClientAddress,
    /// Names in the verified certificate of the client's TLS session.
    pub(crate) certificate: &'a [PeerName],
}

/// The clients of a section. A client must have one of the values of each key that has values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matches {
    role: Vec<String>,
    keyspace: Vec<String>,
    application: Vec<String>,
    address: Vec<Network>,
    certificate: Vec<PeerName>,
}

impl Matches {
    /// True if all clients match.
    fn is_everyone(&self) -> bool {
        *self == Self::default()
    }

    fn accepts(&self, subject: &Subject<'_>) -> bool {
        let has = |values: &[String], value: Option<&str>| {
            values.is_empty() || values.iter().any(|known| Some(known.as_str()) == value)
        };
        let is_inside = |networks: &[Network]| match subject.address.host() {
            ClientHost::Network(address) => networks.iter().any(|it| it.contains(address)),
            ClientHost::User(_) => false,
        };
        has(&self.role, subject.role)
            && has(&self.keyspace, subject.keyspace)
            && has(&self.application, subject.application)
            && (self.address.is_empty() || is_inside(&self.address))
            && (self.certificate.is_empty()
                || self.certificate.iter().any(|name| subject.certificate.contains(name)))
    }

    fn from_written(written: &Written) -> Result<Self, String> {
        let Written::Table(entries) = written else {
            return Err(format!(
                "`match`: expected a table such as {{ role = \"a\" }}, found {written}"
            ));
        };
        let mut matches = Self::default();
        for (key, written) in entries {
            let values = match key.as_str() {
                "role" => &mut matches.role,
                "keyspace" => &mut matches.keyspace,
                "application" => &mut matches.application,
                "address" => {
                    for text in texts(key, written)? {
                        let network = Network::from_text(&text);
                        matches
                            .address
                            .push(network.map_err(|why| format!("`address`: `{text}` {why}"))?);
                    }
                    continue;
                }
                "certificate" => {
                    let names = texts(key, written)?;
                    let names = names.iter().map(|text| name_from("certificate", text));
                    matches.certificate = names.collect::<Result<_, _>>()?;
                    continue;
                }
                _ => {
                    return Err(format!(
                        "unknown key `{key}` in `match`, which may have {}",
                        MATCH_KEYS.join(", ")
                    ));
                }
            };
            *values = texts(key, written)?;
        }
        let shown = |text: &String| printable_to(text, limits::NAME_SHOWN_BYTES_MAX) == **text;
        if let Some(text) = matches.application.iter().find(|text| !shown(text)) {
            let most = limits::NAME_SHOWN_BYTES_MAX;
            return Err(format!(
                "`application`: `{text}` never matches: the proxy knows names of {most} printable \
                bytes at most; see the table clients"
            ));
        }
        Ok(matches)
    }
}

/// A text, or a list of some.
pub(super) fn texts(key: &str, written: &Written) -> Result<Vec<String>, String> {
    let text = |written: &Written| match written {
        Written::Text(text) if !text.is_empty() && text.len() <= limits::TENANT_TEXT_BYTES_MAX => {
            Ok(text.clone())
        }
        Written::Text(_) => {
            let most = limits::TENANT_TEXT_BYTES_MAX;
            Err(format!("`{key}`: a text must have 1 to {most} bytes"))
        }
        other => Err(format!("`{key}`: expected text in quotes, or a list of it, found {other}")),
    };
    match written {
        Written::List(items) if items.is_empty() => {
            Err(format!("`{key}`: the list is empty, and matches nobody"))
        }
        Written::List(items) if items.len() > limits::TENANT_VALUES_MAX => {
            let (many, most) = (items.len(), limits::TENANT_VALUES_MAX);
            Err(format!("`{key}`: {many} values are too many: {most} are allowed"))
        }
        Written::List(items) => items.iter().map(text).collect(),
        one => Ok(vec![text(one)?]),
    }
}

/// One tenant.
#[derive(Clone, Debug)]
pub struct Tenant {
    /// Name of the tenant.
    pub name: Arc<str>,
    /// The clients of the tenant.
    pub matches: Matches,
    /// The limits of the tenant.
    pub limits: TenantLimits,
    /// The state that cores share; a reload keeps that of the same name.
    pub shared: Arc<SharedTenant>,
}

impl PartialEq for Tenant {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, &self.matches, &self.limits) == (&other.name, &other.matches, &other.limits)
    }
}

impl Tenant {
    /// A tenant of these clients, with a state of its own.
    pub fn new(name: &str, matches: Matches, limits: TenantLimits) -> Tenant {
        Tenant { name: name.into(), matches, limits, shared: Arc::default() }
    }

    /// The numbers that all cores have counted.
    pub fn counted(&self) -> Counted {
        self.shared.sums()
    }

    fn from_written(written: &Written) -> Result<Self, String> {
        let Written::Table(entries) = written else {
            return Err(format!("expected a table, found {written}"));
        };
        if let Some((unknown, _)) = entries.iter().find(|(key, _)| !KEYS.contains(&key.as_str())) {
            return Err(format!(
                "unknown key `{unknown}`: a tenant may have {}; put options of the proxy before \
                the first [[tenant]]",
                KEYS.join(", ")
            ));
        }
        let entry =
            |key: &str| entries.iter().find(|(known, _)| known == key).map(|(_, value)| value);
        let number = |key: &str, most: u64| match entry(key) {
            None => Ok(None),
            Some(Written::Number(number)) => match u64::try_from(*number) {
                Ok(number) if (1..=most).contains(&number) => Ok(Some(number)),
                _ => Err(format!("`{key}` must be 1 to {most}, found {number}")),
            },
            Some(other) => Err(format!("`{key}`: expected a number of 1 to {most}, found {other}")),
        };
        let mut names = texts("name", entry("name").ok_or("`name` is missing")?)?;
        let name = names.pop().filter(|name| {
            names.is_empty() && printable_to(name, limits::TENANT_NAME_BYTES_MAX) == *name
        });
        let Some(name) = name else {
            let most = limits::TENANT_NAME_BYTES_MAX;
            return Err(format!("`name` must be one printable text of 1 to {most} bytes"));
        };
        let queries_max = limits::TENANT_QUERIES_PER_SECOND_MAX;
        let number_of = |key: &str, most: u32| -> Result<Option<u32>, String> {
            Ok(number(key, most.into())?.and_then(|number| u32::try_from(number).ok()))
        };
        let limits = TenantLimits {
            queries_per_s: number("queries_per_s", queries_max)?,
            burst: number("burst", queries_max)?,
            bytes_per_s: number("bytes_per_s", limits::TENANT_BYTES_PER_SECOND_MAX)?,
            in_flight_max: number_of("in_flight_max", limits::TENANT_IN_FLIGHT_MAX)?,
            clients_max: number_of("clients_max", limits::TENANT_CLIENTS_MAX)?,
            on_excess: match entry("on_excess") {
                None => OnExcess::Wait,
                Some(Written::Text(text)) if text == "wait" => OnExcess::Wait,
                Some(Written::Text(text)) if text == "overloaded" => OnExcess::Overloaded,
                Some(other) => {
                    return Err(format!(
                        "`on_excess`: expected \"wait\" or \"overloaded\", found {other}"
                    ));
                }
            },
            dry_run: match entry("dry_run") {
                None => false,
                Some(Written::Truth(truth)) => *truth,
                Some(other) => {
                    return Err(format!("`dry_run`: expected true or false, found {other}"));
                }
            },
        };
        if limits.burst.is_some() && limits.queries_per_s.is_none() {
            return Err("`burst` needs `queries_per_s`".to_owned());
        }
        let of_queries = "queries_per_s, bytes_per_s or in_flight_max";
        if !limits.any() && limits.clients_max.is_none() && limits.dry_run {
            return Err(format!("`dry_run` needs a limit: clients_max, {of_queries}"));
        }
        if !limits.any() && entry("on_excess").is_some() {
            return Err(format!("`on_excess` needs a limit for queries: {of_queries}"));
        }
        let matches = entry("match").map_or(Ok(Matches::default()), Matches::from_written)?;
        Ok(Self::new(&name, matches, limits))
    }
}

/// The tenants, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TenantList(pub Vec<Tenant>);

impl TenantList {
    /// The first section that a client matches.
    pub(crate) fn of(&self, subject: &Subject<'_>) -> Option<usize> {
        self.0.iter().position(|tenant| tenant.matches.accepts(subject))
    }

    /// Keeps the state of former tenants with the same names.
    pub(super) fn adopt(&mut self, former: &TenantList) {
        for tenant in &mut self.0 {
            if let Some(known) = former.0.iter().find(|known| known.name == tenant.name) {
                tenant.shared = Arc::clone(&known.shared);
            }
        }
    }
}

impl TenantList {
    /// Names and limits; `None` without tenants.
    pub(super) fn text(&self) -> Option<String> {
        let texts = self.0.iter().map(|tenant| format!("{}{}", tenant.name, tenant.limits));
        let texts: Vec<String> = texts.collect();
        (!texts.is_empty()).then(|| texts.join(","))
    }
}

fn numbered(index: usize, why: &str) -> String {
    format!("[[tenant]] number {}: {why}", index + 1)
}

impl Readable for TenantList {
    const IS_LIST: bool = true;

    fn read(written: &Written, faults: &mut Vec<String>) -> Option<Self> {
        let Written::List(items) = written else {
            faults.push("expected tables, each below a line [[tenant]]".to_owned());
            return None;
        };
        let mut all = Vec::new();
        for (index, item) in items.iter().enumerate() {
            match Tenant::from_written(item) {
                Ok(tenant) => all.push(tenant),
                Err(why) => faults.push(numbered(index, &why)),
            }
        }
        Some(Self(all))
    }
}

impl TenantList {
    /// Faults between tenants: they must differ, and each must be able to have clients.
    pub(super) fn faults(&self) -> Vec<String> {
        let (mut faults, mut names) = (Vec::new(), BTreeSet::new());
        let most = limits::TENANTS_MAX;
        if self.0.len() > most {
            faults.push(format!("{} are too many: {most} are allowed", self.0.len()));
        }
        let everyone = self.0.iter().position(|tenant| tenant.matches.is_everyone());
        for (index, Tenant { name, .. }) in self.0.iter().enumerate() {
            if !names.insert(name) {
                let why = format!("an earlier tenant already has the name `{name}`");
                faults.push(numbered(index, &why));
            }
            if let Some(everyone) = everyone.filter(|everyone| *everyone < index) {
                let why = format!(
                    "no client reaches `{name}`: number {} before it has no `match`, and takes all; \
                    put it last",
                    everyone + 1
                );
                faults.push(numbered(index, &why));
            }
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    use shunt_reactor::NameKind;

    use super::*;

    fn table(entries: &[(&str, Written)]) -> Written {
        let entries = entries.iter().map(|(key, value)| ((*key).to_owned(), value.clone()));
        Written::Table(entries.collect())
    }

    fn text(text: &str) -> Written {
        Written::Text(text.to_owned())
    }

    fn read(tables: Vec<Written>) -> (TenantList, Vec<String>) {
        let mut faults = Vec::new();
        (TenantList::read(&Written::List(tables), &mut faults).expect("a list"), faults)
    }

    fn named(name: &str, more: &[(&str, Written)]) -> Written {
        table(&[&[("name", text(name))], more].concat())
    }

    fn problems(tables: Vec<Written>) -> Vec<String> {
        read(tables).0.faults()
    }

    #[test]
    fn the_first_section_that_matches_wins() {
        let role = |role: &str| table(&[("role", text(role))]);
        let networks = Written::List(vec![text("10.0.8.0/24"), text("10.0.9.7")]);
        let (tenants, faults) = read(vec![
            named("both", &[("match", table(&[("role", text("a")), ("keyspace", text("k"))]))]),
            named("role", &[("match", role("a"))]),
            named("near", &[("match", table(&[("address", networks)]))]),
            named("app", &[("match", table(&[("application", text("cron"))]))]),
            named("rest", &[]),
        ]);
        assert_eq!(faults, Vec::<String>::new());
        let of = |role, keyspace, application, address: &str| {
            let address = ClientAddress::Tcp(address.parse().expect("an address"));
            let subject = Subject { role, keyspace, application, address, certificate: &[] };
            tenants.of(&subject).map(|index| &*tenants.0[index].name)
        };
        assert_eq!(of(Some("a"), Some("k"), None, "10.0.8.1:1"), Some("both"));
        assert_eq!(of(Some("a"), None, None, "10.0.8.1:1"), Some("role"));
        assert_eq!(of(Some("b"), Some("k"), None, "10.0.8.1:1"), Some("near"));
        assert_eq!(of(None, None, None, "[::ffff:10.0.9.7]:1"), Some("near"));
        assert_eq!(of(None, None, Some("cron"), "10.0.9.8:1"), Some("app"));
        assert_eq!(of(None, None, Some("Cron"), "10.0.9.8:1"), Some("rest"));
    }

    #[test]
    fn one_name_of_the_certificate_decides_and_its_kind_counts() {
        let names = Written::List(vec![text("spiffe://example/shop"), text("CN=cron")]);
        let (tenants, faults) =
            read(vec![named("shop", &[("match", table(&[("certificate", names)]))])]);
        assert_eq!(faults, Vec::<String>::new());
        let is_in = |certificate: &[PeerName]| {
            let address = ClientAddress::Tcp("10.0.0.1:1".parse().expect("an address"));
            let (role, keyspace, application) = (Some("shop"), None, None);
            let subject = Subject { role, keyspace, application, address, certificate };
            tenants.of(&subject).is_some()
        };
        let uri = |text: &str| PeerName::new(NameKind::Uri, text);
        assert!(is_in(&[uri("spiffe://example/other"), uri("spiffe://example/shop")]));
        assert!(is_in(&[PeerName::new(NameKind::CommonName, "cron")]));
        assert!(!is_in(&[]), "a client without a certificate has no name");
        assert!(!is_in(&[uri("spiffe://example/shop/a")]));
        assert!(!is_in(&[PeerName::new(NameKind::Dns, "cron")]), "another kind of name");
        assert!(!is_in(&[PeerName::new(NameKind::CommonName, "spiffe://example/shop")]));
    }

    #[test]
    fn faults_say_which_tenant_and_why() {
        let number = Written::Number;
        for (wrong, words) in [
            (table(&[("queries_per_s", number(1))]), "`name` is missing"),
            (named("", &[]), "1 to"),
            (named("a\n", &[]), "printable"),
            (named("a", &[("burst", number(0)), ("queries_per_s", number(5))]), "must be 1 to"),
            (named("a", &[("burst", number(5))]), "`burst` needs `queries_per_s`"),
            (named("a", &[("queries_per_s", number(-1))]), "must be 1 to"),
            (named("a", &[("queries_per_s", text("5"))]), "expected a number"),
            (named("a", &[("dry_run", Written::Truth(true))]), "`dry_run` needs a limit"),
            (named("a", &[("on_excess", text("wait"))]), "`on_excess` needs a limit"),
            (
                named("a", &[("on_excess", text("wait")), ("clients_max", number(5))]),
                "needs a limit for queries",
            ),
            (named("a", &[("clients_max", number(0))]), "must be 1 to"),
            (named("a", &[("on_excess", text("drop"))]), "expected \"wait\" or"),
            (named("a", &[("cores", number(2))]), "unknown key `cores`"),
            (named("a", &[("match", text("a"))]), "expected a table"),
            (named("a", &[("match", table(&[("user", text("a"))]))]), "unknown key `user`"),
            (named("a", &[("match", table(&[("role", Written::List(vec![]))]))]), "nobody"),
            (named("a", &[("match", table(&[("address", text("a"))]))]), "neither an IP address"),
            (named("a", &[("match", table(&[("certificate", text("CN="))]))]), "is empty"),
            (named("a", &[("match", table(&[("certificate", text("*.a"))]))]), "`*` is not"),
            (
                named("a", &[("match", table(&[("application", text(&"x".repeat(65)))]))]),
                "never matches",
            ),
        ] {
            let (_, faults) = read(vec![named("good", &[]), wrong]);
            assert_eq!(faults.len(), 1, "{words}: {faults:?}");
            assert!(faults[0].starts_with("[[tenant]] number 2: "), "{faults:?}");
            assert!(faults[0].contains(words), "{words}: {faults:?}");
        }
    }

    #[test]
    fn tenants_differ_and_each_can_have_clients() {
        let role = |name: &str| {
            named(name, &[("match", table(&[("role", text(name))])), ("burst", Written::Number(1))])
        };
        let some = |name: &str| named(name, &[("match", table(&[("role", text(name))]))]);
        assert!(read(vec![role("a")]).1[0].contains("needs"));
        assert_eq!(problems(vec![some("a"), some("b"), named("rest", &[])]), Vec::<String>::new());
        assert!(problems(vec![some("a"), some("a")])[0].contains("already has the name `a`"));
        assert!(
            problems(vec![named("rest", &[]), some("a")])[0].contains("and takes all; put it last")
        );
        let many = (0..=limits::TENANTS_MAX).map(|number| some(&number.to_string())).collect();
        assert!(problems(many)[0].contains("256 are allowed"));
    }

    #[test]
    fn a_reload_keeps_the_state_of_a_name() {
        let (old, _) = read(vec![named("a", &[]), named("b", &[])]);
        let (mut new, _) = read(vec![named("b", &[("queries_per_s", Written::Number(7))])]);
        new.adopt(&old);
        assert!(Arc::ptr_eq(&new.0[0].shared, &old.0[1].shared));
        assert_eq!(new.text().as_deref(), Some("b queries_per_s 7"));
        assert_ne!(new.0[0], old.0[1], "a change of a limit is a change");
    }
}
