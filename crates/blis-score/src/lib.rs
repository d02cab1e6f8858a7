//! Measured deployments become scenarios and predictions.
