//! The contract of a multiplexed connection: the lower seam, [`datafusion_transport_core::connection`].

pub mod connections;
pub mod ends;
pub mod flow;
pub mod liveness;
pub mod streams;

use crate::case::{Case, Progress, Trial};
use crate::harness::ConnectionHarness;
use crate::wait::{SOON, within};
use bytes::Bytes;
use datafusion_transport_core::IoRuntime;
use datafusion_transport_core::connection::{
    BiStream, Connection, Connector, Listener, RecvStream, SendStream, StreamClass, StreamError,
    read, write,
};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use url::Url;

/// The list: tests, report and documents are made from it.
#[macro_export]
macro_rules! connection_cases {
    ($($callback:tt)+) => {
        $($callback)+! {
            streams {
                bytes_arrive_whole_and_in_order;
                a_read_gives_no_more_than_was_asked_for;
                a_stream_without_bytes_ends_cleanly;
                the_clean_end_is_told_again;
                the_directions_are_independent;
                many_streams_carry_their_own_bytes;
                changing_the_class_loses_nothing;
                an_interrupted_write_goes_on_where_it_was;
                an_interrupted_read_loses_nothing;
                a_stream_that_was_never_written_harms_nobody;
            }
            ends {
                a_dropped_sender_is_no_clean_end;
                a_sender_dropped_at_any_point_is_no_clean_end;
                a_reset_carries_its_code;
                a_reset_after_finish_never_shortens_in_silence;
                writing_after_the_end_is_an_error;
                a_dropped_receiver_stops_the_writer;
                a_stop_carries_its_code;
                a_stop_reaches_a_writer_in_every_state;
                a_stopped_stream_never_ends_cleanly;
                a_stop_leaves_the_other_direction;
            }
            flow {
                an_unread_stream_stops_its_writer;
                an_unread_stream_delays_no_other;
                many_unread_streams_use_up_nothing_shared;
                a_paused_reader_gets_everything;
                reading_is_what_makes_room;
                a_thousand_streams_are_open_at_once (60 s);
                control_passes_bulk;
            }
            connections {
                a_close_tells_its_reason;
                a_close_fails_streams_on_both_sides;
                a_close_overtakes_data;
                a_second_close_changes_nothing;
                dropping_the_last_handle_closes;
                connections_are_independent;
                a_closed_listener_gives_no_connection;
                nobody_listening_is_an_error_that_names_the_url;
                a_dropped_connect_leaves_the_listener_usable;
                an_interrupted_accept_loses_no_connection;
                an_interrupted_accept_loses_no_stream;
                a_listener_starts_again_at_its_url [Rebind];
                bytes_are_counted;
            }
            liveness {
                an_idle_connection_lives_on;
                a_silent_peer_is_lost_while_idle [Silence];
                a_silent_peer_is_lost_in_the_middle_of_a_write [Silence];
            }
        }
    };
}

/// The list as values.
pub const CASES: &[Case<dyn ConnectionHarness>] = connection_cases!(crate::__case_values);

/// Expands to one test for each case of the connection contract, in a module of this name.
///
/// ```ignore
/// datafusion_transport_tests::connection_contract!(mine, MyHarness::new());
/// ```
#[macro_export]
macro_rules! connection_contract {
    ($module:ident, $harness:expr) => {
        mod $module {
            #[allow(unused_imports)]
            use super::*;

            fn judge(group: &str, name: &str) {
                let harness: ::std::sync::Arc<dyn $crate::ConnectionHarness> =
                    ::std::sync::Arc::new($harness);
                $crate::check($crate::connection::CASES, group, name, &harness);
            }

            $crate::connection_cases!($crate::__case_tests);
        }
    };
}

/// Two sides of a connection.
pub(crate) struct Pair {
    pub(crate) client: Arc<dyn Connection>,
    pub(crate) server: Arc<dyn Connection>,
    /// In a lock only because a listener can't be shared, and a pair is.
    pub(crate) listener: Mutex<Box<dyn Listener>>,
    pub(crate) connector: Arc<dyn Connector>,
    pub(crate) url: Url,
    progress: Progress,
}

