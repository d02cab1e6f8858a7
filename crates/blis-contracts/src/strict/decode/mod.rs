//! A serde deserializer over the span tree: typed documents with `#[derive(Deserialize)]`, errors with a place.
//!
//! Every struct refuses keys it does not declare, whether or not it says `deny_unknown_fields`. Integers are range-checked from
//! their literal; reals must be exact. How an enum is written is described in `variant`.
//! Left out: `#[serde(tag)]`, `#[serde(untagged)]` and `#[serde(flatten)]` on decoded types, for which serde buffers values and
//! forgets their places; and byte strings, which no document has.

mod error;
mod variant;

use serde::Deserializer;
use serde::de::value::BorrowedStrDeserializer;
use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};

use super::node::{Trail, join_key};
use super::{Entry, Map, Node, Span, Value, scalar};
use error::DecodeError;

/// The deserializer of a whole tree.
pub(super) fn root(node: &Node) -> NodeDecoder<'_, '_> {
    NodeDecoder { node, trail: &Trail::Root, key: None, tag: None }
}

type Decoded<T> = Result<T, DecodeError>;

/// The deserializer of one value.
#[derive(Clone, Copy)]
pub(super) struct NodeDecoder<'de, 't> {
    node: &'de Node,
    trail: &'t Trail<'t>,
    /// The key that holds the value.
    key: Option<Span>,
    /// The key of this map that an enclosing `tag:` enum has already read.
    tag: Option<&'static str>,
}

impl<'de> NodeDecoder<'de, '_> {
    /// Gives an error that has no place yet the place of this value.
    fn placed<T>(&self, result: Decoded<T>) -> Decoded<T> {
        result.map_err(|error| error.at(|| self.trail.render(), self.node.head(self.key)))
    }

    fn fail<T>(&self, message: impl Into<String>, hint: Option<String>) -> Decoded<T> {
        self.placed(Err(DecodeError::new(message).hint(hint)))
    }

    fn mismatch<T>(&self, expected: &str) -> Decoded<T> {
        self.fail(format!("expected {expected}, found {}", self.node.value.describe()), conversion(&self.node.value, expected))
    }

    fn integer<T: TryFrom<i128>>(&self, lowest: i128, highest: i128) -> Decoded<T> {
        let expected = format!("an integer from {lowest} to {highest}");
        let Value::Int(literal) = &self.node.value else { return self.mismatch(&expected) };
        match literal.parse::<i128>().ok().and_then(|value| T::try_from(value).ok()) {
            Some(value) => Ok(value),
            None => self.mismatch(&expected),
        }
    }

    fn real(&self) -> Decoded<f64> {
        match &self.node.value {
            Value::Float(literal) => Ok(scalar::real(literal)),
            Value::Int(literal) => match exact_real(literal) {
                Some(value) => Ok(value),
                None => self
                    .fail(format!("the integer {literal} has no exact floating-point value"), Some("write it with an exponent".to_owned())),
            },
            Value::Null | Value::Bool(_) | Value::Str(_) | Value::Seq(_) | Value::Map(_) => self.mismatch("a number"),
        }
    }

    fn any_integer<V: Visitor<'de>>(&self, literal: &str, visitor: V) -> Decoded<V::Value> {
        if let Ok(value) = literal.parse::<u64>() {
            return visitor.visit_u64(value);
        }
        match literal.parse::<i64>() {
            Ok(value) => visitor.visit_i64(value),
            Err(_) => self.fail(format!("the integer {literal} needs more than 64 bits"), None),
        }
    }

    fn map(&self, expected: &str) -> Decoded<&'de Map> {
        match &self.node.value {
            Value::Map(map) => Ok(map),
            Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Str(_) | Value::Seq(_) => self.mismatch(expected),
        }
    }

    fn visit_entries<V: Visitor<'de>>(&self, map: &'de Map, visitor: V) -> Decoded<V::Value> {
        self.placed(visitor.visit_map(Entries { rest: map.iter(), trail: self.trail, tag: self.tag, current: None }))
    }

    fn check_keys(&self, map: &'de Map, known: &'static [&'static str]) -> Decoded<()> {
        let unknown = map.iter().find(|(key, _)| Some(key.as_str()) != self.tag && !known.contains(&key.as_str()));
        match unknown {
            Some((key, entry)) => Err(DecodeError::unknown_field(key, known).at(|| join_key(&self.trail.render(), key), entry.key_span)),
            None => Ok(()),
        }
    }
}

