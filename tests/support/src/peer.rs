//! The broker's end of one connection, frame by frame.

use peerbus_wire::{
    Accepted, BrokerFrame, ClientFrame, CloseReason, DeliveryKey, Envelope, How, MessageId,
    PeersFrame, Receipt, Register, Stage,
};
use tokio_tungstenite::tungstenite::Message;

use crate::message::{SECRET, delivery, signed};
use crate::socket::{Io, Socket};
use crate::soon;

/// A client that has said who it is. The broker does nothing for it but what a test says.
pub struct Peer {
    socket: Socket,
    /// How it registered.
    pub register: Register,
}

impl Peer {
    /// Takes a client's connection and reads its `register`.
    pub async fn accept(stream: impl Io + 'static) -> Self {
        let mut socket = soon(Socket::accept(stream)).await.unwrap();
        match read(&mut socket).await.0 {
            ClientFrame::Register(register) => Self { socket, register },
            other => panic!("expected register, got {other:?}"),
        }
    }

    /// Answers the registration. `ext`: as a broker that speaks our extension.
    pub async fn admit(&mut self, ext: bool) {
        let frame = PeersFrame {
            names: vec![self.register.name.clone()],
            ext: ext.then_some(1),
            ..PeersFrame::default()
        };
        self.frame(&BrokerFrame::Peers(frame)).await;
    }

    /// Sends a frame.
    pub async fn frame(&mut self, frame: &BrokerFrame) {
        self.text(frame.encode().to_string()).await;
    }

    /// Sends a text, frame or not.
    pub async fn text(&mut self, text: String) {
        self.message(Message::text(text)).await;
    }

    /// Sends any message.
    pub async fn message(&mut self, message: Message) {
        self.socket.send_raw(message).await;
    }

    /// The next message, whatever it is; `None` at the end.
    pub async fn raw(&mut self) -> Option<Message> {
        self.socket.next_raw().await
    }

    /// The next frame, and its text.
    pub async fn read(&mut self) -> (ClientFrame, String) {
        read(&mut self.socket).await
    }

    /// The next frame, which is an envelope.
    pub async fn envelope(&mut self) -> (MessageId, String) {
        match self.read().await {
            (ClientFrame::Envelope(carried), text) => (carried.id, text),
            (other, _) => panic!("expected an envelope, got {other:?}"),
        }
    }

    /// The next frame, which is an ack.
    pub async fn ack(&mut self) -> (String, Option<How>) {
        match self.read().await.0 {
            ClientFrame::Ack(ack) => (ack.key.as_str().into(), ack.how),
            other => panic!("expected an ack, got {other:?}"),
        }
    }

    /// Says how far a message got as a whole or at alice.
    pub async fn receipt(&mut self, id: &MessageId, stage: Stage) {
        self.text(receipt(id.clone(), "alice", stage, None)).await;
    }

    /// Says that a message is accepted.
    pub async fn accepted(&mut self, id: &MessageId) {
        self.receipt(id, accepted(0)).await;
    }

    /// Delivers [`from_alice`].
    pub async fn deliver(&mut self, key: &str, id: &str) {
        self.text(delivery(key, &from_alice(id))).await;
    }

    /// Closes the connection.
    pub async fn close(mut self, reason: &CloseReason) {
        soon(self.socket.close(reason)).await.unwrap();
    }
}

/// A message from alice to bob whose body is its id.
pub fn from_alice(id: &str) -> Envelope {
    signed(SECRET, id, "alice", "bob", &format!("\"{id}\""))
}

async fn read(socket: &mut Socket) -> (ClientFrame, String) {
    let message = socket.next_raw().await.expect("a frame");
    let text = message.into_text().unwrap().to_string();
    (ClientFrame::parse(text.as_bytes()), text)
}

/// That a message is accepted for one recipient, of which so many are there.
pub(crate) fn accepted(online: u32) -> Stage {
    Stage::Accepted(Accepted {
        recipients: 1,
        online,
        duplicate: false,
    })
}

/// The frame that says how far a message got as a whole or at `to`.
pub(crate) fn receipt(id: MessageId, to: &str, stage: Stage, key: Option<DeliveryKey>) -> String {
    let receipt = Receipt {
        key,
        to: stage.is_at_one().then(|| to.to_owned()),
        ..Receipt::new(id, stage)
    };
    BrokerFrame::Receipts(vec![receipt]).encode().to_string()
}
