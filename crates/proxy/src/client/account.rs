//! Accounts: the party to which a login counts wherever roles have shares, for example of pools.
//!
//! A role has many logins. The first part of a PLAIN message, the identity to act as, may be
//! anything, and each text makes another token. All these tokens have one account.

use std::fmt::{self, Debug, Formatter};
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::{Arc, LazyLock};

use shunt_tls::SubjectDigest;

use crate::client::identity::role_of;

/// Key of the hashes; each process has its own.
static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// The first words of authenticators that ignore the identity to act as, which Cassandra and
/// ScyllaDB both have. Both take the last two parts of exactly three as name and password.
const IGNORES_AUTHZID: &str = "org.apache.cassandra.auth.PasswordAuthenticator";

/// The account of a login, as a number that reveals nothing of a password. Two roles with the same
/// number, one pair in 2^64, have one share together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Account(u64);

impl Account {
    /// The account of a SASL token: the role that logs in by a PLAIN message, or else the token
    /// itself. Tokens of another number of parts share an account, and so do clients without a
    /// login.
    pub(crate) fn of(login: Option<&[u8]>) -> Account {
        let Some(token) = login else { return Account::default() };
        Account(match role_of(token) {
            Some(role) => KEY.hash_one((true, &*role)),
            // Some nodes find a name and a password in more parts, too, and anything may stand
            // before them.
            None if token.contains(&0) => KEY.hash_one("parts of no PLAIN message"),
            None => KEY.hash_one((false, token)),
        })
    }

    /// The account of an identity by certificate: guesses at its role's password take nothing from
    /// its share.
    pub(crate) fn of_identity(name: &str) -> Account {
        Account(KEY.hash_one(("identity", name)))
    }
}

/// A login as a number that stands for its token where a token would be kept for long: 128 bits of
/// a hash. Its key and its values never leave this process, so nobody can search for two tokens
/// with one number. By chance, a million tokens have such a pair in one of 2^89 processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct LoginId {
    hash: u128,
    account: Account,
}

impl LoginId {
    /// The number of a SASL token. All clients without a login have one.
    pub(crate) fn of(login: Option<&[u8]>) -> LoginId {
        let Some(token) = login else { return LoginId::default() };
        let half = |number: u8| u128::from(KEY.hash_one((number, token)));
        LoginId { hash: half(2) << 64 | half(3), account: Account::of(login) }
    }

    pub(crate) fn account(self) -> Account {
        self.account
    }
}

/// A login: a SASL token with its number, which is computed once. Logins are looked up by their
/// numbers: the texts of two, which a client can make as long and as similar as it likes, are
/// compared only if their numbers are equal.
#[derive(Clone)]
pub(crate) struct LoginToken {
    id: LoginId,
    bytes: Arc<[u8]>,
}

impl LoginToken {
    pub(crate) fn new(bytes: Arc<[u8]>) -> LoginToken {
        LoginToken { id: LoginId::of(Some(&bytes)), bytes }
    }

    /// The login of an identity by the certificate whose names have this digest. Nodes get an empty
    /// token with it. No token that a client sends has its number.
    pub(crate) fn of_certificate(subject: SubjectDigest, identity: &str) -> LoginToken {
        let half = |number: u8| u128::from(KEY.hash_one(("certificate", number, subject)));
        let account = Account::of_identity(identity);
        let id = LoginId { hash: half(2) << 64 | half(3), account };
        LoginToken { id, bytes: Arc::new([]) }
    }

    pub(crate) fn id(&self) -> LoginId {
        self.id
    }

    pub(crate) fn bytes(&self) -> &Arc<[u8]> {
        &self.bytes
    }
}

impl PartialEq for LoginToken {
    fn eq(&self, other: &LoginToken) -> bool {
        self.id == other.id && self.bytes == other.bytes
    }
}

impl Eq for LoginToken {}

impl Hash for LoginToken {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}

/// Shows nothing of a password.
impl Debug for LoginToken {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoginToken").finish_non_exhaustive()
    }
}

/// A login's token as a node of this authenticator reads it: without the identity to act as, if the
/// authenticator ignores that.
pub(crate) fn token_as_read<'a>(token: &'a [u8], authenticator: Option<&str>) -> &'a [u8] {
    let start = token.iter().position(|byte| *byte == 0);
    match start.filter(|_| authenticator == Some(IGNORES_AUTHZID) && role_of(token).is_some()) {
        Some(start) => &token[start..],
        None => token,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_logins_of_a_role_have_one_account() {
        let of = |token: &[u8]| Account::of(Some(token));
        let ann = of(b"\0ann\0secret");
        assert_eq!((of(b"1\0ann\0secret"), of(b"\0ann\0other")), (ann, ann));
        assert!([of(b"\0bob\0secret"), of(b"ann"), Account::of(None)].iter().all(|it| *it != ann));
        assert_ne!(of(b"one token"), of(b"another"), "nobody knows whose they are");
        assert_eq!(of(b"1\0\0ann\0secret"), of(b"2\0\0ann\0secret"), "parts that come first");
    }

    #[test]
    fn each_login_of_a_role_has_its_own_number() {
        let of = |token: &[u8]| LoginId::of(Some(token));
        let (one, other) = (of(b"\0ann\0secret"), of(b"\0ann\0other"));
        assert!(one != other && one == of(b"\0ann\0secret") && one != LoginId::of(None));
        assert_eq!(
            (one.account(), one.hash >> 64 == one.hash & u128::from(u64::MAX)),
            (other.account(), false)
        );
    }

    /// Long tokens that differ in the last byte alone cost a look-up no more than short ones.
    #[test]
    fn a_login_is_looked_up_by_its_number() {
        let login = |bytes: &[u8]| LoginToken::new(bytes.into());
        let ann = login(b"\0ann\0secret");
        assert!(ann == login(b"\0ann\0secret") && ann != login(b"\0ann\0other"));
        // Not that two tokens ever have one number; but if so, they are two logins.
        let other = LoginToken { id: ann.id, bytes: login(b"\0bob\0secret").bytes };
        assert!(ann != other);
        assert_eq!(KEY.hash_one(&ann), KEY.hash_one(&other), "the token is not read");
        assert!(!format!("{ann:?}").contains("secret"));
    }

    #[test]
    fn each_certificate_is_a_login_that_no_token_is() {
        let of = |byte: u8| LoginToken::of_certificate(SubjectDigest([byte; 32]), "CN=shop");
        assert!(of(1) == of(1) && of(1) != of(2) && of(1).id() != of(2).id());
        let empty = LoginToken::new(Arc::new([]));
        assert!(of(1) != empty && of(1).id() != empty.id());
        assert!(of(1).bytes().is_empty(), "nodes look at the certificate alone");
    }

    #[test]
    fn the_identity_to_act_as_is_dropped_where_nodes_ignore_it() {
        let read = |token| token_as_read(token, Some(IGNORES_AUTHZID));
        assert_eq!(read(b"other\0ann\0secret"), b"\0ann\0secret");
        for token in [&b"\0ann\0secret"[..], b"ann\0secret", b"", b"x\0ann\0", b"a\0b\0c\0d"] {
            assert_eq!(read(token), token);
        }
        for another in [None, Some("com.datastax.bdp.cassandra.auth.DseAuthenticator")] {
            assert_eq!(token_as_read(b"other\0ann\0secret", another), b"other\0ann\0secret");
        }
    }
}
