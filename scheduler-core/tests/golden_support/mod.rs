//! Reading recorded decisions, feeding them to the engine, comparing.

pub(crate) mod case;
pub(crate) mod check;
pub(crate) mod cluster;
