//! What a host may do about its name, and about messages short of an ack.

use std::time::Duration;

use peerbus_peer::session::{Question, Status};
use peerbus_wire::PeerName;

use crate::bus::Bus;
use crate::error::BusError;

impl Bus {
    /// Goes by another name from now on. The queue goes with it, and mail for the present name
    /// still comes here. If the broker turned the present name down, this is not asked of it: the
    /// other name is registered in its place.
    ///
    /// # Errors
    ///
    /// [`BusError::Refused`] with the broker's sentence when the name is not free;
    /// [`BusError::NotSupported`] behind a v1 broker; otherwise as for [`Bus::peers`].
    pub async fn rename(&self, name: PeerName, deadline: Duration) -> Result<(), BusError> {
        if matches!(*self.link().borrow(), Status::Refused { .. }) {
            self.tell(|session, now| session.go_by(now, name, false));
            let joined = self.joined(deadline).await;
            return joined.map_or_else(
                |state| Err(BusError::Refused(state.to_string())),
                |_| Ok(()),
            );
        }
        match self.ask(Question::Name(name), deadline).await {
            Ok(_) => Ok(()),
            Err(BusError::Overloaded(_)) => Err(BusError::Overloaded(
                "another change of this peer's name is under way; wait for it".into(),
            )),
            Err(BusError::TimedOut(why)) => Err(BusError::TimedOut(format!(
                "{why}; the broker may still do it"
            ))),
            Err(error) => Err(error),
        }
    }

    /// Says which session of the client this process serves (from now on), so that the session finds
    /// its name and its queue again when it is resumed. A session that has a name already gets it
    /// back, if this process has a made-up one that nobody has used; one that is new takes none, and
    /// what its id was bound to is of another. Does nothing where the name was chosen. Reads and writes
    /// one small file.
    pub fn bind_session(&self, id: &str, is_new: bool) {
        let known = self.shared().with_binder(|binder| {
            let new = !binder.serves(id);
            new.then(|| binder.name_of(id).filter(|_| !is_new))
        });
        let Some(Some(known)) = known else {
            return;
        };
        let (name, unused, online) = self.shared().with(|session, _| {
            let online = matches!(session.status(), Status::Online { .. });
            (session.name().clone(), session.is_unused(), online)
        });
        let takes_back = known.filter(|known| unused && *known != name);
        self.shared().with_binder(|binder| {
            binder.add(id, takes_back.is_none());
        });
        if online && takes_back.is_none() {
            self.shared().remember(&name);
        }
        if let Some(known) = takes_back {
            self.tell(|session, now| session.go_by(now, known, true));
        }
    }

    /// Waits until this peer is registered, under a name that it is not about to give up, and
    /// gives the name. At `deadline` the name that it has then will do.
    ///
    /// # Errors
    ///
    /// Where the connection stands, when it waits for somebody or `deadline` has passed.
    pub async fn joined(&self, deadline: Duration) -> Result<String, Status> {
        let mut link = self.link();
        let settled = async {
            loop {
                let state = link.borrow_and_update().clone();
                let passing = match state {
                    Status::Online { .. } => self.shared().with(|s, _| s.is_giving_way()),
                    Status::Connecting { .. } => state.in_the_way().is_none(),
                    _ => false,
                };
                if !passing || link.changed().await.is_err() {
                    return;
                }
            }
        };
        // What the link says is what there is to say, settled or not.
        let _ = tokio::time::timeout(deadline, settled).await;
        let state = self.link().borrow().clone();
        match state {
            Status::Online { name, .. } => Ok(name.as_str().to_owned()),
            state => Err(state),
        }
    }
}
