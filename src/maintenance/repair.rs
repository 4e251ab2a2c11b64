//! Mends a store where it is certain what belongs into it: runs of ids that its entries tell of,
//! and files whose commit is lost and for which it cannot matter when they come. Anything else is
//! left.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use crate::decode::Limits;
use crate::engine::settings::LateRule;
use crate::engine::{Fact, window};
use crate::model::clock::Clock;
use crate::model::event::HashKey;
use crate::pipeline::ingest::{Ended, Ingest, Mode, Seconds, Unwatched};
use crate::query::done_files;
use crate::query::verify::files::{DoneFile, Unread, read_events};
use crate::query::verify::{Verified, Verify};
use crate::spool::Spool;
use crate::store::audit::FindingCode;
use crate::store::sqlite::SqliteStore;
use crate::store::{Committed, Delivery, Error, Snapshot, SourceRow, Summary};

/// What runs and filters are made of is in the entries.
const RUNS: [FindingCode; 4] = [
    FindingCode::FilterDiffers,
    FindingCode::RunDiffers,
    FindingCode::RunDamaged,
    FindingCode::EntryInNoRun,
];

/// What was done, and what was not.
#[derive(Debug, Default)]
pub struct Repair {
    /// The copy that was made before.
    pub backup: Option<PathBuf>,
    /// The runs of ids were made anew.
    pub rebuilt: bool,
    /// The files that were taken in again.
    pub taken: Vec<(DoneFile, Committed)>,
    /// What was left as it is, and why.
    pub left: Vec<(String, String)>,
}

/// Mends what can be. The caller holds the lock of the spool, and `found` is what was found under
/// it.
///
/// # Errors
/// When the store cannot be read, copied or written; what was mended before that stays so, and the
/// rest is for the next time.
pub fn repair(
    verify: &Verify<'_>,
    spool: &Spool,
    found: Verified,
) -> Result<(Repair, Verified), Error> {
    let mut repair = Repair::default();
    let mut found = found;
    let mends = |code: FindingCode| RUNS.contains(&code) || is_apart(code);
    let others: Vec<&str> =
        found.checkup.by_code().filter(|(code, _)| !mends(*code)).map(|(c, _)| c.name()).collect();
    if !others.is_empty() {
        let why = format!("the store has other damage: {}", others.join(", "));
        leave_all(&mut repair, &found, &why);
        return Ok((repair, found));
    }
    let has_runs = found.checkup.by_code().any(|(code, _)| RUNS.contains(&code));
    let only_filters = found.checkup.by_code().all(|(code, _)| !is_of_entries(code));
    if has_runs && !only_filters && !found.all_against_files {
        let why = "which side is damaged, runs or entries, only the files in done/ could tell, and \
                   not all of them are there";
        leave_all(&mut repair, &found, why);
        return Ok((repair, found));
    }
    let mut store = None;
    if has_runs {
        repair.backup = Some(back_up(verify.db)?);
        let opened = SqliteStore::open(verify.db, verify.options.clone())?;
        store.insert(opened).rebuild_runs()?;
        drop(store.take());
        repair.rebuilt = true;
        found = verify.run()?;
    }
    if found.lost.is_empty() {
        let others: Vec<&str> = found.checkup.by_code().map(|(code, _)| code.name()).collect();
        if !others.is_empty() {
            let why = format!("nothing that is certain mends {}", others.join(", "));
            leave_all(&mut repair, &found, &why);
        }
        return Ok((repair, found));
    }
    if !found.checkup.by_code().all(|(code, _)| is_apart(code)) {
        leave_all(&mut repair, &found, "the store has other damage");
        return Ok((repair, found));
    }
    let left = Plan::of(verify, spool, &found)?.reasons();
    if !left.is_empty() {
        repair.left.extend(left);
        return Ok((repair, found));
    }
    if repair.backup.is_none() {
        repair.backup = Some(back_up(verify.db)?);
    }
    let mut store = SqliteStore::open(verify.db, verify.options.clone())?;
    let mut last = found.state.map_or(0, |(last, _)| last);
    for file in &found.lost {
        // what was planned holds for that state only
        if verify.look_again()?.last_number()? != last {
            let why = "somebody else wrote to the store meanwhile: run it again".to_owned();
            repair.left.push((format!("done/{}", file.entry), why));
            continue;
        }
        last += 1;
        match take_in(&mut store, file, spool.done(), &verify.limits)? {
            Ok(committed) => repair.taken.push((file.clone(), committed)),
            Err(why) => repair.left.push((format!("done/{}", file.entry), why)),
        }
    }
    drop(store);
    let after = verify.run()?;
    Ok((repair, after))
}

