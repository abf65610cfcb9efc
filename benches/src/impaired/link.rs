//! A link: a TUN device that gives every packet back to this host, late, and with some missing.
//!
//! A packet to [`DISTANT`] leaves by the device, is held for the delay, and comes back with its two addresses exchanged: as
//! if from [`DISTANT`] to [`NEAR`]. So a client that connects to `DISTANT` meets the server that listens at `NEAR`, each sees the other
//! beyond the link, and both directions cross it. Checksums stay right, because sums do not depend on the order of what is
//! added (RFC 1071). One namespace does for both ends, and vanishes with the process that made it.

use anyhow::{Context, Result, bail, ensure};
pub use datafusion_transport_tests::harness::DISTANT;
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;
use std::time::{Duration, Instant};
use tappers::{Interface, Tun};

/// The address that servers on this side of the link bind.
pub const NEAR: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);

const DEVICE: &str = "impaired0";
/// Of the packets that the delay holds; more are lost, as in a router.
const HELD_PACKETS: usize = 16 << 10;

/// What a link does to packets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// Its name in results.
    pub name: String,
    /// Longest packet, in bytes.
    pub mtu: u16,
    /// Time there and back, in milliseconds, of a packet that meets no queue.
    pub round_trip_ms: u64,
    /// Part of the packets that are lost, each way.
    pub loss: f64,
    /// Bits per second, each way together, in millions; 0 for no limit.
    pub mbit_per_s: u32,
}

impl Profile {
    /// Those that the program knows.
    pub fn all() -> Vec<Self> {
        let profile = |name: &str, round_trip_ms, loss, mbit_per_s| Self {
            name: name.to_owned(),
            mtu: 1500,
            round_trip_ms,
            loss,
            mbit_per_s,
        };
        vec![
            profile("lan", 0, 0.0, 0),
            profile("slow", 2, 0.0, 200),
            profile("far", 20, 0.0, 0),
            profile("lossy", 20, 0.01, 0),
            profile("lossy-near", 1, 0.01, 0),
        ]
    }

    /// In words.
    pub fn describe(&self) -> String {
        let rate = match self.mbit_per_s {
            0 => "no limit of rate".to_owned(),
            mbit => format!("{mbit} Mbit/s"),
        };
        let (mtu, trip, loss) = (self.mtu, self.round_trip_ms, self.loss * 100.0);
        format!("{rate}, {trip} ms there and back, {loss} % loss each way, packets of {mtu} bytes")
    }
}

/// Sets the link up in this process's network namespace, which must be its own, and carries its packets until the process ends. The same packets
/// are lost for the same seed, as far as they come in the same order.
///
/// # Errors
/// Where the device can't be made or shaped; names the command that failed.
pub fn start(profile: &Profile, seed: u64) -> Result<()> {
    let device = Interface::new(DEVICE).context("the name of a device")?;
    let tun = Tun::new_named(device).context("making a TUN device: is /dev/net/tun there?")?;
    let mtu = profile.mtu.to_string();
    run("ip", &["link", "set", "lo", "up"])?;
    run(
        "ip",
        &["address", "add", &format!("{NEAR}/24"), "dev", DEVICE],
    )?;
    run("ip", &["link", "set", DEVICE, "mtu", &mtu, "up"])?;
    if profile.mbit_per_s > 0 {
        // Half of it for each direction would be as true; both cross the one device.
        let rate = format!("{}mbit", profile.mbit_per_s);
        let shape = ["qdisc", "add", "dev", DEVICE, "root", "tbf"];
        let limits = ["rate", &rate, "burst", "128kb", "latency", "50ms"];
        run("tc", &[shape.as_slice(), &limits].concat())?;
    }
    carry(tun, profile, seed);
    Ok(())
}

fn run(program: &str, arguments: &[&str]) -> Result<()> {
    let line = || format!("`{program} {}`", arguments.join(" "));
    let output = Command::new(program).args(arguments).output();
    let output = output.with_context(|| format!("{}: is iproute2 installed?", line()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{} failed: {said}", line());
    Ok(())
}

/// The kernel's congestion control for TCP in this namespace, after it was set to `name` if one is given.
///
/// # Errors
/// Where the kernel has none of that name, or doesn't allow it in a namespace.
pub fn congestion_control(name: Option<&str>) -> Result<String> {
    const FILE: &str = "/proc/sys/net/ipv4/tcp_congestion_control";
    if let Some(name) = name
        && let Err(err) = std::fs::write(FILE, name)
    {
        let allowed = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";
        let allowed = std::fs::read_to_string(allowed).unwrap_or_default();
        bail!(
            "congestion control `{name}`: {err}; in a namespace this kernel allows: {} \
             (sysctl net.ipv4.tcp_allowed_congestion_control)",
            allowed.trim()
        );
    }
    let name = std::fs::read_to_string(FILE).context(FILE)?;
    Ok(name.trim().to_owned())
}

/// One thread takes packets from the device, another gives them back when they are due.
fn carry(tun: Tun, profile: &Profile, seed: u64) {
    let (mtu, loss) = (usize::from(profile.mtu), profile.loss);
    let delay = Duration::from_micros(profile.round_trip_ms * 500);
    let (hold, held) = mpsc::sync_channel(HELD_PACKETS);
    let tun = std::sync::Arc::new(tun);
    let back = std::sync::Arc::clone(&tun);
    thread::spawn(move || take(&tun, mtu, loss, delay, seed, &hold));
    thread::spawn(move || give_back(&back, &held));
}

type Held = (Instant, Vec<u8>);

fn take(tun: &Tun, mtu: usize, loss: f64, delay: Duration, seed: u64, hold: &SyncSender<Held>) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut buffer = vec![0; mtu];
    while let Ok(length) = tun.recv(&mut buffer) {
        let due = Instant::now() + delay;
        let Some(packet) = buffer.get(..length).and_then(returned) else {
            continue;
        };
        if random.f64() >= loss {
            let _ = hold.try_send((due, packet));
        }
    }
}

fn give_back(tun: &Tun, held: &Receiver<Held>) {
    for (due, packet) in held {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let _ = tun.send(&packet);
    }
}

/// An IPv4 packet with its addresses exchanged (RFC 791, section 3.1: bytes 12 to 19); nothing for any other.
fn returned(packet: &[u8]) -> Option<Vec<u8>> {
    let is_ipv4 = packet.first().is_some_and(|first| first >> 4 == 4);
    let (head, rest) = packet.split_at_checked(12).filter(|_| is_ipv4)?;
    let (source, rest) = rest.split_at_checked(4)?;
    let (destination, rest) = rest.split_at_checked(4)?;
    Some([head, destination, source, rest].concat())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_packet_comes_back_from_where_it_went() {
        let mut packet: Vec<u8> = (0..40).collect();
        assert_eq!(returned(&packet), None);
        packet[0] = 0x45;
        let back = returned(&packet).unwrap();
        assert_eq!(back[12..20], [16, 17, 18, 19, 12, 13, 14, 15]);
        assert_eq!(back[..12], packet[..12]);
        assert_eq!(back[20..], packet[20..]);
        assert_eq!(returned(&packet[..19]), None);
    }
}
