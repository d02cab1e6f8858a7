//! The loop against small engines and sources whose every event can be computed by hand.

mod fixture;
mod laws;
mod runs;
mod timelines;
