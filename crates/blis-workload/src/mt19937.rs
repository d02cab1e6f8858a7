//! The Mersenne Twister as numpy's legacy `RandomState` uses it: seeding by one integer, and bounded integers by masked rejection.
//!
//! NEP 19 freezes that stream, so the vectors drawn here are those of every numpy release. Sources: M. Matsumoto and T. Nishimura,
//! "Mersenne Twister", ACM TOMACS 8(1), 1998, for the generator; numpy's documentation of `numpy.random.randint` for the interval.

const STATE_WORDS: usize = 624;
const SHIFT_WORDS: usize = 397;

/// The generator behind `numpy.random.seed` and `numpy.random.randint`.
#[derive(Debug, Clone)]
pub struct NumpyRandomState {
    state: [u32; STATE_WORDS],
    next: usize,
}

impl NumpyRandomState {
    /// The state after `numpy.random.seed(seed)`.
    pub fn seeded(seed: u32) -> Self {
        let mut state = [0; STATE_WORDS];
        state[0] = seed;
        for (index, word) in (1u32..).zip(1..STATE_WORDS) {
            let before = state[word - 1];
            state[word] = (before ^ (before >> 30)).wrapping_mul(1_812_433_253).wrapping_add(index);
        }
        Self { state, next: STATE_WORDS }
    }

    /// `count` draws of `numpy.random.randint(low, high)`: every integer from `low` to `high - 1` equally often.
    ///
    /// Panics where the interval is empty; numpy refuses it too.
    pub fn integers(&mut self, low: u32, high: u32, count: usize) -> Vec<u32> {
        let span = high.checked_sub(low).and_then(|width| width.checked_sub(1)).expect("numpy refuses an empty interval");
        (0..count).map(|_| low + self.bounded(span)).collect()
    }

    /// An integer from 0 to `largest`: words masked to the width of `largest`, too large ones thrown away.
    fn bounded(&mut self, largest: u32) -> u32 {
        if largest == 0 {
            return 0;
        }
        let mask = u32::MAX >> largest.leading_zeros();
        loop {
            let word = self.word() & mask;
            if word <= largest {
                return word;
            }
        }
    }

    /// The next 32 bits.
    fn word(&mut self) -> u32 {
        if self.next == STATE_WORDS {
            self.twist();
        }
        let mut word = self.state[self.next];
        self.next += 1;
        word ^= word >> 11;
        word ^= (word << 7) & 0x9d2c_5680;
        word ^= (word << 15) & 0xefc6_0000;
        word ^ (word >> 18)
    }

    fn twist(&mut self) {
        for word in 0..STATE_WORDS {
            let joined = (self.state[word] & 0x8000_0000) | (self.state[(word + 1) % STATE_WORDS] & 0x7fff_ffff);
            let twisted = (joined >> 1) ^ if joined & 1 == 1 { 0x9908_b0df } else { 0 };
            self.state[word] = self.state[(word + SHIFT_WORDS) % STATE_WORDS] ^ twisted;
        }
        self.next = 0;
    }
}