/// How a value of the wrong kind becomes one of the kind expected, where a change of spelling is enough.
fn conversion(found: &Value, expected: &str) -> Option<String> {
    match found {
        Value::Int(literal) | Value::Float(literal) if expected == "text" => Some(format!("quote it: \"{literal}\"")),
        Value::Bool(value) if expected == "text" => Some(format!("quote it: \"{value}\"")),
        Value::Float(_) if expected.starts_with("an integer") => Some("write it without a fraction or an exponent".to_owned()),
        Value::Str(text) => match text.to_ascii_lowercase().as_str() {
            "yes" | "on" if expected == "true or false" => Some("write true".to_owned()),
            "no" | "off" if expected == "true or false" => Some("write false".to_owned()),
            _ => {
                let number_due = expected.starts_with("an integer") || expected == "a number";
                let is_number = number_due && matches!(scalar::resolve(text), Ok(Value::Int(_) | Value::Float(_)));
                is_number.then(|| "write it without quotes".to_owned())
            }
        },
        Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Seq(_) | Value::Map(_) => None,
    }
}

/// The binary64 equal to an integer literal, if there is one.
fn exact_real(literal: &str) -> Option<f64> {
    let magnitude = literal.parse::<i128>().ok()?.unsigned_abs();
    let odd_part = magnitude.checked_shr(magnitude.trailing_zeros()).unwrap_or(0);
    let bits = u128::BITS - odd_part.leading_zeros();
    (bits <= f64::MANTISSA_DIGITS).then(|| scalar::real(literal))
}

macro_rules! integers {
    ($($method:ident $visit:ident $type:ty;)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Decoded<V::Value> {
            let value = self.integer::<$type>(<$type>::MIN.into(), <$type>::MAX.into())?;
            self.placed(visitor.$visit(value))
        }
    )*};
}

impl<'de> Deserializer<'de> for NodeDecoder<'de, '_> {
    type Error = DecodeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Decoded<V::Value> {
        let result = match &self.node.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Int(literal) => self.any_integer(literal, visitor),
            Value::Float(literal) => visitor.visit_f64(scalar::real(literal)),
            Value::Str(text) => visitor.visit_borrowed_str(text),
            Value::Seq(items) => visitor.visit_seq(Items { items: items.iter().enumerate(), trail: self.trail }),
            Value::Map(map) => self.visit_entries(map, visitor),
        };
        self.placed(result)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Decoded<V::Value> {
        match self.node.value {
            Value::Bool(value) => self.placed(visitor.visit_bool(value)),
            Value::Null | Value::Int(_) | Value::Float(_) | Value::Str(_) | Value::Seq(_) | Value::Map(_) => self.mismatch("true or false"),
        }
    }

    integers! {
        deserialize_u8 visit_u8 u8;
        deserialize_u16 visit_u16 u16;
        deserialize_u32 visit_u32 u32;
        deserialize_u64 visit_u64 u64;
        deserialize_i8 visit_i8 i8;
        deserialize_i16 visit_i16 i16;
        deserialize_i32 visit_i32 i32;
        deserialize_i64 visit_i64 i64;
        deserialize_i128 visit_i128 i128;
    }