/// What is no matter of what the store holds of batches.
fn is_apart(code: FindingCode) -> bool {
    matches!(
        code,
        FindingCode::LostCommit | FindingCode::RefusalMissing | FindingCode::FailedWithoutReason
    )
}

/// Where runs and entries disagree, either may be the damaged one.
fn is_of_entries(code: FindingCode) -> bool {
    matches!(code, FindingCode::RunDiffers | FindingCode::RunDamaged | FindingCode::EntryInNoRun)
}

fn leave_all(repair: &mut Repair, found: &Verified, why: &str) {
    if found.lost.is_empty() {
        repair.left.push(("the store".to_owned(), why.to_owned()));
    }
    for file in &found.lost {
        repair.left.push((format!("done/{}", file.entry), why.to_owned()));
    }
}

/// Copies the store beside itself, under a name that is free.
fn back_up(db: &Path) -> Result<PathBuf, Error> {
    for number in 1..1000 {
        let mut name = db.as_os_str().to_owned();
        name.push(format!(".before-repair-{number}"));
        let to = PathBuf::from(name);
        if to.symlink_metadata().is_err() {
            SqliteStore::backup(db, &to, &mut |_, _| {})?;
            return Ok(to);
        }
    }
    let text = format!("{}: there are too many copies from earlier repairs", db.display());
    Err(Error::Io(text))
}

/// Takes one file in, as a batch of its own.
fn take_in(
    store: &mut SqliteStore,
    file: &DoneFile,
    done: &Path,
    limits: &Limits,
) -> Result<Result<Committed, String>, Error> {
    let opened = match done_files::open(done, &file.entry) {
        Ok(opened) => opened,
        Err(error) => return Ok(Err(error.to_string())),
    };
    let delivery = Delivery::fresh(file.entry.shown(), file.entry.source().to_owned())
        .map_err(|error| Error::Io(format!("cannot draw a random token: {error}")))?;
    let limits = Limits { max_file_bytes: None, ..limits.clone() };
    let now_ms = Clock::System.now_ms();
    let ingest = Ingest {
        delivery: &delivery,
        limits,
        mode: Mode::Commit,
        admission: None,
        now_ms,
        seconds: Seconds::Accept,
    };
    match ingest.run(store, opened, &mut Unwatched) {
        Ok(Ended::Committed(committed)) => Ok(Ok(committed)),
        Ok(Ended::Refused(refused)) => Ok(Err(refused.refusal.message)),
        Ok(other) => Ok(Err(format!("{other:?}"))),
        Err(crate::pipeline::ingest::IngestError::Store(error)) => Err(error),
        Err(error) => Ok(Err(error.to_string())),
    }
}

/// What is known of a lost file before any is taken in.
struct Look {
    name: String,
    source: String,
    /// Why it cannot be taken in whatever the others are.
    why_not: Option<String>,
    least_end_ms: i64,
    least_ms: i64,
    greatest_ms: i64,
}

/// The lost files together.
struct Plan {
    looks: Vec<Look>,
    /// The watermark once all of them are in, in whatever order.
    watermark_ms: i64,
    summary: Summary,
    /// When the last batch that is not lost was committed, and now: the moment at which a lost file
    /// was judged lies between.
    then_ms: i64,
}

