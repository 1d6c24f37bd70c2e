//! The host's side, as data: which of the clients' messages get to the server, as whose, and who gets
//! its answers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use peerbus_core::grant::NamePattern;
use peerbus_wire::jsonrpc::RpcMessage;
use peerbus_wire::{NameKey, PeerName, escape};
use serde_json::json;
use serde_json::value::RawValue;

use crate::side_channel::message::{self, Kind, META, Message, Place, VIA, via};
use crate::side_channel::surface::Surface;
use crate::side_channel::{GONE, NOT_FOUND, REFUSED, TIMED_OUT, TOO_LARGE};

/// How long a call may take unless it says so, and at most.
pub(crate) const TIMEOUT_MS: u64 = 60_000;
pub(crate) const TIMEOUT_MS_MAX: u64 = 3_600_000;
/// Calls of one client, and of all, that may be open; of one party half of those.
const OPEN_MAX: usize = 64;
const OPEN_ALL_MAX: usize = 1_024;
/// A call that was cancelled counts no longer than this, if the server says nothing of it.
const CANCELLED_MS: u64 = 60_000;
/// Bytes to the clients of one party that may wait to be read: they count for the token of this peer.
/// So much they may ask in open calls, too.
const UNREAD_MAX: usize = 16 * 1_048_576;
/// What of sentences that say so may wait besides.
const UNREAD_MORE: usize = 1_048_576;
/// Longest error that counts as such a sentence, in bytes besides its id. The host's own are shorter.
const SENTENCE_BYTES_MAX: usize = 4_096;
/// Longest channel of a client's that an answer repeats, in bytes: none of ours is as long.
const CHANNEL_BYTES_MAX: usize = 1_024;
/// Clients that are told of changes.
const CLIENTS_MAX: usize = 1_024;
/// Largest message to a client, in bytes: what an envelope has room for besides its own members.
pub(crate) const ANSWER_BYTES_MAX: usize = 1_048_576 - 1_024;
const PROGRESS: &str = "progressToken";

/// A client, and who answers for it where that is not the token of this peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Client {
    pub(crate) name: PeerName,
    pub(crate) party: Option<String>,
}

/// What is to be done.
#[derive(Debug)]
pub(crate) enum Out {
    Server(Message),
    Client(Client, Message),
}

/// What was sent to a client and is not known to be read.
#[derive(Debug)]
struct Unread {
    id: String,
    party: Option<String>,
    bytes: usize,
}

/// Why something is not done: a code and a sentence.
type Refused = (i64, String);

/// A call that the server has not answered.
#[derive(Debug)]
struct Open {
    client: Client,
    /// The client's own id for it.
    id: Box<RawValue>,
    place: Place,
    /// What the client wants progress told under.
    progress: Option<Box<RawValue>>,
    until_ms: u64,
    timeout_ms: u64,
    /// Of what is asked.
    bytes: usize,
    /// The client does not wait for it. The server may still work on it.
    cancelled: bool,
}

/// A channel and those who use it. Times are milliseconds of one monotonic clock.
#[derive(Debug)]
pub(crate) struct Host {
    uri: String,
    surface: Surface,
    to: Vec<NamePattern>,
    last: u64,
    open: BTreeMap<u64, Open>,
    /// Who has used this channel, and where they put its URI.
    clients: BTreeMap<NameKey, (Client, Place)>,
    /// Over all channels of this process.
    unread: VecDeque<Unread>,
}

impl Host {
    /// No channel yet, for the peers `to`.
    pub(crate) fn new(to: Vec<NamePattern>) -> Self {
        Self {
            uri: String::new(),
            surface: Surface::default(),
            to,
            last: 0,
            open: BTreeMap::new(),
            clients: BTreeMap::new(),
            unread: VecDeque::new(),
        }
    }

    /// From now on there is this channel and no other, which serves `surface`.
    pub(crate) fn begin(&mut self, uri: String, surface: Surface) {
        (self.uri, self.surface) = (uri, surface);
        self.open.clear();
        self.clients.clear();
    }

    fn unread(&self, party: Option<&String>) -> usize {
        let of = self.unread.iter().filter(|one| one.party.as_ref() == party);
        of.map(|one| one.bytes).sum()
    }

    /// So many bytes go to a client under this id, unless too much waits there. What `answers` no call
    /// leaves the room for sentences to them.
    pub(crate) fn sends(&mut self, to: &Client, id: &str, bytes: usize, answers: bool) -> bool {
        let waits = self.unread(to.party.as_ref());
        let fits = match answers {
            true => waits <= UNREAD_MAX + UNREAD_MORE,
            false => waits + bytes <= UNREAD_MAX,
        };
        if fits {
            let (id, party) = (id.to_owned(), to.party.clone());
            self.unread.push_back(Unread { id, party, bytes });
        }
        fits
    }

