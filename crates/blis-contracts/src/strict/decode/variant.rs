//! Enums: which variant a value is, and the decoder of its content.
//!
//! The name a type passes to serde says how its variants are told apart. `tag:KEY`: a map whose KEY names the variant, the rest of
//! the map being its content. `key:`: a map that is the content of the variant whose label is among its keys (both from
//! [`tagged_enum`](crate::tagged_enum)). Any other name is serde's own form: text for a variant without content, else a map of one
//! key, the variant's name, that holds the content.

use serde::Deserializer;
use serde::de::value::StrDeserializer;
use serde::de::{DeserializeSeed, EnumAccess, Error, VariantAccess, Visitor};

use super::{DecodeError, Decoded, NodeDecoder};
use crate::strict::node::Trail;
use crate::strict::{Value, nearest};

type Labels = &'static [&'static str];

/// Decodes the enum that `name` and `labels` describe.
pub(super) fn visit<'de, V: Visitor<'de>>(at: NodeDecoder<'de, '_>, name: &'static str, labels: Labels, visitor: V) -> Decoded<V::Value> {
    if let Some(tag) = name.strip_prefix("tag:") {
        let label = tagged(&at, tag, labels)?;
        return visitor.visit_enum(Variant { label, content: Content::Value(NodeDecoder { tag: Some(tag), ..at }) });
    }
    if name == "key:" {
        return visitor.visit_enum(Variant { label: keyed(&at, labels)?, content: Content::Value(at) });
    }
    match &at.node.value {
        Value::Str(label) => visitor.visit_enum(Variant { label, content: Content::Nothing(at) }),
        Value::Map(map) if map.len() == 1 && map.keys().all(|key| labels.contains(&key.as_str())) => {
            let (label, entry) = map.first().expect("the map has one entry");
            let inside = NodeDecoder { node: &entry.node, trail: &Trail::Key(at.trail, label), key: Some(entry.key_span), tag: None };
            visitor.visit_enum(Variant { label, content: Content::Value(inside) })
        }
        Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Seq(_) | Value::Map(_) => {
            at.mismatch(&format!("one of {}", labels.join(", ")))
        }
    }
}

/// The label a map's `tag` holds.
fn tagged<'de>(at: &NodeDecoder<'de, '_>, tag: &'static str, labels: Labels) -> Decoded<&'de str> {
    let map = at.map(&format!("a map with the key `{tag}`"))?;
    let Some(entry) = map.get(tag) else {
        return at.fail(format!("the key `{tag}` is missing"), Some(format!("it is one of {}", labels.join(", "))));
    };
    let value = NodeDecoder { node: &entry.node, trail: &Trail::Key(at.trail, tag), key: Some(entry.key_span), tag: None };
    match entry.node.as_str() {
        Some(label) if labels.contains(&label) => Ok(label),
        Some(label) => value.placed(Err(DecodeError::unknown_variant(label, labels))),
        None => value.mismatch("text"),
    }
}

/// The one label among a map's keys.
fn keyed(at: &NodeDecoder<'_, '_>, labels: Labels) -> Decoded<&'static str> {
    let quoted = labels.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ");
    let map = at.map(&format!("a map with one of the keys {quoted}"))?;
    let present: Vec<&'static str> = labels.iter().copied().filter(|key| map.contains_key(*key)).collect();
    match present[..] {
        [only] => Ok(only),
        [] => {
            let near = map.keys().find_map(|key| nearest(key, labels.iter().copied()).map(|near| (key, near)));
            let hint = near.map(|(key, near)| format!("is `{key}` meant to be `{near}`?"));
            at.fail(format!("one of the keys {quoted} is missing"), hint)
        }
        [first, second, ..] => {
            at.fail(format!("the keys `{first}` and `{second}` exclude each other"), Some("keep one of them".to_owned()))
        }
    }
}

/// An enum variant.
struct Variant<'de, 't> {
    label: &'de str,
    content: Content<'de, 't>,
}

/// What a variant holds.
enum Content<'de, 't> {
    /// Nothing: the value is the label itself.
    Nothing(NodeDecoder<'de, 't>),
    /// A value, less the tag that named the variant.
    Value(NodeDecoder<'de, 't>),
}

impl<'de, 't> EnumAccess<'de> for Variant<'de, 't> {
    type Error = DecodeError;
    type Variant = Content<'de, 't>;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Decoded<(V::Value, Self::Variant)> {
        Ok((seed.deserialize(StrDeserializer::<DecodeError>::new(self.label))?, self.content))
    }
}

impl<'de, 't> Content<'de, 't> {
    fn value(self) -> Decoded<NodeDecoder<'de, 't>> {
        match self {
            Self::Nothing(at) => at.fail("the name alone is not enough here", Some("write a map of the name and its content".to_owned())),
            Self::Value(at) => Ok(at),
        }
    }
}

impl<'de> VariantAccess<'de> for Content<'de, '_> {
    type Error = DecodeError;

    fn unit_variant(self) -> Decoded<()> {
        match self {
            Self::Nothing(_) => Ok(()),
            Self::Value(at) if at.tag.is_some() => at.check_keys(at.map("a map")?, &[]),
            Self::Value(at) => at.fail("the name stands alone, without a value", None),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Decoded<T::Value> {
        seed.deserialize(self.value()?)
    }

    fn tuple_variant<V: Visitor<'de>>(self, length: usize, visitor: V) -> Decoded<V::Value> {
        self.value()?.deserialize_tuple(length, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(self, fields: Labels, visitor: V) -> Decoded<V::Value> {
        self.value()?.deserialize_struct("", fields, visitor)
    }
}
