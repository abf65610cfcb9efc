//! Reserved for the raw TCP transport: the seam of `datafusion_transport_core::connection` over a stream multiplexer. Empty so far.
#![forbid(unsafe_code)]
