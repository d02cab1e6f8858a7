//! Time averages of what is in use: requests in flight and KV blocks.

use blis_contracts::units::SimTime;

/// An amount that changes at instants, integrated over time from a start that may be restated once.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Occupancy {
    amount: u64,
    since: SimTime,
    started: SimTime,
    area: u128,
    peak: u64,
}

impl Occupancy {
    /// The amount from `now` on.
    #[inline]
    pub(crate) fn set(&mut self, now: SimTime, amount: u64) {
        self.area += u128::from(self.amount) * u128::from(now.since(self.since).as_micros());
        self.since = now;
        self.amount = amount;
        self.peak = self.peak.max(amount);
    }

    /// The amount from `now` on is one more.
    pub(crate) fn increase(&mut self, now: SimTime) {
        self.set(now, self.amount + 1);
    }

    /// The amount from `now` on is one less.
    pub(crate) fn decrease(&mut self, now: SimTime) {
        self.set(now, self.amount - 1);
    }

    /// Forgets what was before `now`, the peak included.
    pub(crate) fn restart(&mut self, now: SimTime) {
        *self = Self { amount: self.amount, since: now, started: now, area: 0, peak: self.amount };
    }

    /// The amount now.
    pub(crate) fn amount(&self) -> u64 {
        self.amount
    }

    /// The largest amount.
    pub(crate) fn peak(&self) -> u64 {
        self.peak
    }

    /// The time average up to `end`; `None` where no time has passed.
    pub(crate) fn average(mut self, end: SimTime) -> Option<f64> {
        self.set(end.max(self.since), self.amount);
        let length = self.since.since(self.started).as_micros();
        (length > 0).then(|| self.area as f64 / length as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_average_weighs_each_amount_by_how_long_it_held() {
        let mut occupancy = Occupancy::default();
        occupancy.set(SimTime::from_micros(10), 4);
        occupancy.set(SimTime::from_micros(20), 1);
        assert_eq!(occupancy.average(SimTime::from_micros(40)), Some(60.0 / 40.0));
        occupancy.restart(SimTime::from_micros(30));
        assert_eq!(occupancy.average(SimTime::from_micros(40)), Some(1.0));
        assert_eq!(occupancy.peak(), 1);
    }
}
