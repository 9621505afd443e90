//! Tables for people: aligned, as wide as the terminal, one line a row, the status in colour.

use std::{io, iter};

use chrono::{DateTime, Utc};
use serde::Serialize;

use super::cell::{Cell, TimeForm};
use super::colour::is_coloured;
use super::fields::{Fields, columns};
use super::fit::{cut_end, cut_middle, take_line, width_of};

/// Important columns: a table leaves them out only if all their cells are empty. It also leaves out
/// those with times on a terminal narrower than `NARROW`.
const IMPORTANT: [&str; 17] = [
    "incident",
    "job",
    "jobs",
    "status",
    "run status",
    "failures",
    "dead",
    "error",
    "cause",
    "last line",
    "first",
    "last",
    "ended",
    "due",
    "since",
    "usual",
    "usual end",
];
/// Spare columns: a table that is too wide leaves them out first, before the columns with times.
const SPARE: [&str; 7] =
    ["queue", "share", "shares", "worker", "workers", "time zone", "last result"];
/// Columns whose cells are shortened in the middle.
const NAMES: [&str; 5] = ["job", "queue", "worker", "share", "name"];
/// The minimum width of a table.
const NARROWEST: u16 = 40;
/// On a terminal of at least this width, important columns with times stay, too.
const NARROW: usize = 80;
/// The minimum width of a text column, unless a terminal is too narrow even for that.
const TEXT_WIDTH: usize = 24;
/// An error up to this width is shown whole, even if times are left out.
const WHOLE_WIDTH: usize = 60;
/// The width of a text column on a terminal that is too narrow.
const NARROW_TEXT: usize = 8;
const PADDING: usize = 2;

/// How people see rows.
#[derive(Clone, Copy)]
pub(crate) struct Table<'a> {
    /// Fields with their headings, as in a SELECT list.
    columns: &'a str,
    /// Printed if there is no row.
    pub(super) none: &'a str,
    /// The database's present time. If it is set, times are shown by their distance from it.
    now: Option<DateTime<Utc>>,
    /// Whether long texts are wrapped. Otherwise they are cut.
    wraps: bool,
    /// Whether a narrow terminal shows all columns, because a person named them.
    shows_all: bool,
}

impl<'a> Table<'a> {
    pub(crate) const fn new(columns: &'a str, none: &'a str) -> Self {
        Self { columns, none, now: None, wraps: false, shows_all: false }
    }

    /// Shows times by their distance from `now`.
    pub(crate) fn since(self, now: Option<DateTime<Utc>>) -> Self {
        Self { now, ..self }
    }

    /// Shows other columns, and leaves none of them out.
    pub(crate) fn with(self, columns: &'a str) -> Self {
        Self { columns, shows_all: true, ..self }
    }

    /// Wraps long texts instead of cutting them.
    pub(crate) fn wrapped(self) -> Self {
        Self { wraps: true, ..self }
    }

    /// Returns the table in the width of the terminal.
    pub(super) fn show<T: Serialize>(&self, rows: &[T]) -> anyhow::Result<String> {
        let header: Vec<_> = columns(self.columns).map(|(heading, _)| heading).collect();
        let cells = |row: &T| {
            let cells = Fields::of(row)?.cells(self.columns, self.now);
            Ok(cells.into_iter().map(|(_, cell)| cell).collect())
        };
        let rows = rows.iter().map(cells).collect::<anyhow::Result<Vec<Vec<_>>>>()?;
        if header.len() == 1 {
            // A table of one column needs no heading.
            return Ok(rows.iter().flatten().map(|cell| cell.bare() + "\n").collect());
        }
        Ok(self.table(&header, &rows))
    }

