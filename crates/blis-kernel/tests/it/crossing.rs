//! Laws of collectives that leave their domain of links: a slower network, a further domain or more bytes never make one faster, and
//! leaving the domain never does.

use blis_catalog::Catalog;
use blis_contracts::network::Network;
use blis_contracts::plan::{Layout, PoolPlan, Primitive, PrimitiveShape, RowSet};
use blis_contracts::step::{Launch, RankStep};
use blis_contracts::units::BytesPerSecond;
use blis_kernel::CostModel;
use proptest::prelude::*;

use crate::fixture::{CHIPS, layer, mixture, model, step};

const COLLECTIVES: [(Primitive, &str); 3] = [
    (Primitive::AllReduce, "nccl/all-reduce"),
    (Primitive::AllGather, "nccl/all-gather"),
    (Primitive::ReduceScatter, "nccl/reduce-scatter"),
];

fn network(name: &str) -> Network {
    Catalog::embedded().network(name).expect("the shipped catalog has the network")
}

/// A network of another rate.
fn of_rate(bytes_per_second: f64) -> Network {
    let mut network = network("infiniband-ndr-400");
    network.rate.value = BytesPerSecond::new(bytes_per_second);
    network
}

/// Microseconds of one collective of so many bytes a rank over `group` ranks, `domain` of them in each domain of links.
fn microseconds(model: &CostModel, work: (Primitive, &str), (group, domain): (u32, u32), rows: u32) -> f64 {
    let shape = PrimitiveShape::Collective { group, bytes_per_row: 1024 };
    let layout = Layout { tensor: group, domain, ..Layout::SINGLE };
    let chip = model.coefficients().chip();
    let plan = PoolPlan { layers: vec![layer(0, work.0, work.1, shape, RowSet::Tokens)], layout, ..mixture(chip) };
    let rank = RankStep { padded_tokens: rows, launch: Launch::Full, ..RankStep::default() };
    model.compile(&plan).expect("every collective has a price").price(&step(rank)).device_ns / 1e3
}

#[test]
fn a_group_in_several_domains_needs_a_network_and_a_plan_for_another_is_refused() {
    let shape = PrimitiveShape::Collective { group: 16, bytes_per_row: 1024 };
    let work = layer(0, Primitive::AllReduce, "nccl/all-reduce", shape, RowSet::Tokens);
    let layout = Layout { tensor: 16, domain: 8, ..Layout::SINGLE };
    let plan = PoolPlan { layers: vec![work], layout, fabric: "roce-200".to_owned(), ..mixture("h100") };
    let refused = model("h100").compile(&plan).unwrap_err().to_string();
    assert_eq!(refused, "the plan is for the network `roce-200`, the cost model for ``");
    let refused = model("h100").compile(&PoolPlan { fabric: String::new(), ..plan.clone() }).unwrap_err().to_string();
    assert_eq!(refused, "`collective.all_reduce` over several domains of links, with no network between them");
    assert!(model("h100").clone().on_network(&network("roce-200")).compile(&plan).is_ok());
    assert!(model("h100").clone().on_network(&network("roce-400")).compile(&plan).is_err());
}

#[test]
fn a_large_sum_over_two_nodes_takes_what_their_ports_need() {
    // 16 ranks sum 1 GiB: each node's eight ports take in and give out half of it twice, at 120 of 128 bytes of their payload rate.
    let network = network("infiniband-ndr-400");
    let model = model("h100").clone().on_network(&network);
    let took = microseconds(&model, COLLECTIVES[0], (16, 8), 1 << 20);
    let ports = 8.0 * network.payload_rate().get() / 1e6 * 120.0 / 128.0;
    let needed = f64::from(1 << 30) / ports;
    assert!(took > needed && took < 1.5 * needed, "{took} us; the ports need {needed} us");
}

#[test]
fn more_bytes_never_make_a_collective_faster_where_another_algorithm_takes_over() {
    for name in CHIPS {
        let model = model(name).clone().on_network(&network("infiniband-ndr-400"));
        for work in COLLECTIVES {
            for (group, domain) in [(2, 1), (4, 2), (8, 4), (16, 8), (32, 8)] {
                let mut most: f64 = 0.0;
                for rows in (0..28).flat_map(|power| [1 << power, (1 << power) + 1]) {
                    let took = microseconds(&model, work, (group, domain), rows);
                    assert!(
                        took >= most,
                        "{name} {work:?} over {group} ranks, {domain} in a domain, at {rows} rows: {took} us below {most}"
                    );
                    most = took;
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn a_slower_network_a_further_domain_and_leaving_one_never_make_a_collective_faster(
        chip in 0..CHIPS.len(), which in 0..COLLECTIVES.len(), domain in 0_u32..4, domains in 2_u32..5, rows in 1_u32..200_000, rate in 1e9..1e11,
        slower in 0.05..1.0,
    ) {
        let (work, domain) = (COLLECTIVES[which], 1 << domain);
        let base = model(CHIPS[chip]);
        let on = |rate: f64| base.clone().on_network(&of_rate(rate));
        let group = domain * domains;
        let near = microseconds(&on(rate), work, (group, domain), rows);
        prop_assert!(near.is_finite() && near > 0.0);
        prop_assert!(microseconds(&on(rate * slower), work, (group, domain), rows) >= near);
        prop_assert!(microseconds(&on(rate), work, (group + domain, domain), rows) >= near);
        if domain > 1 && work.0 == Primitive::AllReduce {
            prop_assert!(near >= microseconds(base, work, (domain, 0), rows));
        }
    }
}
