//! What the parts of the offline cluster share: certificates, the story that they tell, quantities, how they watch and record events.
//! Holds no part itself.

pub mod certificate;
pub mod correlator;
pub mod quantity;
pub mod reflector;
pub mod story;