impl Plan {
    fn of(verify: &Verify<'_>, spool: &Spool, found: &Verified) -> Result<Plan, Error> {
        let snapshot = verify.look_again()?;
        let (summary, sources) = (snapshot.summary()?, snapshot.sources()?);
        let mut lookup = snapshot.lookup()?;
        let mut by_source: BTreeMap<String, i64> = BTreeMap::new();
        let (mut seen, key) = (HashSet::new(), HashKey::default());
        let mut looks = Vec::new();
        for file in &found.lost {
            let mut look = Look {
                name: format!("done/{}", file.entry),
                source: file.entry.source().to_owned(),
                why_not: None,
                least_end_ms: i64::MAX,
                least_ms: i64::MAX,
                greatest_ms: i64::MIN,
            };
            let (done, entry) = (spool.done(), &file.entry);
            let read =
                read_events(done, entry, &verify.limits, &mut lookup, &mut |chunk, facts| {
                    for (event, fact) in chunk.iter().zip(facts) {
                        match fact {
                            Fact::Seen(seen) if seen.same_payload => continue,
                            Fact::Seen(_) => {
                                look.deny(format!("id {:?} is in with others", event.id))
                            }
                            Fact::New => {}
                        }
                        if !seen.insert(key.hash(event.id)) {
                            look.deny(format!(
                                "id {:?} comes more than once in lost files",
                                event.id
                            ));
                        }
                        let settings = &summary.settings;
                        let start_ms = window::start_ms(event.timestamp_ms, settings.window_ms());
                        let end_ms = match settings.late_rule() {
                            LateRule::Window => window::end_ms(start_ms, settings.window_ms()),
                            LateRule::Event => event.timestamp_ms + 1,
                        };
                        look.least_end_ms = look.least_end_ms.min(end_ms);
                        look.least_ms = look.least_ms.min(event.timestamp_ms);
                        look.greatest_ms = look.greatest_ms.max(event.timestamp_ms);
                        let source = event.source.unwrap_or(&look.source);
                        let last_ms = by_source.entry(source.to_owned()).or_insert(i64::MIN);
                        *last_ms = (*last_ms).max(event.timestamp_ms);
                    }
                })?;
            match read {
                Ok(()) => {}
                Err(Unread::Gone) => look.deny("it is gone".to_owned()),
                Err(Unread::NoBatch(why)) => look.deny(format!("it cannot be read: {why}")),
            }
            looks.push(look);
        }
        let new = by_source.keys().find(|name| !is_active(&sources, name)).cloned();
        if let Some(new) = new {
            let why = format!(
                "source {new:?} was idle or had sent nothing: how far the watermark came depends \
                 on when its events came"
            );
            looks.iter_mut().for_each(|look| look.deny(why.clone()));
        }
        let watermark_ms = reached(&summary, &sources, &by_source);
        let then_ms = summary.last_ingest_at_ms.unwrap_or(0).min(Clock::System.now_ms());
        Ok(Plan { looks, watermark_ms, summary, then_ms })
    }

    /// Why files cannot be taken in; none of them is unless all can.
    fn reasons(self) -> Vec<(String, String)> {
        let settings = &self.summary.settings;
        let watermark_ms = self.watermark_ms;
        let ahead_ms = settings.max_future_ms().map(|ms| self.then_ms.saturating_add(ms));
        let horizon_ms = settings.dedup_horizon_ms().map(|ms| watermark_ms.saturating_sub(ms));
        let why = |look: &Look| {
            if let Some(why) = &look.why_not {
                return Some(why.clone());
            }
            if look.least_end_ms <= watermark_ms
                || horizon_ms.is_some_and(|oldest_ms| look.least_ms < oldest_ms)
            {
                return Some(format!(
                    "it has events for windows that end by {watermark_ms}, where the watermark is \
                     once all lost files are in: whether they came late depends on the order"
                ));
            }
            if ahead_ms.is_some_and(|ahead_ms| look.greatest_ms > ahead_ms) {
                return Some("it has events that may have been held as too far ahead".to_owned());
            }
            None
        };
        let reasons: Vec<Option<String>> = self.looks.iter().map(why).collect();
        if reasons.iter().all(Option::is_none) {
            return Vec::new();
        }
        let other = "another lost file may have to come before it".to_owned();
        let named = self.looks.iter().zip(reasons);
        named.map(|(look, why)| (look.name.clone(), why.unwrap_or(other.clone()))).collect()
    }
}

impl Look {
    fn deny(&mut self, why: String) {
        self.why_not.get_or_insert(why);
    }
}

fn is_active(sources: &[SourceRow], name: &str) -> bool {
    let is_it = |row: &&SourceRow| row.source == name && !row.idle;
    sources.iter().find(is_it).is_some_and(|row| row.max_timestamp_ms.is_some())
}

/// Where the watermark is when all is in. All of these sources hold it back already, so the order
/// in which their files come is no matter of it.
fn reached(summary: &Summary, sources: &[SourceRow], more: &BTreeMap<String, i64>) -> i64 {
    let active = || sources.iter().filter(|row| !row.idle);
    if active().any(|row| row.declared && row.max_timestamp_ms.is_none()) {
        return summary.watermark_ms;
    }
    let of = |row: &SourceRow| row.max_timestamp_ms.max(more.get(&row.source).copied());
    let least_ms = active().filter_map(of).min().or(sources.iter().filter_map(of).max());
    let lateness_ms = summary.settings.lateness_ms();
    let reached_ms = least_ms.map_or(0, |ms| ms.saturating_sub(lateness_ms));
    summary.watermark_ms.max(reached_ms)
}
