//! What TLS reports, in plain words: whose fault it is and what to do.

use rustls::{AlertDescription, Error};

/// The side that found a fault, and ended the handshake with an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundBy {
    /// This side refused the peer.
    ThisSide,
    /// The peer refused this side.
    Peer,
}

/// A failed handshake, from the number of the alert that ended it (RFC 8446, 6). `protocol` is what this side speaks
/// (ALPN).
pub fn explain_alert(alert: u8, found_by: FoundBy, protocol: &[u8]) -> String {
    let alert = AlertDescription::from(alert);
    let protocol = String::from_utf8_lossy(protocol);
    match found_by {
        FoundBy::ThisSide => this_side_refused(alert, &protocol),
        FoundBy::Peer => peer_refused(alert, &protocol),
    }
}

/// A failed handshake, from what rustls reports on either side, which stands in brackets behind.
pub fn explain(err: &Error, protocol: &[u8]) -> String {
    let protocol_name = String::from_utf8_lossy(protocol);
    let refused = |alert| this_side_refused(alert, &protocol_name);
    let words = match err {
        Error::InvalidMessage(_) => {
            "the peer does not speak TLS: one side is configured for TLS and the other for plaintext".into()
        }
        Error::InvalidCertificate(err) => refused(AlertDescription::from(err.clone())),
        Error::NoCertificatesPresented => refused(AlertDescription::CertificateRequired),
        Error::NoApplicationProtocol => refused(AlertDescription::NoApplicationProtocol),
        Error::AlertReceived(alert) => peer_refused(*alert, &protocol_name),
        _ => "the TLS handshake failed".into(),
    };
    format!("{words} ({err})")
}

fn this_side_refused(alert: AlertDescription, protocol: &str) -> String {
    match alert {
        AlertDescription::UnknownCA | AlertDescription::DecryptError => {
            "the peer's certificate is not signed by a CA that this side trusts; check the CA file"
        }
        AlertDescription::CertificateExpired => {
            "the peer's certificate is expired or not valid yet; renew it, or check the clocks"
        }
        AlertDescription::BadCertificate => {
            "the peer's certificate does not fit; it must be valid for the host name in the URL"
        }
        AlertDescription::CertificateRequired => {
            "the peer presented no client certificate and this side requires one (mutual TLS)"
        }
        AlertDescription::NoApplicationProtocol => {
            return format!(
                "the peer offers no protocol that this side speaks, which is {protocol}"
            );
        }
        AlertDescription::HandshakeFailure
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateRevoked
        | AlertDescription::CertificateUnknown => "this side refuses the peer's certificate",
        _ => "this side ended the TLS handshake",
    }
    .into()
}

fn peer_refused(alert: AlertDescription, protocol: &str) -> String {
    match alert {
        AlertDescription::UnknownCA | AlertDescription::DecryptError => {
            "the peer does not trust the CA of this side's certificate; it must be signed by the peer's client CA"
        }
        AlertDescription::CertificateExpired => {
            "the peer found this side's certificate expired or not valid yet; renew it, or check the clocks"
        }
        AlertDescription::CertificateRequired => {
            "the peer requires a client certificate (mutual TLS) and this side has none; configure one"
        }
        AlertDescription::NoApplicationProtocol => {
            return format!(
                "the peer does not speak this side's protocol version, which is {protocol}"
            );
        }
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateRevoked
        | AlertDescription::CertificateUnknown => "the peer refuses this side's certificate",
        _ => "the peer ended the TLS handshake",
    }
    .into()
}
