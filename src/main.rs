//! The `windowflow` command: hands its arguments to the library and ends with its exit code.

fn main() {}
