//! The BLIS command line.

fn main() {}
