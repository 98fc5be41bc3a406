//! The binary `trefoild`.

fn main() {}