impl Trial<dyn ConnectionHarness> {
    async fn listen(&self, at: Option<&Url>) -> (Url, Box<dyn Listener>) {
        let io = IoRuntime::shared().expect("threads");
        let listening = self.harness.listen(at, &io).await;
        listening.expect("a listener")
    }

    async fn pair(&self) -> Pair {
        self.pair_on(&IoRuntime::shared().expect("threads")).await
    }

    /// The server's I/O runs on `io`.
    async fn pair_on(&self, io: &IoRuntime) -> Pair {
        let (url, mut listener) = self.harness.listen(None, io).await.expect("a listener");
        let connector = self.harness.connector().expect("a connector");
        let (client, server) = connect(&connector, &url, &mut listener).await;
        Pair {
            client,
            server,
            listener: Mutex::new(listener),
            connector,
            url,
            progress: self.progress.clone(),
        }
    }
}

/// Makes one connection.
async fn connect(
    connector: &Arc<dyn Connector>,
    url: &Url,
    listener: &mut Box<dyn Listener>,
) -> (Arc<dyn Connection>, Arc<dyn Connection>) {
    let both = async { tokio::join!(connector.connect(url), listener.accept()) };
    let (client, server) = soon(both).await;
    (client.expect("a connection"), server.expect("a connection"))
}

impl Pair {
    /// A stream from client to server. The server sees it because one byte is sent, and taken off again.
    async fn stream(&self) -> (BiStream, BiStream) {
        let mut ours = soon(self.client.open(StreamClass::Bulk))
            .await
            .expect("a stream");
        send(ours.send.as_mut(), &b"!"[..]).await.expect("a byte");
        let mut theirs = soon(self.server.accept()).await.expect("a stream");
        let first = soon(read(theirs.recv.as_mut(), 1)).await.expect("a byte");
        assert_eq!(first.as_deref(), Some(&b"!"[..]));
        self.progress.made();
        (ours, theirs)
    }

    /// Moves so many bytes from server to client over one stream.
    async fn transfer(&self, bytes: usize) {
        let (mut ours, mut theirs) = self.stream().await;
        let writing = tokio::spawn(async move {
            send(theirs.send.as_mut(), vec![0; bytes])
                .await
                .expect("a reader");
            theirs.send.finish();
            theirs
        });
        assert_eq!(
            bytes,
            soon(drain(ours.recv.as_mut())).await.expect("an end")
        );
        soon(writing).await.expect("no panic");
    }
}

/// Awaits what takes moments.
async fn soon<T>(work: impl Future<Output = T>) -> T {
    within("it should take moments", SOON, work).await
}

/// Writes one buffer.
async fn send(stream: &mut dyn SendStream, bytes: impl Into<Bytes>) -> Result<(), StreamError> {
    write(stream, &mut VecDeque::from([bytes.into()])).await
}

/// Writes until the stream fails.
async fn send_endlessly(stream: &mut dyn SendStream) -> StreamError {
    let block = Bytes::from(vec![0; 1 << 20]);
    loop {
        if let Err(err) = send(stream, block.clone()).await {
            return err;
        }
        tokio::task::yield_now().await;
    }
}

/// Reads to the end and counts.
async fn drain(stream: &mut dyn RecvStream) -> Result<usize, StreamError> {
    let mut bytes = 0;
    while let Some(chunk) = read(stream, usize::MAX).await? {
        assert!(!chunk.is_empty(), "an empty chunk");
        bytes += chunk.len();
    }
    Ok(bytes)
}

/// Reads to the end.
async fn read_all(stream: &mut dyn RecvStream, at_once: usize) -> Result<Vec<u8>, StreamError> {
    let mut all = vec![];
    while let Some(chunk) = read(stream, at_once).await? {
        assert!(
            (1..=at_once).contains(&chunk.len()),
            "{} bytes",
            chunk.len()
        );
        all.extend_from_slice(&chunk);
    }
    Ok(all)
}

/// Bytes that tell where they belong.
fn pattern(seed: usize, bytes: usize) -> Bytes {
    let byte = |i: usize| (i.wrapping_mul(31) ^ (i >> 9) ^ seed) as u8;
    (0..bytes).map(byte).collect()
}
