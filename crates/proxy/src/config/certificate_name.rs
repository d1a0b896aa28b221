//! Names of certificates in the configuration file.

use shunt_reactor::{NameKind, PeerName};

/// The name that a text of this key stands for. The form of the text decides on the kind of the
/// name, so that one text stands for one kind: a common name never passes for a URI.
pub(super) fn name_from(key: &str, text: &str) -> Result<PeerName, String> {
    let (kind, name) = match text.strip_prefix("CN=") {
        Some(name) => (NameKind::CommonName, name),
        None if text.contains(':') => (NameKind::Uri, text),
        None if text.contains('@') => (NameKind::Email, text),
        None => (NameKind::Dns, text),
    };
    if name.is_empty() {
        return Err(format!(
            "`{key}` is empty: give a URI, a DNS name, an e-mail address or CN=NAME"
        ));
    }
    if name.contains('*') {
        return Err(format!("`{key}` = `{text}`: names are compared exactly; `*` is not allowed"));
    }
    Ok(PeerName::new(kind, name))
}
