//! What happens next: the pending events of all components, and the order of those that fall at one instant.
//!
//! Each component has at most one pending event: a source its next send, the clients their next deadline, the front end the heads of its
//! two queues, the engine its wake-up. Events of one instant are ordered by class, then by component; no counter of scheduling order takes part, so the order in
//! which components were set up or events were found cannot matter.

use std::collections::BTreeSet;

use blis_contracts::units::SimTime;

/// What an event is, in the order in which events of one instant happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    /// A request ended at its client. First, so that a client knows what it still has in flight before it sends again.
    RequestEnded,
    /// The source of this index sends. Before deliveries, because a front end without work of its own delivers at once.
    SourceSends(u32),
    /// The front end hands a request to the engine. Before the engine's own event: its loop reads its input queue before it
    /// schedules, so a request that arrives at that very instant is seen.
    RequestDelivered,
    /// The engine's wake-up.
    EngineWakes,
    /// A client gives a request up. Last, so that an answer that comes just in time counts.
    ClientGivesUp,
}

/// The pending events.
#[derive(Debug, Default)]
pub(crate) struct Calendar {
    /// Sources by the time of their next send.
    sends: BTreeSet<(SimTime, u32)>,
    /// The time each source stands in `sends` with.
    send_times: Vec<Option<SimTime>>,
    pub(crate) next_end: Option<SimTime>,
    pub(crate) next_deadline: Option<SimTime>,
    pub(crate) next_delivery: Option<SimTime>,
    pub(crate) engine_wake: Option<SimTime>,
}

impl Calendar {
    pub(crate) fn new(sources: usize) -> Self {
        Self { send_times: vec![None; sources], ..Self::default() }
    }

    /// States when a source next sends, replacing what stood there.
    pub(crate) fn set_send(&mut self, source: u32, time: Option<SimTime>) {
        let known = &mut self.send_times[source as usize];
        if *known == time {
            return;
        }
        if let Some(before) = std::mem::replace(known, time) {
            self.sends.remove(&(before, source));
        }
        if let Some(time) = time {
            self.sends.insert((time, source));
        }
    }

    /// No source sends any more.
    pub(crate) fn close_sends(&mut self) {
        self.sends.clear();
        self.send_times.fill(None);
    }

    /// The earliest event; of several at one instant the first in class order.
    pub(crate) fn next(&self) -> Option<(SimTime, Event)> {
        [
            self.next_end.map(|time| (time, Event::RequestEnded)),
            self.sends.first().map(|&(time, source)| (time, Event::SourceSends(source))),
            self.next_delivery.map(|time| (time, Event::RequestDelivered)),
            self.engine_wake.map(|time| (time, Event::EngineWakes)),
            self.next_deadline.map(|time| (time, Event::ClientGivesUp)),
        ]
        .into_iter()
        .flatten()
        .min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_one_instant_come_in_class_order_however_they_were_entered() {
        let at = SimTime::from_micros(5);
        let mut calendar = Calendar::new(3);
        calendar.engine_wake = Some(at);
        calendar.set_send(2, Some(at));
        calendar.set_send(0, Some(at));
        calendar.next_delivery = Some(at);
        calendar.next_end = Some(at);
        calendar.next_deadline = Some(at);
        let mut order = Vec::new();
        while let Some((_, event)) = calendar.next() {
            order.push(event);
            match event {
                Event::RequestEnded => calendar.next_end = None,
                Event::ClientGivesUp => calendar.next_deadline = None,
                Event::SourceSends(source) => calendar.set_send(source, None),
                Event::RequestDelivered => calendar.next_delivery = None,
                Event::EngineWakes => calendar.engine_wake = None,
            }
        }
        let (first, second) = (Event::SourceSends(0), Event::SourceSends(2));
        assert_eq!(order, [Event::RequestEnded, first, second, Event::RequestDelivered, Event::EngineWakes, Event::ClientGivesUp]);
    }

    #[test]
    fn an_earlier_event_of_a_late_class_goes_first() {
        let mut calendar = Calendar::new(1);
        calendar.set_send(0, Some(SimTime::from_micros(9)));
        calendar.engine_wake = Some(SimTime::from_micros(8));
        assert_eq!(calendar.next(), Some((SimTime::from_micros(8), Event::EngineWakes)));
    }

    #[test]
    fn restating_a_send_replaces_it() {
        let mut calendar = Calendar::new(1);
        calendar.set_send(0, Some(SimTime::from_micros(9)));
        calendar.set_send(0, Some(SimTime::from_micros(3)));
        assert_eq!(calendar.next(), Some((SimTime::from_micros(3), Event::SourceSends(0))));
        calendar.set_send(0, None);
        assert_eq!(calendar.next(), None);
    }
}
