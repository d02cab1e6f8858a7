//! Whether more was offered than served: how many requests waited whenever another was sent.
//!
//! Where the queue grows as long as requests are sent, latencies depend on how long the run lasts and say nothing about the deployment.
//! The queue is looked at when a request is sent, at equal steps of the requests sent, so that it does not matter how long the rest
//! takes. Left out: why requests wait, which the shares of the waiting say.

/// Looks kept at most; a run ends with more than half as many.
const LOOKS: usize = 128;
/// Looks from which a verdict is given.
const LEAST_LOOKS: usize = 16;
/// Requests that wait in the last quarter, below which nothing is said.
const LEAST_WAITING: f64 = 4.0;
/// Share of the requests sent that joined the queue for good, from which a Result warns.
const LEAST_SHARE: f64 = 0.05;

/// The queue as the requests found it.
#[derive(Debug)]
pub(crate) struct Backlog {
    looks: Vec<u64>,
    /// Requests from one look to the next.
    every: u64,
    sent: u64,
}

impl Default for Backlog {
    fn default() -> Self {
        Self { looks: Vec::with_capacity(LOOKS), every: 1, sent: 0 }
    }
}

/// A queue that grew as long as requests were sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Growth {
    /// Requests waiting on average, in the second, third and last quarter of the requests sent.
    pub(crate) waiting: [f64; 3],
    /// Share of the requests sent from the second to the last quarter by which the queue grew.
    pub(crate) share: f64,
}

impl Backlog {
    /// A request is sent while so many wait.
    pub(crate) fn sent(&mut self, waiting: u64) {
        if self.sent.is_multiple_of(self.every) {
            if self.looks.len() == LOOKS {
                let mut index = 0;
                self.looks.retain(|_| {
                    index += 1;
                    index % 2 == 1
                });
                self.every *= 2;
            }
            self.looks.push(waiting);
        }
        self.sent += 1;
    }

    /// How the queue grew; none where it did not grow throughout.
    pub(crate) fn growth(&self) -> Option<Growth> {
        if self.looks.len() < LEAST_LOOKS {
            return None;
        }
        let quarter = self.looks.len() / 4;
        let mean = |from: usize| self.looks[from..from + quarter].iter().sum::<u64>() as f64 / quarter as f64;
        let waiting = [1, 2, 3].map(|part| mean(part * quarter));
        let share = (waiting[2] - waiting[0]) / (2 * quarter as u64 * self.every) as f64;
        let throughout = waiting[0] < waiting[1] && waiting[1] < waiting[2] && waiting[2] >= 2.0 * waiting[0];
        (throughout && waiting[2] >= LEAST_WAITING && share >= LEAST_SHARE).then_some(Growth { waiting, share })
    }
}

impl Growth {
    /// The warning.
    pub(crate) fn warning(&self) -> String {
        let [second, third, last] = self.waiting;
        format!(
            "more was offered than served: each quarter of the requests found a longer queue ({second:.1}, {third:.1}, then {last:.1} \
             waiting on average), which took up {:.0}% of what was sent; latencies grow with the length of such a run",
            self.share * 1e2
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn growth(requests: u64, waiting: impl Fn(u64) -> u64) -> Option<Growth> {
        let mut backlog = Backlog::default();
        (0..requests).for_each(|request| backlog.sent(waiting(request)));
        assert!(backlog.looks.len() <= LOOKS && (requests < LOOKS as u64 || backlog.looks.len() >= LOOKS / 2));
        backlog.growth()
    }

    #[test]
    fn a_queue_that_takes_up_a_third_of_what_is_sent_is_told_however_long_the_run_is() {
        for requests in [90, 3_000, 1_000_000] {
            let growth = growth(requests, |request| request / 3).unwrap();
            assert!((growth.share - 1.0 / 3.0).abs() < 0.02, "{requests}: {growth:?}");
            assert!(growth.waiting[2] > 2.0 * growth.waiting[0]);
        }
    }

    #[test]
    fn a_queue_that_comes_and_goes_or_stays_as_long_or_is_short_is_not() {
        assert_eq!(growth(1_000, |request| request % 50), None);
        assert_eq!(growth(1_000, |_| 300), None, "a closed loop of more clients than run at once");
        assert_eq!(growth(1_000, |request| request.min(400)), None, "it has filled up");
        assert_eq!(growth(1_000, |request| request / 400), None);
        assert_eq!(growth(10, |request| request), None, "too few requests to tell");
    }
}
