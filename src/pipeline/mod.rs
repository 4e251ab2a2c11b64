//! The way of a batch: files are read ahead, ingested by the one writer, committed in groups, and
//! each failure is classified.

pub mod admin_batch;
pub mod error_class;
pub mod group_commit;
pub mod ingest;
pub mod read_ahead;
pub mod reader_thread;
pub mod refusal_budget;
pub mod worker;
