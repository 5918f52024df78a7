//! A network that loses and delays packets, by the kernel's emulator of networks. That it does is seen before anything
//! is checked: a queueing discipline that loses nothing would make every run look as if it had been tried.

use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::error::SubjectError;

const TC: &str = "/usr/sbin/tc";
const PACKETS: [&str; 11] =
    ["qdisc", "replace", "dev", "lo", "root", "netem", "loss", "2%", "delay", "3ms", "2ms"];
const STATISTICS: [&str; 5] = ["-s", "qdisc", "show", "dev", "lo"];

/// Packets of one attempt to see that some are lost: fewer than the queue holds (netem(8), `limit` 1000), so that
/// none is lost because there were too many.
const TRIED_PACKETS: u32 = 500;
/// None of these many times 500 packets is lost once in 10^17 times.
const ATTEMPTS: u32 = 4;
/// After this time all packets of an attempt have arrived or are lost.
const ARRIVED: Duration = Duration::from_millis(50);

/// Lets the network of the guest lose and delay packets.
///
/// # Errors
/// If it cannot, or if it does not although it said that it would.
pub(super) fn make_lossy() -> Result<(), SubjectError> {
    if !Path::new(TC).exists() {
        let text = "--lossy needs tc, which is in the Debian package iproute2";
        return Err(SubjectError::Nfs(text.to_owned()));
    }
    tc(&PACKETS)?;
    let failed = SubjectError::io("send packets to", "the network of the guest");
    let listening = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|socket| Ok((socket.local_addr()?, socket)));
    let (to, socket) = listening.map_err(failed)?;
    for _ in 0..ATTEMPTS {
        for _ in 0..TRIED_PACKETS {
            // One that is refused has not arrived either; what counts is what the queue says.
            let _ = socket.send_to(&[0], to);
        }
        std::thread::sleep(ARRIVED);
        if dropped(&tc(&STATISTICS)?).is_some_and(|packets| packets > 0) {
            return Ok(());
        }
    }
    Err(unable("no packet is lost"))
}

fn tc(arguments: &[&str]) -> Result<String, SubjectError> {
    let said = Command::new(TC).args(arguments).output().map_err(SubjectError::io("run", TC))?;
    match said.status.success() {
        true => Ok(String::from_utf8_lossy(&said.stdout).into_owned()),
        false => Err(unable(String::from_utf8_lossy(&said.stderr).trim())),
    }
}

fn unable(why: &str) -> SubjectError {
    SubjectError::Nfs(format!(
        "--lossy needs a kernel with CONFIG_NET_SCH_NETEM, as `fathom guest build 6.12` makes it: {why}"
    ))
}

/// The number of lost packets in what tc(8) says of the first queue.
fn dropped(statistics: &str) -> Option<u64> {
    let (_, rest) = statistics.split_once("(dropped ")?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_packets_are_read_from_the_statistics() {
        let text = "qdisc netem 8001: root refcnt 2 limit 1000 delay 3ms  2ms loss 2%\n \
                    Sent 4090 bytes 45 pkt (dropped 12, overlimits 0 requeues 0) \n";
        assert_eq!(dropped(text), Some(12));
        assert_eq!(dropped("qdisc noqueue 0: root refcnt 2 \n"), None);
    }
}
