//! What TLS reports, in plain words: whose fault it is and what to do.

use rustls::{AlertDescription, CertificateError, Error};

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
        Error::InvalidMessage(_) => NOT_TLS.into(),
        Error::InvalidCertificate(CertificateError::Other(cause)) => {
            return format!(
                "{} ({cause})",
                refused(AlertDescription::CertificateUnknown)
            );
        }
        Error::InvalidCertificate(err) => refused(AlertDescription::from(err.clone())),
        Error::NoCertificatesPresented => refused(AlertDescription::CertificateRequired),
        Error::NoApplicationProtocol => refused(AlertDescription::NoApplicationProtocol),
        Error::AlertReceived(alert) => peer_refused(*alert, &protocol_name),
        _ => "the TLS handshake failed".into(),
    };
    format!("{words} ({err})")
}

/// Of a peer in plaintext, where this side expects TLS.
pub const NOT_TLS: &str = "the peer does not speak TLS: one side is configured for TLS and the other for plaintext; \
    configure both alike";
/// Of a peer that expects TLS, where this side is in plaintext.
pub const EXPECTS_TLS: &str =
    "the peer expects TLS and this side is configured for plaintext; configure both alike";

fn this_side_refused(alert: AlertDescription, protocol: &str) -> String {
    match alert {
        AlertDescription::UnknownCA | AlertDescription::DecryptError => {
            "the peer's certificate is not signed by a CA that this side trusts; check the CA file of this side, and \
             who signed the peer's certificate"
        }
        AlertDescription::CertificateExpired => {
            "the peer's certificate is expired or not valid yet; renew it, or check the clocks"
        }
        AlertDescription::BadCertificate => {
            "the peer's certificate does not fit; it must be valid for the host name in the URL, or for the fixed name \
             that this side expects instead"
        }
        AlertDescription::CertificateRequired => {
            "the peer presented no client certificate and this side requires one (mutual TLS); configure one there"
        }
        AlertDescription::NoApplicationProtocol => {
            return format!(
                "the peer offers no protocol that this side speaks, which is {protocol}; is it meant for this port, \
                 and of the same version?"
            );
        }
        AlertDescription::UnsupportedCertificate => {
            "the peer's certificate is not made for this use; its extended key usage must name it, or be absent"
        }
        AlertDescription::CertificateUnknown => {
            "the peer is not among the clients that this side lets in; list it, or give it another certificate"
        }
        AlertDescription::HandshakeFailure | AlertDescription::CertificateRevoked => {
            "this side refuses the peer's certificate"
        }
        _ => "this side ended the TLS handshake",
    }
    .into()
}

fn peer_refused(alert: AlertDescription, protocol: &str) -> String {
    match alert {
        AlertDescription::UnknownCA | AlertDescription::DecryptError => {
            "the peer does not trust the CA of this side's certificate; it must be signed by a CA in the peer's CA file"
        }
        AlertDescription::CertificateExpired => {
            "the peer found this side's certificate expired or not valid yet; renew it, or check the clocks"
        }
        AlertDescription::BadCertificate => {
            "the peer found that this side's certificate does not fit; a worker's must be valid for the host name in \
             its URL"
        }
        AlertDescription::CertificateRequired => {
            "the peer requires a client certificate (mutual TLS) and this side has none; configure one"
        }
        AlertDescription::NoApplicationProtocol => {
            return format!(
                "the peer does not speak this side's protocol version, which is {protocol}; is this its port, and is \
                 it of the same version?"
            );
        }
        AlertDescription::CertificateUnknown => {
            "the peer does not let this side in, although its certificate is valid: its names must be among the \
             clients that the peer allows"
        }
        AlertDescription::UnsupportedCertificate => {
            "the peer finds this side's certificate not made for this use; its extended key usage must name it, or be \
             absent"
        }
        AlertDescription::CertificateRevoked => "the peer refuses this side's certificate",
        _ => "the peer ended the TLS handshake; its log says why",
    }
    .into()
}
