//! `SHOW transport.kind`: DataFusion's own `SHOW` does not find the options of extensions.

use anyhow::Result;
use datafusion::{
    config::ConfigOptions,
    sql::{parser::Statement, sqlparser::ast},
};

use crate::execution;

/// The query that a `SHOW prefix.option` for an extension's option stands for; `None` for any other
/// statement.
///
/// # Errors
/// When the extension has no such option: lists those that it has.
pub(crate) fn query(statement: &Statement, options: &ConfigOptions) -> Result<Option<Statement>> {
    let Some((prefix, option)) = extension_option(statement) else {
        return Ok(None);
    };
    let Some((_, extension)) = options.extensions.iter().find(|(name, _)| *name == prefix) else {
        return Ok(None);
    };
    let entries = extension.entries();
    let Some(entry) = entries.iter().find(|entry| entry.key == option) else {
        let known: Vec<_> = entries.iter().map(|entry| entry.key.as_str()).collect();
        anyhow::bail!(
            "{prefix}.{option} is no option: {prefix} has {}",
            known.join(", ")
        );
    };
    let value = match &entry.value {
        Some(value) => format!("'{}'", value.replace('\'', "''")),
        None => "NULL".to_owned(),
    };
    let sql = format!("SELECT '{prefix}.{option}' AS name, {value} AS value");
    Ok(execution::parse(&sql)?.pop_front())
}

fn extension_option(statement: &Statement) -> Option<(String, String)> {
    let Statement::Statement(statement) = statement else {
        return None;
    };
    let ast::Statement::ShowVariable { variable } = statement.as_ref() else {
        return None;
    };
    match variable.as_slice() {
        [prefix, option] => Some((
            prefix.value.to_ascii_lowercase(),
            option.value.to_ascii_lowercase(),
        )),
        _ => None,
    }
}
