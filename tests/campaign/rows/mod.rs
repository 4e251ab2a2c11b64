//! The rows of the table, in the order in which they run.

mod two_daemons;

use crate::row::Row;

/// All rows.
pub const ROWS: &[&Row] = &[&two_daemons::ROW];
