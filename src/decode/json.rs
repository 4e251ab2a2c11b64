//! One event out of a slice that begins with its `{`, judged field by field. It knows nothing of
//! the batch around the event.

use std::borrow::Cow;

use super::flaw::{Stop, quote, shorten};
use super::format_hint;
use super::token::{Tokens, Value};
use crate::model::event::{Event, MAX_NAME_BYTES, MAX_TIMESTAMP_MS, Place};
use crate::model::refusal::Code;

/// What is known of an event so far.
#[derive(Debug, Default)]
pub(super) struct Fields<'a> {
    id: Option<Cow<'a, str>>,
    key: Option<Cow<'a, str>>,
    timestamp_ms: Option<i64>,
    value: Option<i64>,
    source: Option<Cow<'a, str>>,
    producer_version: Option<Cow<'a, str>>,
}

impl<'a> Fields<'a> {
    /// The id, once it was read and found right.
    pub(super) fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// The event, when all that it needs is there.
    pub(super) fn event(&self, place: Place) -> Option<Event<'_>> {
        Some(Event {
            id: self.id.as_deref()?,
            key: self.key.as_deref()?,
            timestamp_ms: self.timestamp_ms?,
            value: self.value?,
            source: self.source.as_deref(),
            producer_version: self.producer_version.as_deref(),
            place,
        })
    }

    fn has(&self, field: Field) -> bool {
        match field {
            Field::Id => self.id.is_some(),
            Field::Key => self.key.is_some(),
            Field::Timestamp => self.timestamp_ms.is_some(),
            Field::Value => self.value.is_some(),
            Field::Source => self.source.is_some(),
            Field::ProducerVersion => self.producer_version.is_some(),
        }
    }

    fn take(&mut self, field: Field, tokens: &mut Tokens<'a>) -> Result<(), Stop> {
        match field {
            Field::Id => self.id = Some(name(tokens)?),
            Field::Key => self.key = Some(name(tokens)?),
            Field::Timestamp => self.timestamp_ms = Some(timestamp(tokens)?),
            Field::Value => self.value = Some(integer(tokens)?),
            Field::Source => self.source = Some(name(tokens)?),
            Field::ProducerVersion => self.producer_version = Some(name(tokens)?),
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Id,
    Key,
    Timestamp,
    Value,
    Source,
    ProducerVersion,
}

impl Field {
    const ALL: [Field; 6] = [
        Field::Id,
        Field::Key,
        Field::Timestamp,
        Field::Value,
        Field::Source,
        Field::ProducerVersion,
    ];

    /// The name as it mostly stands in a batch.
    fn quoted(self) -> &'static str {
        match self {
            Field::Id => "\"id\"",
            Field::Key => "\"key\"",
            Field::Timestamp => "\"timestamp_ms\"",
            Field::Value => "\"value\"",
            Field::Source => "\"source\"",
            Field::ProducerVersion => "\"producer_version\"",
        }
    }

    fn name(self) -> &'static str {
        self.quoted().trim_matches('"')
    }

    fn from_name(name: &str) -> Option<Field> {
        Field::ALL.into_iter().find(|field| field.name() == name)
    }

    fn is_required(self) -> bool {
        !matches!(self, Field::Source | Field::ProducerVersion)
    }
}

/// Reads the event that the slice begins with into `fields`, and says how many bytes it has.
/// What was read before a fault stays in `fields`.
pub(super) fn read_event<'a>(bytes: &'a [u8], fields: &mut Fields<'a>) -> Result<usize, Stop> {
    let mut tokens = Tokens::new(bytes);
    tokens.at += 1;
    let mut expected = "a field name in double quotes or }";
    let mut ends = tokens.next()? == b'}';
    while !ends {
        if tokens.next()? != b'"' {
            return Err(tokens.unexpected(expected));
        }
        read_member(&mut tokens, fields)?;
        match tokens.next()? {
            b',' => tokens.at += 1,
            b'}' => ends = true,
            _ => return Err(tokens.unexpected("a comma or } after the value")),
        }
        expected = "a field name in double quotes after the comma";
    }
    missing(fields).map_or(Ok(tokens.at + 1), Err)
}

