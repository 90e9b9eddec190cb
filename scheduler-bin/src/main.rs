//! `plimsoll`, the command: the only place where the engine meets the world.

fn main() {}
