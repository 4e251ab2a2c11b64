//! Hostile input: a table of good, odd and bad batches, each with what becomes of it, through the
//! decoder and, of each kind some, through the daemon.

mod daemon;
pub mod judge;
mod links;
pub mod slow;
mod table;
