//! What every byte of the API server passes: connections and bodies, and encoded objects taken apart. Knows no kinds.
//!
//! A package of its own, so that it is optimised while the rules of kinds, which run seldom, are compiled quickly.

pub mod body;
pub mod listener;
pub mod scan;
