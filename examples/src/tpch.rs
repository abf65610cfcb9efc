//! The TPC-H benchmark: its eight tables as Parquet files, and its 22 queries.
//!
//! Data comes from `tpchgen`, which produces the same rows for the same scale on every machine, so
//! results can be compared between machines too. Queries are the texts of the specification with
//! its validation parameters.

mod dataset;

pub use dataset::{Dataset, check_scale, generate, generate_until};

/// The eight tables, largest first.
pub const TABLES: [&str; 8] = [
    "lineitem", "orders", "partsupp", "part", "customer", "supplier", "nation", "region",
];

/// How many queries there are: [`query`] answers for 1 up to this number.
pub const QUERY_COUNT: usize = QUERIES.len();

const QUERIES: [&str; 22] = [
    include_str!("../queries/q1.sql"),
    include_str!("../queries/q2.sql"),
    include_str!("../queries/q3.sql"),
    include_str!("../queries/q4.sql"),
    include_str!("../queries/q5.sql"),
    include_str!("../queries/q6.sql"),
    include_str!("../queries/q7.sql"),
    include_str!("../queries/q8.sql"),
    include_str!("../queries/q9.sql"),
    include_str!("../queries/q10.sql"),
    include_str!("../queries/q11.sql"),
    include_str!("../queries/q12.sql"),
    include_str!("../queries/q13.sql"),
    include_str!("../queries/q14.sql"),
    include_str!("../queries/q15.sql"),
    include_str!("../queries/q16.sql"),
    include_str!("../queries/q17.sql"),
    include_str!("../queries/q18.sql"),
    include_str!("../queries/q19.sql"),
    include_str!("../queries/q20.sql"),
    include_str!("../queries/q21.sql"),
    include_str!("../queries/q22.sql"),
];

/// The SQL of query `number`, counted from 1; `None` outside 1 to 22.
pub fn query(number: usize) -> Option<&'static str> {
    QUERIES.get(number.checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_counted_from_one() {
        assert!(query(0).is_none());
        assert!(query(1).is_some_and(|sql| sql.contains("sum_charge")));
        assert!(query(22).is_some_and(|sql| sql.contains("cntrycode")));
        assert!(query(23).is_none());
    }
}
