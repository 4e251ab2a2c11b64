//! Batch files from a spool folder become exact, replay-safe event-time totals.
//!
//! The modules stand in reading order, and each imports only from those above it.

pub mod clock;
pub mod event;
pub mod owner;
pub mod refusal;
pub mod room;

pub mod decode;
pub mod engine;

pub mod store;

pub mod exit;
pub mod spool;

pub mod act;
pub mod archive;
pub mod config;
pub mod ingest;
pub mod report;

pub mod explain;
pub mod lateness;
pub mod prune;
pub mod verify;

pub mod worker;

pub mod signals;
pub mod systemd;

pub mod daemon;

pub mod bench;

pub mod cli;
