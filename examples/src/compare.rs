//! Whether two results of the same statement are equal.
//!
//! Rows are compared as multisets, because ties in an `ORDER BY` may come out in either order; the
//! columns of the `ORDER BY` themselves must hold the same sequence of values in both. Values are
//! compared exactly, except floating point numbers, whose sums depend on the order of addition.

use std::{cmp::Ordering, fmt};

use anyhow::{Context, Result};
use datafusion::arrow::{
    array::{Array, AsArray, RecordBatch},
    compute::{cast, concat_batches},
    datatypes::{DataType, Float64Type},
    row::{RowConverter, SortField},
    util::display::array_value_to_string,
};

use crate::execution::Execution;

/// Floating point values closer than this, relative to the larger one, count as equal.
const RELATIVE_TOLERANCE: f64 = 1e-9;

/// The first thing in which two results differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference(String);

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Compares `actual` with `expected`; `None` when they are equal.
///
/// # Errors
/// When a column has a type that cannot be compared.
pub fn compare(expected: &Execution, actual: &Execution) -> Result<Option<Difference>> {
    let columns = |result: &Execution| -> Vec<String> {
        let schema = result.schema();
        let fields = schema.fields().iter();
        fields
            .map(|field| format!("{} {}", field.name(), field.data_type()))
            .collect()
    };
    let (expected_columns, actual_columns) = (columns(expected), columns(actual));
    if expected_columns != actual_columns {
        return Ok(Some(Difference(format!(
            "columns differ: expected [{}], got [{}]",
            expected_columns.join(", "),
            actual_columns.join(", ")
        ))));
    }
    let rows = |result: &Execution| Rows::of(concat_batches(&result.schema(), result.batches())?);
    let (expected_rows, actual_rows) = (rows(expected)?, rows(actual)?);
    Ok(expected_rows
        .multiset_difference(&actual_rows)?
        .or(expected_rows.order_difference(&actual_rows, expected.sort_columns())?))
}

/// A result in a form that can be sorted and compared.
struct Rows {
    batch: RecordBatch,
    rows: Vec<Row>,
}

struct Row {
    /// Position in the result.
    index: usize,
    /// All columns but the floating point ones, encoded so that equal values have equal bytes.
    exact: Vec<u8>,
    floats: Vec<Option<f64>>,
}

impl Rows {
    fn of(batch: RecordBatch) -> Result<Self> {
        let (mut exact, mut floats) = (Vec::new(), Vec::new());
        for column in batch.columns() {
            match column.data_type() {
                DataType::Float16 | DataType::Float32 | DataType::Float64 => {
                    floats.push(cast(column, &DataType::Float64)?);
                }
                _ => exact.push(column.clone()),
            }
        }
        let fields = exact
            .iter()
            .map(|column| SortField::new(column.data_type().clone()));
        let encoded = match exact.is_empty() {
            true => None,
            false => Some(
                RowConverter::new(fields.collect())
                    .and_then(|converter| converter.convert_columns(&exact))
                    .context("this result has a column that cannot be compared")?,
            ),
        };
        let row = |index| Row {
            index,
            exact: encoded
                .as_ref()
                .map_or_else(Vec::new, |rows| rows.row(index).as_ref().to_vec()),
            floats: floats
                .iter()
                .map(|column| column.as_primitive::<Float64Type>())
                .map(|column| column.is_valid(index).then(|| column.value(index)))
                .collect(),
        };
        let rows = (0..batch.num_rows()).map(row).collect();
        Ok(Self { batch, rows })
    }

    fn sorted(&self) -> Vec<&Row> {
        let mut sorted: Vec<&Row> = self.rows.iter().collect();
        sorted.sort_by(|a, b| a.exact.cmp(&b.exact).then_with(|| a.compare_floats(b)));
        sorted
    }

