//! What every network and storage device of a catalog must satisfy beyond its types.

use blis_contracts::network::Network;
use blis_contracts::storage::StorageDevice;
use blis_contracts::strict::Problem;

use crate::validate::name;

/// The problems of a network named after its file.
pub(crate) fn network(network: &Network, file_stem: &str) -> Vec<Problem> {
    let mut problems = name(&network.name, file_stem);
    let (payload, overhead) = (network.packet_payload.value, network.packet_overhead.value);
    problems.extend(not_positive("rate.value", network.rate.value.get()));
    problems.extend(not_positive("packet_payload.value", payload.as_f64()));
    problems.extend(not_positive("packet_overhead.value", overhead.as_f64()));
    if overhead >= payload {
        let message = format!("{} bytes beside {} of payload: a full packet is mostly payload", overhead.get(), payload.get());
        problems.push(Problem::new("packet_overhead.value", message));
    }
    problems.extend(without_source([
        ("transport", &network.transport.source),
        ("rate", &network.rate.source),
        ("packet_payload", &network.packet_payload.source),
        ("packet_overhead", &network.packet_overhead.source),
    ]));
    problems
}

/// The problems of a storage device named after its file.
pub(crate) fn storage(device: &StorageDevice, file_stem: &str) -> Vec<Problem> {
    let mut problems = name(&device.name, file_stem);
    let capacity = device.capacity.as_ref();
    let read_latency = device.read_latency_us.as_ref();
    let write_latency = device.write_latency_us.as_ref();
    problems.extend(not_positive("per_node.value", device.per_node.value.into()));
    problems.extend(not_positive("capacity.value", capacity.map_or(1.0, |capacity| capacity.value.as_f64())));
    problems.extend(not_positive("read_bandwidth.value", device.read_bandwidth.value.get()));
    problems.extend(not_positive("write_bandwidth.value", device.write_bandwidth.value.get()));
    let mut sources = vec![
        ("medium", &device.medium.source),
        ("per_node", &device.per_node.source),
        ("read_bandwidth", &device.read_bandwidth.source),
        ("write_bandwidth", &device.write_bandwidth.source),
    ];
    sources.extend(capacity.map(|capacity| ("capacity", &capacity.source)));
    for (path, latency) in [("read_latency_us", read_latency), ("write_latency_us", write_latency)] {
        problems.extend(latency.and_then(|latency| not_positive(&format!("{path}.value"), latency.value.as_seconds())));
        sources.extend(latency.map(|latency| (path, &latency.source)));
    }
    problems.extend(without_source(sources));
    problems
}

fn not_positive(path: &str, value: f64) -> Option<Problem> {
    (!(value.is_finite() && value > 0.0)).then(|| Problem::new(path, format!("{value} is not a positive figure")))
}

fn without_source<'a>(sources: impl IntoIterator<Item = (&'a str, &'a String)>) -> Vec<Problem> {
    let empty = sources.into_iter().filter(|(_, source)| source.trim().is_empty());
    empty.map(|(path, _)| Problem::new(format!("{path}.source"), "empty; every figure names where a reader finds it")).collect()
}

#[cfg(test)]
mod tests {
    use crate::Catalog;
    use crate::catalog::tests::Scratch;
    use blis_contracts::network::Transport;

    fn spoilt(test: &str, path: &str, from: &str, to: &str) -> String {
        let text = crate::catalog::tests::embedded_text(path);
        assert!(text.contains(from), "{from}");
        Scratch::copy(test, &[(path, &text.replacen(from, to, 1))]).refusal()
    }

    #[test]
    fn a_network_or_device_that_breaks_a_rule_is_refused_with_its_place() {
        let network = "networks/infiniband-ndr-400.yaml";
        let device = "storage/local-nvme.yaml";
        let refusals = [
            (spoilt("rate", network, "value: 50000000000", "value: 0"), "rate.value: 0 is not a positive figure"),
            (spoilt("overhead", network, "value: 26", "value: 4096"), "packet_overhead.value: 4096 bytes beside 4096 of payload"),
            (spoilt("transport", network, "value: infiniband", "value: omnipath"), "transport.value"),
            (spoilt("key", network, "packet_payload:", "packet_payloads:"), "did you mean `packet_payload`?"),
            (spoilt("name", network, "name: infiniband-ndr-400", "name: ndr"), "`ndr` lies under the name `infiniband-ndr-400`"),
            (spoilt("latency", device, "value: 80", "value: 0"), "read_latency_us.value: 0 is not a positive figure"),
            (
                spoilt(
                    "source",
                    device,
                    "source: \"NVIDIA DGX H100 Datasheet: internal storage of eight 3.84 TB NVMe devices\"",
                    "source: \"\"",
                ),
                "per_node.source: empty",
            ),
        ];
        for (refusal, expected) in refusals {
            assert!(refusal.contains(expected), "{refusal}");
            assert!(refusal.starts_with("catalog/"), "{refusal}");
        }
    }

    #[test]
    fn payload_takes_most_of_a_port_and_less_of_it_behind_longer_headers() {
        let catalog = Catalog::embedded();
        let share = |name: &str| {
            let network = catalog.network(name).unwrap();
            (network.transport.value, network.payload_rate().get() / network.rate.value.get())
        };
        let (infiniband, roce) = (share("infiniband-ndr-400"), share("roce-400"));
        assert_eq!((infiniband.0, roce.0), (Transport::Infiniband, Transport::RoceV2));
        // 4,096 of 4,122 bytes, and of 4,178.
        assert!((infiniband.1 - 0.99369).abs() < 1e-5 && (roce.1 - 0.98037).abs() < 1e-5, "{infiniband:?} {roce:?}");
        let double = catalog.network("roce-400").unwrap().rate.value.get() / catalog.network("roce-200").unwrap().rate.value.get();
        assert!((double - 2.0).abs() < 1e-12);
    }

    #[test]
    fn networks_and_devices_are_found_by_name_laid_over_and_noted_as_read() {
        let mine = crate::catalog::tests::embedded_text("networks/roce-200.yaml").replace("name: roce-200", "name: mine");
        let overlay = Scratch::new("network-overlay", &[("networks/mine.yaml", &mine)]);
        let catalog = Catalog::embedded_with(&[&overlay.0]).unwrap();
        assert_eq!(catalog.networks().collect::<Vec<_>>(), ["infiniband-ndr-400", "mine", "roce-200", "roce-400"]);
        assert_eq!(catalog.storage_devices().collect::<Vec<_>>(), ["host-dram-grace", "host-dram", "local-nvme"]);
        assert_eq!(catalog.network("mine").unwrap().name, "mine");
        assert!(catalog.storage_device("local-nvme").unwrap().capacity.is_some());
        assert_eq!(catalog.files_read(), ["networks/mine.yaml", "storage/local-nvme.yaml"]);
        let unknown = catalog.network("roce-40").unwrap_err().to_string();
        assert!(
            unknown.starts_with("no network `roce-40` in the catalog (embedded); an entry would be networks/roce-40.yaml"),
            "{unknown}"
        );
        let unknown = catalog.storage_device("nvme").unwrap_err().to_string();
        assert!(unknown.contains("an entry would be storage/nvme.yaml"), "{unknown}");
    }
}
