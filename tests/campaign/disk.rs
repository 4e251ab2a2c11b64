//! A model of a disk: what the kernel was told to keep, and what of it a power cut may leave.
//!
//! It promises less than any file system in use. Of a file only what a sync of that very file
//! followed is certain: of the rest each sector of 512 bytes may be there or not, in any order, and
//! its size may be any that it had since. That a file was synced says nothing of its name. Names
//! are certain once a folder that they stand in was synced; of the others some of each folder are
//! there, in the order in which they were made. Two things are asked of it: a rename happens whole
//! or not at all, also between two folders, and what stands in a folder is not there without it.
//! All file systems with a journal keep to that; without it nothing could be moved safely at all.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::dice::Dice;

/// What is written whole or not at all.
const SECTOR_BYTES: usize = 512;

/// A file or a folder, whatever its name.
pub type Node = usize;

/// The folder that all stands in.
pub const ROOT: Node = 0;

/// A name in a folder.
pub type Place = (Node, Vec<u8>);

/// What happens to a disk.
#[derive(Clone, Debug)]
pub enum Event {
    /// A new file or folder, which becomes the next node.
    Make { at: Place, is_folder: bool },
    /// Bytes are written.
    Write { node: Node, from: usize, bytes: Arc<[u8]> },
    /// It is made longer or shorter.
    Resize { node: Node, bytes: usize },
    /// It gets another name; what had that name is gone.
    Move { from: Place, to: Place },
    /// It gets one name more.
    Link { node: Node, at: Place },
    /// A name goes.
    Remove { at: Place },
    /// All before it is durable, as far as it is about this file or folder.
    Sync { node: Node },
    /// It was to be, and failed: whether it is, nobody will ever know, nor be told again.
    FailedSync { node: Node },
}

/// When something happened: the numbers of the lines on which a recording has it.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// Where it began.
    pub begun: u64,
    /// Where it had ended.
    pub ended: u64,
}

/// The state of a disk, with how it came to it since all of it was durable.
#[derive(Clone, Debug)]
pub struct Disk {
    files: Vec<Vec<Put>>,
    /// As the kernel shows it; none for what is no folder.
    folders: Vec<Option<BTreeMap<Vec<u8>, Node>>>,
    namings: Vec<Naming>,
}

/// What is left of a disk: folders in the order in which they are to be made, then files.
#[derive(Debug, Default)]
pub struct Left {
    /// Paths below the root.
    pub folders: Vec<Vec<u8>>,
    /// The same, with what is in them.
    pub files: Vec<(Vec<u8>, Vec<u8>)>,
}

#[derive(Clone, Debug)]
struct Put {
    what: What,
    ended: u64,
    fate: Fate,
}

#[derive(Clone, Debug)]
enum What {
    Bytes { from: usize, bytes: Arc<[u8]> },
    Size(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// No sync has followed.
    Open,
    /// It is certain.
    Synced,
    /// A sync of it failed: no later one is about it.
    Doubtful,
}

/// A change of names, in the folders that it touches.
#[derive(Clone, Debug)]
struct Naming {
    removed: Option<Place>,
    added: Option<(Place, Node)>,
    ended: u64,
    is_synced: bool,
}

impl Naming {
    fn folders(&self) -> impl Iterator<Item = Node> {
        let removed = self.removed.as_ref().map(|place| place.0);
        let added = self.added.as_ref().map(|(place, _)| place.0);
        removed.into_iter().chain(added.filter(|added| removed != Some(*added)))
    }

    /// The folder without which nothing of it could be there, where it made one.
    fn makes(&self) -> Option<Node> {
        self.added.as_ref().filter(|_| self.removed.is_none()).map(|(_, node)| *node)
    }
}

impl Disk {
    /// An empty one.
    pub fn new() -> Disk {
        let (files, folders) = (vec![Vec::new()], vec![Some(BTreeMap::new())]);
        Disk { files, folders, namings: Vec::new() }
    }

    /// Makes all that is there durable.
    pub fn settle(&mut self) {
        self.namings.iter_mut().for_each(|naming| naming.is_synced = true);
        self.files.iter_mut().flatten().for_each(|put| put.fate = Fate::Synced);
    }

    /// What has that name in that folder, as the kernel sees it.
    pub fn named(&self, folder: Node, name: &[u8]) -> Option<Node> {
        self.folders.get(folder)?.as_ref()?.get(name).copied()
    }

    /// How long a file is, as the kernel sees it.
    pub fn bytes(&self, node: Node) -> usize {
        self.files[node].iter().fold(0, |bytes, put| put.size_after(bytes))
    }

