//! Columns of text, aligned by the width in which a terminal draws them.

use std::io::{self, Write};

use unicode_width::UnicodeWidthStr;

/// How wide a column of names may become; a longer name still stands whole, and shifts the rest
/// of its line.
const MAX_NAME_COLUMNS: usize = 40;

/// One column of a table.
pub(super) struct Column {
    title: &'static str,
    is_right: bool,
    width: usize,
}

impl Column {
    pub(super) fn left(title: &'static str) -> Column {
        Column { title, is_right: false, width: title.width() }
    }

    pub(super) fn right(title: &'static str) -> Column {
        Column { is_right: true, ..Column::left(title) }
    }

    pub(super) fn at_least(self, width: usize) -> Column {
        Column { width: self.width.max(width), ..self }
    }

    pub(super) fn widen(&mut self, cell: &str) {
        let width = cell.width();
        if self.is_right || width <= MAX_NAME_COLUMNS {
            self.width = self.width.max(width);
        }
    }
}

pub(super) fn widen(columns: &mut [Column], cells: &[String]) {
    columns.iter_mut().zip(cells).for_each(|(column, cell)| column.widen(cell));
}

pub(super) fn titles(columns: &[Column], out: &mut dyn Write) -> io::Result<()> {
    let titles: Vec<&str> = columns.iter().map(|column| column.title).collect();
    line(columns, &titles, out)
}

pub(super) fn line<S: AsRef<str>>(
    columns: &[Column],
    cells: &[S],
    out: &mut dyn Write,
) -> io::Result<()> {
    for (at, (column, cell)) in columns.iter().zip(cells).enumerate() {
        let cell = cell.as_ref();
        let is_last = at + 1 == columns.len();
        let missing = column.width.saturating_sub(cell.width());
        let (before, after) = match (column.is_right, is_last) {
            (true, _) => (missing, 0),
            (false, true) => (0, 0),
            (false, false) => (0, missing),
        };
        let gap = if at == 0 { "" } else { "  " };
        write!(out, "{gap}{:before$}{cell}{:after$}", "", "")?;
    }
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_characters_are_counted_as_they_are_drawn() {
        let columns = [Column::left("name").at_least(6), Column::left("x")];
        let lines = {
            let mut out = Vec::new();
            line(&columns, &["漢字", "1"], &mut out).unwrap();
            line(&columns, &["e\u{301}", "2"], &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(lines, "漢字    1\ne\u{301}       2\n");
    }
}
