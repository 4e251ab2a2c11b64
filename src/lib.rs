//! Batch files from a spool folder become exact, replay-safe event-time totals.
//!
//! The modules stand in reading order, and each imports only from those above it.

pub mod model;
pub mod os;

pub mod decode;
pub mod engine;

pub mod store;

pub mod exit;
pub mod spool;

pub mod config;
pub mod pipeline;

pub mod query;

pub mod maintenance;

pub mod daemon;

pub mod bench;

pub mod cli;