    /// The last name that it got; nothing for the root.
    pub fn name(&self, node: Node) -> Vec<u8> {
        let mut added = self.namings.iter().rev().filter_map(|naming| naming.added.as_ref());
        added
            .find(|(_, named)| *named == node)
            .map(|(place, _)| place.1.clone())
            .unwrap_or_default()
    }

    /// Whether a power cut may leave something else than what the kernel shows.
    pub fn is_uncertain(&self) -> bool {
        let put = |put: &Put| put.fate != Fate::Synced;
        self.namings.iter().any(|naming| !naming.is_synced) || self.files.iter().flatten().any(put)
    }

    /// The number of the node that is made next.
    pub fn next(&self) -> Node {
        self.files.len()
    }

    /// Something happens to it.
    pub fn apply(&mut self, event: &Event, span: Span) {
        let ended = span.ended;
        let mut put = |node: &Node, what| {
            self.files[*node].push(Put { what, ended, fate: Fate::Open });
        };
        match event {
            Event::Write { node, from, bytes } => {
                put(node, What::Bytes { from: *from, bytes: Arc::clone(bytes) });
            }
            Event::Resize { node, bytes } => put(node, What::Size(*bytes)),
            Event::Make { at, is_folder } => {
                let node = self.next();
                self.files.push(Vec::new());
                self.folders.push(is_folder.then(BTreeMap::new));
                self.rename(None, Some((at.clone(), node)), ended);
            }
            Event::Move { from, to } => {
                if let Some(node) = self.named(from.0, &from.1) {
                    self.rename(Some(from.clone()), Some((to.clone(), node)), ended);
                }
            }
            Event::Link { node, at } => self.rename(None, Some((at.clone(), *node)), ended),
            Event::Remove { at } => self.rename(Some(at.clone()), None, ended),
            Event::Sync { node } if self.folders[*node].is_some() => {
                self.sync_folder(*node, span.begun);
            }
            Event::Sync { node } => self.end_puts(*node, span.begun, Fate::Synced),
            Event::FailedSync { node } => self.end_puts(*node, span.begun, Fate::Doubtful),
        }
    }

    fn rename(&mut self, removed: Option<Place>, added: Option<(Place, Node)>, ended: u64) {
        let naming = Naming { removed, added, ended, is_synced: false };
        rename(&mut self.folders, &naming);
        self.namings.push(naming);
    }

    fn end_puts(&mut self, node: Node, begun: u64, fate: Fate) {
        let open = |put: &&mut Put| put.fate == Fate::Open && put.ended < begun;
        self.files[node].iter_mut().filter(open).for_each(|put| put.fate = fate);
    }

    /// What was done to that folder is durable, and with it what could not be there otherwise.
    fn sync_folder(&mut self, folder: Node, begun: u64) {
        let mut wanted = BTreeSet::from([folder]);
        for naming in self.namings.iter_mut().rev().filter(|naming| naming.ended < begun) {
            let made = naming.makes().is_some_and(|node| wanted.contains(&node));
            if made || naming.folders().any(|folder| wanted.contains(&folder)) {
                naming.is_synced = true;
                wanted.extend(naming.folders());
            }
        }
    }

    /// What the kernel shows.
    pub fn shown(&self) -> Left {
        let all = |node: Node| self.left_of(node, &mut Keep::All);
        gather(&self.folders, all)
    }

    /// What is there when the power comes back.
    pub fn cut(&self, dice: &mut Dice) -> Left {
        let folders = self.names_left(dice);
        gather(&folders, |node| {
            let count = self.files[node].iter().filter(|put| put.fate == Fate::Open).count();
            let mut keep = match dice.below(6) {
                0 => Keep::None,
                1 => Keep::All,
                2 => Keep::First(dice.below(count as u64 + 1) as usize, &mut *dice),
                3 => Keep::Some(&mut *dice),
                _ => Keep::Torn(&mut *dice),
            };
            self.left_of(node, &mut keep)
        })
    }

