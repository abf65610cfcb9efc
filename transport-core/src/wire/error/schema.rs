//! `SchemaError`: every variant, with full column and table references.

use datafusion::common::{Column, SchemaError, Span, Spans, TableReference};
use datafusion::error::DataFusionError;

use super::diagnostic::SpanMessage;
use super::remote::RemoteError;

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct SchemaMessage {
    #[prost(enumeration = "Variant", tag = "1")]
    variant: i32,
    /// The field that is ambiguous, duplicate (its qualifier is the relation) or not found.
    #[prost(message, optional, tag = "2")]
    field: Option<ColumnMessage>,
    #[prost(message, repeated, tag = "3")]
    valid_fields: Vec<ColumnMessage>,
    #[prost(string, optional, tag = "4")]
    backtrace: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
enum Variant {
    Unknown = 0,
    AmbiguousReference = 1,
    DuplicateQualifiedField = 2,
    DuplicateUnqualifiedField = 3,
    FieldNotFound = 4,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ColumnMessage {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "2")]
    relation: Option<TableMessage>,
    #[prost(message, repeated, tag = "3")]
    spans: Vec<SpanMessage>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct TableMessage {
    #[prost(string, tag = "1")]
    table: String,
    #[prost(string, optional, tag = "2")]
    schema: Option<String>,
    /// Only with a schema.
    #[prost(string, optional, tag = "3")]
    catalog: Option<String>,
}

/// Steps that displaying `FieldNotFound` may take to look for a similar name: a second or so. Each of the valid names
/// costs the product of its length and the field's, about four times.
const MAX_SUGGESTION_STEPS: usize = 1 << 30;

pub(super) fn encode(err: &SchemaError, backtrace: Option<&String>) -> SchemaMessage {
    let mut fields: &[Column] = &[];
    let (variant, field) = match err {
        SchemaError::AmbiguousReference { field } => {
            (Variant::AmbiguousReference, encode_column(field))
        }
        SchemaError::DuplicateQualifiedField { qualifier, name } => (
            Variant::DuplicateQualifiedField,
            ColumnMessage {
                name: name.clone(),
                relation: Some(encode_table(qualifier)),
                spans: Vec::new(),
            },
        ),
        SchemaError::DuplicateUnqualifiedField { name } => (
            Variant::DuplicateUnqualifiedField,
            ColumnMessage {
                name: name.clone(),
                relation: None,
                spans: Vec::new(),
            },
        ),
        SchemaError::FieldNotFound {
            field,
            valid_fields,
        } => {
            fields = valid_fields;
            (Variant::FieldNotFound, encode_column(field))
        }
    };
    SchemaMessage {
        variant: variant.into(),
        field: Some(field),
        valid_fields: fields.iter().map(encode_column).collect(),
        backtrace: backtrace.cloned(),
    }
}

pub(super) fn decode(msg: SchemaMessage) -> DataFusionError {
    let variant = msg.variant();
    let field = msg.field.unwrap_or_default();
    let err = match variant {
        Variant::Unknown => return unknown(&field.name, msg.backtrace),
        Variant::AmbiguousReference => SchemaError::AmbiguousReference {
            field: Box::new(decode_column(field)),
        },
        Variant::DuplicateQualifiedField => SchemaError::DuplicateQualifiedField {
            qualifier: Box::new(decode_table(field.relation.unwrap_or_default())),
            name: field.name,
        },
        Variant::DuplicateUnqualifiedField => {
            SchemaError::DuplicateUnqualifiedField { name: field.name }
        }
        Variant::FieldNotFound => SchemaError::FieldNotFound {
            valid_fields: decode_valid_fields(&field, msg.valid_fields),
            field: Box::new(decode_column(field)),
        },
    };
    DataFusionError::SchemaError(Box::new(err), Box::new(msg.backtrace))
}

fn unknown(field: &str, backtrace: Option<String>) -> DataFusionError {
    let backtrace = backtrace.unwrap_or_default();
    DataFusionError::External(Box::new(RemoteError::new(format!(
        "schema error of a kind that this side does not know, at field {field:?}{backtrace}"
    ))))
}

/// The valid fields; none if names are so long that a peer could stop this side with them.
fn decode_valid_fields(field: &ColumnMessage, valid: Vec<ColumnMessage>) -> Vec<Column> {
    let valid_bytes = valid.iter().map(ColumnMessage::flat_bytes).sum::<usize>();
    let steps = field
        .flat_bytes()
        .saturating_mul(valid_bytes)
        .saturating_mul(4);
    if steps > MAX_SUGGESTION_STEPS {
        return Vec::new();
    }
    valid.into_iter().map(decode_column).collect()
}

impl ColumnMessage {
    fn flat_bytes(&self) -> usize {
        let relation = self.relation.as_ref().map_or(0, |table| {
            table.table.len()
                + table.schema.as_deref().map_or(0, str::len)
                + table.catalog.as_deref().map_or(0, str::len)
        });
        self.name.len() + relation
    }
}

fn encode_column(column: &Column) -> ColumnMessage {
    ColumnMessage {
        name: column.name.clone(),
        relation: column.relation.as_ref().map(encode_table),
        spans: column.spans.iter().copied().map(Into::into).collect(),
    }
}

fn decode_column(msg: ColumnMessage) -> Column {
    Column {
        relation: msg.relation.map(decode_table),
        name: msg.name,
        spans: Spans(msg.spans.into_iter().map(Span::from).collect()),
    }
}

fn encode_table(table: &TableReference) -> TableMessage {
    TableMessage {
        table: table.table().to_owned(),
        schema: table.schema().map(str::to_owned),
        catalog: table.catalog().map(str::to_owned),
    }
}

fn decode_table(msg: TableMessage) -> TableReference {
    match (msg.catalog, msg.schema) {
        (Some(catalog), Some(schema)) => TableReference::full(catalog, schema, msg.table),
        (_, Some(schema)) => TableReference::partial(schema, msg.table),
        _ => TableReference::bare(msg.table),
    }
}
