//! What stands between clients and several engine cores: the coordinator process and the front ends' choice of a core.
//!
//! upstream: vllm `v1/engine/coordinator.py::DPCoordinatorProc.process_input_socket`
//! upstream: vllm `v1/engine/core_client.py::DPLBAsyncMPClient.get_core_engine_for_request`, `DPAsyncMPClient.add_request_async`
//!
//! Cores show the coordinator their counts when these change; it shows them to the front ends every 100 ms while they change, and for
//! cores in lockstep takes the counts of one step together. Between two of its messages a front end adds what it has sent itself.
//! The coordinator also wakes cores in lockstep when a request comes to one of them while all rest.
//!
//! Messages take no time here. Its timer is looked at when something comes that could read what it published. Where a message and the
//! timer fall on one instant, the timer comes first. Requests reach the front-end processes in turn; upstream's share one socket, and
//! which of them accepts is up to the kernel. Left out: a core asked for by the request, elastic scaling, balancers outside.

use std::collections::BTreeMap;

use blis_contracts::units::{SimDuration, SimTime};

use super::tournament::Tournament;

/// Milliseconds between two messages to the front ends while counts change, and while they do not.
const INTERVAL_MS: u64 = 100;
const IDLE_INTERVAL_MS: u64 = 5_000;
/// Milliseconds waited at least for the counts of one step to be complete.
const STEP_WAIT_MS: u64 = 50;

/// What a core shows of its load.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Counts {
    pub(super) waiting: u64,
    pub(super) running: u64,
    pub(super) kv_usage: f64,
}

/// What a core tells the coordinator about waves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Notice {
    /// The wave is over: no core has requests.
    Completed(u64),
    /// The wave has begun.
    Started(u64),
}

/// What the coordinator tells the cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StartWave {
    pub(super) wave: u64,
    /// The core that knows already.
    pub(super) exclude: Option<u32>,
}

/// The coordinator and the front ends.
#[derive(Debug)]
pub(super) struct FrontEnds {
    lockstep: bool,
    /// Latest counts by core.
    counts: Vec<Counts>,
    counts_changed: bool,
    /// Wave and step of the latest counts.
    latest: Option<(u64, u64)>,
    /// The counts at the end of the step before.
    complete: Option<Vec<Counts>>,
    published: Published,
    published_ms: u64,
    /// When the coordinator began to wait.
    waiting_since: SimTime,
    wave: u64,
    running: bool,
    /// How many front-end processes there are.
    processes: u32,
    /// Those that a request has reached; the others know of the wave what all were told.
    clients: BTreeMap<u32, Client>,
    next_client: u32,
    /// Messages for all cores, not delivered yet.
    mail: Vec<StartWave>,
}

/// The counts that the coordinator showed last, the same to all front ends.
#[derive(Debug)]
struct Published {
    counts: Vec<Counts>,
    /// The scores of cores that a front end has sent nothing to.
    scores: Tournament<f64>,
}

impl Published {
    fn new(cores: usize) -> Self {
        Self { counts: vec![Counts::default(); cores], scores: Tournament::new(vec![0.0; cores]) }
    }

    fn replace(&mut self, counts: &[Counts]) {
        self.counts.copy_from_slice(counts);
        self.scores.replace(counts.iter().map(|counts| score(*counts, 0)));
    }
}

/// One front-end process.
#[derive(Debug, Clone, PartialEq)]
struct Client {
    /// What it has sent itself, by core; the others have nothing of it.
    own: BTreeMap<usize, Own>,
    /// The core its scan starts at.
    start: usize,
    wave: u64,
    running: bool,
}

/// What a front end has sent a core.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Own {
    /// Requests that have not ended.
    in_flight: u64,
    /// What it adds to the requests waiting there until the coordinator shows them anew.
    added: u64,
}

/// Where a request went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Home {
    pub(super) client: u32,
    pub(super) core: u32,
}

impl FrontEnds {
    pub(super) fn new(cores: u32, processes: u32, lockstep: bool) -> Self {
        let size = cores as usize;
        Self {
            lockstep,
            counts: vec![Counts::default(); size],
            counts_changed: false,
            latest: None,
            complete: None,
            published: Published::new(size),
            published_ms: 0,
            waiting_since: SimTime::ZERO,
            wave: 0,
            running: false,
            processes,
            clients: BTreeMap::new(),
            next_client: 0,
            mail: Vec::new(),
        }
    }

