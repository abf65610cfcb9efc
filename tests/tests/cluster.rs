//! The contract at the level of SQL, on each of our transports and on the reference.
#![allow(missing_docs)]

macro_rules! every_cluster {
    (
        connections { $($connection:ident: $connection_harness:expr;)+ }
        channels { $($name:ident: $harness:expr;)+ }
    ) => {
        $(datafusion_transport_tests::cluster_contract!($connection, $connection_harness);)+
        $(datafusion_transport_tests::cluster_contract!($name, $harness);)+
    };
}
datafusion_transport_tests::our_transports!(every_cluster);