    /// Returns the lines of a table with a header.
    fn table(&self, header: &[&str], rows: &[Vec<Cell>]) -> String {
        let is_coloured = is_coloured(&io::stdout());
        let width = rustix::termios::tcgetwinsize(io::stdout())
            .ok()
            .map(|size| size.ws_col)
            .filter(|width| *width > 0)
            .map_or(usize::MAX, |width| width.max(NARROWEST).into());
        let layout = Layout::fitting(header, rows, self, width);
        let headings: Vec<_> = header.iter().map(|name| Cell::Text(name.to_uppercase())).collect();
        let rows = iter::once(&headings).chain(rows);
        rows.map(|row| self.lines(header, row, &layout, is_coloured)).collect()
    }

    /// Returns the lines of one row: several if a text is wrapped.
    fn lines(&self, header: &[&str], row: &[Cell], layout: &Layout, is_coloured: bool) -> String {
        let shown = layout.columns.iter().zip(&layout.widths);
        let cells = shown.filter_map(|(column, width)| {
            let cell = row.get(*column)?;
            let text = cell.text(layout.times);
            let fitted = if self.wraps {
                text
            } else if NAMES.contains(&header[*column]) {
                cut_middle(&text, *width)
            } else {
                cut_end(&text, *width)
            };
            Some((cell, fitted, *width))
        });
        let mut cells: Vec<_> = cells.collect();
        let mut lines = String::new();
        // Take one line of each cell after the other, until all texts are used up.
        while cells.iter().any(|(_, rest, _)| !rest.is_empty()) {
            for (cell, rest, width) in &mut cells {
                let line = take_line(rest, *width);
                let padding = " ".repeat(width.saturating_sub(width_of(&line)));
                let text = if is_coloured { cell.in_colour(line) } else { line };
                lines += &if cell.is_right_aligned() {
                    format!(" {padding}{text} ")
                } else {
                    format!(" {text}{padding} ")
                };
            }
            lines.truncate(lines.trim_end().len());
            lines.push('\n');
        }
        lines
    }
}

/// What a layout must know of a column.
struct Column<'a> {
    /// Its place in the header, from 0.
    number: usize,
    name: &'a str,
    /// The width of its widest cell with long times.
    long_width: usize,
    /// The width of its widest cell with short times.
    short_width: usize,
    is_empty: bool,
    /// Whether its cells can be cut.
    is_text: bool,
    is_time: bool,
    is_number: bool,
    is_important: bool,
}