    /// Chooses the core for a request that comes now; answers with the wave its front end takes for current.
    pub(super) fn route(&mut self, now: SimTime) -> (Home, u64) {
        self.run_until(now);
        let index = self.next_client;
        self.next_client = if index + 1 == self.processes { 0 } else { index + 1 };
        let (cores, processes) = (self.counts.len(), self.processes);
        let (wave, running) = (self.wave, self.running);
        let client = self.clients.entry(index).or_insert_with(|| Client {
            own: BTreeMap::new(),
            start: first_scanned(cores, index, processes),
            wave,
            running,
        });
        let wave = client.wave;
        let core = client.choose(&self.published, processes.into());
        let wakes = !client.running;
        client.running = true;
        if wakes {
            self.first_request(now, core, wave);
        }
        (Home { client: index, core }, wave)
    }

    /// A request has ended.
    pub(super) fn ended(&mut self, home: Home) {
        self.clients.get_mut(&home.client).expect("a request that ends was routed").ended(home.core as usize);
    }

    /// A front end sends a request while it believes the cores at rest.
    fn first_request(&mut self, now: SimTime, core: u32, wave: u64) {
        self.waiting_since = now;
        if self.lockstep && !self.running {
            let exclude = (wave >= self.wave).then_some(core);
            self.mail.push(StartWave { wave: self.wave, exclude });
        }
    }

    /// A core shows its counts, taken at a step of a wave.
    pub(super) fn show(&mut self, now: SimTime, core: u32, counts: Counts, at: (u64, u64)) {
        self.run_until(now);
        if self.lockstep && self.latest.is_none_or(|latest| at > latest) {
            if self.counts_changed {
                self.complete = Some(self.counts.clone());
            }
            self.latest = Some(at);
        }
        self.counts[core as usize] = counts;
        self.counts_changed = true;
        self.waiting_since = now;
    }

    /// A core reports on waves.
    pub(super) fn notice(&mut self, now: SimTime, core: u32, notice: Notice) {
        self.run_until(now);
        self.waiting_since = now;
        match notice {
            Notice::Completed(wave) if self.wave <= wave => {
                self.wave = wave + 1;
                self.running = false;
            }
            Notice::Started(wave) if wave > self.wave || (wave == self.wave && !self.running) => {
                self.wave = wave;
                self.running = true;
                self.mail.push(StartWave { wave, exclude: Some(core) });
            }
            Notice::Completed(_) | Notice::Started(_) => return,
        }
        for client in self.clients.values_mut() {
            (client.wave, client.running) = (self.wave, self.running);
        }
    }

    /// Messages for all cores, to be delivered.
    pub(super) fn take_mail(&mut self) -> Vec<StartWave> {
        std::mem::take(&mut self.mail)
    }

    /// Publishes what has fallen due.
    fn run_until(&mut self, now: SimTime) {
        loop {
            let due = self.timer();
            if due > now {
                return;
            }
            self.publish(due);
        }
    }

    /// When the coordinator's wait ends if nothing comes.
    fn timer(&self) -> SimTime {
        let elapsed = (self.waiting_since.as_micros() / 1_000).saturating_sub(self.published_ms);
        let interval = if self.counts_changed { INTERVAL_MS } else { IDLE_INTERVAL_MS };
        let least = if self.lockstep && self.complete.is_none() { STEP_WAIT_MS } else { 0 };
        self.waiting_since + SimDuration::from_micros(interval.saturating_sub(elapsed).max(least) * 1_000)
    }

    fn publish(&mut self, at: SimTime) {
        if let Some(complete) = self.complete.take() {
            self.published.replace(&complete);
        } else {
            self.counts_changed = false;
            self.published.replace(&self.counts);
        }
        for client in self.clients.values_mut() {
            client.shown();
            (client.wave, client.running) = (self.wave, self.running);
        }
        self.published_ms = at.as_micros() / 1_000;
        self.waiting_since = at;
    }
}

impl Client {
    /// The core with the lowest score, the first in scan order of equals. Of cores it has sent nothing to, only the first of the lowest
    /// is looked at.
    fn choose(&mut self, published: &Published, clients: u64) -> u32 {
        let cores = published.counts.len();
        let mut best = None;
        for part in [self.start..cores, 0..self.start] {
            let mut next = part.start;
            for (&core, own) in self.own.range(part.clone()) {
                let Counts { waiting, running, kv_usage } = published.counts[core];
                let seen = Counts { waiting: waiting + own.added, running, kv_usage };
                best = lower(best, published.scores.least_of(&(next..core)));
                best = lower(best, Some((core, score(seen, clients * own.in_flight))));
                next = core + 1;
            }
            best = lower(best, published.scores.least_of(&(next..part.end)));
        }
        let (core, _) = best.expect("there are cores");
        let own = self.own.entry(core).or_default();
        own.added += clients;
        own.in_flight += 1;
        self.start = (self.start + 1) % cores;
        u32::try_from(core).expect("few cores")
    }

