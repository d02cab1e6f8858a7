//! The figures of the chip, and of the network between nodes, in the units the forms read: bytes and operations per microsecond.

use blis_contracts::chip::Chip;
use blis_contracts::format::FormatName;
use blis_contracts::network::Network;

/// One chip, as the forms see it.
#[derive(Debug, Clone, PartialEq)]
pub struct Figures {
    /// Memory bandwidth, in bytes per microsecond.
    pub bandwidth: f64,
    /// Streaming multiprocessors.
    pub processors: u32,
    /// The rate at which a port of the network moves payload, in bytes per microsecond; none where there is no network.
    pub network: Option<f64>,
    peaks: Vec<(FormatName, f64)>,
}

impl Figures {
    /// The figures of a catalog entry.
    pub fn of(chip: &Chip) -> Self {
        Self {
            bandwidth: chip.memory_bandwidth.value.get() / 1e6,
            processors: chip.multiprocessors.value,
            network: None,
            peaks: chip.peak.iter().map(|(&format, peak)| (format, peak.value.get() / 1e6)).collect(),
        }
    }

    /// The same beside a network.
    #[must_use]
    pub fn with_network(self, network: &Network) -> Self {
        Self { network: Some(network.payload_rate().get() / 1e6), ..self }
    }

    /// Peak rate for activations of a format, in operations per microsecond.
    ///
    /// A chip that states no rate for a format multiplies it at the rate of the wider format it is converted to first; `None`
    /// where the chip states no bf16 rate either.
    pub fn peak(&self, activations: FormatName) -> Option<f64> {
        let wider: &[FormatName] = match activations {
            FormatName::Mxfp8 | FormatName::Fp8 | FormatName::Fp8Block => &[FormatName::Fp8],
            FormatName::Nvfp4 | FormatName::Mxfp4 => &[FormatName::Nvfp4, FormatName::Fp8],
            FormatName::Fp32
            | FormatName::Bf16
            | FormatName::Fp16
            | FormatName::Int4Group32
            | FormatName::Int4Group128
            | FormatName::Int8 => &[],
        };
        let stated = |wanted: FormatName| self.peaks.iter().find(|(format, _)| *format == wanted).map(|&(_, peak)| peak);
        std::iter::once(activations).chain(wider.iter().copied()).chain([FormatName::Bf16]).find_map(stated)
    }
}
