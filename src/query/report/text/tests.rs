//! What a person reads, line by line.

use super::*;
use crate::query::report::fake::{Fake, late_row, report, write_to_string};
use crate::query::report::{Filter, Format, write_sources};

#[test]
fn a_report_reads_well() {
    let fake = Fake::example().window("api\n0 1 open", 2_000, [1_234_567, -5, i64::MIN, 9]);
    let expected = "\
WindowFlow report of 1970-01-01T00:03:05.250Z (185250)

watermark     1970-01-01T00:00:01.100Z (1100): windows that end by then are final
newest event  1970-01-01T00:00:01.600Z (1600)
last ingest   1970-01-01T00:00:05.000Z (5000), batch 2, 3 min 0 s before this report
settings      window_ms=1000 lateness_ms=500 late_rule=window late_policy=aside \
max_future_ms=86400000 dedup_horizon_ms=off
batches       2 taken in, 0 refused
events        12: 4 accepted, 1 late (1 kept, 1 not applied), 7 duplicate, 0 future (0 held), 0 expired
windows       3: 1 final, 2 open

Sources: 1
holds W  own watermark             own watermark_ms  last event_ms  \
last batch at             batch  source   last file
holds    1970-01-01T00:00:01.100Z              1100           1600  \
1970-01-01T00:00:05.000Z      2  default  b.json

Windows: 3 listed of 3
start                     start_ms  state      count  sum                         min  max  \
key
1970-01-01T00:00:00.000Z         0  final          3   40                           8   20  \
checkout
1970-01-01T00:00:01.000Z      1000  open*          1    5                           5    5  \
checkout
1970-01-01T00:00:02.000Z      2000  open*  1_234_567   -5  -9_223_372_036_854_775_808    9  \
\"api\\n0 1 open\"
all that are listed                        1_234_571   40  -9_223_372_036_854_775_808   20  \
(3 windows)
* open (2): provisional until the watermark reaches the window's end

Late events: 1 listed of 1 kept
timestamp                 timestamp_ms  value  window_start_ms  watermark_ms then  batch  \
applied in  source   key       id
1970-01-01T00:00:00.900Z           900     99                0               1100      1           \
-  default  checkout  request-5
";
    let found = report(&fake, Format::Text, &Filter::default());
    assert_eq!(found, expected, "found:\n{found}");
}

#[test]
fn an_empty_store_is_no_error() {
    let found = report(&Fake::empty(), Format::Text, &Filter::default());
    for line in [
        "newest event  none yet",
        "last ingest   none yet",
        "nothing has been taken in yet",
        "Windows: 0 listed of 0",
        "Late events: 0 listed of 0 kept",
    ] {
        assert!(found.lines().any(|found| found == line), "no line {line:?} in:\n{found}");
    }
}

#[test]
fn long_names_stand_whole_and_shift_nothing_before_them() {
    let long = "k".repeat(512);
    let fake = Fake::example().window(&long, 2_000, [1, 2, 2, 2]).late(late_row(
        &"i".repeat(512),
        &long,
        900,
        1,
    ));
    let found = report(&fake, Format::Text, &Filter::default());
    let line = |end: &str| found.lines().find(|line| line.ends_with(end)).unwrap().len();
    assert_eq!(line(&long) - 512, line("20  checkout") - "checkout".len());
    assert!(found.contains(&format!("{long}  {}", "i".repeat(512))));
}

#[test]
fn the_totals_line_is_exact_beyond_64_bits() {
    let fake = Fake::empty().window("a", 0, [i64::MAX, i64::MAX, i64::MAX, i64::MAX]).window(
        "b",
        0,
        [i64::MAX, i64::MAX, i64::MAX, i64::MAX],
    );
    let found = report(&fake, Format::Text, &Filter::default());
    let twice = "18_446_744_073_709_551_614";
    assert!(found.contains(&format!("{twice}  {twice}  9_223_372_036_854_775_807")), "{found}");
}

#[test]
fn what_was_asked_for_is_said() {
    let mut filter = Filter { state: Some(WindowState::Open), ..Filter::default() };
    filter.key = Some(Filter::key_glob("check*").unwrap());
    filter.span.from_ms = Some(0);
    filter.span.to_ms = Some(5000);
    let found = report(&Fake::example(), Format::Text, &filter);
    let asked = ", key check*, starting from 1970-01-01T00:00:00.000Z (0), starting before \
                     1970-01-01T00:00:05.000Z (5000)";
    assert!(found.contains(&format!("Windows: 1 listed of 2{asked}, state open\n")), "{found}");
    assert!(found.contains(&format!("Late events: 1 listed of 1 kept{asked}\n")), "{found}");
}

#[test]
fn the_source_that_holds_the_watermark_back_is_marked() {
    let fake = Fake::example().source("slow, \u{1b}[31m", Some(700)).source("silent", None);
    let found = write_to_string(|out| write_sources(&fake, false, out));
    let holders: Vec<&str> = found.lines().filter(|line| line.starts_with("holds ")).collect();
    assert_eq!(holders.len(), 2, "a title and one source:\n{found}");
    assert!(holders[1].contains("\"slow, \\u001b[31m\""), "{found}");
    assert!(found.contains("-        no event yet"), "{found}");
    assert!(!found.contains('\u{1b}'));
}

#[test]
fn idle_and_awaited_sources_are_told_apart() {
    let fake = Fake::example()
        .source("quiet", Some(700))
        .source("new", None)
        .source("seconds", Some(1_790_000_000))
        .standing("quiet", false, true)
        .standing("new", true, false);
    let found = write_to_string(|out| write_sources(&fake, false, out));
    let since = "since 1970-01-01T00:00:01.000Z";
    for line in [
        format!("idle {since}, does not hold the watermark: quiet"),
        format!("declared {since}, the watermark waits for its first event: new"),
        "timestamps look like seconds, not milliseconds: seconds".to_owned(),
    ] {
        assert!(found.lines().any(|found| found == line), "no {line:?} in:\n{found}");
    }
    let first = |name: &str| {
        let line = found.lines().find(|line| line.contains(&format!("  {name}  "))).unwrap();
        line.split(' ').next().unwrap()
    };
    assert_eq!([first("quiet"), first("new"), first("default")], ["idle", "holds", "holds"]);
}

#[test]
fn a_corrected_window_shows_its_revision() {
    let found = report(&Fake::example().corrected(12), Format::Text, &Filter::default());
    assert!(found.contains("windows       2: 0 final, 1 corrected, 1 open\n"), "{found}");
    assert!(found.contains("0  corrected 12      3   40"), "{found}");
    assert!(found.contains("1000  open*             1    5"), "{found}");
    assert!(found.contains("\ncorrected N: "), "{found}");
}

#[test]
fn late_events_that_were_dropped_are_accounted_for() {
    let found = report(&Fake::example().dropping_late(), Format::Text, &Filter::default());
    assert!(found.contains("1 more were counted, not kept: late_policy is drop"), "{found}");
}

#[test]
fn an_age_has_the_units_that_matter() {
    let ages = [1_234, 61_000, 7_380_000, 180_000_000].map(|ms| age(ms, 0));
    let expected = ["1.234 s", "1 min 1 s", "2 h 3 min", "2 d 2 h"];
    assert_eq!(ages, expected.map(|age| format!("{age} before this report")));
    assert!(age(0, 1).starts_with("after this report"));
    assert!(age(i64::MAX, i64::MIN).ends_with("before this report"));
}
