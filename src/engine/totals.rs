//! Count, sum, least and greatest of a window, exact to the last bit or refused.

/// What a window holds. Count and sum are exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    /// How many events, from 1.
    pub count: i64,
    /// Their values added up.
    pub sum: i64,
    /// The least value.
    pub min: i64,
    /// The greatest value.
    pub max: i64,
}

/// What a chunk of events adds to one window, in the order of the events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delta {
    /// How many events, from 1.
    pub count: i64,
    /// Their values added up; wider than a sum may be, so that it is exact on its way.
    pub sum: i128,
    /// The least value.
    pub min: i64,
    /// The greatest value.
    pub max: i64,
    /// The least that the sum was after any of the events.
    pub lowest_sum: i128,
    /// The greatest that the sum was after any of the events.
    pub highest_sum: i128,
}

/// A count or a sum would leave the signed 64-bit range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overflow;

impl Delta {
    /// What one event adds.
    pub fn of(value: i64) -> Delta {
        let sum = i128::from(value);
        Delta { count: 1, sum, min: value, max: value, lowest_sum: sum, highest_sum: sum }
    }

    /// Adds the next event.
    pub fn add(&mut self, value: i64) {
        self.count += 1;
        self.sum += i128::from(value);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        self.lowest_sum = self.lowest_sum.min(self.sum);
        self.highest_sum = self.highest_sum.max(self.sum);
    }

    /// The window's totals afterwards, `before` being none for a window that holds nothing yet.
    ///
    /// # Errors
    /// When after any single one of the events the count or the sum is outside the signed 64-bit
    /// range, even if a later event brings it back.
    pub fn added_to(&self, before: Option<Totals>) -> Result<Totals, Overflow> {
        let start = before.map_or(0, |totals| i128::from(totals.sum));
        let fits = |sum: i128| i64::try_from(start + sum).map_err(|_| Overflow);
        fits(self.lowest_sum)?;
        fits(self.highest_sum)?;
        let count = before.map_or(0, |totals| totals.count);
        Ok(Totals {
            count: count.checked_add(self.count).ok_or(Overflow)?,
            sum: fits(self.sum)?,
            min: before.map_or(self.min, |totals| totals.min.min(self.min)),
            max: before.map_or(self.max, |totals| totals.max.max(self.max)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delta(values: &[i64]) -> Delta {
        let mut delta = Delta::of(values[0]);
        values[1..].iter().for_each(|value| delta.add(*value));
        delta
    }

    fn totals(sum: i64) -> Totals {
        Totals { count: 1, sum, min: sum, max: sum }
    }

    #[test]
    fn a_sum_that_leaves_the_range_for_one_event_is_refused() {
        assert_eq!(delta(&[i64::MAX, 1, -1]).added_to(None), Err(Overflow));
        assert_eq!(delta(&[1, -1]).added_to(Some(totals(i64::MAX))), Err(Overflow));
        assert_eq!(delta(&[-1, 1]).added_to(Some(totals(i64::MIN))), Err(Overflow));
        let brought_back = delta(&[-1, 1]).added_to(Some(totals(i64::MAX))).unwrap();
        assert_eq!(brought_back, Totals { count: 3, sum: i64::MAX, min: -1, max: i64::MAX });
    }

    #[test]
    fn a_count_that_leaves_the_range_is_refused() {
        let full = Totals { count: i64::MAX - 1, ..totals(0) };
        assert_eq!(delta(&[0]).added_to(Some(full)).unwrap().count, i64::MAX);
        assert_eq!(delta(&[0, 0]).added_to(Some(full)), Err(Overflow));
    }

    #[test]
    fn least_and_greatest_are_kept() {
        let after = delta(&[3, -7, 5]).added_to(Some(totals(4))).unwrap();
        assert_eq!(after, Totals { count: 4, sum: 5, min: -7, max: 5 });
    }
}
