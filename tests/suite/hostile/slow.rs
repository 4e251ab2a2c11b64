//! A batch read the slow and obvious way, from the contract alone: unpacked as a whole, parsed by
//! serde_json, judged field by field. It says what comes out, and no more of a refusal than whether
//! the text is JSON at all.

use std::fmt;
use std::io::Read;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// An event that stands on its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    pub id: String,
    pub key: String,
    pub timestamp_ms: i64,
    pub value: i64,
    pub source: Option<String>,
    pub producer_version: Option<String>,
}

/// What comes of a batch.
#[derive(Debug, PartialEq, Eq)]
pub enum Reading {
    Taken(Vec<Owned>),
    /// Refused; whether the whole text is one JSON value all the same.
    Refused {
        is_json: bool,
    },
    /// It unpacks to more than is looked at here.
    TooFar,
}

/// The bytes of a batch, unpacked; none when the packing is damaged.
pub fn unpacked(bytes: &[u8], most: u64) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    let is_skippable = matches!(bytes, [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..]);
    if bytes.starts_with(b"\x1f\x8b") {
        let mut members = flate2::bufread::MultiGzDecoder::new(bytes).take(most + 1);
        members.read_to_end(&mut text).ok()?;
    } else if bytes.starts_with(b"\x28\xb5\x2f\xfd") || is_skippable {
        let frames = zstd::stream::read::Decoder::new(bytes).ok()?;
        frames.take(most + 1).read_to_end(&mut text).ok()?;
    } else {
        text.extend_from_slice(bytes);
    }
    Some(text)
}

/// Reads a batch that unpacks to at most so many bytes.
pub fn read(bytes: &[u8], most: u64) -> Reading {
    let Some(text) = unpacked(bytes, most) else { return Reading::Refused { is_json: false } };
    if text.len() as u64 > most {
        return Reading::TooFar;
    }
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&text);
    match events(text) {
        Some(events) => Reading::Taken(events),
        None => Reading::Refused { is_json: serde_json::from_slice::<Json>(text).is_ok() },
    }
}

fn events(text: &[u8]) -> Option<Vec<Owned>> {
    let first = text.iter().find(|byte| !b" \t\r\n".contains(byte))?;
    let values = match first {
        b'[' => match serde_json::from_slice(text).ok()? {
            Json::Array(values) => values,
            _ => return None,
        },
        b'{' => lines(text)?,
        _ => return None,
    };
    values.into_iter().map(event).collect()
}

/// The values of a text in which each begins on a line of its own.
fn lines(text: &[u8]) -> Option<Vec<Json>> {
    let mut values = Vec::new();
    let mut stream = serde_json::Deserializer::from_slice(text).into_iter::<Json>();
    let mut end = None;
    while let Some(value) = stream.next() {
        values.push(value.ok()?);
        let here = stream.byte_offset();
        if let Some(end) = end {
            let begin = end + text[end..].iter().position(|byte| !b" \t\r\n".contains(byte))?;
            if !text[end..begin].contains(&b'\n') {
                return None;
            }
        }
        end = Some(here);
    }
    Some(values)
}

fn event(value: Json) -> Option<Owned> {
    let Json::Object(mut members) = value else { return None };
    let names = ["id", "key", "timestamp_ms", "value", "source", "producer_version"];
    if !members.iter().all(|(name, _)| names.contains(&name.as_str())) {
        return None;
    }
    let mut take = |name: &str| {
        let at = members.iter().position(|(member, _)| member == name)?;
        Some(members.swap_remove(at).1)
    };
    let (id, key) = (name(take("id")?)?, name(take("key")?)?);
    let (timestamp_ms, value) = (integer(take("timestamp_ms")?)?, integer(take("value")?)?);
    let mut optional = |member| take(member).map(name);
    let (source, producer_version) = (optional("source"), optional("producer_version"));
    let event = Owned {
        id,
        key,
        timestamp_ms: Some(timestamp_ms).filter(|time| (0..=253_402_300_799_999).contains(time))?,
        value,
        source: source.map_or(Some(None), |name| name.map(Some))?,
        producer_version: producer_version.map_or(Some(None), |name| name.map(Some))?,
    };
    // what is left is there twice
    members.is_empty().then_some(event)
}

fn name(value: Json) -> Option<String> {
    let Json::Text(text) = value else { return None };
    (!text.trim().is_empty() && text.len() <= 512).then_some(text)
}

fn integer(value: Json) -> Option<i64> {
    match value {
        Json::Integer(number) => i64::try_from(number).ok(),
        _ => None,
    }
}

/// JSON with all members of its objects, in order, and integers told from other numbers.
#[derive(Debug)]
enum Json {
    Integer(i128),
    Text(String),
    Array(Vec<Json>),
    Object(Vec<(String, Json)>),
    Other,
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Json, D::Error> {
        from.deserialize_any(Any)
    }
}

struct Any;

impl<'de> Visitor<'de> for Any {
    type Value = Json;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("any JSON")
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Json, E> {
        Ok(Json::Integer(number.into()))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Json, E> {
        Ok(Json::Integer(number.into()))
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Json, E> {
        Ok(Json::Other)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Json, E> {
        Ok(Json::Other)
    }

    fn visit_unit<E: Error>(self) -> Result<Json, E> {
        Ok(Json::Other)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Json, E> {
        Ok(Json::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Json, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = from.next_element()? {
            values.push(value);
        }
        Ok(Json::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Json, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = from.next_entry()? {
            members.push(member);
        }
        Ok(Json::Object(members))
    }
}
