//! The inbox, held for one look, and whether files can be moved out of the folders in it.

use std::io;
use std::os::fd::OwnedFd;

use super::{Spool, folder, name};

/// The inbox of a spool.
pub(super) struct Inbox<'a> {
    pub(super) spool: &'a Spool,
    pub(super) held: OwnedFd,
    // where it is mounted; none: the kernel does not tell. That files can be moved from there to
    // done and failed was tried at the start
    mount: Option<u64>,
}

impl<'a> Inbox<'a> {
    pub(super) fn open(spool: &'a Spool) -> io::Result<Inbox<'a>> {
        let held = folder::open(spool.inbox())?;
        let mount = folder::mount_of(&held, "");
        Ok(Inbox { spool, held, mount })
    }

    /// The folder that is another mount than the inbox: the one of a source, which is `held`, or
    /// that of the same name in done or failed. None when there is no such folder.
    pub(super) fn other_mount(&self, held: &OwnedFd, source: &str) -> Option<String> {
        let inbox = self.mount?;
        let differs = |mount: Option<u64>| mount.is_some_and(|mount| mount != inbox);
        if differs(folder::mount_of(held, "")) {
            return Some(format!("inbox/{}", name::shown(source.as_bytes())));
        }
        let bases = [("done", self.spool.done()), ("failed", self.spool.failed())];
        bases.into_iter().find_map(|(name, base)| {
            let is_other = differs(folder::mount_of(rustix::fs::CWD, base.join(source)));
            is_other.then(|| format!("{name}/{}", name::shown(source.as_bytes())))
        })
    }
}