    /// A request of its own has ended.
    fn ended(&mut self, core: usize) {
        let own = self.own.get_mut(&core).expect("a request that ends was sent");
        own.in_flight -= 1;
        if *own == Own::default() {
            self.own.remove(&core);
        }
    }

    /// The coordinator has shown its counts, which hold what this front end added.
    fn shown(&mut self) {
        self.own.retain(|_, own| {
            own.added = 0;
            own.in_flight > 0
        });
    }
}

/// The core at which a front end's first scan starts: they are spread over the cores.
fn first_scanned(cores: usize, index: u32, processes: u32) -> usize {
    let first = cores as u64 * u64::from(index) / u64::from(processes);
    usize::try_from(first).expect("less than the cores")
}

/// The core with the lower score, the first of equals.
fn lower(first: Option<(usize, f64)>, second: Option<(usize, f64)>) -> Option<(usize, f64)> {
    match (first, second) {
        (Some((_, lowest)), Some((_, score))) if score < lowest => second,
        (None, _) => second,
        (Some(_), _) => first,
    }
}

/// The greater of what the coordinator last showed and what a front end has sent, and more where requests wait for a full cache.
fn score(Counts { waiting, running, kv_usage }: Counts, sent: u64) -> f64 {
    let load = sent.max(waiting + running) as f64;
    load + waiting as f64 * 6.0 * (kv_usage - 0.5).max(0.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn ms(milliseconds: u64) -> SimTime {
        SimTime::from_micros(milliseconds * 1_000)
    }

    fn routed(front: &mut FrontEnds, now: SimTime, requests: usize) -> Vec<u32> {
        (0..requests).map(|_| front.route(now).0.core).collect()
    }

    #[test]
    fn a_burst_goes_round_the_cores_whatever_the_number_of_front_ends() {
        let mut alone = FrontEnds::new(4, 1, false);
        assert_eq!(routed(&mut alone, ms(1), 8), [0, 1, 2, 3, 0, 1, 2, 3]);
        assert_eq!(alone.take_mail(), [], "cores that share no step need no waking");
        // Two front ends scan from different cores, each unaware of what the other sends.
        assert_eq!(routed(&mut FrontEnds::new(2, 2, false), ms(1), 6), [0, 1, 1, 0, 0, 1]);
    }

    #[test]
    fn as_many_front_ends_as_a_line_may_state_take_up_room_only_where_requests_reach_them() {
        let mut front = FrontEnds::new(8, u32::MAX, true);
        assert_eq!(routed(&mut front, ms(1), 3), [0, 0, 0], "each scans from the first core, unaware of the others");
        assert_eq!(front.clients.len(), 3);
        let last = u32::MAX - 1;
        front.next_client = last;
        front.notice(ms(2), 0, Notice::Started(4));
        let (home, wave) = front.route(ms(3));
        assert_eq!((home.client, home.core, wave), (last, 7, 4), "the last scans from the last core, and was told of the wave");
        assert_eq!((front.next_client, front.clients.len()), (0, 4));
    }

    /// Upstream's scan, over lists of every core.
    fn scanned(counts: &[Counts], own: &[Own], start: usize, clients: u64) -> u32 {
        let mut best: Option<(f64, usize)> = None;
        for core in (start..counts.len()).chain(0..start) {
            let Counts { waiting, running, kv_usage } = counts[core];
            let waiting = waiting + own[core].added;
            let score = score(Counts { waiting, running, kv_usage }, clients * own[core].in_flight);
            if best.is_none_or(|(lowest, _)| score < lowest) {
                best = Some((score, core));
            }
        }
        u32::try_from(best.unwrap().1).unwrap()
    }

    proptest! {
        #[test]
        fn a_front_end_chooses_as_a_scan_over_all_cores_does(
            cores in 1usize..14,
            clients in 1u64..4,
            moves in prop::collection::vec((0u8..4, any::<prop::sample::Index>(), 0u64..4, 0u64..4, 0u8..3), 1..120),
        ) {
            let mut published = Published::new(cores);
            let mut counts = vec![Counts::default(); cores];
            let mut client = Client { own: BTreeMap::new(), start: 0, wave: 0, running: false };
            let mut own = vec![Own::default(); cores];
            let mut sent = Vec::new();
            for (what, place, waiting, running, usage) in moves {
                if what == 0 {
                    counts[place.index(cores)] = Counts { waiting, running, kv_usage: f64::from(usage) * 0.4 };
                    published.replace(&counts);
                    client.shown();
                    for own in &mut own {
                        own.added = 0;
                    }
                } else if what == 1 && !sent.is_empty() {
                    let core: u32 = sent.swap_remove(place.index(sent.len()));
                    client.ended(core as usize);
                    own[core as usize].in_flight -= 1;
                } else {
                    let core = scanned(&counts, &own, client.start, clients);
                    prop_assert_eq!(client.choose(&published, clients), core);
                    own[core as usize].added += clients;
                    own[core as usize].in_flight += 1;
                    sent.push(core);
                }
            }
        }
    }

    #[test]
    fn shown_load_counts_only_once_the_coordinator_has_published_it() {
        let mut front = FrontEnds::new(2, 1, false);
        front.show(ms(10), 0, Counts { waiting: 0, running: 5, kv_usage: 0.1 }, (0, 0));
        assert_eq!(routed(&mut front, ms(99), 1), [0]);
        assert_eq!(routed(&mut front, ms(100), 3), [1, 1, 1]);
    }

    #[test]
    fn waiting_requests_weigh_more_the_fuller_the_cache_is() {
        let mut front = FrontEnds::new(2, 1, false);
        front.show(ms(1), 0, Counts { waiting: 2, running: 2, kv_usage: 1.0 }, (0, 0));
        front.show(ms(1), 1, Counts { waiting: 0, running: 9, kv_usage: 0.5 }, (0, 0));
        // 4 + 2 x 6 x 0.5 = 10 against 9.
        assert_eq!(routed(&mut front, ms(200), 1), [1]);
        front.show(ms(201), 0, Counts { waiting: 2, running: 2, kv_usage: 0.9 }, (0, 0));
        // 4 + 2 x 6 x 0.4 = 8.8 against 9.
        assert_eq!(routed(&mut front, ms(400), 1), [0]);
    }

    #[test]
    fn cores_in_lockstep_are_shown_as_they_were_at_the_end_of_a_step() {
        let mut front = FrontEnds::new(2, 1, true);
        let load = |running| Counts { waiting: 0, running, kv_usage: 0.0 };
        front.show(ms(10), 0, load(7), (0, 1));
        front.show(ms(10), 1, load(3), (0, 1));
        front.show(ms(20), 0, load(1), (0, 2));
        assert_eq!(front.timer(), ms(100));
        // Step 1 of both is published, not the half of step 2.
        assert_eq!(routed(&mut front, ms(100), 1), [1]);
    }

    #[test]
    fn what_is_told_of_an_earlier_wave_moves_nothing() {
        let mut front = FrontEnds::new(2, 1, true);
        let woken = |front: &mut FrontEnds, notice| {
            front.notice(ms(1), 0, notice);
            front.take_mail().first().map(|message| message.wave)
        };
        assert_eq!(woken(&mut front, Notice::Started(3)), Some(3));
        assert_eq!(woken(&mut front, Notice::Started(3)), None, "it runs already");
        assert_eq!(woken(&mut front, Notice::Started(2)), None);
        assert_eq!(woken(&mut front, Notice::Started(5)), Some(5), "a later wave than the one that runs");
        assert_eq!(woken(&mut front, Notice::Completed(4)), None);
        assert_eq!((front.route(ms(2)).1, front.take_mail()), (5, vec![]), "wave 5 still runs");
        assert_eq!(woken(&mut front, Notice::Completed(5)), None);
        assert_eq!(woken(&mut front, Notice::Started(5)), None, "wave 6 is the next");
        assert_eq!(woken(&mut front, Notice::Started(6)), Some(6));
    }

    #[test]
    fn a_request_to_cores_at_rest_wakes_the_others_and_a_finished_wave_lets_the_next_one_do_so() {
        let mut front = FrontEnds::new(2, 1, true);
        assert_eq!(front.route(ms(1)).0.core, 0);
        assert_eq!(front.take_mail(), [StartWave { wave: 0, exclude: Some(0) }]);
        front.notice(ms(2), 0, Notice::Started(0));
        assert_eq!(front.take_mail(), [StartWave { wave: 0, exclude: Some(0) }]);
        front.route(ms(3));
        assert_eq!(front.take_mail(), []);
        front.notice(ms(9), 0, Notice::Completed(0));
        let (home, wave) = front.route(ms(10));
        assert_eq!((wave, front.take_mail()), (1, vec![StartWave { wave: 1, exclude: Some(home.core) }]));
    }
}