    /// What was sent under this id waits no longer.
    pub(crate) fn ended_at_client(&mut self, id: &str) {
        self.unread.retain(|one| one.id != id);
    }

    /// Up to so many messages that were sent, of which it may not be known that they were read; others
    /// when it is asked again.
    pub(crate) fn doubted(&mut self, max: usize) -> Vec<String> {
        let count = max.min(self.unread.len());
        self.unread.rotate_left(count);
        let asked = self.unread.iter().rev().take(count);
        asked.map(|one| one.id.clone()).collect()
    }

    /// A peer sent a message, so long ago.
    pub(crate) fn hear(
        &mut self,
        from: &Client,
        mut message: Message,
        (now_ms, age_ms): (u64, u64),
    ) -> Vec<Out> {
        if message.kind() == Kind::Response {
            // Nothing is asked of clients.
            return Vec::new();
        }
        let (channel, place) = message.take_channel().unzip();
        let place = place.unwrap_or(Place::Top);
        let meant = self.is_meant(from, channel.as_deref());
        let asked = channel.filter(|channel| channel.len() <= CHANNEL_BYTES_MAX);
        let asked = asked.unwrap_or_else(|| self.uri.clone());
        let method = message.method.clone().unwrap_or_default();
        let Some(id) = message.id.take() else {
            return match meant {
                Ok(()) => self.told(from, &method, message, now_ms),
                Err(_) => Vec::new(),
            };
        };
        let admitted = meant.and_then(|()| {
            if self.clients.len() < CLIENTS_MAX {
                self.clients.insert(from.name.key(), (from.clone(), place));
            }
            self.admit(from, &method, &mut message, age_ms)
        });
        let answer = match admitted {
            Ok(Some(times)) => return self.pass(from, (id, place), message, now_ms, times),
            Ok(None) => Message::result(id, &json!({})),
            // Nothing was done: the client may ask anew, at the channel that there is.
            Err((GONE, why)) => {
                let now = Some(&self.uri).filter(|uri| !uri.is_empty());
                Message::refusal_with(id, GONE, &why, json!({ "channel": now }))
            }
            Err((code, why)) => Message::refusal(id, code, &why),
        };
        let answer = self.answer_at((&asked, place), from, answer);
        answer.into_iter().collect()
    }

    fn is_meant(&self, from: &Client, channel: Option<&str>) -> Result<(), Refused> {
        if !self.to.iter().any(|pattern| pattern.matches(&from.name)) {
            let why = format!("this server is not shared with {}", from.name);
            return Err((REFUSED, why));
        }
        if channel != Some(self.uri.as_str()) {
            let asked = escape(channel.unwrap_or_default(), 200);
            let why = format!("there is no channel {asked} here (any more); look for it anew");
            return Err((GONE, why));
        }
        Ok(())
    }

    /// How long a request may take in all, and what is left of that. `None`: it is answered here.
    fn admit(
        &self,
        from: &Client,
        method: &str,
        message: &mut Message,
        age_ms: u64,
    ) -> Result<Option<(u64, u64)>, Refused> {
        if method == "ping" {
            return Ok(None);
        }
        if !self.surface.admits(Kind::Request, method) {
            return Err((NOT_FOUND, "Method not found".into()));
        }
        let via = via(message);
        if via.contains(&self.uri) {
            let why = format!("{} leads back to itself: it shares what it uses", self.uri);
            return Err((REFUSED, why));
        }
        let open = |is: &dyn Fn(&Client) -> bool| {
            self.open.values().filter(|open| is(&open.client)).count()
        };
        let own = open(&|client| client == from);
        let of_party = open(&|client| client.party == from.party);
        let asked = self
            .open
            .values()
            .filter(|open| open.client.party == from.party);
        let asked = asked.map(|open| open.bytes).sum::<usize>() + size(message);
        let full = of_party >= OPEN_ALL_MAX / 2 || self.open.len() >= OPEN_ALL_MAX;
        if own >= OPEN_MAX || full || asked > UNREAD_MAX {
            let why = format!(
                "{own} calls of yours are open, {of_party} with those of your token; wait for some of them"
            );
            return Err((REFUSED, why));
        }
        let waits = self.unread(from.party.as_ref());
        if waits >= UNREAD_MAX {
            return Err((REFUSED, unread(waits) + "; nothing was done"));
        }
        let timeout_ms = message.beside.timeout_ms.take().unwrap_or(TIMEOUT_MS);
        let timeout_ms = timeout_ms.clamp(1, TIMEOUT_MS_MAX);
        match timeout_ms.saturating_sub(age_ms) {
            0 => {
                let [age, time] = [age_ms, timeout_ms].map(|ms| ms.div_ceil(1_000));
                let why = format!("this came after {age} s, and had {time} s: it was not done");
                Err((TIMED_OUT, why))
            }
            left_ms => Ok(Some((timeout_ms, left_ms))),
        }
    }