    fn deserialize_f32<V: Visitor<'de>>(self, _visitor: V) -> Decoded<V::Value> {
        self.fail("this key is declared in single precision, which would round silently", None)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Decoded<V::Value> {
        let value = self.real()?;
        self.placed(visitor.visit_f64(value))
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Decoded<V::Value> {
        self.deserialize_str(visitor)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Decoded<V::Value> {
        match self.node.as_str() {
            Some(text) => self.placed(visitor.visit_borrowed_str(text)),
            None => self.mismatch("text"),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Decoded<V::Value> {
        self.deserialize_str(visitor)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Decoded<V::Value> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Decoded<V::Value> {
        if self.node.value == Value::Null { self.placed(visitor.visit_none()) } else { self.placed(visitor.visit_some(self)) }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Decoded<V::Value> {
        if self.node.value == Value::Null { self.placed(visitor.visit_unit()) } else { self.mismatch("null") }
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _name: &'static str, visitor: V) -> Decoded<V::Value> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _name: &'static str, visitor: V) -> Decoded<V::Value> {
        self.placed(visitor.visit_newtype_struct(self))
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Decoded<V::Value> {
        match &self.node.value {
            Value::Seq(items) => self.placed(visitor.visit_seq(Items { items: items.iter().enumerate(), trail: self.trail })),
            Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Str(_) | Value::Map(_) => self.mismatch("a sequence"),
        }
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, length: usize, visitor: V) -> Decoded<V::Value> {
        if let Value::Seq(items) = &self.node.value
            && items.len() != length
        {
            return self.fail(format!("expected a sequence of {length} values, found one of {}", items.len()), None);
        }
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(self, _name: &'static str, length: usize, visitor: V) -> Decoded<V::Value> {
        self.deserialize_tuple(length, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Decoded<V::Value> {
        let map = self.map("a map")?;
        self.visit_entries(map, visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(self, _name: &'static str, fields: &'static [&'static str], visitor: V) -> Decoded<V::Value> {
        let map = self.map(&format!("a map with the keys {}", fields.join(", ")))?;
        self.check_keys(map, fields)?;
        self.visit_entries(map, visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(self, name: &'static str, variants: &'static [&'static str], visitor: V) -> Decoded<V::Value> {
        self.placed(variant::visit(self, name, variants, visitor))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Decoded<V::Value> {
        self.deserialize_any(visitor)
    }

    serde::forward_to_deserialize_any! { u128 bytes byte_buf }
}

/// The items of a sequence.
struct Items<'de, 't> {
    items: std::iter::Enumerate<std::slice::Iter<'de, Node>>,
    trail: &'t Trail<'t>,
}

impl<'de> SeqAccess<'de> for Items<'de, '_> {
    type Error = DecodeError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Decoded<Option<T::Value>> {
        let Some((index, node)) = self.items.next() else { return Ok(None) };
        seed.deserialize(NodeDecoder { node, trail: &Trail::Index(self.trail, index), key: None, tag: None }).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.items.len())
    }
}

/// The entries of a map.
struct Entries<'de, 't> {
    rest: indexmap::map::Iter<'de, String, Entry>,
    trail: &'t Trail<'t>,
    tag: Option<&'static str>,
    current: Option<(&'de str, &'de Entry)>,
}

impl<'de> MapAccess<'de> for Entries<'de, '_> {
    type Error = DecodeError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Decoded<Option<K::Value>> {
        let tag = self.tag;
        let Some((key, entry)) = self.rest.find(|(key, _)| Some(key.as_str()) != tag) else { return Ok(None) };
        self.current = Some((key, entry));
        let result = seed.deserialize(BorrowedStrDeserializer::<DecodeError>::new(key));
        result.map(Some).map_err(|error| error.at(|| join_key(&self.trail.render(), key), entry.key_span))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Decoded<V::Value> {
        let (key, entry) = self.current.take().expect("serde asks for a value only after its key");
        seed.deserialize(NodeDecoder { node: &entry.node, trail: &Trail::Key(self.trail, key), key: Some(entry.key_span), tag: None })
    }
}
