//! Everything that only reads: reports, explanations, what-if lateness, and verification against the
//! files in done/.

pub mod done_files;
pub mod explain;
pub mod lateness;
pub mod report;
pub mod verify;
