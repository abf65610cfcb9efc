//! [`Carrier`]: what a test's queries travel over, and the macros that make a test for each.

/// A transport as tests of SQL choose it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// QUIC.
    Quic,
    /// Raw TCP in the clear.
    Tcp,
    /// Raw TCP with TLS.
    TcpTls,
    /// Whichever works: QUIC, where nothing is in its way.
    Auto,
}

impl Carrier {
    /// The value of `transport.kind`.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Quic => "quic",
            Self::Tcp => "tcp",
            Self::TcpTls => "tcp-tls",
            Self::Auto => "auto",
        }
    }

    /// What a worker program is told to serve.
    pub fn served(self) -> &'static str {
        match self {
            Self::Auto => "quic,tcp",
            one => one.kind(),
        }
    }

    /// Whether handshakes go over UDP.
    pub fn is_udp(self) -> bool {
        matches!(self, Self::Quic | Self::Auto)
    }
}

/// A test of each case over each transport.
#[macro_export]
macro_rules! over_every_transport {
    ($($case:ident),+ $(,)?) => {
        $crate::over!(quic: Quic, $($case),+);
        $crate::over!(tcp: Tcp, $($case),+);
        $crate::over!(tcp_tls: TcpTls, $($case),+);
        $crate::over!(auto: Auto, $($case),+);
    };
}

/// A test of each case over one transport: calls `case(carrier)`.
#[macro_export]
macro_rules! over {
    ($module:ident: $carrier:ident, $($case:ident),+) => {
        mod $module {
            $(
                #[test]
                fn $case() {
                    super::$case(super::common::carrier::Carrier::$carrier);
                }
            )+
        }
    };
}
