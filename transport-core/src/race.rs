//! Attempts at several addresses of one host, of which one has to succeed.

use crate::error::{ErrorKind, TransportError};
use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::task::JoinSet;

/// How long an address may be silent before the next one is tried as well (RFC 8305, 5).
const NEXT_ADDRESS_DELAY: Duration = Duration::from_millis(250);
/// All of them are tried within one handshake timeout.
const MAX_ADDRESSES: usize = 16;

/// The first success, or the most telling failure; `None` without addresses.
pub(crate) async fn race<T, A>(
    addresses: Vec<SocketAddr>,
    attempt: impl Fn(SocketAddr) -> A,
) -> Result<T, Option<TransportError>>
where
    T: Send + 'static,
    A: Future<Output = Result<T, TransportError>> + Send + 'static,
{
    let mut addresses = addresses.into_iter().take(MAX_ADDRESSES);
    let mut attempts = JoinSet::new();
    let mut failure = None;
    loop {
        if let Some(address) = addresses.next() {
            attempts.spawn(attempt(address));
        }
        let ended = if addresses.len() == 0 {
            attempts.join_next().await
        } else {
            let next = tokio::time::timeout(NEXT_ADDRESS_DELAY, attempts.join_next()).await;
            let Ok(ended) = next else { continue };
            ended
        };
        match ended {
            Some(Ok(Ok(reached))) => return Ok(reached),
            Some(Ok(Err(err))) => failure = Some(more_telling(failure, err)),
            // An attempt is aborted only with this future. One that panicked was no success.
            Some(Err(err)) => tracing::error!(%err, "an attempt to connect broke off"),
            None if addresses.len() == 0 => return Err(failure),
            None => {}
        }
    }
}

/// A peer that answered says more than an address where nobody did.
fn more_telling(known: Option<TransportError>, new: TransportError) -> TransportError {
    match known {
        Some(known) if !matches!(known.kind(), ErrorKind::Connect | ErrorKind::Timeout) => known,
        _ => new,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::future::pending;

    fn addresses(count: u16) -> Vec<SocketAddr> {
        let ports = 1..=count;
        ports.map(|port| ([127, 0, 0, 1], port).into()).collect()
    }

    fn error(kind: ErrorKind) -> TransportError {
        TransportError::new(kind, "connect", "worker", "")
    }

    #[tokio::test]
    async fn a_silent_address_is_passed_over() {
        let attempt = |address: SocketAddr| async move {
            match address.port() {
                1 => Err(error(ErrorKind::Connect)),
                2 => pending().await,
                port => Ok(port),
            }
        };
        let reached = race(addresses(3), attempt);
        let limit = 20 * NEXT_ADDRESS_DELAY;
        assert_eq!(
            3,
            tokio::time::timeout(limit, reached).await.unwrap().unwrap()
        );
    }

    #[tokio::test]
    async fn of_many_addresses_the_first_are_tried() {
        let (tried, ports) = std::sync::mpsc::channel();
        let attempt = move |address: SocketAddr| {
            tried.send(usize::from(address.port())).unwrap();
            async { Err::<(), _>(error(ErrorKind::Connect)) }
        };
        assert!(race(addresses(100), attempt).await.is_err());
        let ports: Vec<_> = ports.iter().collect();
        assert_eq!((1..=MAX_ADDRESSES).collect::<Vec<_>>(), ports);
    }

    #[tokio::test]
    async fn the_most_telling_error_is_kept() {
        let attempt = |address: SocketAddr| async move {
            match address.port() {
                2 => Err::<(), _>(error(ErrorKind::Handshake)),
                _ => Err(error(ErrorKind::Connect)),
            }
        };
        let failed = race(addresses(3), attempt).await;
        assert_eq!(ErrorKind::Handshake, failed.unwrap_err().unwrap().kind());
    }

    #[tokio::test]
    async fn no_address_is_no_success() {
        let failed = race(addresses(0), |_| async { Ok(()) }).await;
        assert!(failed.unwrap_err().is_none());
    }
}
