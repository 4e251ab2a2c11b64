//! `verify`: whether what the store says is still right, and mending what can be mended.

use std::io::{self, Write};

use serde_json::{Map, Value, json};

use super::args::{Verify as Arguments, Where};
use super::{CommandError, Exit, owner, results, store_in};
use crate::maintenance::repair::{Repair, repair};
use crate::query::report::{grouped, utc};
use crate::query::verify::{Verified, Verify};
use crate::spool::Spool;
use crate::spool::lock::{Lock, LockError};
use crate::spool::name::{shell_word, shown};
use crate::store::audit::Finding;

pub(super) fn run(at: &Where, command: &Arguments) -> Result<Exit, CommandError> {
    let (db, options) = (at.db()?, at.options()?);
    let limits = at.config()?.map(|config| config.limits.for_decoding()).unwrap_or_default();
    // a store of which no spool is known is looked through by itself
    let spool = at.spool().ok().map(|spool| Spool::at(&spool));
    let verify = Verify { db: &db, options: &options, spool: spool.as_ref(), limits };
    let (repaired, verified) = match (command.repair, &spool) {
        (false, _) => (None, verify.run()?),
        (true, Some(spool)) => {
            owner::refuse_other(at)?;
            mend(&verify, spool)?
        }
        // it says which options name one
        (true, None) => return at.spool().map(|_| Exit::Usage),
    };
    let mut out = results();
    let name = shown(db.as_os_str().as_encoded_bytes());
    match at.json {
        true => print_json(at, &name, &verified, repaired.as_ref(), &mut out)?,
        false => {
            if let Some(repaired) = &repaired {
                print_repair(&name, repaired, &mut out)?;
            }
            print(at, &name, &verified, &mut out)?;
        }
    }
    out.flush()?;
    Ok(if verified.checkup.total() == 0 { Exit::Done } else { Exit::Refused })
}

/// Mends what can be, while no daemon can start.
fn mend(verify: &Verify<'_>, spool: &Spool) -> Result<(Option<Repair>, Verified), CommandError> {
    if !spool.root().is_dir() {
        let root = shown(spool.root().as_os_str().as_encoded_bytes());
        return Err(CommandError::new(Exit::Missing, format!("there is no spool at {root}")));
    }
    let _lock = Lock::take(spool.root()).map_err(|error| match error {
        LockError::Held { .. } => CommandError::new(Exit::Again, error.to_string()),
        LockError::Io { .. } => CommandError::new(Exit::Failed, error.to_string()),
    })?;
    let found = verify.run()?;
    let (repaired, verified) = repair(verify, spool, found)?;
    Ok((Some(repaired), verified))
}

/// What to do about a finding, with its commands as they are to be typed here.
fn advice(at: &Where, finding: &Finding) -> String {
    let mut place = String::new();
    let own = at.spool.as_deref().map(store_in);
    let db = at.db.as_ref().filter(|db| own.as_ref() != Some(db));
    for (option, path) in [("config", at.config.as_ref()), ("spool", at.spool.as_ref()), ("db", db)]
    {
        if let Some(path) = path {
            let path = shown(path.as_os_str().as_encoded_bytes());
            place.push_str(&format!(" --{option} {}", shell_word(&path)));
        }
    }
    let file = shell_word(finding.what.strip_prefix("failed/").unwrap_or("FILE"));
    finding
        .advice
        .replace("`windowflow verify --repair`", &format!("`windowflow verify --repair{place}`"))
        .replace("`windowflow retry`", &format!("`windowflow retry {file}{place}`"))
}

fn print_repair(db: &str, repair: &Repair, out: &mut dyn Write) -> io::Result<()> {
    if let Some(backup) = &repair.backup {
        let backup = shown(backup.as_os_str().as_encoded_bytes());
        writeln!(out, "copied to {backup}, as it was")?;
    }
    if repair.rebuilt {
        writeln!(out, "runs and filters of ids: made anew from what came with the ids")?;
    }
    for (file, committed) in &repair.taken {
        let (batch, counts) = (committed.batch, &committed.counts);
        writeln!(out, "done/{}: taken in again, as batch {batch}: {counts}", file.entry)?;
    }
    if !repair.taken.is_empty() {
        writeln!(
            out,
            "note: what was done by hand after the last batch that was left (advance, release, \
             discard, late --apply, sources that came and went) would be lost as well, and nothing \
             shows whether there was any: the daemon's log and those who did it know; do it again"
        )?;
    }
    for (what, why) in &repair.left {
        writeln!(out, "{what}: left as it is: {why}")?;
    }
    if !repair.left.is_empty() {
        writeln!(
            out,
            "where the store is a restored backup, put what is in done/ only back into the inbox, \
             in the order of the daemon's log (README, 'Backup'); else what was left can be mended \
             by a new store only, from a backup or from done/:\n  \
             windowflow backup {db}.damaged --db {db}     # keep what there is\n  \
             windowflow init --spool NEW --window-ms ... --lateness-ms ...  # its settings\n  \
             then put the files of done/ into NEW/inbox in the order in which they came first (the \
             receipts and the daemon's log tell), and run windowflow run --spool NEW --once"
        )?;
    } else if repair.backup.is_none() {
        writeln!(out, "there was nothing to mend")?;
    }
    writeln!(out)
}