fn read_member<'a>(tokens: &mut Tokens<'a>, fields: &mut Fields<'a>) -> Result<(), Stop> {
    let name_at = tokens.at;
    let field = match Field::ALL.into_iter().find(|field| tokens.take(field.quoted())) {
        Some(field) => field,
        None => {
            let name = tokens.string()?;
            match Field::from_name(&name) {
                Some(field) => field,
                None => return Err(other_member(tokens, name_at, &name)),
            }
        }
    };
    let at_fault = |stop: Stop| stop.in_field(field.name());
    if fields.has(field) {
        return Err(at_fault(duplicate(name_at, field)));
    }
    if tokens.next()? != b':' {
        return Err(at_fault(tokens.unexpected("a colon after the field name")));
    }
    tokens.at += 1;
    tokens.next()?;
    fields.take(field, tokens).map_err(|stop| at_fault(stop.of_optional(field)))
}

impl Stop {
    /// What may be left out need not be null.
    fn of_optional(mut self, field: Field) -> Stop {
        if let Stop::Flaw(flaw) = &mut self
            && flaw.code == Code::WrongType
            && !field.is_required()
        {
            flaw.hint = "leave the field out where there is nothing to say".into();
        }
        self
    }
}

fn name<'a>(tokens: &mut Tokens<'a>) -> Result<Cow<'a, str>, Stop> {
    let at = tokens.at;
    if tokens.next()? != b'"' {
        let found = tokens.value()?;
        return Err(Stop::flaw(
            Code::WrongType,
            at,
            format!("expected a string, found {}", found.found()),
            match found {
                Value::Integer(_) | Value::Beyond(_) => "write it in double quotes",
                _ => "send the event with a string there",
            },
        ));
    }
    let text = tokens.string()?;
    if text.len() > MAX_NAME_BYTES {
        return Err(Stop::flaw(
            Code::TooLong,
            at,
            format!("expected at most {MAX_NAME_BYTES} bytes, found {}", quote(&text)),
            "send a shorter name, a hash of the long one for example; was a text put there?",
        ));
    }
    if text.chars().all(char::is_whitespace) {
        let found = match text.len() {
            0 => "an empty string".to_owned(),
            _ => format!("only white space: {}", quote(&text)),
        };
        return Err(Stop::flaw(
            Code::Blank,
            at,
            format!("expected at least one character that is not white space, found {found}"),
            "did the sender know the value? a blank one would be shared by unrelated events",
        ));
    }
    Ok(text)
}

fn integer(tokens: &mut Tokens<'_>) -> Result<i64, Stop> {
    let at = tokens.at;
    match tokens.value()? {
        Value::Integer(number) => Ok(number),
        found @ Value::Beyond(_) => Err(Stop::flaw(
            Code::OutOfRange,
            at,
            format!("expected {} to {}, found {}", i64::MIN, i64::MAX, found.found()),
            "an integer must fit into 64 bits with a sign; use a larger unit",
        )),
        found => Err(not_an_integer(at, &found)),
    }
}

fn timestamp(tokens: &mut Tokens<'_>) -> Result<i64, Stop> {
    let at = tokens.at;
    let found = tokens.value()?;
    let hint = match &found {
        Value::Integer(number) if (0..=MAX_TIMESTAMP_MS).contains(number) => return Ok(*number),
        Value::Integer(..=-1) | Value::Beyond([b'-', ..]) => {
            "times before 1970-01-01T00:00:00Z are not supported; is the sender's clock set?"
        }
        Value::Integer(_) | Value::Beyond(_) => {
            "it counts milliseconds since 1970-01-01T00:00:00Z: was it micro- or nanoseconds?"
        }
        _ => {
            let hint = match &found {
                Value::Text(text) => format_hint::of_time(text),
                Value::NotInteger(text) if *text != b"-0" => {
                    format_hint::of_seconds(text).or_else(|| {
                        Some("it counts whole milliseconds: write it as digits only".to_owned())
                    })
                }
                _ => None,
            };
            return Err(not_an_integer(at, &found).with_hint(hint));
        }
    };
    let what = format!("expected 0 to {MAX_TIMESTAMP_MS}, found {}", found.found());
    Err(Stop::flaw(Code::OutOfRange, at, what, hint))
}

