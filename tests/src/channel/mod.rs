//! The contract of a [`WorkerChannel`](datafusion_distributed::WorkerChannel), whatever it is made of.

pub mod calls;
pub mod compression;
pub mod connections;
pub mod coordinator;
pub mod data;
pub mod dropping;
pub mod errors;
pub mod independence;
pub mod laziness;
pub mod losses;
pub mod memory;
pub mod metrics;
pub mod repartition;
pub mod types;

use crate::case::{Case, Trial};
use crate::harness::ChannelHarness;

/// A run of a case at this level.
type Kit = Trial<dyn ChannelHarness>;

/// The list: tests, report and documents are made from it.
#[macro_export]
macro_rules! channel_cases {
    ($($callback:tt)+) => {
        $($callback)+! {
            laziness {
                nothing_runs_before_the_first_poll;
                the_first_poll_starts_the_whole_range;
                later_calls_start_by_themselves;
                a_partition_may_be_asked_for_before_its_plan_is_set;
            }
            calls {
                a_call_gives_a_stream_per_partition_in_order;
                an_empty_range_gives_no_streams;
                streams_outlive_their_channel;
                headers_arrive_as_they_were_sent;
                large_headers_arrive;
                unknown_options_pass_through;
                worker_info_needs_no_plan;
                heads_are_put_on_the_plan;
                user_codecs_are_used;
            }
            dropping {
                all_dropped_unpolled_are_released;
                one_dropped_unpolled_is_released;
                one_dropped_before_its_first_batch_is_released;
                one_dropped_between_batches_is_released;
                one_dropped_while_its_siblings_are_unread_is_released;
                one_dropped_in_a_shared_repartition_lets_the_others_go_on;
                a_dropped_partition_sends_no_more;
                some_dropped_before_data_leave_the_rest_whole;
                some_dropped_during_data_leave_the_rest_whole;
                some_dropped_after_data_leave_the_rest_whole;
                all_dropped_in_mid_data_are_released;
                a_query_dropped_half_way_leaves_nothing;
                a_plan_is_let_go_after_its_query;
            }
            repartition {
                unread_outputs_do_not_keep_it_going;
                all_outputs_dropped_unpolled_end_its_input;
                all_outputs_dropped_in_mid_data_end_its_input;
            }
            independence {
                an_unread_partition_does_not_block_its_siblings;
                half_of_the_partitions_unread_do_not_block_the_others;
                large_partitions_finish_beside_an_unread_one;
                a_call_does_not_block_another;
                a_failed_partition_leaves_its_siblings;
                a_stuck_producer_does_not_block_its_siblings;
                coordinator_messages_pass_unread_partitions;
                hundreds_of_partitions_are_read_one_after_the_other;
            }
            data {
                rows_arrive_in_order;
                usual_batches_keep_their_borders;
                small_batches_become_usual_ones_at_most;
                zero_columns_keep_their_row_count;
                batches_without_rows_arrive;
                partitions_without_batches_end_cleanly;
                schema_and_field_metadata_arrive;
                sliced_arrays_arrive_as_their_slice;
                batches_without_nulls_and_all_null_arrive;
                large_batches_arrive;
                many_small_batches_arrive;
                a_batch_over_the_budget_goes_through;
                decoding_copies_nothing [ZeroCopy];
            }
            types {
                null_and_boolean;
                integers_and_floats;
                decimals;
                dates_and_times;
                intervals_and_durations;
                strings_and_binaries;
                string_and_binary_views;
                lists;
                list_views;
                structs_and_maps;
                unions;
                run_end_encoded;
                dictionaries;
                dictionaries_inside_others;
                dictionaries_that_change;
            }
            errors {
                an_error_arrives_as_the_same_variant;
                arrow_and_io_errors_arrive_as_themselves;
                context_and_sharing_arrive;
                rows_before_an_error_arrive;
                nothing_comes_after_an_error;
                a_plan_that_fails_to_start_is_an_error;
                a_panic_is_an_error;
                a_panic_at_the_start_is_an_error;
                a_panic_leaves_the_worker_usable;
                an_unknown_partition_is_an_error;
                an_unknown_task_is_an_error;
                a_plan_that_cannot_be_decoded_is_the_calls_error;
                a_second_plan_for_a_task_is_an_error;
            }
            losses {
                a_worker_that_ends_is_never_a_clean_end;
                a_worker_that_ends_names_itself;
                a_worker_that_ends_fails_its_coordinator_channels;
                a_worker_that_came_back_is_reached [Rebind];
                an_unreachable_worker_is_an_error_soon;
                an_unreachable_worker_is_tried_again [Rebind];
                a_silent_worker_is_an_error [Silence];
                a_lost_coordinator_fails_its_partitions;
                a_lost_coordinator_frees_its_worker;
                a_client_that_shuts_down_gets_errors [Counters];
                a_draining_worker_finishes_its_queries [Drain];
                metrics_survive_an_immediate_shutdown [Drain];
            }
            coordinator {
                a_plan_is_accepted_before_anything_else_is_said;
                a_silent_channel_lives_on;
                work_units_arrive_in_order;
                work_units_of_any_size_arrive;
                the_end_of_work_units_ends_their_feeds;
                messages_to_the_worker_arrive_as_they_were_sent [Service];
                load_info_arrives_as_it_was_sent [Service];
                the_end_of_load_info_arrives_once;
                the_workers_end_leaves_the_coordinators_direction [Service];
                an_error_of_the_worker_ends_the_channel [Service];
            }
            metrics {
                they_come_at_the_querys_end_and_once;
                they_do_not_wait_for_partitions;
                they_come_for_a_task_that_nobody_executed;
                they_come_for_a_task_whose_partitions_were_dropped;
                they_come_node_by_node_in_order;
                every_kind_of_value_arrives;
                sketches_arrive;
                labels_and_partitions_arrive;
                the_boundary_reports_under_the_usual_names;
                the_boundary_counts_what_arrived;
                the_plans_size_is_reported;
            }
            connections {
                a_thousand_partitions_share_a_connection [Counters];
                first_calls_share_a_dial [Counters];
                a_failed_dial_is_not_kept [Counters, Rebind];
                a_lost_connection_is_replaced [Counters, Rebind];
                no_stream_stays_open [Counters];
            }
            memory {
                nothing_is_reserved_before_the_first_poll;
                what_is_held_is_reserved_and_bounded;
                everything_is_given_back_at_the_end;
                everything_is_given_back_when_dropped;
                a_refused_reservation_is_an_error_soon;
            }
            compression {
                none_is_honoured;
                lz4_is_honoured;
                zstd_is_honoured;
                an_unknown_value_is_an_error;
            }
        }
    };
}

/// The list as values.
pub const CASES: &[Case<dyn ChannelHarness>] = channel_cases!(crate::__case_values);

/// Expands to one test for each case of the channel contract, in a module of this name.
///
/// ```ignore
/// datafusion_transport_tests::channel_contract!(mine, MyHarness::new());
/// ```
#[macro_export]
macro_rules! channel_contract {
    ($module:ident, $harness:expr) => {
        mod $module {
            #[allow(unused_imports)]
            use super::*;

            fn judge(group: &str, name: &str) {
                let harness: ::std::sync::Arc<dyn $crate::ChannelHarness> =
                    ::std::sync::Arc::new($harness);
                $crate::check($crate::channel::CASES, group, name, &harness);
            }

            $crate::channel_cases!($crate::__case_tests);
        }
    };
}
