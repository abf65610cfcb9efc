//! The stream multiplexer, without I/O and without a runtime (`docs/tcp.md`).
//!
//! [`State`] is one side of a connection. The owner feeds it the frames that arrive ([`State::on_frame`]), takes the
//! ones to send ([`State::fill`]), and calls the rest for the users of streams. Wakers are stored here and handed
//! back in [`Wakes`], to be woken after the lock is released.

mod assembler;
mod early;
mod frame;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod incoming;
#[cfg(any(test, feature = "fuzzing"))]
mod invariants;
mod outgoing;
mod preamble;
mod receiving;
mod schedule;
mod sending;
mod state;
mod stream;
#[cfg(test)]
mod tests;

pub(crate) use assembler::Assembler;
pub(crate) use frame::Violation;
pub(crate) use incoming::Event;
pub(crate) use outgoing::Outgoing;
pub(crate) use preamble::{PREAMBLE_BYTES, Preamble, PreambleError, VERSIONED_BYTES};
pub(crate) use receiving::Read;
pub(crate) use state::{Limits, Role, State, Wakes, WriteError};
pub(crate) use stream::End;
