//! Enums whose variant is told by a key, decoded so that errors inside the variant keep their place.
//!
//! serde's own `#[serde(tag)]` and `#[serde(untagged)]` buffer the map before the variant is known, and places are lost. This macro
//! writes the same document shape for serialising and for the JSON Schema, but hands the choice of variant to the strict decoder.

/// Declares an enum of newtype variants, each holding a struct.
///
/// `by tag "process"`: the value of that key names the variant. `by key`: the variant is the one whose label is a key of the map.
#[macro_export]
macro_rules! tagged_enum {
    (
        $(#[$meta:meta])* $vis:vis enum $name:ident by tag $tag:literal
        { $( $(#[$variant_meta:meta])* $variant:ident($content:ty) = $label:literal, )+ }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize, schemars::JsonSchema)]
        #[serde(tag = $tag)]
        $vis enum $name { $( $(#[$variant_meta])* #[serde(rename = $label)] $variant($content), )+ }
        $crate::tagged_enum!(@decode $name concat!("tag:", $tag), $($variant($content) = $label),+);
    };
    (
        $(#[$meta:meta])* $vis:vis enum $name:ident by key
        { $( $(#[$variant_meta:meta])* $variant:ident($content:ty) = $label:literal, )+ }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize, schemars::JsonSchema)]
        #[serde(untagged)]
        $vis enum $name { $( $(#[$variant_meta])* $variant($content), )+ }
        $crate::tagged_enum!(@decode $name "key:", $($variant($content) = $label),+);
    };
    (@decode $name:ident $kind:expr, $($variant:ident($content:ty) = $label:literal),+) => {
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                const LABELS: &[&str] = &[$($label),+];
                struct Choice;
                impl<'de> serde::de::Visitor<'de> for Choice {
                    type Value = $name;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        write!(f, "one of {}", LABELS.join(", "))
                    }

                    fn visit_enum<A: serde::de::EnumAccess<'de>>(self, access: A) -> Result<$name, A::Error> {
                        use serde::de::{Error, VariantAccess};
                        let (label, content) = access.variant::<String>()?;
                        match label.as_str() {
                            $($label => content.newtype_variant().map($name::$variant),)+
                            unknown => Err(A::Error::unknown_variant(unknown, LABELS)),
                        }
                    }
                }
                deserializer.deserialize_enum($kind, LABELS, Choice)
            }
        }
    };
}
pub use tagged_enum;
