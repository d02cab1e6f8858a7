//! The gate of the workspace.

fn main() {}
