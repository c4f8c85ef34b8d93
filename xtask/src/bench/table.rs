//! Text tables: columns as wide as their widest cell, words to the left, numbers to the right.

/// A table in the making.
///
/// Invariants: every row has as many cells as there are columns.
pub(super) struct Table {
    rows: Vec<Vec<String>>,
    /// Columns from the left that hold words.
    words: usize,
}

impl Table {
    /// A table whose first `words` columns are aligned to the left.
    pub(super) fn new(words: usize, columns: &[&str]) -> Self {
        Self { rows: vec![columns.iter().map(|name| (*name).to_owned()).collect()], words }
    }

    pub(super) fn row<const N: usize>(&mut self, cells: [String; N]) {
        assert_eq!(cells.len(), self.rows[0].len(), "a row has a cell for each column");
        self.rows.push(cells.into());
    }

    /// The lines, each ended.
    pub(super) fn text(&self) -> String {
        let widths: Vec<_> = (0..self.rows[0].len()).map(|column| self.width(column)).collect();
        self.rows.iter().map(|row| self.line(row, &widths)).collect()
    }

    fn width(&self, column: usize) -> usize {
        self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)
    }

    fn line(&self, row: &[String], widths: &[usize]) -> String {
        let cells = row.iter().zip(widths).enumerate().map(|(column, (cell, width))| {
            if column < self.words { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    }
}

/// A whole number with its thousands set apart.
pub(super) fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
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
    fn columns_line_up_under_their_widest_cell() {
        let mut table = Table::new(1, &["what", "figure"]);
        table.row(["memory".to_owned(), "7".to_owned()]);
        assert_eq!(table.text(), "what    figure\nmemory       7\n");
    }

    #[test]
    fn thousands_are_set_apart() {
        assert_eq!([7.0, 1234.4, 1_234_567.0].map(grouped), ["7", "1,234", "1,234,567"]);
    }
}
