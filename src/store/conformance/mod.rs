//! What every store must do, as one suite that runs on each of them.

mod bounds;
mod differential;
mod faults;
mod naming;
mod progress;
mod world;

pub(crate) use differential::agree_with_the_model;
pub(crate) use world::{Dump, Ev, Stopped, Subject, deliver, delivery, ev, ingest, settings};

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
    naming::names_are_bytes(subject);
    naming::the_longest_names_fit(subject);
    naming::an_id_tells_where_it_came_from(subject);
    faults::a_failure_anywhere_leaves_nothing_behind(subject);
}