    /// Hands a request on under an id of ours.
    fn pass(
        &mut self,
        from: &Client,
        (id, place): (Box<RawValue>, Place),
        mut message: Message,
        now_ms: u64,
        (timeout_ms, left_ms): (u64, u64),
    ) -> Vec<Out> {
        self.last += 1;
        let (own, bytes) = (self.last, size(&message));
        let via = via(&message);
        let mut params = message.members();
        let mut meta = message::object(params.get(META).map(AsRef::as_ref));
        let progress = meta.contains_key(PROGRESS).then(|| {
            let token = message::raw(&own);
            token.and_then(|token| meta.insert(PROGRESS.into(), token))
        });
        let passed: Vec<_> = via.iter().cloned().chain([self.uri.clone()]).collect();
        meta.extend(message::raw(&json!(passed)).map(|via| (VIA.to_owned(), via)));
        params.extend(message::raw(&meta).map(|meta| (META.to_owned(), meta)));
        message.params = message::raw(&params);
        message.id = message::raw(&own);
        let open = Open {
            client: from.clone(),
            id,
            place,
            progress: progress.flatten(),
            until_ms: now_ms.saturating_add(left_ms),
            timeout_ms,
            bytes,
            cancelled: false,
        };
        self.open.insert(own, open);
        vec![Out::Server(message)]
    }

    fn told(&mut self, from: &Client, method: &str, mut message: Message, now_ms: u64) -> Vec<Out> {
        if method == "notifications/cancelled" {
            let mut params = message.members();
            let asked = params.get("requestId").map(|id| id.get().to_owned());
            let is = |open: &Open| {
                let waits = open.client == *from && !open.cancelled;
                waits && Some(open.id.get()) == asked.as_deref()
            };
            let Some((own, open)) = self.open.iter_mut().find(|(_, open)| is(open)) else {
                return Vec::new();
            };
            open.cancelled = true;
            open.until_ms = open.until_ms.min(now_ms.saturating_add(CANCELLED_MS));
            let own = *own;
            params.extend(message::raw(&own).map(|own| ("requestId".to_owned(), own)));
            message.params = message::raw(&params);
            return vec![Out::Server(message)];
        }
        match self.surface.admits(Kind::Notification, method) {
            true => vec![Out::Server(message)],
            false => Vec::new(),
        }
    }

    pub(crate) fn said(&mut self, message: Message) -> Vec<Out> {
        match message.kind() {
            Kind::Response => self.answered(message),
            Kind::Request => self.asked(message),
            Kind::Notification => self.notified(message),
        }
    }

    fn answered(&mut self, mut message: Message) -> Vec<Out> {
        let own = message
            .id
            .take()
            .and_then(|id| id.get().parse::<u64>().ok());
        let open = own.and_then(|own| self.open.remove(&own));
        let Some(open) = open.filter(|open| !open.cancelled) else {
            // Cancelled, or too late.
            return Vec::new();
        };
        message.id = Some(open.id);
        let answer = self.answer(&open.client, open.place, message);
        answer.into_iter().collect()
    }

    /// The server does not read what is for it.
    pub(crate) fn unsent(&mut self, message: Message) -> Vec<Out> {
        let why = "the server takes nothing more just now: nothing was done";
        let refusal = |id| self.answered(Message::refusal(id, REFUSED, why));
        message.rpc.id.map(refusal).unwrap_or_default()
    }

    /// The server asks for something. No client has a part in that.
    fn asked(&self, message: Message) -> Vec<Out> {
        let Some(id) = message.rpc.id else {
            return Vec::new();
        };
        let answer = match message.rpc.method.as_deref() {
            Some("ping") => Message::result(id, &json!({})),
            _ => Message::refusal(id, NOT_FOUND, "Method not found"),
        };
        vec![Out::Server(answer)]
    }

