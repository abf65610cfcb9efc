//! `Diagnostic` and the places in a query that it points to.

use datafusion::common::diagnostic::{DiagnosticHelp, DiagnosticKind, DiagnosticNote};
use datafusion::common::{Diagnostic, Location, Span};

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct DiagnosticMessage {
    #[prost(string, tag = "1")]
    pub(super) message: String,
    /// Otherwise an error.
    #[prost(bool, tag = "2")]
    warning: bool,
    #[prost(message, optional, tag = "3")]
    span: Option<SpanMessage>,
    #[prost(message, repeated, tag = "4")]
    notes: Vec<RemarkMessage>,
    #[prost(message, repeated, tag = "5")]
    helps: Vec<RemarkMessage>,
}

/// A note or a help.
#[derive(Clone, PartialEq, prost::Message)]
struct RemarkMessage {
    #[prost(string, tag = "1")]
    message: String,
    #[prost(message, optional, tag = "2")]
    span: Option<SpanMessage>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(super) struct SpanMessage {
    #[prost(uint64, tag = "1")]
    start_line: u64,
    #[prost(uint64, tag = "2")]
    start_column: u64,
    #[prost(uint64, tag = "3")]
    end_line: u64,
    #[prost(uint64, tag = "4")]
    end_column: u64,
}

pub(super) fn encode(diagnostic: &Diagnostic) -> DiagnosticMessage {
    let remark = |message: &String, span: Option<Span>| RemarkMessage {
        message: message.clone(),
        span: span.map(SpanMessage::from),
    };
    DiagnosticMessage {
        message: diagnostic.message.clone(),
        warning: match diagnostic.kind {
            DiagnosticKind::Error => false,
            DiagnosticKind::Warning => true,
        },
        span: diagnostic.span.map(SpanMessage::from),
        notes: diagnostic
            .notes
            .iter()
            .map(|note| remark(&note.message, note.span))
            .collect(),
        helps: diagnostic
            .helps
            .iter()
            .map(|help| remark(&help.message, help.span))
            .collect(),
    }
}

pub(super) fn decode(msg: DiagnosticMessage) -> Diagnostic {
    let note = |RemarkMessage { message, span }| DiagnosticNote {
        message,
        span: span.map(Span::from),
    };
    let help = |RemarkMessage { message, span }| DiagnosticHelp {
        message,
        span: span.map(Span::from),
    };
    Diagnostic {
        kind: if msg.warning {
            DiagnosticKind::Warning
        } else {
            DiagnosticKind::Error
        },
        message: msg.message,
        span: msg.span.map(Span::from),
        notes: msg.notes.into_iter().map(note).collect(),
        helps: msg.helps.into_iter().map(help).collect(),
    }
}

impl From<Span> for SpanMessage {
    fn from(span: Span) -> Self {
        Self {
            start_line: span.start.line,
            start_column: span.start.column,
            end_line: span.end.line,
            end_column: span.end.column,
        }
    }
}

impl From<SpanMessage> for Span {
    fn from(msg: SpanMessage) -> Self {
        Self {
            start: Location {
                line: msg.start_line,
                column: msg.start_column,
            },
            end: Location {
                line: msg.end_line,
                column: msg.end_column,
            },
        }
    }
}
