//! `verify`: whether what the store says is still right, and mending what can be mended.

use std::io::{self, Write};

use serde_json::{Map, Value, json};

use super::args::{Verify as Arguments, Where};
use super::{Exit, Failure, results};
use crate::report::{grouped, utc};
use crate::spool::Spool;
use crate::spool::name::shown;
use crate::verify::{Verified, Verify};

pub(super) fn run(at: &Where, _command: &Arguments) -> Result<Exit, Failure> {
    let (db, options) = (at.db()?, at.options()?);
    let limits = at.config()?.map(|config| config.limits.for_decoding()).unwrap_or_default();
    // a store of which no spool is known is looked through by itself
    let spool = at.spool().ok().map(|spool| Spool::at(&spool));
    let verify = Verify { db: &db, options: &options, spool: spool.as_ref(), limits };
    let verified = verify.run()?;
    let mut out = results();
    let name = shown(db.as_os_str().as_encoded_bytes());
    match at.json {
        true => print_json(&name, &verified, &mut out)?,
        false => print(&name, &verified, &mut out)?,
    }
    out.flush()?;
    Ok(if verified.checkup.total() == 0 { Exit::Done } else { Exit::Refused })
}

fn print_json(db: &str, verified: &Verified, out: &mut dyn Write) -> io::Result<()> {
    let checkup = &verified.checkup;
    let figures = checkup.figures().iter();
    let checked: Map<String, Value> =
        figures.map(|(name, count)| ((*name).to_owned(), json!(count))).collect();
    let by_code: Map<String, Value> =
        checkup.by_code().map(|(code, count)| (code.name().to_owned(), json!(count))).collect();
    let answer = json!({
        "format": 1,
        "db": db,
        "last_batch": verified.state.map(|(batch, _)| batch),
        "watermark_ms": verified.state.map(|(_, watermark_ms)| watermark_ms),
        "findings": checkup.findings(),
        "findings_in_all": checkup.total(),
        "findings_by_code": by_code,
        "checked": checked,
        "not_checked": checkup.gaps(),
    });
    writeln!(out, "{answer}")
}

fn print(db: &str, verified: &Verified, out: &mut dyn Write) -> io::Result<()> {
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
    let all = checkup.total();
    if all == 0 {
        return writeln!(out, "nothing wrong was found");
    }
    writeln!(out, "\n{} findings", grouped(all))?;
    for finding in checkup.findings() {
        writeln!(out, "\n{}: {}", finding.code, finding.what)?;
        writeln!(out, "  expected  {}", finding.expected)?;
        writeln!(out, "  found     {}", finding.found)?;
        writeln!(out, "  do        {}", finding.advice)?;
    }
    let more = all - checkup.findings().len() as u64;
    if more > 0 {
        writeln!(out, "\nand {} more", grouped(more))?;
    }
    Ok(())
}
