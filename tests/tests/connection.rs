//! The connection contract, on each of our transports.
#![allow(missing_docs)]

macro_rules! every_connection {
    (
        connections { $($name:ident: $harness:expr;)+ }
        channels { $($channel:ident: $channel_harness:expr;)+ }
    ) => {
        $(datafusion_transport_tests::connection_contract!($name, $harness);)+
    };
}
datafusion_transport_tests::our_transports!(every_connection);
