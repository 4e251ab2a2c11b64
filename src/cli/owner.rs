//! Who may change a spool and its store: the user who owns them. What another user makes there, root
//! above all, is in the daemon's way later.

use std::env;
use std::path::{Path, PathBuf};

use super::args::Where;
use super::{CommandError, Exit};
use crate::os::owner::{Me, Owner, user_for_sudo};
use crate::spool::name::{shell_word, shown, shown_path};

/// Refuses a command that writes when another user owns the spool or the store. A spool that
/// belongs to root may have been lent to an ordinary user.
pub(super) fn refuse_other(at: &Where) -> Result<(), CommandError> {
    let me = Me::now();
    for path in [at.spool().ok().map(owned_by_daemon), at.db().ok()].into_iter().flatten() {
        // a link in its place says nothing
        let Some(owner) = path.canonicalize().ok().as_deref().and_then(Owner::of) else { continue };
        if may_write(me.uid(), owner.uid) {
            continue;
        }
        let (path, name) = (shown_path(&path), user_for_sudo(owner.uid));
        let text = format!(
            "{path} belongs to {owner}, and this is {me}: what another user writes there is in the \
             way of its owner; run as the owner: sudo -u {name} {}",
            command(at)
        );
        return Err(CommandError::new(Exit::Config, text));
    }
    Ok(())
}

/// Whether that user may write where that one is the owner.
fn may_write(uid: u32, owner: u32) -> bool {
    uid == owner || (owner == 0 && uid != 0)
}

/// The folder of a spool that only its daemon makes and uses; without one, the spool itself.
fn owned_by_daemon(spool: PathBuf) -> PathBuf {
    let done = spool.join("done");
    if done.is_dir() { done } else { spool }
}

/// The command as it was typed, with what variables said: sudo does not pass them on.
fn command(at: &Where) -> String {
    let typed: Vec<String> = env::args_os().map(|arg| shown(arg.as_encoded_bytes())).collect();
    let mut words: Vec<String> = typed.iter().map(|arg| shell_word(arg).into_owned()).collect();
    for (option, variable, path) in
        [("--db", "WINDOWFLOW_DB", &at.db), ("--spool", "WINDOWFLOW_SPOOL", &at.spool)]
    {
        let is_typed = typed.iter().any(|arg| {
            arg.strip_prefix(option).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
        });
        if let (false, true, Some(path)) = (is_typed, env::var_os(variable).is_some(), path) {
            words.extend([option.to_owned(), quoted(path)]);
        }
    }
    words.join(" ")
}

fn quoted(path: &Path) -> String {
    shell_word(&shown_path(path)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_128_root_writes_only_what_is_roots_and_others_what_is_theirs_or_roots() {
        for (uid, owner, expected) in
            [(0, 0, true), (5, 5, true), (0, 5, false), (6, 5, false), (5, 0, true)]
        {
            assert_eq!(may_write(uid, owner), expected, "{uid} where {owner} is the owner");
        }
    }
}
