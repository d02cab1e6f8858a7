//! A memo of the work that depends on a number of rows alone: one lazily filled cell per number of rows.
//!
//! The cell is found by index, never by hash. How often each cell is used is counted, so that a run's time by primitive can be
//! worked out once, at its end.

use crate::calls::Calls;
use crate::operation::Operation;

/// Cells kept at most; a step with more rows is computed anew each time.
const MOST_CELLS: usize = 1 << 20;

/// Operations over the same rows, with the memo of their sum.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Table {
    operations: Vec<Operation>,
    cells: Vec<Cell>,
    /// Rows of the uses no cell counts.
    beyond: Vec<u32>,
}

/// The sum for one number of rows, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Cell {
    microseconds: f64,
    uses: u64,
}

impl Cell {
    const EMPTY: Self = Self { microseconds: f64::NAN, uses: 0 };
}

impl Table {
    pub(crate) fn new(operations: Vec<Operation>) -> Self {
        Self { operations, cells: Vec::new(), beyond: Vec::new() }
    }

    pub(crate) fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// The operations that run for `rows` rows.
    pub(crate) fn over(&self, rows: u32) -> impl Iterator<Item = &Operation> {
        self.operations.iter().filter(move |operation| operation.runs_for.contains(rows))
    }

    /// Microseconds of all operations over `rows` rows, by the memo; counts the use.
    pub(crate) fn price(&mut self, rows: u32) -> f64 {
        if self.operations.is_empty() {
            return 0.0;
        }
        match self.cells.get_mut(rows as usize) {
            Some(cell) if !cell.microseconds.is_nan() => {
                cell.uses += 1;
                cell.microseconds
            }
            Some(_) | None => self.fill(rows),
        }
    }

    #[cold]
    fn fill(&mut self, rows: u32) -> f64 {
        let microseconds = self.compute(rows);
        let index = rows as usize;
        if index >= MOST_CELLS {
            self.beyond.push(rows);
            return microseconds;
        }
        if index >= self.cells.len() {
            self.cells.resize((index + 1).next_power_of_two().min(MOST_CELLS), Cell::EMPTY);
        }
        self.cells[index] = Cell { microseconds, uses: 1 };
        microseconds
    }

    /// The same without the memo.
    pub(crate) fn compute(&self, rows: u32) -> f64 {
        if rows == 0 {
            return 0.0;
        }
        self.over(rows).map(|operation| operation.microseconds(f64::from(rows))).sum()
    }

    /// Calls that follow one another, of all operations that run for `rows` rows: what runs beside them waits for none of them.
    pub(crate) fn calls(&self, rows: u32) -> Calls {
        let follows = |operation: &&Operation| !operation.runs_beside();
        if rows == 0 { Calls::default() } else { self.over(rows).filter(follows).map(Operation::calls).sum() }
    }

    /// How often each number of rows was priced.
    pub(crate) fn uses(&self) -> impl Iterator<Item = (u32, u64)> {
        let counted = (0_u32..).zip(&self.cells).filter(|(_, cell)| cell.uses > 0).map(|(rows, cell)| (rows, cell.uses));
        counted.chain(self.beyond.iter().map(|&rows| (rows, 1)))
    }

    /// Cells that hold a price.
    pub(crate) fn filled(&self) -> usize {
        self.cells.iter().filter(|cell| !cell.microseconds.is_nan()).count()
    }
}
