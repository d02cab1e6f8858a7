//! Integration tests of scoring: comparisons, the ledger and the dashboard on deployments made up here. No measured value is among them.

#[cfg(test)]
mod fixture;

#[cfg(test)]
mod compare;
#[cfg(test)]
mod dashboard;
#[cfg(test)]
mod ledger;
#[cfg(test)]
mod refusals;