    fn multiset_difference(&self, actual: &Self) -> Result<Option<Difference>> {
        let (expected_sorted, actual_sorted) = (self.sorted(), actual.sorted());
        let mut expected_groups = expected_sorted.chunk_by(|a, b| a.exact == b.exact);
        let mut actual_groups = actual_sorted.chunk_by(|a, b| a.exact == b.exact);
        loop {
            let (expected_group, actual_group) = (
                expected_groups.next().unwrap_or_default(),
                actual_groups.next().unwrap_or_default(),
            );
            if expected_group.is_empty() && actual_group.is_empty() {
                return Ok(None);
            }
            let (missing, extra) = unmatched(expected_group, actual_group);
            if missing.is_some() || extra.is_some() {
                return self.describe(actual, missing, extra).map(Some);
            }
        }
    }

    fn describe(
        &self,
        actual: &Self,
        missing: Option<&Row>,
        extra: Option<&Row>,
    ) -> Result<Difference> {
        let counts = match (self.rows.len(), actual.rows.len()) {
            (expected, actual) if expected == actual => String::new(),
            (expected, actual) => format!("expected {expected} rows, got {actual}; "),
        };
        let row = |rows: &Self, row: Option<&Row>| match row {
            Some(row) => Ok(format!(
                "row {}: {}",
                row.index + 1,
                rows.display(row.index)?
            )),
            None => anyhow::Ok("no such row".to_owned()),
        };
        let (expected_row, actual_row) = (row(self, missing)?, row(actual, extra)?);
        Ok(Difference(format!(
            "{counts}expected {expected_row}, got {actual_row}"
        )))
    }

    /// Compares the values of the `ORDER BY` columns in the order in which the rows came.
    fn order_difference(&self, actual: &Self, sort: &[usize]) -> Result<Option<Difference>> {
        if sort.is_empty() {
            return Ok(None);
        }
        let keys = |rows: &Self| Self::of(rows.batch.project(sort)?);
        let (expected_keys, actual_keys) = (keys(self)?, keys(actual)?);
        for (expected_key, actual_key) in expected_keys.rows.iter().zip(&actual_keys.rows) {
            if !expected_key.equals(actual_key) {
                return Ok(Some(Difference(format!(
                    "the same rows in another order: at row {} expected {}, got {}",
                    expected_key.index + 1,
                    self.display(expected_key.index)?,
                    actual.display(actual_key.index)?
                ))));
            }
        }
        Ok(None)
    }

    fn display(&self, index: usize) -> Result<String> {
        let schema = self.batch.schema();
        let mut cells = Vec::new();
        for (field, column) in schema.fields().iter().zip(self.batch.columns()) {
            let value = match column.is_null(index) {
                true => "NULL".to_owned(),
                false => array_value_to_string(column, index)?,
            };
            cells.push(format!("{}={value}", field.name()));
        }
        Ok(format!("({})", cells.join(", ")))
    }
}

impl Row {
    fn compare_floats(&self, other: &Self) -> Ordering {
        let pairs = self.floats.iter().zip(&other.floats);
        pairs
            .map(|(a, b)| match (a, b) {
                (Some(a), Some(b)) => a.total_cmp(b),
                _ => a.is_some().cmp(&b.is_some()),
            })
            .find(|ordering| ordering.is_ne())
            .unwrap_or(Ordering::Equal)
    }

    fn equals(&self, other: &Self) -> bool {
        self.exact == other.exact
            && self
                .floats
                .iter()
                .zip(&other.floats)
                .all(|(a, b)| match (a, b) {
                    (Some(a), Some(b)) => close(*a, *b),
                    _ => a.is_some() == b.is_some(),
                })
    }
}

fn close(a: f64, b: f64) -> bool {
    a == b
        || (a.is_nan() && b.is_nan())
        || (a - b).abs() <= RELATIVE_TOLERANCE * a.abs().max(b.abs())
}

