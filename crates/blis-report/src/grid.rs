//! How tables look: columns two spaces apart, no lines, no trailing blanks.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, Width};

/// The widest line of a table whose last column holds sentences. Fixed, so that the same run prints the same bytes everywhere.
const WIDTH: u16 = 100;

/// The widest a column between the first, which names the row, and the last may become.
const WIDEST: u16 = 44;

/// The narrowest a broken column may become, whatever stands before it.
const NARROWEST: u16 = 42;

/// A table under construction.
#[derive(Debug)]
pub struct Grid {
    table: Table,
    alignments: Vec<CellAlignment>,
}

impl Grid {
    /// A table with a header. A `>` before a column's title aligns it to the right.
    pub fn new(titles: &[&str]) -> Self {
        let mut grid = Self::headless(titles);
        grid.table.set_header(titles.iter().map(|title| title.trim_start_matches('>')));
        grid
    }

    /// A table without a header; the titles only say how many columns there are and which are aligned to the right.
    pub fn headless(titles: &[&str]) -> Self {
        let mut table = Table::new();
        table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        let alignment = |title: &&str| if title.starts_with('>') { CellAlignment::Right } else { CellAlignment::Left };
        Self { table, alignments: titles.iter().map(alignment).collect() }
    }

    /// Adds a row.
    pub fn row<I: IntoIterator<Item = S>, S: Into<String>>(&mut self, cells: I) {
        self.table.add_row(cells.into_iter().map(Into::into).collect::<Vec<String>>());
    }

    /// Breaks cells: those of the last column between words where a line would be too wide, others where they are very long.
    #[must_use]
    pub fn wrapped(mut self) -> Self {
        let bounded = |(index, width): (usize, u16)| if index == 0 { width } else { width.min(WIDEST) };
        let widths: Vec<u16> = self.table.column_max_content_widths().into_iter().enumerate().map(bounded).collect();
        let Some((_, others)) = widths.split_last() else { return self };
        let taken: u16 = others.iter().map(|other| other + 2).sum();
        let rest = WIDTH.saturating_sub(taken).max(NARROWEST) + 2;
        self.table.set_content_arrangement(ContentArrangement::Dynamic).set_width(taken + rest);
        for (index, column) in self.table.column_iter_mut().enumerate() {
            let fixed = if index == others.len() { rest } else { others[index] + 2 };
            column.set_constraint(ColumnConstraint::UpperBoundary(Width::Fixed(fixed)));
        }
        self
    }

    /// The table as lines, each ended.
    pub fn print(mut self) -> String {
        for (column, alignment) in self.table.column_iter_mut().zip(&self.alignments) {
            column.set_padding((0, 2)).set_cell_alignment(*alignment);
        }
        if self.table.is_empty() {
            return String::new();
        }
        self.table.trim_fmt() + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align_and_lines_have_no_trailing_blanks() {
        let mut grid = Grid::new(&["name", ">value"]);
        grid.row(["a", "1.0"]);
        grid.row(["longer", "-"]);
        assert_eq!(grid.print(), "name    value\na         1.0\nlonger      -\n");
    }

    #[test]
    fn a_long_last_column_is_broken_between_words() {
        let mut grid = Grid::headless(&["", ""]);
        grid.row(["key", &["word"; 21].join(" ")]);
        assert_eq!(grid.wrapped().print(), format!("key  {}\n     word word\n", ["word"; 19].join(" ")));
    }

    #[test]
    fn a_table_without_rows_is_nothing() {
        assert_eq!(Grid::headless(&["", ""]).print(), "");
    }
}
