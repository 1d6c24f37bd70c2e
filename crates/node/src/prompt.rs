//! Input of a session: a text, or blocks of text and images as Claude's API has them.

use data_encoding::BASE64;
use peerbus_adapter::mailbox::Image;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

/// Most that the images of a prompt take, in bytes of base64.
const IMAGES_BYTES_MAX: usize = 3 << 20;
/// So many images a prompt has at most.
const IMAGES_MAX: usize = 20;
/// Most pixels of a side of an image. Claude's service refuses more ("Vision", "Basics and limits", at
/// docs.claude.com).
const SIDE_MAX: usize = 8_000;

/// A prompt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Prompt {
    /// `[image 1]` stands where the first image does.
    pub(crate) text: String,
    images: Vec<ImageSource>,
}

/// A text, or an image.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Block {
    r#type: BlockKind,
    text: Option<String>,
    source: Option<ImageSource>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum BlockKind {
    Text,
    Image,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct ImageSource {
    #[serde(rename = "type")]
    _base64: Encoding,
    media_type: String,
    data: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Encoding {
    Base64,
}

/// Most bytes of an image.
pub const IMAGE_BYTES_MAX: usize = IMAGES_BYTES_MAX / 4 * 3;

/// The block of an image with these bytes.
///
/// # Errors
///
/// Why Claude's API does not take them, to be read after a name for the image.
pub fn block(bytes: &[u8]) -> Result<Value, String> {
    let media_type = media_type(bytes).ok_or("is no image in PNG, JPEG, GIF or WebP")?;
    check_size(bytes)?;
    let data = BASE64.encode(bytes);
    let source = json!({ "type": "base64", "media_type": media_type, "data": data });
    Ok(json!({ "type": "image", "source": source }))
}

fn check_size(bytes: &[u8]) -> Result<(), String> {
    let size = imagesize::blob_size(bytes).ok();
    let size = size.filter(|size| size.width.min(size.height) > 0);
    let size = size.ok_or("is no whole image: its header names no size")?;
    let (width, height) = (size.width, size.height);
    match width.max(height) > SIDE_MAX {
        false => Ok(()),
        true => Err(format!(
            "has {width} x {height} pixels; {SIDE_MAX} a side are the most: make the image smaller"
        )),
    }
}

fn media_type(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [
            b'R',
            b'I',
            b'F',
            b'F',
            _,
            _,
            _,
            _,
            b'W',
            b'E',
            b'B',
            b'P',
            ..,
        ] => Some("image/webp"),
        _ => None,
    }
}

impl<'de> Deserialize<'de> for Prompt {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let blocks = match Value::deserialize(from)? {
            Value::String(text) => {
                let images = Vec::new();
                return Ok(Self { text, images });
            }
            blocks @ Value::Array(_) => blocks,
            _ => return Err(D::Error::custom("expected a text, or a list of blocks")),
        };
        let blocks: Vec<Block> = serde_json::from_value(blocks).map_err(D::Error::custom)?;
        Self::of(blocks).map_err(D::Error::custom)
    }
}

impl Prompt {
    fn of(blocks: Vec<Block>) -> Result<Self, &'static str> {
        let mut prompt = Self::default();
        let mut between = "";
        for block in blocks {
            let (text, before, after) = match (block.r#type, block.text, block.source) {
                (BlockKind::Text, Some(text), None) => (text, between, "\n"),
                (BlockKind::Image, None, Some(source)) => {
                    prompt.images.push(source);
                    (format!("[image {}]", prompt.images.len()), " ", " ")
                }
                _ => return Err("a block of text has a `text`, one of an image a `source`"),
            };
            let before = if prompt.text.is_empty() { "" } else { before };
            prompt.text.extend([before, &text]);
            between = after;
        }
        Ok(prompt)
    }

    pub(crate) const fn has_images(&self) -> bool {
        !self.images.is_empty()
    }

    /// Its images, for a session that takes them. An error says which of them none does.
    pub(crate) fn images(self) -> Result<Vec<Image>, String> {
        let count = self.images.len();
        let images: Result<Vec<_>, _> = self.images.into_iter().map(image).collect();
        let images = images?;
        let bytes: usize = images.iter().map(|image| image.data.len()).sum();
        match count > IMAGES_MAX || bytes > IMAGES_BYTES_MAX {
            false => Ok(images),
            true => Err(format!(
                "{count} images of {bytes} bytes in base64; {IMAGES_MAX} of {IMAGES_BYTES_MAX} bytes together \
                 are the most: make them smaller"
            )),
        }
    }
}

