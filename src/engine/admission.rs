//! Which sources may send events: a rule of whoever runs the engine, not a setting of the store.

/// Which sources may send. A source is known once an event of it was taken in, or it was declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    /// How many sources may be known. The batch that would make one more is refused.
    pub max: u64,
    /// Whether a source that is not known may send. If not, its batch is refused.
    pub accept_new: bool,
}

/// Why a source may not send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotAdmitted {
    /// It is not known, and only known sources may send.
    Unknown,
    /// It would be one more than so many.
    TooMany {
        /// The bound.
        max: u64,
    },
}

impl Admission {
    /// Whether another source may be added to those that are known.
    pub(super) fn one_more(self, known: u64) -> Result<(), NotAdmitted> {
        match self {
            Admission { accept_new: false, .. } => Err(NotAdmitted::Unknown),
            Admission { max, .. } if known >= max => Err(NotAdmitted::TooMany { max }),
            Admission { .. } => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_the_number_that_may_be_known() {
        let admission = Admission { max: 2, accept_new: true };
        assert_eq!(admission.one_more(1), Ok(()));
        assert_eq!(admission.one_more(2), Err(NotAdmitted::TooMany { max: 2 }));
        let closed = Admission { accept_new: false, ..admission };
        assert_eq!(closed.one_more(0), Err(NotAdmitted::Unknown));
    }
}
