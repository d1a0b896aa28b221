//! Identities by their names, for the certificates of many clients: a look-up for each name of a
//! certificate, where [`Identities::of`] compares each name with each identity.

use std::collections::HashMap;
use std::sync::Arc;

use shunt_reactor::PeerName;

use crate::config::{Identities, Identity};

/// The identities of a configuration by their names.
pub(crate) struct IdentityIndex<'i> {
    identities: &'i Identities,
    places: HashMap<&'i PeerName, usize>,
}

impl<'i> IdentityIndex<'i> {
    pub(crate) fn new(identities: &'i Identities) -> Self {
        let mut places = HashMap::with_capacity(identities.0.len());
        for (place, identity) in identities.0.iter().enumerate() {
            places.entry(&identity.name).or_insert(place);
        }
        Self { identities, places }
    }

    /// The first identity whose name is among those of a certificate.
    pub(crate) fn of(&self, names: &[PeerName]) -> Option<&'i Arc<Identity>> {
        let place = names.iter().filter_map(|name| self.places.get(name)).min()?;
        self.identities.0.get(*place)
    }
}

#[cfg(test)]
mod tests {
    use shunt_reactor::NameKind;

    use super::*;
    use crate::config::{IdentityLogin, RolePassword, Secret};

    #[test]
    fn the_index_finds_the_identity_that_a_search_finds() {
        let name = |kind, number: usize| PeerName::new(kind, &format!("{number}:"));
        let identity = |(place, name): (usize, PeerName)| {
            let username = format!("role {place}");
            let password = Secret::new("secret");
            let role = RolePassword { username, file: "file".into(), password };
            Arc::new(Identity { name, login: IdentityLogin::Password(role) })
        };
        // Some names occur twice, and some in two kinds.
        let names = (0..40).map(|number| match number % 4 {
            0 => name(NameKind::CommonName, number * 7 % 16),
            _ => name(NameKind::Uri, number * 7 % 16),
        });
        let identities = Identities(names.enumerate().map(identity).collect());
        let index = IdentityIndex::new(&identities);
        for first in 0..20 {
            for second in 0..20 {
                let shown = [name(NameKind::Uri, first), name(NameKind::CommonName, second)];
                for names in [&shown[..], &shown[..1], &[]] {
                    assert_eq!(index.of(names), identities.of(names), "{names:?}");
                }
            }
        }
    }
}
