//! Where a value came from, and how far it can be trusted.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a coefficient was obtained, from most to least trusted. The order of the variants is the order of trust (T§9.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// Fitted to measurements of this kernel on this chip.
    Measured,
    /// Fitted to end-to-end measurements that exercise it among other terms.
    Calibrated,
    /// Carried over from another chip, release or kernel by a stated rule.
    Transferred,
    /// Taken from a publication.
    Literature,
    /// Taken from a vendor's data sheet.
    VendorSpec,
    /// Computed from the chip's peaks alone.
    Roofline,
    /// Assumed, with a written reason.
    Assumed,
    /// Deliberately priced at nothing, with a written reason.
    NotCharged,
}

impl Method {
    /// Every method, most trusted first.
    pub const ALL: [Self; 8] = [
        Self::Measured,
        Self::Calibrated,
        Self::Transferred,
        Self::Literature,
        Self::VendorSpec,
        Self::Roofline,
        Self::Assumed,
        Self::NotCharged,
    ];

    /// The name documents use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Calibrated => "calibrated",
            Self::Transferred => "transferred",
            Self::Literature => "literature",
            Self::VendorSpec => "vendor_spec",
            Self::Roofline => "roofline",
            Self::Assumed => "assumed",
            Self::NotCharged => "not_charged",
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Where a setting's value came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SettingSource {
    /// The user stated it.
    Stated,
    /// The user stated it in the spelling of another release, and it was translated.
    Translated,
    /// A measured run recorded it.
    Recorded,
    /// The engine's own default or resolution rule.
    UpstreamDefault,
    /// A cited measurement.
    CitedMeasurement,
}

/// One resolved setting of an engine, in the engine's own name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResolvedSetting {
    /// The engine's own name of the setting.
    pub name: String,
    /// The value in force, as the engine prints it.
    pub value: String,
    /// Where it came from.
    pub source: SettingSource,
    /// The rule that gave it, where it was not simply stated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
}