/// An image that is what it says it is: one that its service refuses would stay in the conversation, and
/// fail each turn after it.
fn image(source: ImageSource) -> Result<Image, String> {
    let data = source.data;
    let bytes = BASE64.decode(data.as_bytes());
    let bytes = bytes.map_err(|_| "`data` of an image is no base64, with padding")?;
    let media_type = media_type(&bytes).filter(|found| *found == source.media_type);
    let media_type = media_type.ok_or(
        "an image whose `data` is not of its `media_type`: expected image/png, image/jpeg, image/gif or image/webp",
    )?;
    check_size(&bytes).map_err(|why| format!("an image of the prompt {why}"))?;
    Ok(Image { media_type, data })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";

    /// The beginning of a PNG of that many pixels.
    fn header(width: u32, height: u32) -> Vec<u8> {
        let head = [PNG, b"\0\0\0\x0dIHDR"].concat();
        let sides = [width.to_be_bytes(), height.to_be_bytes()].concat();
        [head, sides, b"\x08\x02\0\0\0".to_vec()].concat()
    }

    fn png() -> Value {
        block(&header(8_000, 1)).unwrap()
    }

    fn read(prompt: Value) -> Result<Prompt, String> {
        serde_json::from_value(prompt).map_err(|error| error.to_string())
    }

    #[test]
    fn the_text_names_each_image_where_it_stands() {
        let text = |text: &str| json!({ "type": "text", "text": text });
        let blocks = json!([text("one"), text("two"), png(), text("and"), png()]);
        let prompt = read(blocks).unwrap();
        assert_eq!(prompt.text, "one\ntwo [image 1] and [image 2]");
        let images = prompt.images().unwrap();
        assert_eq!(images.len(), 2);
        assert_eq!(images[0].media_type, "image/png");
        assert_eq!(read(json!([png()])).unwrap().text, "[image 1]");
        assert_eq!(read(json!("a\nb")).unwrap().text, "a\nb");
    }

    #[test]
    fn an_image_whose_header_names_no_size_that_its_service_takes_is_refused() {
        let gif = |sides: [u8; 4]| [b"GIF89a".as_slice(), &sides, &[0; 3]].concat();
        let jpeg = b"\xff\xd8\xff\xe0\0\x02\xff\xc0\0\x0b\x08\x01\0\x02\0\x01";
        let webp = b"RIFF\x16\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0\x0f\0\0\x0f\0\0";
        for (bytes, why) in [
            (header(1, 8_000), None),
            (jpeg.to_vec(), None),
            (gif([1, 0, 1, 0]), None),
            (webp.to_vec(), None),
            (b"hi".to_vec(), Some("is no image in PNG")),
            (PNG.to_vec(), Some("names no size")),
            (b"\xff\xd8\xff".to_vec(), Some("names no size")),
            (jpeg[..10].to_vec(), Some("names no size")),
            (gif([0, 0, 1, 0]), Some("names no size")),
            (webp[..16].to_vec(), Some("names no size")),
            (header(0, 1), Some("names no size")),
            (header(20_000, 20_000), Some("has 20000 x 20000 pixels")),
            (header(1, 8_001), Some("8000 a side are the most")),
        ] {
            let found = block(&bytes);
            match why {
                None => assert!(found.is_ok(), "{bytes:?}: {found:?}"),
                Some(why) => assert!(found.unwrap_err().contains(why), "{why}: {bytes:?}"),
            }
        }
    }

    #[test]
    fn what_no_session_can_be_shown_is_refused_by_a_sentence() {
        let with = |change: &dyn Fn(&mut Value)| {
            let mut block = png();
            change(&mut block);
            json!([block])
        };
        let large = BASE64.encode(&[header(1, 1), vec![0; IMAGES_BYTES_MAX]].concat());
        let (small, wide) = (BASE64.encode(PNG), BASE64.encode(&header(20_000, 1)));
        for (prompt, why) in [
            (json!(7), "expected a text, or a list of blocks"),
            (json!([{ "type": "video" }]), "unknown variant `video`"),
            (json!([{ "type": "text" }]), "has a `text`"),
            (
                with(&|it| it["cache_control"] = json!({})),
                "unknown field `cache_control`",
            ),
            (
                with(&|it| it["source"]["type"] = "url".into()),
                "unknown variant `url`",
            ),
            (with(&|it| it["source"]["data"] = "%".into()), "no base64"),
            (
                with(&|it| it["source"]["data"] = "aGk=".into()),
                "not of its `media_type`",
            ),
            (
                with(&|it| it["source"]["media_type"] = "image/gif".into()),
                "not of its `media_type`",
            ),
            (
                with(&|it| it["source"]["data"] = small.as_str().into()),
                "an image of the prompt is no whole image",
            ),
            (
                with(&|it| it["source"]["data"] = wide.as_str().into()),
                "an image of the prompt has 20000 x 1 pixels",
            ),
            (
                with(&|it| it["source"]["data"] = large.as_str().into()),
                "make them smaller",
            ),
            (vec![png(); IMAGES_MAX + 1].into(), "make them smaller"),
        ] {
            let said = read(prompt).and_then(Prompt::images).unwrap_err();
            assert!(said.contains(why), "{why}: {said}");
        }
    }
}
