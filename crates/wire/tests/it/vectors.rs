//! The golden vectors of v1's reference implementation.

use peerbus_wire::{
    Carried, ClientFrame, DecodeError, Decoded, Envelope, Fields, Secret, SecretError, VerifyError,
    canonical, control_type,
};
use serde_json::Value;
use sha2::{Digest, Sha256};

const MEMBERS: [&str; 8] = [
    "protocol_version",
    "id",
    "from",
    "to",
    "ts",
    "source",
    "kind",
    "body",
];

/// Signed envelopes that v1 would carry and we refuse: the vector and what the refusal says.
const SIGNED_REFUSED: &[(&str, &str)] = &[
    ("body-invalid-utf8", "not valid UTF-8"),
    ("body-deep-100", "body nests 100 deep"),
    ("empty-strings", "invalid id \"\": empty id"),
    ("zero-envelope", "protocol_version must be \"v1\", got \"\""),
    ("fields-html", "invalid sender \"\\u003calice"),
    (
        "fields-2028",
        "invalid sender \"a\\u2028b\": peer name contains U+2028",
    ),
    ("fields-ctrl", "peer name contains U+0000"),
    ("fields-all-ascii", "source must be 1 to 64 of"),
    ("fields-c1", "peer name contains U+0080"),
    ("fields-unicode", "peer name contains U+00E1"),
    ("fields-fffd", "peer name contains U+FFFD"),
    ("fields-invalid-utf8", "peer name contains U+FFFD"),
    ("fields-pipe-star", "id contains a character outside"),
    ("fields-star-name", "peer name contains U+002A"),
    ("fields-space-name", "peer name contains U+0020"),
    ("version-v2", "protocol_version must be \"v1\", got \"v2\""),
    ("version-empty", "protocol_version must be \"v1\", got \"\""),
    ("kind-other", "kind must be \"msg\" or \"broadcast\""),
    (
        "kind-broadcast-direct-to",
        "kind \"broadcast\" goes to \"*\", got to \"bob\"",
    ),
];

/// Received frames that v1 routes and we refuse, although their signature is put right.
const RECEIVED_REFUSED: &[(&str, &str)] = &[
    ("case-insensitive-keys", "name in another case"),
    ("case-kelvin", "name in another case"),
    ("dup-last-wins", "appears twice"),
    ("dup-case-variants", "appears twice"),
    ("dup-then-null", "appears twice"),
    ("null-fields", "invalid sender \"\": empty peer name"),
    ("missing-fields", "protocol_version must be \"v1\""),
    ("html-raw", "id contains a character outside"),
    ("html-escaped", "id contains a character outside"),
    ("string-escapes", "half of a surrogate pair"),
    ("invalid-utf8-field", "not valid UTF-8"),
    ("invalid-utf8-body", "not valid UTF-8"),
];

#[test]
fn signed_vectors_have_v1s_canonical_form_and_signature() {
    for vector in section("signed", 64) {
        let name = text(&vector["name"]);
        let inputs: Vec<Vec<u8>> = MEMBERS
            .iter()
            .map(|m| bytes(&vector["input"][m], &name))
            .collect();
        let [v, id, from, to, ts, source, kind, body] = inputs.each_slice();
        let fields = Fields {
            strings: [v, id, from, to, ts, source, kind],
            body,
        };
        let secret = match Secret::new(text(&vector["secret"]).as_bytes()) {
            Ok(secret) => secret,
            Err(error) => {
                assert_eq!(
                    (name.as_str(), error),
                    ("short-secret", SecretError::TooShort { bytes: 31 })
                );
                assert_eq!(vector["error"], "hmac: secret must be at least 32 bytes");
                same(&canonical(&fields).unwrap(), &vector["canonical"], &name);
                continue;
            }
        };
        if vector.get("canonical").is_none() {
            assert!(vector.get("error").is_some(), "{name}");
            assert!(
                matches!(canonical(&fields), Err(DecodeError::Syntax { .. })),
                "{name}"
            );
            continue;
        }
        let form = canonical(&fields).unwrap();
        same(&form, &vector["canonical"], &name);
        assert_eq!(secret.sign(&form), vector["hmac"], "{name}");
        if vector.get("wire").is_some() {
            signed_on_the_wire(&vector, &form, &secret, &name);
        }
    }
}

