//! A report as a table for programs: RFC 4180, one line a window or late event.

use std::borrow::Cow;
use std::io::Write;

use super::{ReportError, View, utc};

const WINDOWS: &str = "key,window_start_ms,window_end_ms,window_start_utc,count,sum,min,max,state,\
                       revision\r\n";
const LATE: &str = "id,key,timestamp_ms,value,window_start_ms,watermark_ms,source,batch,\
                    applied_in\r\n";

pub(super) fn windows(view: &View<'_>, out: &mut dyn Write) -> Result<(), ReportError> {
    out.write_all(WINDOWS.as_bytes())?;
    // windows come by start, so the same moment comes once for each key
    let mut start = (i64::MIN, String::new());
    view.each_window(&mut |window| {
        if start.0 != window.start_ms {
            start = (window.start_ms, utc(window.start_ms));
        }
        let totals = &window.totals;
        write!(
            out,
            "{},{},{},{},{},{},{},{},{},{}\r\n",
            field(window.key),
            window.start_ms,
            window.end_ms,
            start.1,
            totals.count,
            totals.sum,
            totals.min,
            totals.max,
            window.state.name(),
            window.revision,
        )
    })
}

pub(super) fn late(view: &View<'_>, out: &mut dyn Write) -> Result<(), ReportError> {
    out.write_all(LATE.as_bytes())?;
    view.each_late(&mut |late| {
        let applied_in = late.applied_in.map_or_else(String::new, |batch| batch.to_string());
        write!(
            out,
            "{},{},{},{},{},{},{},{},{applied_in}\r\n",
            field(late.id),
            field(late.key),
            late.timestamp_ms,
            late.value,
            late.window_start_ms,
            late.watermark_ms,
            field(late.source),
            late.batch,
        )
    })
}

/// Quoted where a reader would take it apart, or would trim it; exact in every case.
fn field(text: &str) -> Cow<'_, str> {
    let needs_quotes = text.contains([',', '"', '\r', '\n'])
        || text.starts_with(char::is_whitespace)
        || text.ends_with(char::is_whitespace);
    if needs_quotes {
        Cow::Owned(format!("\"{}\"", text.replace('"', "\"\"")))
    } else {
        Cow::Borrowed(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::report::fake::{Fake, late_row, report};
    use crate::query::report::{Filter, Format, write_late};

    #[test]
    fn one_line_a_window_and_all_digits() {
        let fake =
            Fake::example().corrected(1).window("=1+2", 253_402_300_799_000, [1, i64::MAX, -1, 7]);
        let lines = "key,window_start_ms,window_end_ms,window_start_utc,count,sum,min,max,state,\
                     revision\r\n\
                     checkout,0,1000,1970-01-01T00:00:00.000Z,3,40,8,20,corrected,1\r\n\
                     checkout,1000,2000,1970-01-01T00:00:01.000Z,1,5,5,5,open,0\r\n\
                     =1+2,253402300799000,253402300800000,9999-12-31T23:59:59.000Z,\
                     1,9223372036854775807,-1,7,open,0\r\n";
        assert_eq!(report(&fake, Format::Csv, &Filter::default()), lines);
    }

    #[test]
    fn text_that_would_be_taken_apart_is_quoted() {
        let quoted = ["a,b", "a\"b", "a\nb", " a", "a\r", "plain; key"].map(field);
        let expected = ["\"a,b\"", "\"a\"\"b\"", "\"a\nb\"", "\" a\"", "\"a\r\"", "plain; key"];
        assert_eq!(quoted, expected);
    }

    #[test]
    fn late_events_have_their_own_table() {
        let fake = Fake::example().applied_in(7).late(late_row("id,1", "k", 900, i64::MIN));
        let mut out = Vec::new();
        write_late(&fake, Format::Csv, &Filter::default(), &mut out).unwrap();
        let lines = "id,key,timestamp_ms,value,window_start_ms,watermark_ms,source,batch,\
                     applied_in\r\n\
                     request-5,checkout,900,99,0,1100,default,1,7\r\n\
                     \"id,1\",k,900,-9223372036854775808,0,1100,default,1,\r\n";
        assert_eq!(String::from_utf8(out).unwrap(), lines);
    }
}