impl<'a> Column<'a> {
    fn of((number, name): (usize, &&'a str), rows: &[Vec<Cell>], width: usize) -> Self {
        let cells = || rows.iter().filter_map(|row| row.get(number));
        let widest = |times| {
            let widths = cells().map(|cell| width_of(&cell.text(times)));
            widths.max().unwrap_or_default().max(name.len())
        };
        let is_empty = cells().all(|cell| matches!(cell, Cell::Nothing));
        let is_time = cells().all(|cell| matches!(cell, Cell::Nothing) || cell.is_time());
        Self {
            number,
            name,
            long_width: widest(TimeForm::Long),
            short_width: widest(TimeForm::Short),
            is_empty,
            is_important: IMPORTANT.contains(name) && !is_empty && (width >= NARROW || !is_time),
            is_text: !cells().any(Cell::is_whole),
            is_time,
            is_number: cells().any(|cell| matches!(cell, Cell::Number(..) | Cell::Whole(_))),
        }
    }

    fn width(&self, times: TimeForm) -> usize {
        match times {
            TimeForm::Long => self.long_width,
            TimeForm::Short => self.short_width,
        }
    }

    /// Returns the width if an error is cut to `most`, and another text to `TEXT_WIDTH`.
    fn cut_width(&self, times: TimeForm, most: usize) -> usize {
        match self.name {
            _ if !self.is_text => self.width(times),
            "error" => self.width(times).min(most),
            _ => self.width(times).min(TEXT_WIDTH),
        }
    }
}

/// What a table shows on a terminal of a certain width.
#[derive(Debug, Eq, PartialEq)]
struct Layout {
    /// Numbers of the columns.
    columns: Vec<usize>,
    times: TimeForm,
    /// The width of each column in `columns`, without padding.
    widths: Vec<usize>,
}

impl Layout {
    /// Fits a table into a width. Takes these steps in order, until the table fits:
    ///
    /// 1. Leave out empty columns.
    /// 2. Shorten times.
    /// 3. Cut texts, from the right, and the error last.
    /// 4. Leave out spare columns, unless texts wrap.
    /// 5. Leave out columns with times, from the right.
    /// 6. Leave out numbers, from the left.
    /// 7. Leave out texts, from the right, unless they wrap.
    /// 8. Cut the other texts further, the job and the cause last.
    ///
    /// The first column stays.
    fn fitting(header: &[&str], rows: &[Vec<Cell>], table: &Table<'_>, width: usize) -> Self {
        let mut columns: Vec<_> =
            header.iter().enumerate().map(|named| Column::of(named, rows, width)).collect();
        let times = leave_out_columns(&mut columns, table, width);
        let widths = cut_widths(&columns, times, table, width);
        let columns = columns.iter().map(|column| column.number).collect();
        Self { columns, times, widths }
    }
}

/// Leaves out columns until the others fit, but never the first one. Returns the form of times in
/// which they fit, or the short form if they do not fit at all.
fn leave_out_columns(columns: &mut Vec<Column<'_>>, table: &Table<'_>, width: usize) -> TimeForm {
    // Returns whether the columns fit if errors are cut to the width `most`.
    let fits = |columns: &[Column<'_>], times, most| {
        let widths = columns.iter().map(|column| PADDING + column.cut_width(times, most));
        widths.sum::<usize>() <= width
    };
    // Leaves out columns until the others fit, and returns whether they do. `find` returns the
    // place of the next column to leave out.
    let mut leave_out = |times, most, find: fn(&[Column<'_>]) -> Option<usize>| {
        while !table.shows_all && !fits(columns, times, most) {
            let Some(place) = find(&columns[1..]) else { break };
            columns.remove(place + 1);
        }
        fits(columns, times, most)
    };
    let fits_with_long_times = leave_out(TimeForm::Long, WHOLE_WIDTH, |columns| {
        columns.iter().rposition(|column| column.is_empty)
    });
    let times = if fits_with_long_times { TimeForm::Long } else { TimeForm::Short };
    if !table.wraps {
        leave_out(times, WHOLE_WIDTH, |columns| {
            columns.iter().rposition(|column| SPARE.contains(&column.name))
        });
    }
    leave_out(times, WHOLE_WIDTH, |columns| {
        columns.iter().rposition(|column| column.is_time && !column.is_important)
    });
    leave_out(times, TEXT_WIDTH, |columns| {
        columns.iter().position(|column| column.is_number && !column.is_important)
    });
    if !table.wraps {
        leave_out(times, TEXT_WIDTH, |columns| {
            columns.iter().rposition(|column| !column.is_important)
        });
    }
    times
}

/// Returns the widths of the columns. Texts are only as short as the table's width requires.
fn cut_widths(
    columns: &[Column<'_>],
    times: TimeForm,
    table: &Table<'_>,
    width: usize,
) -> Vec<usize> {
    let mut widths: Vec<_> = columns.iter().map(|column| column.width(times)).collect();
    // The places of the columns with texts, from the right.
    let mut to_cut: Vec<_> = (0..columns.len()).rev().filter(|i| columns[*i].is_text).collect();
    let total = |widths: &[usize]| widths.iter().map(|width| PADDING + width).sum::<usize>();
    if table.wraps {
        // Narrow the widest column first, so that all texts wrap into about as many lines.
        while total(&widths) > width
            && let Some(widest) = to_cut.iter().max_by_key(|i| widths[**i])
            && widths[*widest] > NARROW_TEXT
        {
            widths[*widest] -= 1;
        }
        to_cut.clear();
    }
    for (least, cut_last) in [(TEXT_WIDTH, &["error"][..]), (NARROW_TEXT, &["job", "cause"])] {
        to_cut.sort_by_key(|i| cut_last.contains(&columns[*i].name));
        for i in &to_cut {
            let can_lose = widths[*i].saturating_sub(least);
            let must_lose = total(&widths).saturating_sub(width);
            widths[*i] -= can_lose.min(must_lose);
        }
    }
    widths
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn text(text: &str) -> Cell {
        Cell::Text(text.to_owned())
    }

    #[track_caller]
    fn fits(width: usize, columns: &[usize], times: TimeForm, [job, error]: [usize; 2]) {
        let now = DateTime::UNIX_EPOCH;
        let row = vec![
            Cell::Number("1234".to_owned(), None),
            text("cleanup_temporary_files_nightly"),
            Cell::Status("succeeded".to_owned()),
            Cell::Whole("1/10".to_owned()),
            Cell::Time(now, Some(now + Duration::from_secs(200))),
            Cell::Length(Duration::from_secs(1)),
            text("cannot connect to 127.0.0.1:9: Connection refused"),
        ];
        let header = ["id", "job", "status", "attempts", "created", "run time", "error"];
        let layout = Layout::fitting(&header, &[row], &Table::new("", ""), width);
        let width_of = |column| {
            layout.widths[layout.columns.iter().position(|it| *it == column).expect("it stays")]
        };
        assert_eq!(
            (&layout.columns[..], layout.times, [width_of(1), width_of(6)]),
            (columns, times, [job, error]),
            "{width}"
        );
    }

    #[test]
    fn names_are_shortened_before_times_and_these_are_left_out_before_errors_are_cut() {
        fits(133, &[0, 1, 2, 3, 4, 5, 6], TimeForm::Long, [31, 49]);
        fits(126, &[0, 1, 2, 3, 4, 5, 6], TimeForm::Long, [24, 49]);
        fits(124, &[0, 1, 2, 3, 4, 5, 6], TimeForm::Short, [25, 49]);
        fits(120, &[0, 1, 2, 3, 4, 6], TimeForm::Short, [31, 49]);
        fits(111, &[0, 1, 2, 3, 6], TimeForm::Short, [31, 49]);
        fits(104, &[0, 1, 2, 3, 6], TimeForm::Short, [24, 49]);
        fits(80, &[0, 1, 2, 3, 6], TimeForm::Short, [24, 25]);
        fits(69, &[0, 1, 2, 6], TimeForm::Short, [24, 24]);
        fits(60, &[0, 1, 2, 6], TimeForm::Short, [24, 15]);
        fits(40, &[0, 1, 2, 6], TimeForm::Short, [11, 8]);
    }

    #[test]
    fn columns_that_a_person_named_stay() {
        let now = DateTime::UNIX_EPOCH;
        let row = vec![Cell::Time(now, None); 4];
        let header = ["created at", "run at", "started at", "finished at"];
        let columns = |table: Table<'_>| {
            Layout::fitting(&header, std::slice::from_ref(&row), &table, 60).columns
        };
        assert_eq!(columns(Table::new("", "")), [0, 1, 2]);
        assert_eq!(columns(Table::new("", "").with("")), [0, 1, 2, 3]);
    }

    #[test]
    fn other_texts_are_left_out_before_jobs_are_cut() {
        let texts = ["cleanup_nightly", "fires", "0 2 * * *", "Europe/Berlin"].map(text);
        let row = [vec![Cell::Time(DateTime::UNIX_EPOCH, None)], texts.to_vec()].concat();
        let header = ["at", "job", "state", "schedule", "time zone"];
        let columns = |wraps, width| {
            let table = Table { wraps, ..Table::new("", "") };
            Layout::fitting(&header, std::slice::from_ref(&row), &table, width).columns
        };
        assert_eq!(columns(false, 69), [0, 1, 2, 3, 4]);
        assert_eq!(columns(false, 54), [0, 1, 2, 3]);
        assert_eq!(columns(false, 40), [0, 1]);
        assert_eq!(columns(true, 40), [0, 1, 2, 3, 4]);
    }
}
