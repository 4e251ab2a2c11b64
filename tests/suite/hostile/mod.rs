//! Hostile input: a table of good, odd and bad batches, each with what becomes of it, through the
//! decoder and, of each kind some, through the daemon; what stands in the spool in place of files;
//! and what of all that is said again.

mod bombs;
mod corpus;
mod daemon;
mod escapes;
mod history;
mod judge;
mod links;
mod memory;
mod mutate;
mod slow;
pub mod table;
