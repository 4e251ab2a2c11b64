//! What is done to a store between batches: retention removes what is old, repair mends what is
//! certain.

pub mod repair;
pub mod retention;
