//! The kit notices what is broken: for each way to be broken, the case that notices it, and that passes where nothing is.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    unreachable_pub
)]

mod broken;

use datafusion_transport_tests::case::{Outcome, STALL};
use datafusion_transport_tests::{Case, ChannelHarness, ConnectionHarness, Subject};
use std::sync::Arc;

/// Runs the named case against both.
fn notices<H: Subject + ?Sized>(cases: &[Case<H>], path: &str, whole: Arc<H>, broken: Arc<H>) {
    let case = cases.iter().find(|case| case.path() == path);
    let case = case.unwrap_or_else(|| panic!("no case {path}"));
    assert_eq!(
        case.run_once(&whole, case.limit),
        Outcome::Passed,
        "{path} fails by itself"
    );
    let outcome = case.run_once(&broken, STALL);
    assert_ne!(outcome, Outcome::Passed, "{path} does not notice it");
    println!("{path}: {outcome}");
}

macro_rules! mutations {
    ($level:ident, $harness:ident: $($name:ident: $defect:ident => $group:ident :: $case:ident;)+) => {
        mod $level {
            use super::*;
            use crate::broken::$level::{Broken, Defect};

            $(#[test]
            fn $name() {
                let whole: Arc<dyn $harness> = Arc::new(Broken::new(Defect::None));
                let broken: Arc<dyn $harness> = Arc::new(Broken::new(Defect::$defect));
                let path = concat!(stringify!($group), "::", stringify!($case));
                notices(datafusion_transport_tests::$level::CASES, path, whole, broken);
            })+
        }
    };
}

mutations! { channel, ChannelHarness:
    loses_the_last_batch: LosesTheLastBatch => data::rows_arrive_in_order;
    ends_without_terminal_message: EndsWithoutTerminalMessage => losses::a_worker_that_ends_is_never_a_clean_end;
    never_releases_a_dropped_partition: NeverReleasesADroppedPartition => dropping::one_dropped_between_batches_is_released;
    mixes_two_partitions: MixesTwoPartitions => calls::a_call_gives_a_stream_per_partition_in_order;
    blocks_siblings: BlocksSiblings => independence::an_unread_partition_does_not_block_its_siblings;
    swallows_worker_errors: SwallowsWorkerErrors => errors::an_error_arrives_as_the_same_variant;
    swallows_panics: SwallowsWorkerErrors => errors::a_panic_is_an_error;
    fails_siblings: FailsSiblings => independence::a_failed_partition_leaves_its_siblings;
    leaks_a_task: LeaksATask => dropping::a_query_dropped_half_way_leaves_nothing;
    delivers_metrics_late: DeliversMetricsLate => metrics::they_do_not_wait_for_partitions;
    loses_metrics: LosesMetrics => metrics::they_come_at_the_querys_end_and_once;
    loses_load_infos_end: LosesLoadInfosEnd => coordinator::the_end_of_load_info_arrives_once;
    reorders: Reorders => data::rows_arrive_in_order;
    duplicates: Duplicates => data::rows_arrive_in_order;
    starts_unasked: StartsUnasked => laziness::nothing_runs_before_the_first_poll;
    reads_ahead_without_bound: ReadsAheadWithoutBound => independence::an_unread_partition_does_not_block_its_siblings;
    keeps_memory: KeepsMemory => memory::everything_is_given_back_at_the_end;
    loses_metadata: LosesMetadata => data::schema_and_field_metadata_arrive;
    loses_row_counts: LosesRowCounts => data::zero_columns_keep_their_row_count;
    loses_repeated_headers: LosesRepeatedHeaders => calls::headers_arrive_as_they_were_sent;
    ignores_compression: IgnoresCompression => compression::lz4_is_honoured;
    reports_nothing: ReportsNothing => metrics::the_boundary_reports_under_the_usual_names;
    says_something_after_an_error: SaysSomethingAfterAnError => errors::nothing_comes_after_an_error;
}

mutations! { connection, ConnectionHarness:
    finishes_when_dropped: FinishesWhenDropped => ends::a_dropped_sender_is_no_clean_end;
    loses_codes: LosesCodes => ends::a_reset_carries_its_code;
    never_stops_a_writer: NeverStopsAWriter => ends::a_dropped_receiver_stops_the_writer;
    shares_a_window: SharesAWindow => flow::many_unread_streams_use_up_nothing_shared;
    holds_without_bound: HoldsWithoutBound => flow::an_unread_stream_stops_its_writer;
    reorders: Reorders => streams::bytes_arrive_whole_and_in_order;
    loses_the_last_bytes: LosesTheLastBytes => streams::bytes_arrive_whole_and_in_order;
    reads_more_than_asked: ReadsMoreThanAsked => streams::a_read_gives_no_more_than_was_asked_for;
    hides_the_reason: HidesTheReason => connections::a_close_tells_its_reason;
    hangs_where_nobody_listens: HangsWhereNobodyListens => connections::nobody_listening_is_an_error_that_names_the_url;
}
