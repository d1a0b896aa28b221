//! Phrases for the log: why a handshake or a session failed, in the words of its operator.

use rustls::{
    AlertDescription, CertificateError, Error, InvalidMessage, OtherError, PeerIncompatible,
};
use shunt_reactor::SessionFault;

use crate::chain::ChainFault;

/// The certificate of the peer has expired.
pub(crate) const EXPIRED: SessionFault = SessionFault("the peer's certificate has expired");

/// The keys of a connection have sealed as many records as is safe.
pub(crate) const KEYS_USED_UP: SessionFault =
    SessionFault("a TLS 1.2 connection has sent all the records that its keys allow");

/// The phrase for an error of rustls.
pub(crate) fn of(error: &Error) -> SessionFault {
    SessionFault(match error {
        Error::AlertReceived(alert) => of_alert(*alert),
        Error::InvalidCertificate(error) => return of_certificate(error),
        Error::NoCertificatesPresented => "the peer gave no certificate",
        Error::DecryptError => "a record is damaged or forged (bad MAC)",
        Error::PeerSentOversizedRecord => "the peer sent a record that is too large",
        Error::InvalidMessage(error) => of_message(error),
        Error::PeerIncompatible(error) => of_incompatibility(error),
        Error::InappropriateMessage { .. } | Error::InappropriateHandshakeMessage { .. } => {
            "the peer sent a message out of order"
        }
        Error::PeerMisbehaved(_) => "the peer broke the TLS protocol",
        Error::FailedToGetCurrentTime => "the time of day is unknown",
        Error::FailedToGetRandomBytes => "the system has no random numbers",
        _ => "TLS failed",
    })
}

const UNKNOWN_CA: &str = "the peer does not know the CA of our certificate";
const OWN_EXPIRED: &str = "the peer says that our certificate has expired";
const OWN_REVOKED: &str = "the peer says that our certificate is revoked";
const REQUIRED: &str = "the peer requires a certificate from us";
const NOT_ACCEPTED: &str = "the peer does not accept our certificate";

/// True if the peer has judged the certificate of this side, and refused it or its absence.
pub fn is_of_own_certificate(fault: SessionFault) -> bool {
    [UNKNOWN_CA, OWN_EXPIRED, OWN_REVOKED, REQUIRED, NOT_ACCEPTED].contains(&fault.0)
}

/// True if the peer has ended the session by an alert.
pub fn is_alert(fault: SessionFault) -> bool {
    (0..=u8::MAX).any(|code| of_alert(AlertDescription::from(code)) == fault.0)
}

/// Reasons that the peer gave.
fn of_alert(alert: AlertDescription) -> &'static str {
    match alert {
        AlertDescription::CloseNotify | AlertDescription::UserCanceled => {
            "the peer gave up the handshake"
        }
        AlertDescription::UnknownCA => UNKNOWN_CA,
        AlertDescription::CertificateExpired => OWN_EXPIRED,
        AlertDescription::CertificateRevoked => OWN_REVOKED,
        AlertDescription::CertificateRequired | AlertDescription::NoCertificate => REQUIRED,
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateUnknown => NOT_ACCEPTED,
        AlertDescription::AccessDenied => "the peer denies us access",
        AlertDescription::ProtocolVersion => "the peer accepts no TLS version that we offer",
        AlertDescription::HandshakeFailure | AlertDescription::InsufficientSecurity => {
            "the peer found no common cipher suite, or requires a certificate from us"
        }
        AlertDescription::UnrecognisedName => "the peer does not know the name that we asked for",
        AlertDescription::BadRecordMac | AlertDescription::DecryptError => {
            "the peer could not verify what we sent (bad MAC or signature)"
        }
        AlertDescription::RecordOverflow => "the peer says that our record is too large",
        AlertDescription::NoApplicationProtocol => "the peer requires an ALPN protocol",
        AlertDescription::InternalError => "the peer reports an internal error",
        _ => "the peer ended the session with an alert",
    }
}

/// Reasons why the certificate of the peer is not accepted.
fn of_certificate(error: &CertificateError) -> SessionFault {
    SessionFault(match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => return EXPIRED,
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the peer's certificate is not valid yet"
        }
        CertificateError::UnknownIssuer => "the CA of the peer's certificate is unknown",
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "the peer's certificate is for another name"
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "the peer's certificate is for another purpose (extended key usage)"
        }
        CertificateError::BadSignature => "a signature of the peer's certificate is wrong",
        CertificateError::BadEncoding => "the peer's certificate cannot be read",
        CertificateError::Revoked => "the peer's certificate is revoked",
        CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "the peer's certificate has an unknown signature algorithm"
        }
        CertificateError::Other(OtherError(error)) => {
            let fault = error.downcast_ref::<ChainFault>();
            fault.map_or("the peer's certificate is not valid", |fault| fault.0)
        }
        _ => "the peer's certificate is not valid",
    })
}

/// Messages that cannot be read.
fn of_message(error: &InvalidMessage) -> &'static str {
    match error {
        InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion => {
            "the peer does not speak TLS"
        }
        InvalidMessage::MessageTooLarge => "the peer sent a record that is too large",
        InvalidMessage::HandshakePayloadTooLarge | InvalidMessage::CertificatePayloadTooLarge => {
            "the peer sent a handshake message that is too long"
        }
        _ => "the peer sent a message that cannot be read",
    }
}

/// Reasons why the two sides have nothing in common.
fn of_incompatibility(error: &PeerIncompatible) -> &'static str {
    match error {
        PeerIncompatible::Tls12NotOffered
        | PeerIncompatible::Tls12NotOfferedOrEnabled
        | PeerIncompatible::ServerDoesNotSupportTls12Or13
        | PeerIncompatible::SupportedVersionsExtensionRequired
        // Clients of these versions always have it, and it is looked at first.
        | PeerIncompatible::SignatureAlgorithmsExtensionRequired
        | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig => {
            "the peer has neither TLS 1.2 nor TLS 1.3"
        }
        PeerIncompatible::NoCipherSuitesInCommon
        | PeerIncompatible::NoKxGroupsInCommon
        | PeerIncompatible::NamedGroupsExtensionRequired
        | PeerIncompatible::NoEcPointFormatsInCommon
        | PeerIncompatible::EcPointsExtensionRequired
        | PeerIncompatible::UncompressedEcPointsRequired => {
            "no cipher suite in common: TLS 1.2 needs ECDHE with AES-GCM or ChaCha20"
        }
        PeerIncompatible::NoSignatureSchemesInCommon
        | PeerIncompatible::NoCertificateRequestSignatureSchemesInCommon => {
            "no signature algorithm in common with the peer"
        }
        _ => "the peer lacks a feature of TLS that is needed",
    }
}
