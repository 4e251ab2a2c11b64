//! What every store must do, as one suite that runs on each of them.

mod accounts;
mod acts;
mod bounds;
mod depth;
mod differential;
mod faults;
mod groups;
mod naming;
mod progress;
mod retention;
mod world;

pub(crate) use accounts::assert_they_add_up;
pub(crate) use acts::{apply_late, change_presence, discard, release};
pub(crate) use differential::agree_with_the_model;
pub(crate) use world::{
    Dump, Ev, NOW_MS, Stopped, Subject, deliver, delivery, ev, ingest, ingest_unsynced, refused,
    settings,
};

/// Runs every case on stores that the subject makes.
pub(crate) fn conformance(subject: &impl Subject) {
    progress::an_empty_store_says_so(subject);
    progress::the_worked_example(subject);
    progress::a_batch_sees_its_earlier_chunks(subject);
    progress::what_is_dropped_was_never_there(subject);
    progress::numbers_rise(subject);
    progress::a_delivery_is_known_once_it_is_in(subject);
    progress::an_operator_sets_the_watermark(subject);
    progress::sources_are_told_apart(subject);
    progress::of_two_recorded_with_one_id_the_last_stays(subject);
    progress::a_snapshot_stands_still(subject);
    progress::versions_are_counted(subject);
    bounds::an_overflow_names_every_window(subject);
    bounds::a_count_has_a_bound_too(subject);
    bounds::late_events_come_by_batch_and_index(subject);
    bounds::windows_come_by_start_and_key_within_a_span(subject);
    bounds::held_events_are_counted(subject);
    bounds::a_forgotten_id_is_recorded_again(subject);
    bounds::refusals_are_counted(subject);
    depth::a_correction_keeps_what_was_final(subject);
    depth::a_window_can_close_and_be_corrected_in_one_chunk(subject);
    depth::an_overflow_of_a_correction_names_the_window(subject);
    depth::a_correction_may_come_without_an_event(subject);
    depth::sources_come_and_go(subject);
    depth::an_expected_source_is_waited_for_once(subject);
    depth::a_retired_source_is_back_with_its_next_event(subject);
    depth::the_greatest_of_all_counts_idle_or_not(subject);
    depth::held_events_are_released(subject);
    depth::a_released_event_can_be_late(subject);
    depth::held_events_are_discarded(subject);
    depth::late_events_become_corrections(subject);
    depth::nothing_is_settled_twice(subject);
    depth::kept_events_come_piece_by_piece(subject);
    depth::every_batch_has_its_receipt(subject);
    depth::an_id_is_remembered_within_the_horizon(subject);
    retention::nothing_goes_unasked(subject);
    retention::old_ids_go_behind_the_horizon(subject);
    retention::final_windows_go_with_their_late_events_and_moves(subject);
    retention::a_window_that_can_be_corrected_stays(subject);
    retention::a_late_event_of_a_pruned_window_corrects_nothing(subject);
    retention::old_notes_go(subject);
    accounts::every_event_has_its_account(subject);
    accounts::a_released_event_changes_its_account(subject);
    accounts::they_come_by_source_and_key(subject);
    accounts::an_account_goes_when_nothing_is_left_of_it(subject);
    naming::names_are_bytes(subject);
    naming::the_longest_names_fit(subject);
    naming::an_id_tells_where_it_came_from(subject);
    faults::a_failure_anywhere_leaves_nothing_behind(subject);
    faults::a_failure_anywhere_in_an_act_leaves_nothing_behind(subject);
    groups::a_group_is_seen_before_it_is_synced(subject);
    groups::a_batch_of_a_group_can_be_dropped(subject);
    groups::a_failure_anywhere_in_a_group_leaves_whole_batches(subject);
}
