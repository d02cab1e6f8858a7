//! Sources built from workload documents, driven as the simulator drives them.

#[cfg(test)]
mod arrivals;
#[cfg(test)]
mod clients;
#[cfg(test)]
mod damage;
mod numpy;
mod samplers;
#[cfg(test)]
mod specs;
#[cfg(test)]
mod traces;