/// What a recipient makes of the signed envelope.
fn signed_on_the_wire(vector: &Value, form: &[u8], secret: &Secret, name: &str) {
    let wire = wire_text(form, &text(&vector["hmac"]));
    same(&wire, &vector["wire"], name);
    let decoded = Envelope::decode(&wire).unwrap();
    members_are(&decoded.envelope, &vector["rt_decoded"], name);
    same(
        &decoded.envelope.canonical().unwrap(),
        &vector["rt_canonical"],
        name,
    );
    let verdict = match secret.verify(&decoded.envelope) {
        Ok(()) => "ok",
        Err(VerifyError::Mismatch) => "hmac: signature mismatch",
        Err(other) => panic!("{name}: {other}"),
    };
    assert_eq!(verdict, vector["rt_verify"], "{name}");
}

#[test]
fn received_vectors_are_read_as_v1_reads_them() {
    for vector in section("received", 41) {
        let name = text(&vector["name"]);
        let raw = bytes(&vector["raw"], &name);
        assert_eq!(
            control_type(&raw).unwrap_or_default(),
            text(&vector["control_type"]),
            "{name}"
        );
        let decoded = match Envelope::decode(&raw) {
            Ok(decoded) => decoded,
            Err(error) => {
                assert!(vector.get("decode_error").is_some(), "{name}: {error}");
                continue;
            }
        };
        assert!(vector.get("decode_error").is_none(), "{name}");
        members_are(&decoded.envelope, &vector["decoded"], &name);
        assert_eq!(decoded.envelope.hmac, text(&vector["hmac_field"]), "{name}");
        let form = decoded.envelope.canonical().unwrap();
        same(&form, &vector["canonical"], &name);
        let secret = Secret::new(text(&vector["secret"]).as_bytes()).unwrap();
        assert_eq!(secret.sign(&form), vector["hmac"], "{name}");
    }
}

#[test]
fn what_v1_carries_we_carry_or_refuse_as_listed() {
    let mut refused = Vec::new();
    for vector in section("signed", 64) {
        let name = text(&vector["name"]);
        if vector.get("wire").is_none() {
            continue;
        }
        let decoded = Envelope::decode(&signed_wire(&vector, &name)).unwrap();
        match carry(&decoded, &name) {
            Ok(carried) => same(carried.text.as_bytes(), &vector["rt_remarshal"], &name),
            Err(reason) => refused.push((name, reason)),
        }
    }
    are_listed(&refused, SIGNED_REFUSED);

    let mut refused = Vec::new();
    for vector in section("received", 41) {
        if vector["routable"] != true {
            continue;
        }
        let name = text(&vector["name"]);
        let mut decoded = Envelope::decode(&bytes(&vector["raw"], &name)).unwrap();
        // None of these frames is signed: as it came, each of them is refused.
        assert!(decoded.carry().is_err(), "{name}");
        decoded.envelope.hmac = text(&vector["hmac"]);
        match carry(&decoded, &name) {
            Ok(carried) => {
                let forward = text(&vector["forward"]["utf8"]);
                let unsigned = forward.rfind(",\"hmac\":").unwrap();
                assert_eq!(carried.text.rfind(",\"hmac\":"), Some(unsigned), "{name}");
                assert_eq!(carried.text[..unsigned], forward[..unsigned], "{name}");
                assert!(
                    carried
                        .text
                        .ends_with(&format!(",\"hmac\":{}}}", vector["hmac"]))
                );
            }
            Err(reason) => refused.push((name, reason)),
        }
    }
    are_listed(&refused, RECEIVED_REFUSED);
}

/// Both ways to carry an envelope must agree.
fn carry(decoded: &Decoded, name: &str) -> Result<Carried, String> {
    let carried = decoded.carry().map_err(|refusal| refusal.reason);
    if let Ok(carried) = &carried {
        let ClientFrame::Envelope(again) = ClientFrame::parse(carried.text.as_bytes()) else {
            panic!("{name}: what is carried cannot be sent");
        };
        assert_eq!(&again, carried, "{name}");
    }
    carried
}