/// The first rows of two sorted groups that have no partner in the other one.
fn unmatched<'a>(expected: &[&'a Row], actual: &[&'a Row]) -> (Option<&'a Row>, Option<&'a Row>) {
    if expected.len() == actual.len() && expected.iter().zip(actual).all(|(a, b)| a.equals(b)) {
        return (None, None);
    }
    // The groups' exact columns decide first: with different ones nothing can match.
    if let (Some(first_expected), Some(first_actual)) = (expected.first(), actual.first()) {
        match first_expected.exact.cmp(&first_actual.exact) {
            Ordering::Less => return (Some(first_expected), None),
            Ordering::Greater => return (None, Some(first_actual)),
            Ordering::Equal => {}
        }
    }
    // Rounding may have swapped neighbours in the sort: look for any partner.
    let mut free: Vec<&Row> = actual.to_vec();
    let mut missing = None;
    for row in expected {
        match free.iter().position(|candidate| row.equals(candidate)) {
            Some(position) => drop(free.remove(position)),
            None => missing = missing.or(Some(*row)),
        }
    }
    (missing, free.first().copied())
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use super::*;
    use crate::execution;

    async fn difference(expected: &str, actual: &str) -> Result<String> {
        let session = SessionContext::new();
        let expected = execution::run(&session, expected).await?;
        let actual = execution::run(&session, actual).await?;
        let difference = compare(&expected, &actual)?;
        Ok(difference.map_or_else(String::new, |difference| difference.to_string()))
    }

    async fn values(expected: &str, actual: &str) -> Result<String> {
        let sql = |rows: &str| format!("select * from (values {rows}) as t(a, b)");
        difference(&sql(expected), &sql(actual)).await
    }

    #[tokio::test]
    async fn order_does_not_matter_without_order_by() -> Result<()> {
        assert_eq!(
            values("(1, 'x'), (2, null)", "(2, null), (1, 'x')").await?,
            ""
        );
        Ok(())
    }

    #[tokio::test]
    async fn multiplicity_matters() -> Result<()> {
        let difference = values(
            "(1, 'x'), (1, 'x'), (2, 'y')",
            "(1, 'x'), (2, 'y'), (2, 'y')",
        )
        .await?;
        assert!(difference.contains("(a=1, b=x)"), "{difference}");
        let difference = values("(1, 'x')", "(1, 'x'), (7, 'z')").await?;
        assert!(
            difference.contains("expected 1 rows, got 2"),
            "{difference}"
        );
        assert!(difference.contains("(a=7, b=z)"), "{difference}");
        Ok(())
    }

    #[tokio::test]
    async fn floats_have_a_tolerance_and_nothing_else_has() -> Result<()> {
        let float = |value: &str| format!("(1, cast({value} as double))");
        assert_eq!(
            values(&float("0.3"), &float("0.30000000000000004")).await?,
            ""
        );
        assert_ne!(values(&float("0.3"), &float("0.3001")).await?, "");
        assert_ne!(values(&float("0.3"), &float("null")).await?, "");
        let decimal = |value: &str| format!("(1, cast({value} as decimal(30, 20)))");
        assert_ne!(
            values(&decimal("0.3"), &decimal("'0.30000000000000000001'")).await?,
            ""
        );
        Ok(())
    }

    #[tokio::test]
    async fn rounding_that_swaps_the_sort_order_is_no_difference() -> Result<()> {
        // Sorted by the first float, the pairs would cross.
        let pair = |a: &str, b: &str| format!("(cast({a} as double), cast({b} as double))");
        let expected = [pair("1.0", "5"), pair("1.0000000000001", "7")].join(", ");
        let actual = [pair("1.0000000000002", "5"), pair("1.0", "7")].join(", ");
        assert_eq!(values(&expected, &actual).await?, "");
        Ok(())
    }

    #[tokio::test]
    async fn order_by_columns_must_come_in_order_and_ties_may_swap() -> Result<()> {
        let sql = |rows: &str, order: &str| {
            format!("select * from (values {rows}) as t(a, b) order by {order}")
        };
        let rows = "(1, 'x'), (1, 'y'), (2, 'z')";
        assert_eq!(
            difference(&sql(rows, "a"), &sql(rows, "a, b desc")).await?,
            ""
        );
        let difference = difference(&sql(rows, "a"), &sql(rows, "a desc")).await?;
        assert!(
            difference.contains("another order: at row 1"),
            "{difference}"
        );
        Ok(())
    }

    #[tokio::test]
    async fn columns_must_agree() -> Result<()> {
        let difference = difference("select 1 as a", "select 1 as b").await?;
        assert!(difference.contains("columns differ"), "{difference}");
        Ok(())
    }
}