    fn names_left(&self, dice: &mut Dice) -> Vec<Option<BTreeMap<Vec<u8>, Node>>> {
        let is_folder = |node: Node| self.folders[node].is_some();
        let empty = |node: Node| is_folder(node).then(BTreeMap::new);
        let mut left: Vec<_> = (0..self.folders.len()).map(empty).collect();
        // how many of the uncertain ones of each folder are there
        let mut kept: BTreeMap<Node, u64> = BTreeMap::new();
        for naming in self.namings.iter().filter(|naming| !naming.is_synced) {
            naming.folders().for_each(|folder| *kept.entry(folder).or_default() += 1);
        }
        for count in kept.values_mut() {
            *count = match dice.below(4) {
                0 => 0,
                1 => *count,
                _ => dice.below(*count + 1),
            };
        }
        for naming in &self.namings {
            let has_room = naming.folders().all(|folder| kept.get(&folder).is_none_or(|n| *n > 0));
            if naming.is_synced {
                rename(&mut left, naming);
            } else if has_room {
                rename(&mut left, naming);
                naming.folders().for_each(|folder| {
                    kept.entry(folder).and_modify(|count| *count -= 1);
                });
            } else {
                // nothing behind it, and nothing within
                naming.folders().chain(naming.makes()).for_each(|folder| {
                    kept.insert(folder, 0);
                });
            }
        }
        left
    }

    fn left_of(&self, node: Node, keep: &mut Keep<'_>) -> Vec<u8> {
        let mut image = Vec::new();
        // as it is known to be, and each that it may have
        let mut sizes = vec![0];
        let mut size = 0;
        for put in &self.files[node] {
            if put.fate == Fate::Synced {
                put.lay(&mut image, &mut || true);
                size = put.size_after(size);
                sizes = vec![size];
                continue;
            }
            match keep {
                Keep::None => continue,
                Keep::First(0, _) => continue,
                Keep::First(count, dice) => {
                    let torn = *count == 1 && dice.below(2) == 0;
                    put.lay(&mut image, &mut || !torn || dice.below(2) == 0);
                    *count -= 1;
                }
                Keep::All => put.lay(&mut image, &mut || true),
                Keep::Some(dice) => {
                    let is_kept = dice.below(2) == 0;
                    put.lay(&mut image, &mut || is_kept);
                }
                Keep::Torn(dice) => put.lay(&mut image, &mut || dice.below(2) == 0),
            }
            size = put.size_after(size);
            sizes.push(size);
        }
        if let Keep::Some(dice) | Keep::Torn(dice) = keep {
            size = sizes[dice.below(sizes.len() as u64) as usize];
        }
        image.resize(size, 0);
        image
    }
}

/// What of the uncertain writes to a file is there.
enum Keep<'d> {
    None,
    All,
    /// So many of them; the last one may be torn.
    First(usize, &'d mut Dice),
    /// Each by chance.
    Some(&'d mut Dice),
    /// Each sector of each by chance.
    Torn(&'d mut Dice),
}

impl Put {
    fn size_after(&self, size: usize) -> usize {
        match &self.what {
            What::Bytes { from, bytes } => size.max(from + bytes.len()),
            What::Size(size) => *size,
        }
    }

    /// Brings what is chosen of it to the disk.
    fn lay(&self, image: &mut Vec<u8>, chosen: &mut dyn FnMut() -> bool) {
        let What::Bytes { from, bytes } = &self.what else {
            let What::Size(size) = self.what else { return };
            if chosen() {
                image.resize(size, 0);
            }
            return;
        };
        let (mut at, mut rest) = (*from, &bytes[..]);
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(rest.len().min(SECTOR_BYTES - at % SECTOR_BYTES));
            if chosen() {
                image.resize(image.len().max(at + piece.len()), 0);
                image[at..at + piece.len()].copy_from_slice(piece);
            }
            (at, rest) = (at + piece.len(), behind);
        }
    }
}

fn rename(folders: &mut [Option<BTreeMap<Vec<u8>, Node>>], naming: &Naming) {
    if let Some((folder, name)) = &naming.removed
        && let Some(names) = &mut folders[*folder]
    {
        names.remove(name);
    }
    if let Some(((folder, name), node)) = &naming.added
        && let Some(names) = &mut folders[*folder]
    {
        names.insert(name.clone(), *node);
    }
}

/// Walks through what has a name.
fn gather(
    folders: &[Option<BTreeMap<Vec<u8>, Node>>],
    mut content: impl FnMut(Node) -> Vec<u8>,
) -> Left {
    let mut left = Left::default();
    let mut open = vec![(Vec::new(), ROOT)];
    while let Some((path, node)) = open.pop() {
        for (name, below) in folders[node].iter().flatten() {
            let path = [&path[..], &name[..]].join(&b'/');
            if folders[*below].is_some() {
                left.folders.push(path.clone());
                open.push((path, *below));
            } else {
                left.files.push((path, content(*below)));
            }
        }
    }
    left
}
