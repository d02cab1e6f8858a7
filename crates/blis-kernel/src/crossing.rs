//! How far apart the ranks of a collective lie, and what of it crosses the network between domains of links.
//!
//! A sum climbs and descends a tree over the domains, each of whose ports carries its share of what the tree moves. A concatenation,
//! and a sum of which each rank keeps a part, go round one ring over all ranks: what passes a domain's edge is shared by its ports,
//! one of each rank. A send is one rank's alone. Left out: ports shared by several ranks, several rings of unequal speed, other
//! traffic on the network.

use blis_contracts::plan::{Layout, LoweredLayer, Primitive, PrimitiveShape};
use blis_registry::vocabulary::Tier;

/// What a collective does beyond one domain.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Crossing {
    /// Ranks of the group in one domain.
    pub(crate) ranks: u32,
    /// Crossings one after the other.
    pub(crate) hops: f64,
    /// Share of the collective's bytes that one port carries.
    pub(crate) port_share: f64,
}

impl Crossing {
    /// The crossing of a piece of work; none where it stays in one domain.
    pub(crate) fn of(layer: &LoweredLayer, layout: Layout) -> Option<Self> {
        let PrimitiveShape::Collective { group, .. } = layer.shape else { return None };
        if layer.primitive == Primitive::Send {
            return layout.hands_over_domains(layer.stage).then_some(Self { ranks: 1, hops: 1.0, port_share: 1.0 });
        }
        let domains = layout.domains_of(group);
        if domains < 2 {
            return None;
        }
        let ranks = group.div_ceil(domains);
        let (all, others, ports) = (f64::from(group), f64::from(domains - 1), f64::from(ranks));
        let summed_everywhere = layer.primitive == Primitive::AllReduce;
        let (hops, moved) = if summed_everywhere {
            (2.0 * f64::from(domains.next_power_of_two().ilog2()), 2.0 * others / f64::from(domains))
        } else {
            (others, (all - 1.0) / all)
        };
        Some(Self { ranks, hops, port_share: moved / ports })
    }

    /// The tier its coefficients are scoped by.
    pub(crate) const fn tier(crossing: Option<Self>) -> Tier {
        if crossing.is_some() { Tier::Network } else { Tier::Domain }
    }
}

#[cfg(test)]
mod tests {
    use blis_contracts::part::Part;
    use blis_contracts::plan::{KernelImpl, RowRange, RowSet, Start};

    use super::*;

    fn of(primitive: Primitive, group: u32, stage: u32, layout: Layout) -> Option<Crossing> {
        let shape = PrimitiveShape::Collective { group, bytes_per_row: 1 };
        let kernel = KernelImpl::named("a", "b");
        let (rows, runs_for) = (RowSet::Tokens, RowRange::ALL);
        let (part, start) = (Part::Whole, Start::Ordered);
        Crossing::of(&LoweredLayer { layer: 0, stage, primitive, kernel, shape, part, rows, runs_for, start }, layout)
    }

    #[test]
    fn a_group_crosses_where_it_does_not_fit_into_a_domain() {
        let layout = Layout { tensor: 16, domain: 8, ..Layout::SINGLE };
        assert_eq!(of(Primitive::AllReduce, 8, 0, layout), None);
        assert_eq!(of(Primitive::AllReduce, 16, 0, Layout { domain: 0, ..layout }), None);
        // Up and down one level; a node of two receives half of what both hold, twice, by eight ports.
        let two = Crossing { ranks: 8, hops: 2.0, port_share: 1.0 / 8.0 };
        assert_eq!(of(Primitive::AllReduce, 16, 0, layout), Some(two));
        assert_eq!(of(Primitive::AllReduce, 32, 0, layout), Some(Crossing { ranks: 8, hops: 4.0, port_share: 1.5 / 8.0 }));
        for ring in [Primitive::AllGather, Primitive::ReduceScatter] {
            assert_eq!(of(ring, 16, 0, layout), Some(Crossing { ranks: 8, hops: 1.0, port_share: 15.0 / 16.0 / 8.0 }));
            assert_eq!(of(ring, 32, 0, layout).map(|crossing| crossing.hops), Some(3.0));
        }
    }

    #[test]
    fn only_the_stage_in_front_of_another_domain_sends_over_the_network() {
        let layout = Layout { tensor: 4, pipeline: 4, domain: 8, ..Layout::SINGLE };
        let crosses = |stage| of(Primitive::Send, 2, stage, layout).is_some();
        assert_eq!([0, 1, 2].map(crosses), [false, true, false]);
        let within = Layout { pipeline: 2, ..layout };
        assert_eq!(of(Primitive::Send, 2, 0, within), None);
        assert_eq!(of(Primitive::Send, 2, 0, Layout { tensor: 8, ..within }), Some(Crossing { ranks: 1, hops: 1.0, port_share: 1.0 }));
    }
}