fn are_listed(refused: &[(String, String)], list: &[(&str, &str)]) {
    let names: Vec<_> = refused.iter().map(|(name, _)| name.as_str()).collect();
    let listed: Vec<_> = list.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, listed, "{refused:#?}");
    for ((name, reason), (_, says)) in refused.iter().zip(list) {
        assert!(reason.contains(says), "{name}: {reason}");
    }
}

fn members_are(envelope: &Envelope, expected: &Value, name: &str) {
    let e = envelope;
    let strings = [
        &e.protocol_version,
        &e.id,
        &e.from,
        &e.to,
        &e.ts,
        &e.source,
        &e.kind,
    ];
    for (member, string) in MEMBERS.iter().zip(strings) {
        same(
            string.as_bytes(),
            &expected[member],
            &format!("{name}.{member}"),
        );
    }
    same(&e.body, &expected["body"], &format!("{name}.body"));
}

fn signed_wire(vector: &Value, name: &str) -> Vec<u8> {
    match vector["wire"].get("sha256") {
        None => bytes(&vector["wire"], name),
        Some(_) => {
            let body = bytes(&vector["input"]["body"], name);
            let inputs: Vec<_> = MEMBERS[..7]
                .iter()
                .map(|m| bytes(&vector["input"][m], name))
                .collect();
            let [v, id, from, to, ts, source, kind] = inputs.each_slice();
            let strings = [v, id, from, to, ts, source, kind];
            let form = canonical(&Fields {
                strings,
                body: &body,
            })
            .unwrap();
            wire_text(&form, &text(&vector["hmac"]))
        }
    }
}

fn wire_text(form: &[u8], hmac: &str) -> Vec<u8> {
    let mut wire = form[..form.len() - 1].to_vec();
    wire.extend_from_slice(format!(",\"hmac\":\"{hmac}\"}}").as_bytes());
    wire
}

fn section(name: &str, cases: usize) -> Vec<Value> {
    let vectors: Value = serde_json::from_str(include_str!("../../testdata/vectors.json")).unwrap();
    let section = vectors[name].as_array().unwrap().clone();
    assert_eq!(section.len(), cases);
    section
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Asserts that `found` is what a byte value describes.
fn same(found: &[u8], value: &Value, name: &str) {
    assert_eq!(
        Some(found.len() as u64),
        value["len"].as_u64(),
        "{name}: {}",
        found.escape_ascii()
    );
    match value.get("sha256") {
        Some(sum) => assert_eq!(&hex(&Sha256::digest(found)), sum, "{name}"),
        None => {
            let expected = bytes(value, name);
            assert_eq!(
                found.escape_ascii().to_string(),
                expected.escape_ascii().to_string(),
                "{name}"
            );
        }
    }
}

/// The bytes of a byte value. The large ones are rebuilt as the notes beside them say.
fn bytes(value: &Value, name: &str) -> Vec<u8> {
    let bytes = if value.get("sha256").is_some() {
        let filler = match name {
            "body-1000000-a" => "a".repeat(1_000_000),
            "body-lt-100000" => "<".repeat(100_000),
            other => panic!("{other}: no rule to rebuild it"),
        };
        let body = format!("{{\"t\":\"{filler}\"}}").into_bytes();
        assert_eq!(hex(&Sha256::digest(&body)), value["sha256"], "{name}");
        body
    } else {
        value
            .get("b64")
            .map_or(Vec::new(), |b64| base64(b64.as_str().unwrap()))
    };
    assert_eq!(Some(bytes.len() as u64), value["len"].as_u64(), "{name}");
    if let Some(utf8) = value.get("utf8") {
        assert_eq!(utf8.as_str().unwrap().as_bytes(), bytes, "{name}");
    }
    bytes
}

fn base64(text: &str) -> Vec<u8> {
    const ALPHABET: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bytes, mut bits, mut held) = (Vec::new(), 0_u32, 0);
    for c in text.trim_end_matches('=').chars() {
        bits = bits << 6 | ALPHABET.find(c).unwrap() as u32;
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held & 0xff) as u8);
        }
    }
    bytes
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Borrows a list of known length as an array.
trait EachSlice {
    fn each_slice<const N: usize>(&self) -> [&[u8]; N];
}

impl EachSlice for Vec<Vec<u8>> {
    fn each_slice<const N: usize>(&self) -> [&[u8]; N] {
        assert_eq!(self.len(), N);
        std::array::from_fn(|i| self[i].as_slice())
    }
}
