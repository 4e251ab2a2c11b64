//! The store as a file: making, opening, syncing and copying it, its schema, and what its failures
//! mean.

pub(crate) mod backup;
pub(crate) mod connect;
pub(crate) mod create;
pub(crate) mod fault;
pub(crate) mod location;
pub(crate) mod lock_owner;
pub(crate) mod schema;
pub(crate) mod sync;
