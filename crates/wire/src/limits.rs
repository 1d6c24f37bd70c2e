//! Every bound of the wire in one place, asserted against each other.

/// Longest domain, in bytes.
pub const DOMAIN_BYTES_MAX: usize = 16;

/// Longest epoch of a broker, and longest mark that a bridge has its broker keep, in bytes.
pub const MARK_BYTES_MAX: usize = 128;

/// Messages that a broker names in one `forwarded` frame.
pub const FORWARDED_MAX: usize = 256;

/// Largest WebSocket message in either direction, in bytes.
pub const FRAME_BYTES_MAX: usize = 1_048_576;
/// Largest first frame of a client, in bytes: its `register`.
pub const REGISTER_BYTES_MAX: usize = 4_096;
/// Longest peer name, in bytes (names are ASCII).
pub const NAME_BYTES_MAX: usize = 64;
/// Longest envelope `id`, in bytes.
pub const ID_BYTES_MAX: usize = 128;
/// Longest envelope `source`, in bytes.
pub const SOURCE_BYTES_MAX: usize = 64;
/// Longest envelope `ts`, in bytes.
pub const TS_BYTES_MAX: usize = 64;
/// Deepest nesting of a body that is accepted, counted in open arrays and objects.
pub const NESTING_MAX: usize = 64;
/// Deepest nesting that the decoder reads at all (the reference implementation's JSON library
/// stops there too).
pub const DECODE_NESTING_MAX: usize = 10_000;
/// Longest bearer token, in bytes.
pub const TOKEN_BYTES_MAX: usize = 512;
/// Shortest token that a machine makes that was invited, in bytes.
pub const JOIN_TOKEN_BYTES_MIN: usize = 32;
/// Longest name of a token, in bytes.
pub const TOKEN_NAME_BYTES_MAX: usize = 32;
/// Longest instance credential, in bytes (ours are 32 hex digits).
pub const INSTANCE_BYTES_MAX: usize = 64;
/// Longest delivery key that an adapter accepts, in bytes. A v1 broker sends `id|recipient`.
pub const DELIVERY_KEY_BYTES_MAX: usize = 4_096;
/// Largest presence object, in bytes of its JSON text.
pub const PRESENCE_BYTES_MAX: usize = 1_024;
/// Shortest HMAC secret, in bytes.
pub const SECRET_BYTES_MIN: usize = 32;
/// Longest reason in a receipt, a reject or a release, in bytes; longer ones are cut with `…`.
pub const REASON_BYTES_MAX: usize = 512;
/// Longest `path` or `evidence` in an ack, in bytes.
pub const HOW_BYTES_MAX: usize = 64;
/// Longest text in an audit record, in bytes; longer ones are cut with `…`.
pub const AUDIT_TEXT_BYTES_MAX: usize = 96;
/// Most groups of one peer, and most in one `peers` frame that joins or leaves them.
pub const GROUPS_MAX: usize = 64;
/// Most ids in one `status` request.
pub const STATUS_IDS_MAX: usize = 256;
/// Most entries in one `peers` answer; the answer says when there were more.
pub const PEERS_ENTRIES_MAX: usize = 512;
/// Frames of one connection that may be read and not yet answered.
pub const FRAMES_UNANSWERED_MAX: usize = 256;
/// Window of a connection that offers none, in messages.
pub const WINDOW_MESSAGES_DEFAULT: u32 = 256;
/// Window of a connection that offers none, in bytes of deliver frames.
pub const WINDOW_BYTES_DEFAULT: u32 = 1_048_576;
/// Largest window that is granted, in messages.
pub const WINDOW_MESSAGES_MAX: u32 = 4_096;
/// Largest window that is granted, in bytes.
pub const WINDOW_BYTES_MAX: u32 = 8_388_608;
/// Window of a v1 connection, in messages.
pub const WINDOW_V1_MESSAGES: u32 = WINDOW_MESSAGES_MAX;
/// Window of a v1 connection, in bytes.
pub const WINDOW_V1_BYTES: u32 = WINDOW_BYTES_MAX;
/// Deliveries that a v1 connection may leave unacked beyond its window once they have lapsed.
pub const EXEMPT_V1_MESSAGES: u32 = 4_096;

/// Texts that a body may say of where it comes from, at most.
pub const META_MAX: usize = 32;
/// Longest key of such a text, in bytes.
pub const META_KEY_BYTES_MAX: usize = 64;
/// All of them with their keys, in bytes.
pub const META_BYTES_MAX: usize = 2_048;

/// Time for the result of a request, in milliseconds, where it says none.
pub const WITHIN_MS_DEFAULT: u64 = 3_600_000;
/// Longest time for it.
pub const WITHIN_MS_MAX: u64 = 604_800_000;

/// A message's age is said on delivery from so many milliseconds on.
pub const AGE_MS_MIN: u64 = 1_000;

/// Digits of the largest number.
const DIGITS_MAX: usize = 20;

/// Longest key that a deliver frame has room for whatever the envelope, in bytes: 20 digits.
pub const SHORT_KEY_BYTES: usize = 20;
/// What a deliver frame adds around the envelope: the fixed text and such a key.
pub const DELIVER_OVERHEAD_BYTES: usize =
    r#"{"protocol_version":"v1","type":"deliver","delivery_key":"","envelope":}"#.len()
        + SHORT_KEY_BYTES;
/// What a deliver frame for one `ext` recipient may be longer than that, and than a frame: it says
/// that the message comes again, under which name it was sent, with which token, whether that may
/// approve, and until when a result is wanted.
pub const DELIVER_ONE_BYTES: usize =
    r#","again":true,"for":"","token":"","approves":true,"age_ms":,"within_ms":"#.len()
        + 2 * DIGITS_MAX
        + NAME_BYTES_MAX
        + TOKEN_NAME_BYTES_MAX;
/// Largest carried envelope (canonical form with its `hmac`), in bytes: its deliver frame fits a
/// frame whoever the recipient is.
pub const ENVELOPE_BYTES_MAX: usize = FRAME_BYTES_MAX - DELIVER_OVERHEAD_BYTES;

/// Every member of a `register` at its longest.
const _: () = assert!(
    2 * NAME_BYTES_MAX + TOKEN_BYTES_MAX + INSTANCE_BYTES_MAX + PRESENCE_BYTES_MAX + 1_024
        <= REGISTER_BYTES_MAX
);
const _: () = assert!(WINDOW_MESSAGES_DEFAULT <= WINDOW_MESSAGES_MAX);
const _: () = assert!(WINDOW_BYTES_DEFAULT <= WINDOW_BYTES_MAX);
const _: () = assert!(WINDOW_BYTES_DEFAULT as usize >= FRAME_BYTES_MAX);
const _: () = assert!(NESTING_MAX < DECODE_NESTING_MAX);
/// What the groups of one entry of a `peers` answer take at most, in bytes: those that do not fit are
/// left out.
pub const ENTRY_GROUPS_BYTES_MAX: usize = 240;
/// Longest entry of a `peers` answer: numbers and member names take less than 192 bytes.
pub(crate) const PEER_ENTRY_BYTES_MAX: usize =
    PRESENCE_BYTES_MAX + NAME_BYTES_MAX + 192 + ENTRY_GROUPS_BYTES_MAX;
const _: () = assert!(PEERS_ENTRIES_MAX * PEER_ENTRY_BYTES_MAX < FRAME_BYTES_MAX * 3 / 4);
const _: () = assert!(STATUS_IDS_MAX * (ID_BYTES_MAX + 3) + 1_024 < FRAME_BYTES_MAX);
