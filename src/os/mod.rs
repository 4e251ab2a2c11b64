//! What the operating system says: who owns a file, and how much disk space is left.

pub mod disk_space;
pub mod owner;
