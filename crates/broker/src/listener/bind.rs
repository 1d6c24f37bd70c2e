//! Everything that a broker listens on.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use tokio_rustls::TlsAcceptor;

use super::given::take_over;
use super::unix::UnixPlace;
use super::{Bound, Site, bind_tcp};
use crate::options::BrokerStartError;

/// Fails if other machines could reach one of these addresses.
pub(crate) fn check_loopback(addresses: &[SocketAddr]) -> Result<(), BrokerStartError> {
    let exposed = |address: &&SocketAddr| !address.ip().to_canonical().is_loopback();
    match addresses.iter().find(exposed) {
        Some(&address) => Err(BrokerStartError::Insecure(address)),
        None => Ok(()),
    }
}

/// Where to listen.
pub(crate) struct Places {
    pub(crate) listen: Vec<SocketAddr>,
    /// Places for the Unix socket, best first.
    pub(crate) unix: Vec<PathBuf>,
    /// What listens already.
    pub(crate) given: Vec<OwnedFd>,
    pub(crate) tcp_optional: bool,
    pub(crate) loopback_only: bool,
    /// TLS, if clients over TCP must speak it there.
    pub(crate) tls: Option<TlsAcceptor>,
    /// Where machines that were invited connect, whatever was given, or why they cannot.
    pub(crate) invited: Option<Result<(SocketAddr, TlsAcceptor), String>>,
}

/// What is listened on.
#[derive(Default)]
pub(crate) struct Listening {
    pub(crate) bound: Vec<(Bound, Site, Option<TlsAcceptor>)>,
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) unix: Option<PathBuf>,
    /// Addresses that could not be listened on, and why.
    pub(crate) left_out: Vec<BrokerStartError>,
    /// Where machines that were invited connect, or why they cannot.
    pub(crate) invited: Option<Result<SocketAddr, String>>,
}

/// Binds every address, and the Unix socket last; or takes what was given.
pub(crate) fn listen_at(places: &mut Places) -> Result<Listening, BrokerStartError> {
    let mut listening = Listening::default();
    if !places.given.is_empty() {
        for fd in places.given.drain(..) {
            let taken = take_over(fd);
            let (bound, site) = taken.map_err(BrokerStartError::Given)?;
            if let Bound::Unix(place) = &bound {
                listening.unix = place.path().map(PathBuf::from);
            }
            if let Site::Tcp(address) = site {
                listening.addresses.push(address);
            }
            listening.bound.push((bound, site, places.tls.clone()));
        }
        if places.loopback_only {
            check_loopback(&listening.addresses)?;
        }
        places.listen.clear();
        places.unix.clear();
    }
    for address in &places.listen {
        match bind_tcp(*address) {
            Ok((listener, actual)) => {
                listening.addresses.push(actual);
                let bound = (Bound::Tcp(listener), Site::Tcp(actual), places.tls.clone());
                listening.bound.push(bound);
            }
            Err(why) if places.tcp_optional && !places.unix.is_empty() => {
                listening.left_out.push(why);
            }
            Err(why) => return Err(why),
        }
    }
    if let Some(place) = places.invited.take() {
        // Sessions of this user do without.
        listening.invited = Some(place.and_then(|(address, tls)| {
            let (listener, actual) = bind_tcp(address).map_err(|why| why.to_string())?;
            let bound = (Bound::Tcp(listener), Site::Tcp(actual), Some(tls));
            listening.bound.push(bound);
            Ok(actual)
        }));
    }
    if !places.unix.is_empty() {
        let place = UnixPlace::bind(std::mem::take(&mut places.unix))?;
        listening.unix = place.path().map(PathBuf::from);
        listening.bound.push((Bound::Unix(place), Site::Unix, None));
    }
    Ok(listening)
}
