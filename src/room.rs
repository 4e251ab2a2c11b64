//! How much room is left where something could not be written, in words.

use std::path::Path;

/// How many bytes an ordinary user can still write below that folder or beside that file; none when
/// that cannot be told.
pub fn free_bytes(path: &Path) -> Option<u64> {
    let seen = rustix::fs::statvfs(path).ok()?;
    Some(seen.f_bavail.saturating_mul(seen.f_frsize))
}

/// The words for a disk that is full at `folder`, and what to do: such as `disk full: 12,288 bytes
/// free on /state`.
pub fn is_full(folder: &Path, free_bytes: Option<u64>) -> String {
    let place = folder.display();
    match free_bytes {
        Some(bytes) => format!("disk full: {} bytes free on {place}", grouped(bytes)),
        None => format!("disk full: how much is free on {place} cannot be told"),
    }
}

/// What to do about it.
pub const MAKE_ROOM: &str = "free some space there (or raise its quota), and it goes on by itself";

fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_set_apart() {
        let shown = [0, 999, 1000, 12_288, u64::MAX].map(grouped);
        assert_eq!(shown, ["0", "999", "1,000", "12,288", "18,446,744,073,709,551,615"]);
    }

    #[test]
    fn the_room_of_a_place_is_known_and_that_of_nowhere_is_not() {
        assert!(free_bytes(Path::new("/")).is_some());
        assert_eq!(free_bytes(Path::new("/no/such/place")), None);
        let text = is_full(Path::new("/state"), Some(12_288));
        assert_eq!(text, "disk full: 12,288 bytes free on /state");
    }
}
