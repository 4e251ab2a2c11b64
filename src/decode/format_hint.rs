//! What to do about the formats that people really drop: other times, fractions, wrapped arrays,
//! tables, archives.

use jiff::tz::TimeZone;
use jiff::{Timestamp, civil};

/// The columns of an event, and others by which a table is known.
const COLUMNS: [&str; 8] =
    ["id", "key", "timestamp_ms", "timestamp", "time", "date", "value", "source"];

/// Names under which senders wrap their events.
const WRAPPERS: [&str; 14] = [
    "events",
    "records",
    "data",
    "items",
    "values",
    "results",
    "rows",
    "batch",
    "measurements",
    "points",
    "messages",
    "readings",
    "samples",
    "entries",
];

/// Where a tar archive says that it is one.
const TAR_MAGIC: std::ops::Range<usize> = 257..262;

/// How many bytes of a batch are enough to know what it is.
pub(super) const TELLING_BYTES: usize = 512;

/// About a text where a timestamp should be: the milliseconds of that time, if it is one.
pub(super) fn of_time(text: &str) -> Option<String> {
    const HOW: &str = "with jq: .timestamp_ms |= (fromdate * 1000); in Python: \
                       round(datetime.fromisoformat(text).timestamp() * 1000)";
    if text.len() > 64 {
        return None;
    }
    if let Ok(time) = text.parse::<Timestamp>() {
        return Some(format!("write that time as {}; {HOW}", time.as_millisecond()));
    }
    let local = text.parse::<civil::DateTime>().ok().or_else(|| {
        text.parse::<civil::Date>().ok().map(|date| date.to_datetime(civil::Time::midnight()))
    })?;
    let time = local.to_zoned(TimeZone::UTC).ok()?.timestamp();
    Some(format!("it has no time zone: if it is UTC, write it as {}; {HOW}", time.as_millisecond()))
}

/// About a number with a fraction: the unit in which it is whole, in digits.
pub(super) fn of_fraction(text: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(text).ok()?;
    let (whole, fraction) = text.split_once('.')?;
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (digits, unit) = match fraction.len() {
        0..=3 => (3, "thousandths"),
        4..=6 => (6, "millionths"),
        7..=9 => (9, "billionths"),
        _ => return None,
    };
    let scaled: i64 = format!("{whole}{fraction:0<digits$}").parse().ok()?;
    Some(format!(
        "send all values of this key in a smaller unit, as integers: {text} is {scaled} {unit}; \
         and divide what the report says"
    ))
}

/// About a fraction where a timestamp should be: seconds of this time, most likely.
pub(super) fn of_seconds(text: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(text).ok()?;
    let (whole, fraction) = text.split_once('.')?;
    let is_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.len() != 10 || !is_digits(whole) || !is_digits(fraction) {
        return None;
    }
    let thousandths: String = fraction.chars().chain("000".chars()).take(3).collect();
    Some(format!("if these are seconds, write {whole}{thousandths}: it counts milliseconds"))
}

/// About a field that wraps the events, by its name.
pub(super) fn is_wrapper(name: &str) -> bool {
    WRAPPERS.contains(&name)
}

/// What to do about events that are wrapped in a field of that name.
pub(super) fn of_wrapper(name: &str) -> String {
    format!(
        "the events are wrapped in an object: send the array in {name:?} alone, with jq: jq -c \
         .{name}[] FILE > NEW"
    )
}

/// About a field that only another format has.
pub(super) fn of_other_format(name: &str) -> Option<&'static str> {
    matches!(name, "specversion" | "datacontenttype" | "dataschema").then_some(
        "this is a CloudEvent: make an event of what it carries, with jq: jq -c '{id, key: .subject, \
         timestamp_ms: (.time | fromdate * 1000), value: .data.value}' FILE > NEW",
    )
}

/// What a batch is by its first bytes, if it is a table or an archive: what was found, what to do.
pub(super) fn of_batch(head: &[u8]) -> Option<(&'static str, &'static str)> {
    if head.get(TAR_MAGIC) == Some(b"ustar") {
        let hint = "unpack it, and send each file in it as a file of its own: tar -xf FILE";
        return Some(("a tar archive", hint));
    }
    let line = head.split(|byte| *byte == b'\n').next().unwrap_or(head);
    let line = std::str::from_utf8(line).ok()?;
    let separator = [',', ';', '\t'].into_iter().find(|one| line.contains(*one))?;
    let columns: Vec<&str> = line.split(separator).map(bare).collect();
    let is_known = |name: &&str| COLUMNS.iter().any(|known| name.eq_ignore_ascii_case(known));
    let looks_so = columns.iter().any(is_known) || columns.len() > 2;
    looks_so.then_some((
        "CSV",
        "write each row as an object, in Python: for r in csv.DictReader(open(FILE)): \
         print(json.dumps({'id': r['id'], 'key': r['key'], 'timestamp_ms': \
         int(r['timestamp_ms']), 'value': int(r['value'])}))",
    ))
}

/// The name of a column without what stands around it.
fn bare(name: &str) -> &str {
    name.trim().trim_matches('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_told_in_milliseconds() {
        for (text, ms) in [
            ("2026-01-01T00:00:00Z", "1767225600000;"),
            ("2026-01-01T01:00:00.250+01:00", "1767225600250;"),
            ("2026-01-01 00:00:00", "1767225600000;"),
            ("2026-01-01", "1767225600000;"),
        ] {
            let told = of_time(text).unwrap();
            assert!(told.contains(ms), "{text}: {told}");
            assert_eq!(told.contains("no time zone"), !text.contains('T'), "{told}");
        }
        assert_eq!(of_time("yesterday"), None);
    }

    #[test]
    fn a_fraction_is_told_in_a_smaller_unit() {
        for (text, told) in [
            ("12.5", "12500 thousandths"),
            ("-0.25", "-250 thousandths"),
            ("1.2345", "1234500 millionths"),
        ] {
            assert!(of_fraction(text.as_bytes()).unwrap().contains(told), "{text}");
        }
        assert_eq!(of_fraction(b"1e3"), None);
        assert_eq!(of_fraction(b"1.5e3"), None);
        assert!(of_seconds(b"1767225600.5").unwrap().contains("1767225600500"));
        assert_eq!(of_seconds(b"12.5"), None);
    }
}
