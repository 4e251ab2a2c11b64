//! `failed` and `retry`: what was refused, why, and back into the inbox.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::args::{Retry, Where};
use super::{CommandError, Exit, complain, owner, results};
use crate::daemon::state::DaemonState;
use crate::model::refusal::Code;
use crate::query::report;
use crate::spool::moves::{self, Failed};
use crate::spool::name::{shown, shown_path};
use crate::spool::{Spool, accepted_seconds, lock};

/// How many files of one code are shown to a person.
const MOST_FILES: usize = 20;

pub(super) fn list(at: &Where) -> Result<Exit, CommandError> {
    let spool = existing(at)?;
    let all = all(&spool)?;
    // of the reasons only the codes are kept: there can be any number of files
    let mut by_code: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for (failed, number) in all.iter().zip(0..) {
        let reason = reason(&spool, failed);
        let code = reason["code"].as_str().and_then(Code::from_name);
        by_code.entry(code.map_or("without a reason", Code::name)).or_default().push(number);
    }
    let mut out = results();
    for (code, files) in &by_code {
        if !at.json {
            writeln!(out, "{code}: {} file(s)", files.len())?;
        }
        let most = if at.json { files.len() } else { MOST_FILES };
        for number in files.iter().take(most) {
            let failed = &all[*number as usize];
            let reason = reason(&spool, failed);
            if at.json {
                let file = failed.entry.shown();
                writeln!(
                    out,
                    "{}",
                    json!({"failed": file, "bytes": failed.bytes, "reason": reason})
                )?;
            } else {
                print(failed, &reason, &mut out)?;
            }
        }
        if files.len() > most {
            writeln!(out, "  and {} more; --json has all", files.len() - most)?;
        }
    }
    if by_code.is_empty() && !at.json {
        writeln!(out, "nothing has failed")?;
    }
    let peek = lock::peek(spool.root()).unwrap_or_default();
    let state = peek.state.filter(|_| peek.held);
    let state = state.and_then(|state| serde_json::from_slice::<DaemonState>(&state).ok());
    if let Some(state) = state.filter(|state| state.resting > 0) {
        if at.json {
            writeln!(out, "{}", json!({"resting": state.resting_json()}))?;
        } else {
            writeln!(out, "resting in inbox/, tried again later: {} file(s)", state.resting)?;
            for line in state.resting_lines() {
                writeln!(out, "  {line}")?;
            }
        }
    }
    out.flush()?;
    Ok(Exit::Done)
}

fn print(failed: &Failed, reason: &Value, out: &mut dyn Write) -> std::io::Result<()> {
    let text = |name: &str| reason[name].as_str().map(report::visible);
    let when = reason["refused_at_ms"].as_i64().map(report::utc).unwrap_or_default();
    writeln!(out, "  {}  {} bytes  {when}", failed.entry.shown(), failed.bytes)?;
    if let Some(message) = text("message") {
        writeln!(out, "    {message}")?;
    }
    if let Some(hint) = text("hint") {
        writeln!(out, "    hint: {hint}")?;
    }
    let more = reason["more"].as_array().map_or(&[][..], Vec::as_slice);
    let more = more.iter().filter_map(|one| one["message"].as_str());
    for line in other_faults(reason["faults"].as_u64(), reason["all_faults"].as_bool(), more) {
        writeln!(out, "    {line}")?;
    }
    Ok(())
}

/// Of a refused batch with several faults, their number and the messages of those behind the first
/// one, a line each.
pub(super) fn other_faults<'m>(
    faults: Option<u64>,
    all: Option<bool>,
    more: impl Iterator<Item = &'m str>,
) -> Vec<String> {
    let least = if all == Some(false) { "at least " } else { "" };
    let head =
        faults.map(|faults| format!("{least}{faults} events are at fault; the next of them:"));
    let more = more.map(|message| format!("  {}", report::visible(message)));
    head.into_iter().chain(more).collect()
}

fn existing(at: &Where) -> Result<Spool, CommandError> {
    let spool = Spool::at(&at.spool()?);
    if !spool.failed().is_dir() {
        let text = format!("there is no folder {}: is it a spool?", shown_path(spool.failed()));
        return Err(CommandError::new(Exit::Missing, text));
    }
    Ok(spool)
}

fn all(spool: &Spool) -> Result<Vec<Failed>, CommandError> {
    moves::list_failed(spool).map_err(|error| {
        let text = format!("cannot list {}: {error}", shown_path(spool.failed()));
        CommandError::new(Exit::Failed, text)
    })
}

/// The reason beside a failed file; null when there is none, or none that can be read.
fn reason(spool: &Spool, failed: &Failed) -> Value {
    let text = failed.has_reason.then(|| moves::read_reason(spool, failed).ok()).flatten();
    text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or(Value::Null)
}

pub(super) fn retry(at: &Where, command: &Retry) -> Result<Exit, CommandError> {
    owner::refuse_other(at)?;
    let spool = existing(at)?;
    let failed = all(&spool)?;
    let mut exit = Exit::Done;
    let mut chosen: Vec<&Failed> = Vec::new();
    if command.all {
        chosen = failed.iter().collect();
    } else {
        for given in &command.files {
            match failed.iter().find(|failed| names(&spool, failed, given)) {
                Some(failed) => chosen.push(failed),
                None => {
                    let given = shown(given.as_encoded_bytes());
                    let root = shown_path(spool.root());
                    complain(&format!(
                        "{given} is not a failed file; see: windowflow failed --spool {root}"
                    ));
                    exit = Exit::Missing;
                }
            }
        }
    }
    let mut out = results();
    for failed in chosen {
        let entry = &failed.entry;
        let is_meant = || !command.all || reason(&spool, failed)["code"] == Code::Seconds.name();
        if command.accept_seconds
            && is_meant()
            && let Err(error) = accept_seconds(&spool, &failed.path(&spool))
        {
            complain(&format!("failed/{entry} stays: its hash cannot be noted: {error}"));
            exit = Exit::Failed;
            continue;
        }
        match moves::back_to_inbox(&spool, entry) {
            Ok(to) => {
                let to = shown(to.as_os_str().as_encoded_bytes());
                if at.json {
                    writeln!(out, "{}", json!({"failed": entry.shown(), "to": to}))?;
                } else {
                    writeln!(out, "{entry} is back: {to}")?;
                }
            }
            Err(error) => {
                complain(&format!("failed/{entry} stays: {error}"));
                exit = Exit::Failed;
            }
        }
    }
    if let Err(error) = moves::sync_folders(&spool) {
        complain(&format!("the folders cannot be synced: {error}"));
        exit = Exit::Failed;
    }
    out.flush()?;
    Ok(exit)
}

/// Notes the hash of that file, so that the daemon takes this content as it stands.
fn accept_seconds(spool: &Spool, path: &Path) -> std::io::Result<()> {
    let mut hash = Sha256::new();
    std::io::copy(&mut std::fs::File::open(path)?, &mut hash)?;
    accepted_seconds::accept(spool, &format!("{:x}", hash.finalize()))
}

/// Whether that path, or that name as shown, means this file; its reason means it too.
fn names(spool: &Spool, failed: &Failed, given: &OsStr) -> bool {
    let same = |a: &Path, b: &Path| match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => false,
    };
    let path = Path::new(given);
    given.to_str() == Some(&failed.entry.shown())
        || path == failed.entry.path_in(Path::new(""))
        || same(path, &failed.path(spool))
        || failed.reason_path(spool).is_some_and(|reason| same(path, &reason))
}
