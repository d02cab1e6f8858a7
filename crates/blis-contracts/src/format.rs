//! Number formats: how a tensor's elements are stored, and how many bytes that takes.
//!
//! A quantised format is one type (payload bits, scale bits, block shape); [`NumberFormat::stored_bytes`] is the only place where
//! elements become bytes. Which kernel reads a format is the engine's choice and lives elsewhere.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A storage format by its usual name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FormatName {
    /// IEEE 754 single precision.
    Fp32,
    /// bfloat16.
    Bf16,
    /// IEEE 754 half precision.
    Fp16,
    /// 8-bit float with one scale per tensor (or per channel, which stores no more at this resolution).
    Fp8,
    /// 8-bit float with one 32-bit scale per 128 x 128 block.
    Fp8Block,
    /// 8-bit float with one 8-bit power-of-two scale per 32 elements (OCP MX).
    Mxfp8,
    /// 4-bit float with one 8-bit float scale per 16 elements (NVIDIA).
    Nvfp4,
    /// 4-bit float with one 8-bit power-of-two scale per 32 elements (OCP MX).
    Mxfp4,
    /// 4-bit integer with one 16-bit scale per 32 elements.
    Int4Group32,
    /// 4-bit integer with one 16-bit scale per 128 elements.
    Int4Group128,
    /// 8-bit integer with one scale per channel.
    Int8,
}

/// A storage format by its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NumberFormat {
    /// Bits of one element.
    pub payload_bits: u32,
    /// Bits of one scale; 0 where no scale is stored per block.
    pub scale_bits: u32,
    /// Rows and columns that share one scale; (1, 1) where no scale is stored per block.
    pub block: (u32, u32),
}

impl FormatName {
    /// Every format, in the order documents list them.
    pub const ALL: [Self; 11] = [
        Self::Fp32,
        Self::Bf16,
        Self::Fp16,
        Self::Fp8,
        Self::Fp8Block,
        Self::Mxfp8,
        Self::Nvfp4,
        Self::Mxfp4,
        Self::Int4Group32,
        Self::Int4Group128,
        Self::Int8,
    ];

    /// The parts of the format. Sources: OCP Microscaling Formats 1.0 for the MX formats; NVIDIA's NVFP4 description for
    /// nvfp4; the 128 x 128 block of the `DeepSeek-V3` checkpoint for `fp8_block`.
    pub const fn parts(self) -> NumberFormat {
        let (payload_bits, scale_bits, block) = match self {
            Self::Fp32 => (32, 0, (1, 1)),
            Self::Bf16 | Self::Fp16 => (16, 0, (1, 1)),
            Self::Fp8 | Self::Int8 => (8, 0, (1, 1)),
            Self::Fp8Block => (8, 32, (128, 128)),
            Self::Mxfp8 => (8, 8, (1, 32)),
            Self::Nvfp4 => (4, 8, (1, 16)),
            Self::Mxfp4 => (4, 8, (1, 32)),
            Self::Int4Group32 => (4, 16, (1, 32)),
            Self::Int4Group128 => (4, 16, (1, 128)),
        };
        NumberFormat { payload_bits, scale_bits, block }
    }

    /// The name documents use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fp32 => "fp32",
            Self::Bf16 => "bf16",
            Self::Fp16 => "fp16",
            Self::Fp8 => "fp8",
            Self::Fp8Block => "fp8_block",
            Self::Mxfp8 => "mxfp8",
            Self::Nvfp4 => "nvfp4",
            Self::Mxfp4 => "mxfp4",
            Self::Int4Group32 => "int4_group32",
            Self::Int4Group128 => "int4_group128",
            Self::Int8 => "int8",
        }
    }

    /// The activations that weights of this format are usually multiplied with.
    #[must_use]
    pub const fn usual_activations(self) -> Self {
        match self {
            Self::Fp8 | Self::Fp8Block => Self::Fp8,
            Self::Bf16 | Self::Mxfp4 | Self::Int4Group32 | Self::Int4Group128 => Self::Bf16,
            Self::Fp32 | Self::Fp16 | Self::Mxfp8 | Self::Nvfp4 | Self::Int8 => self,
        }
    }

    /// Bytes that a `rows` x `columns` matrix takes, scales included.
    pub fn stored_bytes(self, rows: u64, columns: u64) -> u64 {
        self.parts().stored_bytes(rows, columns)
    }
}

impl fmt::Display for FormatName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl NumberFormat {
    /// Bytes that a `rows` x `columns` matrix takes: its payload, rounded up to whole bytes, and one scale for each (partial) block.
    pub fn stored_bytes(self, rows: u64, columns: u64) -> u64 {
        let payload = (rows * columns * u64::from(self.payload_bits)).div_ceil(8);
        let blocks = rows.div_ceil(u64::from(self.block.0)) * columns.div_ceil(u64::from(self.block.1));
        payload + (blocks * u64::from(self.scale_bits)).div_ceil(8)
    }

    /// Bits of one element with its share of a scale.
    pub fn bits_per_element(self) -> f64 {
        f64::from(self.payload_bits) + f64::from(self.scale_bits) / (f64::from(self.block.0) * f64::from(self.block.1))
    }
}

/// The formats one matrix multiplication reads: its weights and its activations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MatmulFormat {
    /// How the weights are stored.
    pub weights: FormatName,
    /// What the activations are when the kernel multiplies them.
    pub activations: FormatName,
}

impl MatmulFormat {
    /// Weights and activations in bfloat16.
    pub const BF16: Self = Self { weights: FormatName::Bf16, activations: FormatName::Bf16 };

    /// The label coefficients are scoped by: the weights' name where the activations are the ones that format is usually
    /// multiplied with, else both names joined by an underscore (`mxfp4`, but `mxfp4_mxfp8` and `nvfp4_bf16`).
    pub fn label(self) -> String {
        if self.activations == self.weights.usual_activations() {
            self.weights.as_str().to_owned()
        } else {
            format!("{}_{}", self.weights, self.activations)
        }
    }

    /// All pairs of formats.
    pub fn all() -> impl Iterator<Item = Self> {
        FormatName::ALL.into_iter().flat_map(|weights| FormatName::ALL.map(|activations| Self { weights, activations }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_bytes_count_payload_and_scales() {
        assert_eq!(FormatName::Bf16.stored_bytes(3, 5), 30);
        assert_eq!(FormatName::Mxfp4.stored_bytes(2880, 2880), 2880 * 2880 / 2 + 2880 * 90);
        assert_eq!(FormatName::Fp8Block.stored_bytes(7168, 2048), 7168 * 2048 + 4 * 56 * 16);
        assert_eq!(FormatName::Nvfp4.stored_bytes(16, 16), 128 + 16);
    }

    #[test]
    fn a_label_names_the_activations_only_where_they_are_unusual() {
        let label = |weights, activations| MatmulFormat { weights, activations }.label();
        assert_eq!(label(FormatName::Mxfp4, FormatName::Bf16), "mxfp4");
        assert_eq!(label(FormatName::Mxfp4, FormatName::Mxfp8), "mxfp4_mxfp8");
        assert_eq!(label(FormatName::Fp8Block, FormatName::Fp8), "fp8_block");
        assert_eq!(label(FormatName::Nvfp4, FormatName::Bf16), "nvfp4_bf16");
    }

    #[test]
    fn every_name_round_trips_through_its_document_form() {
        for name in FormatName::ALL {
            assert_eq!(serde_json::to_value(name).unwrap(), name.as_str());
        }
    }
}
