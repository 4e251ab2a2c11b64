//! Numbers and names packed into blobs, and read back.

use rusqlite::types::Type;

/// Adds a number in as few bytes as it needs: seven bits a byte, the least first.
pub(super) fn put(to: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        to.push(number as u8 | 0x80);
        number >>= 7;
    }
    to.push(number as u8);
}

/// Adds a signed number; small ones of either sign need few bytes.
pub(super) fn put_signed(to: &mut Vec<u8>, number: i64) {
    put(to, ((number << 1) ^ (number >> 63)) as u64);
}

/// How many bytes a signed number needs.
pub(super) fn signed_bytes(number: i64) -> usize {
    let zigzag = ((number << 1) ^ (number >> 63)) as u64;
    (70 - (zigzag | 1).leading_zeros() as usize) / 7
}

/// Adds a name behind its length.
pub(super) fn put_name(to: &mut Vec<u8>, name: &str) {
    put(to, name.len() as u64);
    to.extend_from_slice(name.as_bytes());
}

/// The blob is not what was written.
#[derive(Debug)]
pub(super) struct Damaged;

impl From<Damaged> for rusqlite::Error {
    fn from(_: Damaged) -> rusqlite::Error {
        rusqlite::Error::FromSqlConversionFailure(0, Type::Blob, "a blob is damaged".into())
    }
}

/// Reads a blob from front to back.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlobReader<'b>(pub(super) &'b [u8]);

impl<'b> BlobReader<'b> {
    pub(super) fn is_at_end(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn number(&mut self) -> Result<u64, Damaged> {
        let mut number = 0;
        for (place, byte) in self.0.iter().enumerate().take(10) {
            number |= u64::from(byte & 0x7f) << (7 * place);
            if byte & 0x80 == 0 {
                self.0 = &self.0[place + 1..];
                return Ok(number);
            }
        }
        Err(Damaged)
    }

    pub(super) fn signed(&mut self) -> Result<i64, Damaged> {
        let number = self.number()?;
        Ok((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    pub(super) fn bytes(&mut self, count: u64) -> Result<&'b [u8], Damaged> {
        let count = usize::try_from(count).map_err(|_| Damaged)?;
        let (bytes, rest) = self.0.split_at_checked(count).ok_or(Damaged)?;
        self.0 = rest;
        Ok(bytes)
    }

    pub(super) fn name(&mut self) -> Result<&'b str, Damaged> {
        let length = self.number()?;
        std::str::from_utf8(self.bytes(length)?).map_err(|_| Damaged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_is_read() {
        let numbers = [0, 1, 127, 128, 16_383, 16_384, u64::MAX - 1, u64::MAX];
        let signed = [0, -1, 1, 63, -64, 64, i64::MAX, i64::MIN];
        let mut blob = Vec::new();
        numbers.iter().for_each(|number| put(&mut blob, *number));
        for number in signed {
            let before = blob.len();
            put_signed(&mut blob, number);
            assert_eq!(blob.len() - before, signed_bytes(number), "{number}");
        }
        put_name(&mut blob, "ключ");
        let mut reader = BlobReader(&blob);
        for number in numbers {
            assert_eq!(reader.number().unwrap(), number);
        }
        for number in signed {
            assert_eq!(reader.signed().unwrap(), number);
        }
        assert_eq!(reader.name().unwrap(), "ключ");
        assert!(reader.is_at_end() && reader.number().is_err());
    }

    #[test]
    fn what_is_cut_off_is_damaged() {
        let mut blob = Vec::new();
        put_name(&mut blob, "abc");
        for length in 0..blob.len() {
            assert!(BlobReader(&blob[..length]).name().is_err(), "{length}");
        }
        assert!(BlobReader(&[0xff; 12]).number().is_err());
    }
}
