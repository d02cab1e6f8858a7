//! The loop against small engines and sources whose every event can be computed by hand.

mod fixture;
mod laws;
mod measured_cases;
mod nodes;
#[cfg(test)]
mod patience;
mod pricing_laws;
#[cfg(test)]
mod replays;
mod runs;
mod timelines;
