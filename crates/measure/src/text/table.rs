//! Tables of plain text: a heading, and columns as wide as their widest cell.
//!
//! Guarantees that a cell's text cannot break a line or steer a terminal: names come from the network.

use super::printable::printable;

/// A column: its heading, and the side to which its cells lean.
#[derive(Clone, Copy, Debug)]
pub enum Column {
    /// Text.
    Left(&'static str),
    /// Numbers.
    Right(&'static str),
}

impl Column {
    fn heading(self) -> &'static str {
        match self {
            Self::Left(heading) | Self::Right(heading) => heading,
        }
    }
}

/// Rows under a heading.
///
/// Invariants: each row has as many cells as there are columns.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table of these columns, without rows.
    pub fn new(columns: &[Column]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// A table whose first `words` columns hold text, and the others numbers.
    pub fn of_figures(words: usize, headings: &[&'static str]) -> Self {
        let column = |(at, heading): (usize, &&'static str)| {
            if at < words { Column::Left(heading) } else { Column::Right(heading) }
        };
        Self { columns: headings.iter().enumerate().map(column).collect(), rows: Vec::new() }
    }

    /// Adds a row. Panics unless it has one cell for each column.
    pub fn row<const N: usize>(&mut self, cells: &[String; N]) {
        assert_eq!(N, self.columns.len(), "one cell for each column");
        self.rows.push(cells.iter().map(|cell| printable(cell)).collect());
    }

    /// The table as text, each line ended, with `indent` spaces in front.
    pub fn render(&self, indent: usize) -> String {
        let headings: Vec<String> = self.columns.iter().map(|column| column.heading().to_owned()).collect();
        let widths = self.widths(&headings);
        let mut text = String::new();
        for row in std::iter::once(&headings).chain(&self.rows) {
            let line = self.line(row, &widths);
            text.push_str(&" ".repeat(indent));
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    fn widths(&self, headings: &[String]) -> Vec<usize> {
        let widest = |at: usize| {
            let cells = self.rows.iter().map(|row| &row[at]).chain([&headings[at]]);
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        (0..self.columns.len()).map(widest).collect()
    }

    fn line(&self, row: &[String], widths: &[usize]) -> String {
        let cells = self.columns.iter().zip(row).zip(widths);
        let padded: Vec<String> = cells
            .map(|((column, cell), &width)| match column {
                Column::Left(_) => format!("{cell:<width$}"),
                Column::Right(_) => format!("{cell:>width$}"),
            })
            .collect();
        padded.join("  ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&[Column::Left("NAME"), Column::Right("PARTITIONS"), Column::Left("ID")]);
        table.row(&["a-long-name".into(), "3".into(), "x".into()]);
        table.row(&["b".into(), "12345678901".into(), String::new()]);
        let expected =
            "NAME          PARTITIONS  ID\na-long-name            3  x\nb            12345678901\n";
        assert_eq!(table.render(0), expected);
    }

    #[test]
    fn figures_lean_to_the_right_of_their_words() {
        let mut table = Table::of_figures(1, &["what", "figure"]);
        table.row(&["memory".into(), "7".into()]);
        assert_eq!(table.render(0), "what    figure\nmemory       7\n");
    }

    #[test]
    fn a_cell_cannot_break_a_line_or_steer_a_terminal() {
        let mut table = Table::new(&[Column::Left("NAME")]);
        table.row(&["a\nb\x1b[2J".into()]);
        assert_eq!(table.render(2), "  NAME\n  a\\nb\\x1b[2J\n");
    }

    #[test]
    fn a_table_without_rows_is_its_heading() {
        assert_eq!(Table::new(&[Column::Left("NAME")]).render(0), "NAME\n");
    }
}
