//! Numbers that look random and are the same for the same seed.

/// A row of numbers that a seed decides (splitmix64).
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The seed of one attempt of a row of the table: neighbours have nothing in common.
    pub fn of_attempt(seed: u64, row: u32, attempt: u64) -> Dice {
        let mut dice = Dice(seed ^ u64::from(row).rotate_left(48));
        let begin = dice.next();
        Dice(begin ^ attempt.wrapping_mul(0xD6E8_FEB8_6659_FD93))
    }

    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}
