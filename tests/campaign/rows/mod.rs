//! The rows of the table, in the order in which they run.

mod torn_writes;
mod two_daemons;

use crate::row::Row;

/// All rows.
pub const ROWS: &[&Row] = &[&torn_writes::ROW, &two_daemons::ROW];