fn not_an_integer(at: usize, found: &Value<'_>) -> Stop {
    let mut scaled = None;
    let hint = match found {
        Value::Text(text) if text.parse::<i64>().is_ok() => "write it without the quotes",
        Value::NotInteger(b"-0") => "write 0",
        Value::NotInteger(text) => {
            scaled = format_hint::of_fraction(text);
            "write it as digits only, without fraction or exponent; use a smaller unit where \
             fractions matter"
        }
        Value::Word("null") => "leave the event out until the number is known",
        _ => "write it as digits, like 42 or -42",
    };
    let what = format!("expected an integer, found {}", found.found());
    Stop::flaw(Code::WrongType, at, what, hint).with_hint(scaled)
}

#[cold]
fn duplicate(at: usize, field: Field) -> Stop {
    Stop::flaw(
        Code::DuplicateField,
        at,
        "expected the field once, found it again",
        "which of the two is right can't be known: send the event with one",
    )
    .in_field(field.name())
}

/// A member that no event has: perhaps the one in which the events are wrapped.
#[cold]
fn other_member(tokens: &mut Tokens<'_>, at: usize, name: &str) -> Stop {
    if !format_hint::is_wrapper(name) {
        return unknown(at, name);
    }
    let mut wraps = || {
        for expected in b":[{" {
            if tokens.next()? != *expected {
                return Ok(false);
            }
            tokens.at += 1;
        }
        Ok(true)
    };
    match wraps() {
        Ok(false) => unknown(at, name),
        Ok(true) => Stop::flaw(
            Code::UnknownField,
            at,
            format!("expected a field of an event, found {} with an array of objects", quote(name)),
            format_hint::of_wrapper(name),
        )
        .in_field(name),
        Err(stop) => stop,
    }
}

#[cold]
fn unknown(at: usize, name: &str) -> Stop {
    let nearest = nearest_field(name);
    let meant = nearest.map_or(String::new(), |name| format!("did you mean {name:?}? "));
    Stop::flaw(
        Code::UnknownField,
        at,
        format!("expected a field of an event, found {}", quote(name)),
        match format_hint::of_other_format(name) {
            Some(hint) => hint.to_owned(),
            None => format!("{meant}{FIELDS_HINT}"),
        },
    )
    .in_field(shorten(name, 100))
}

pub(super) const FIELDS_HINT: &str = "an event has the fields id, key, timestamp_ms and value, \
                                      may have source and producer_version, and no others";

/// The field that was most likely meant, if one is near enough.
fn nearest_field(name: &str) -> Option<&'static str> {
    if name.len() > 64 {
        return None;
    }
    let plain = |name: &str| {
        let letters = name.chars().filter(|c| c.is_alphanumeric());
        letters.flat_map(char::to_lowercase).collect::<String>()
    };
    let wanted = plain(name);
    Field::ALL
        .into_iter()
        .map(|field| (strsim::jaro_winkler(&wanted, &plain(field.name())), field.name()))
        .filter(|(likeness, _)| *likeness >= 0.8)
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .map(|(_, name)| name)
}

/// What the whole event lacks; it is said where the event begins.
fn missing(fields: &Fields<'_>) -> Option<Stop> {
    let lacking = |field: &Field| field.is_required() && !fields.has(*field);
    let first = Field::ALL.into_iter().find(lacking)?;
    let names = Field::ALL.into_iter().filter(lacking).map(Field::name).collect::<Vec<_>>();
    let what = match names.as_slice() {
        [one] => format!("expected the field {one:?} before the end of the event"),
        many => format!("expected the fields {} before the end of the event", many.join(", ")),
    };
    Some(Stop::flaw(Code::MissingField, 0, what, FIELDS_HINT).in_field(first.name()))
}
