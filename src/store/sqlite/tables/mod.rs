//! The tables of the store, one file a table or two: how rows are read and written.

pub(crate) mod accounts;
pub(crate) mod receipts;
pub(crate) mod removed;
pub(crate) mod settlement;
pub(crate) mod side_output;
pub(crate) mod sources;
pub(crate) mod store_meta;
pub(crate) mod windows;
