//! A network of ours between peers and the broker: connections break in it, and break halfway.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What happens to the bytes of a connection.
const PASS: u8 = 0;
/// Nobody reads them: the other end's buffers fill.
const STALL: u8 = 1;
/// They vanish. Nothing may pass afterwards.
const SWALLOW: u8 = 2;

struct Link {
    ends: [TcpStream; 2],
    mode: AtomicU8,
}

impl Link {
    fn cut(&self) {
        for end in &self.ends {
            // It may be closed already.
            let _ = end.shutdown(Shutdown::Both);
        }
    }
}

/// A listener whose connections lead to the broker, wherever that is at present.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    broker: Mutex<Option<SocketAddr>>,
    links: Mutex<Vec<Arc<Link>>>,
    stop: AtomicBool,
}

impl Proxy {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        let shared = Arc::<Shared>::default();
        let mine = Arc::clone(&shared);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                if mine.stop.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(client) = client else { continue };
                mine.lead(client);
            }
        });
        Self { address, shared }
    }

    /// The broker listens there from now on.
    pub(crate) fn lead_to(&self, broker: SocketAddr) {
        *self.shared.broker.lock().expect("nobody panics here") = Some(broker);
    }

    /// One of the connections, picked by `below`, which gives a number below another one.
    fn pick(&self, below: &mut dyn FnMut(usize) -> usize) -> Option<Arc<Link>> {
        let mut links = self.shared.links.lock().expect("nobody panics here");
        links.retain(|link| Arc::strong_count(link) > 1);
        (!links.is_empty()).then(|| Arc::clone(&links[below(links.len())]))
    }

    /// Breaks a connection.
    pub(crate) fn cut(&self, below: &mut dyn FnMut(usize) -> usize) {
        if let Some(link) = self.pick(below) {
            link.cut();
        }
    }

    /// Loses what a connection carries, for so long, and breaks it then.
    pub(crate) fn lose(&self, below: &mut dyn FnMut(usize) -> usize, pause: Duration) {
        if let Some(link) = self.pick(below) {
            link.mode.store(SWALLOW, Ordering::SeqCst);
            std::thread::park_timeout(pause);
            link.cut();
        }
    }

    /// Holds what a connection carries up for so long. What has begun to vanish goes on vanishing: a
    /// stream with a hole in it is none that a network makes.
    pub(crate) fn stall(&self, below: &mut dyn FnMut(usize) -> usize, pause: Duration) {
        let turn = |link: &Link, from, to| {
            let mode = &link.mode;
            mode.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst)
        };
        if let Some(link) = self.pick(below)
            && turn(&link, PASS, STALL).is_ok()
        {
            std::thread::park_timeout(pause);
            // Else somebody loses what it carries by now.
            let _ = turn(&link, STALL, PASS);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        for link in self.shared.links.lock().expect("nobody panics here").iter() {
            link.cut();
        }
        // So that the listener looks.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn lead(&self, client: TcpStream) {
        let broker = *self.broker.lock().expect("nobody panics here");
        let Some(Ok(broker)) = broker.map(TcpStream::connect) else {
            return;
        };
        let both = (client.try_clone(), broker.try_clone());
        let (Ok(client_too), Ok(broker_too)) = both else {
            return;
        };
        let _ = (client.set_nodelay(true), broker.set_nodelay(true));
        let link = Arc::new(Link {
            ends: [client_too, broker_too],
            mode: AtomicU8::new(PASS),
        });
        for (from, to) in [(0, 1), (1, 0)] {
            let link = Arc::clone(&link);
            std::thread::spawn(move || carry(&link, from, to));
        }
        let mut links = self.links.lock().expect("nobody panics here");
        links.retain(|link| Arc::strong_count(link) > 1);
        links.push(link);
    }
}

fn carry(link: &Link, from: usize, to: usize) {
    let (mut from, mut to) = (&link.ends[from], &link.ends[to]);
    let mut bytes = [0; 16_384];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        while link.mode.load(Ordering::SeqCst) == STALL {
            std::thread::park_timeout(Duration::from_millis(2));
        }
        if link.mode.load(Ordering::SeqCst) == PASS && to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    link.cut();
}
