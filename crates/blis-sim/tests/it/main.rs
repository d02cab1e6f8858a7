//! The loop against small engines and sources whose every event can be computed by hand.

mod fixture;
mod laws;
#[cfg(test)]
mod patience;
#[cfg(test)]
mod replays;
mod runs;
mod timelines;