fn print_json(
    at: &Where,
    db: &str,
    verified: &Verified,
    repair: Option<&Repair>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let checkup = &verified.checkup;
    let figures = checkup.figures().iter();
    let checked: Map<String, Value> =
        figures.map(|(name, count)| ((*name).to_owned(), json!(count))).collect();
    let by_code: Map<String, Value> =
        checkup.by_code().map(|(code, count)| (code.name().to_owned(), json!(count))).collect();
    let told = |finding: &Finding| {
        let mut told = json!(finding);
        told["do"] = advice(at, finding).into();
        told
    };
    let findings = checkup.findings().iter().map(told);
    let mut answer = json!({
        "format": 1,
        "db": db,
        "last_batch": verified.state.map(|(batch, _)| batch),
        "watermark_ms": verified.state.map(|(_, watermark_ms)| watermark_ms),
        "findings": findings.collect::<Vec<_>>(),
        "findings_in_all": checkup.total(),
        "findings_by_code": by_code,
        "notes": checkup.notes().iter().map(told).collect::<Vec<_>>(),
        "notes_in_all": checkup.notes_in_all(),
        "checked": checked,
        "not_checked": checkup.gaps(),
    });
    if let Some(repair) = repair {
        let taken = repair.taken.iter().map(|(file, committed)| {
            let (batch, counts) = (committed.batch, &committed.counts);
            json!({"file": file.entry.shown(), "batch": batch, "counts": counts})
        });
        let left = repair.left.iter().map(|(what, why)| json!({"what": what, "why": why}));
        let backup = repair.backup.as_ref().map(|path| shown(path.as_os_str().as_encoded_bytes()));
        answer["repair"] = json!({
            "backup": backup,
            "runs_made_anew": repair.rebuilt,
            "taken_in_again": taken.collect::<Vec<_>>(),
            "left": left.collect::<Vec<_>>(),
        });
    }
    writeln!(out, "{answer}")
}

fn print(at: &Where, db: &str, verified: &Verified, out: &mut dyn Write) -> io::Result<()> {
    let checkup = &verified.checkup;
    match verified.state {
        Some((batch, watermark_ms)) => {
            let at = utc(watermark_ms);
            writeln!(out, "{db}, up to batch {batch}, watermark {watermark_ms} ({at})")?;
        }
        None => writeln!(out, "{db}")?,
    }
    let figures = checkup.figures().iter();
    let checked: Vec<String> =
        figures.map(|(name, n)| format!("{} {}", grouped(*n), name.replace('_', " "))).collect();
    writeln!(out, "checked: {}", checked.join(", "))?;
    for gap in checkup.gaps() {
        writeln!(out, "not checked: {gap}")?;
    }
    for note in checkup.notes() {
        writeln!(
            out,
            "note: {}: {}: expected {}, found {}",
            note.code, note.what, note.expected, note.found
        )?;
    }
    let more = checkup.notes_in_all() - checkup.notes().len() as u64;
    if more > 0 {
        writeln!(out, "and {} more notes", grouped(more))?;
    }
    let all = checkup.total();
    if all == 0 {
        return writeln!(out, "nothing wrong was found");
    }
    writeln!(out, "\nfindings: {}", grouped(all))?;
    for finding in checkup.findings() {
        writeln!(out, "\n{}: {}", finding.code, finding.what)?;
        writeln!(out, "  expected  {}", finding.expected)?;
        writeln!(out, "  found     {}", finding.found)?;
        writeln!(out, "  do        {}", advice(at, finding))?;
    }
    let more = all - checkup.findings().len() as u64;
    if more > 0 {
        writeln!(out, "\nand {} more", grouped(more))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_one_for_a_shell() {
        assert_eq!(shell_word("spool/a-1.json"), "spool/a-1.json");
        assert_eq!(shell_word("my spool"), "'my spool'");
        assert_eq!(shell_word("it's; rm"), "'it'\\''s; rm'");
    }
}