    fn notified(&self, mut message: Message) -> Vec<Out> {
        let method = message.method.clone().unwrap_or_default();
        if method == "notifications/progress" {
            let mut params = message.members();
            let own = params
                .get(PROGRESS)
                .and_then(|token| token.get().parse::<u64>().ok());
            let open = own.and_then(|own| self.open.get(&own));
            let Some(open) = open.filter(|open| !open.cancelled) else {
                return Vec::new();
            };
            let Some(token) = &open.progress else {
                return Vec::new();
            };
            params.insert(PROGRESS.into(), token.clone());
            message.params = message::raw(&params);
            let told = self.answer(&open.client, open.place, message);
            return told.into_iter().collect();
        }
        if !self.surface.forwards(&method) {
            return Vec::new();
        }
        let each = |(client, place): &(Client, Place)| self.answer(client, *place, message.clone());
        self.clients.values().filter_map(each).collect()
    }

    /// The server has ended: nobody waits any more.
    pub(crate) fn ended(&mut self) -> Vec<Out> {
        let why = "the server has ended while it worked on this: it may have been done";
        let open = std::mem::take(&mut self.open).into_values();
        let each = |open: Open| {
            let refusal = Message::refusal(open.id, GONE, why);
            self.answer(&open.client, open.place, refusal)
        };
        open.filter(|open| !open.cancelled)
            .filter_map(each)
            .collect()
    }

    /// When something is late, if something is open.
    pub(crate) fn deadline(&self) -> Option<u64> {
        self.open.values().map(|open| open.until_ms).min()
    }

    pub(crate) fn late(&mut self, now_ms: u64) -> Vec<Out> {
        self.end(TIMED_OUT, |open| {
            let seconds = open.timeout_ms.div_ceil(1_000);
            (open.until_ms <= now_ms).then(|| format!("no answer within {seconds} s"))
        })
    }

    /// Clients that are not at the bus now are told of no changes, and calls of those who are not `known`
    /// there any more end. Of other domains, and where `known` is none, nobody knows.
    pub(crate) fn keep(
        &mut self,
        there: &BTreeSet<NameKey>,
        known: Option<&BTreeSet<NameKey>>,
    ) -> Vec<Out> {
        self.clients.retain(|key, _| there.contains(key));
        self.end(GONE, |Open { client, .. }| {
            let here = !client.name.as_str().contains('@');
            let gone = here && known.is_some_and(|known| !known.contains(&client.name.key()));
            gone.then(|| format!("{} has left", client.name))
        })
    }

    /// Ends calls, each for a reason.
    fn end(&mut self, code: i64, why: impl Fn(&Open) -> Option<String>) -> Vec<Out> {
        let ended = self.open.extract_if(.., |_, open| why(open).is_some());
        let mut out = Vec::new();
        for (own, open) in ended.collect::<Vec<_>>() {
            if open.cancelled {
                continue;
            }
            let why = why(&open).unwrap_or_default() + ": it may have been done";
            let params = json!({ "requestId": own, "reason": why });
            let cancelled =
                RpcMessage::call(None, "notifications/cancelled", message::raw(&params));
            out.push(Out::Server(cancelled.into()));
            let refusal = Message::refusal(open.id, code, &why);
            out.extend(self.answer(&open.client, open.place, refusal));
        }
        out
    }

    fn answer(&self, to: &Client, place: Place, message: Message) -> Option<Out> {
        self.answer_at((&self.uri, place), to, message)
    }

    /// A message to a client, with the channel; an answer that is too large, or too much, is an error that
    /// says so. What answers nothing goes nowhere then.
    fn answer_at(
        &self,
        (channel, place): (&str, Place),
        to: &Client,
        mut message: Message,
    ) -> Option<Out> {
        message.put_channel(channel, place);
        let bytes = message.text().len();
        let besides_id = bytes - message.id.as_ref().map_or(0, |id| id.get().len());
        let is_sentence = message.error.is_some() && besides_id <= SENTENCE_BYTES_MAX;
        let waits = self.unread(to.party.as_ref());
        let (code, why) = if bytes > ANSWER_BYTES_MAX {
            let why = format!(
                "the answer is too large for the bus: {bytes} bytes, at most {ANSWER_BYTES_MAX}"
            );
            (TOO_LARGE, why)
        } else if !is_sentence && waits + bytes > UNREAD_MAX {
            (
                REFUSED,
                format!(
                    "the answer has {bytes} bytes, and {}; it was done",
                    unread(waits)
                ),
            )
        } else {
            return Some(Out::Client(to.clone(), message));
        };
        let mut refusal = Message::refusal(message.id.take()?, code, &why);
        refusal.put_channel(channel, place);
        Some(Out::Client(to.clone(), refusal))
    }
}

/// Bytes of what a message asks.
fn size(message: &Message) -> usize {
    message
        .params
        .as_ref()
        .map_or(0, |params| params.get().len())
}

/// Why a party gets no more.
fn unread(waits: usize) -> String {
    format!("{waits} bytes of answers to your token wait to be read: read some first")
}

#[cfg(test)]
mod tests;
