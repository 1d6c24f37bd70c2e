//! Packages of the binary, each tried at once on a root that has nothing else.

mod formats;
mod licences;
mod tree;

use std::env::consts::ARCH;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail, ensure};

use self::formats::Parts;
use crate::run::{cargo, finish, root};

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// What a build for packages is called in `Cargo.toml`, and its folder below `target`.
const PROFILE: &str = "dist";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A Debian package, of a binary that needs the C library.
    Deb,
    /// A binary that needs nothing.
    Static,
    /// An archive of that, with its sum.
    Archive,
    /// Packages of that for npm.
    Npm,
    /// A wheel of that.
    Wheel,
}

const KINDS: [(&str, Kind); 5] = [
    ("deb", Kind::Deb),
    ("static", Kind::Static),
    ("archive", Kind::Archive),
    ("npm", Kind::Npm),
    ("wheel", Kind::Wheel),
];

impl Kind {
    /// What it is compiled for.
    fn target(self) -> String {
        let libc = match self {
            Self::Deb => "gnu",
            Self::Static | Self::Archive | Self::Npm | Self::Wheel => "musl",
        };
        format!("{ARCH}-unknown-linux-{libc}")
    }
}

/// Makes packages of the profile `dist`, or of a binary that is there, and tries each.
pub(crate) fn run(args: &[String]) -> Result<ExitCode> {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let (word, given) = match args.as_slice() {
        [word] => (*word, None),
        [word, "--binary", file] => (*word, Some(*file)),
        _ => ("", None),
    };
    let is_asked = |(of, _): &&(&str, Kind)| word == "all" || word == *of;
    let asked: Vec<_> = KINDS.iter().filter(is_asked).collect();
    if asked.is_empty() {
        bail!(
            "package takes `all`, `deb`, `static`, `archive`, `npm` or `wheel`, and then \
             `--binary FILE` or nothing"
        );
    }
    for (word, kind) in asked {
        let tried = make(word, *kind, given)?;
        if tried != ExitCode::SUCCESS {
            return Ok(tried);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes one kind, tries it, and says where it is.
fn make(word: &str, kind: Kind, given: Option<&str>) -> Result<ExitCode> {
    let binary = match given {
        Some(file) => {
            fs::canonicalize(file).with_context(|| format!("there is no binary {file}"))?
        }
        None => build(kind)?,
    };
    let out = root().join("target/package");
    fs::create_dir_all(&out)?;
    let notices = out.join("THIRD-PARTY.txt");
    fs::write(&notices, licences::of(&kind.target())?)?;
    let parts = Parts {
        binary: &binary,
        notices: &notices,
        out: &out,
        arch: ARCH,
    };
    let (script, made) = match kind {
        Kind::Deb => (
            "clean.sh",
            vec![deb(&binary, &notices, &out, given.is_none())?],
        ),
        Kind::Static => {
            let made = out.join(format!("peerbus-{VERSION}-{ARCH}-linux"));
            tree::copy(&binary, &made, 0o755)?;
            ("clean.sh", vec![made])
        }
        Kind::Archive => ("installed.sh", vec![parts.archive()?]),
        Kind::Npm => ("installed.sh", parts.npm()?.into()),
        Kind::Wheel => ("installed.sh", vec![parts.wheel()?]),
    };
    let tried = finish(
        Command::new("bash")
            .arg(root().join("tests/packages").join(script))
            .args([word, VERSION])
            .args(&made),
    )?;
    if tried == ExitCode::SUCCESS {
        for made in made {
            println!("{}", made.display());
        }
    }
    Ok(tried)
}

fn build(kind: Kind) -> Result<PathBuf> {
    let target = kind.target();
    let build = ["build", "--locked", "--package", "peerbus"];
    let of = ["--profile", PROFILE, "--target", &target];
    let built = finish(cargo().args(build).args(of))?;
    ensure!(
        built == ExitCode::SUCCESS,
        "it does not build for {target}; is that installed (`rustup target add {target}`), and, for \
         musl, is `musl-gcc` (Debian's package musl-tools)?"
    );
    Ok(root()
        .join("target")
        .join(target)
        .join(PROFILE)
        .join("peerbus"))
}

/// Makes the Debian package and gives its file. Compressing what is made for a try would take longer
/// than the try.
fn deb(binary: &Path, notices: &Path, out: &Path, compress: bool) -> Result<PathBuf> {
    let arch = architecture(ARCH)?;
    let staged = out.join("deb");
    if staged.exists() {
        fs::remove_dir_all(&staged)?;
    }
    tree::fill(&staged, binary, notices)?;
    let control = control(arch, &fs::read(binary)?, tree::size_kib(&staged)?)?;
    fs::create_dir_all(staged.join("DEBIAN"))?;
    fs::write(staged.join("DEBIAN/control"), control)?;
    tree::sums(&staged)?;
    let made = out.join(format!("peerbus_{VERSION}_{arch}.deb"));
    let mut dpkg = Command::new("dpkg-deb");
    let compression = if compress { "-Zxz" } else { "-Znone" };
    dpkg.args(["--root-owner-group", compression, "--build"]);
    let built = finish(dpkg.arg(&staged).arg(&made))?;
    ensure!(built == ExitCode::SUCCESS, "dpkg-deb made no package");
    Ok(made)
}

fn architecture(rust: &str) -> Result<&'static str> {
    Ok(match rust {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        _ => bail!("no package is made for {rust}"),
    })
}

fn control(arch: &str, binary: &[u8], kib: u64) -> Result<String> {
    let libc =
        libc_version(binary).context("the binary names no version of glibc: is it static?")?;
    Ok(format!(
        "Package: peerbus\n\
         Version: {VERSION}\n\
         Architecture: {arch}\n\
         Maintainer: the peerbus authors <peerbus@users.noreply.github.com>\n\
         Installed-Size: {kib}\n\
         Depends: libc6 (>= 2.{libc}), libgcc-s1\n\
         Section: utils\n\
         Priority: optional\n\
         Homepage: https://github.com/peerbus/peerbus\n\
         Description: durable, signed message bus for AI coding agents\n \
         Sessions of coding agents on one machine send each other messages that\n \
         survive restarts, wake whom they are for, and tell their sender when a\n \
         model has seen them. The broker starts when it is needed.\n"
    ))
}

/// The newest minor version of glibc 2 whose symbols a binary asks for.
fn libc_version(binary: &[u8]) -> Option<u32> {
    const MARK: &[u8] = b"GLIBC_2.";
    let places = binary.windows(MARK.len()).enumerate();
    let after = places.filter(|(_, window)| *window == MARK);
    let minor = after.filter_map(|(at, _)| {
        let digits = binary[at + MARK.len()..].iter();
        let digits = digits.take_while(|byte| byte.is_ascii_digit());
        let digits: String = digits.take(4).copied().map(char::from).collect();
        digits.parse().ok()
    });
    // Packed relocations are a promise of the loader's, and no symbol.
    const PACKED: (&[u8], u32) = (b"GLIBC_ABI_DT_RELR", 36);
    let packed = binary
        .windows(PACKED.0.len())
        .any(|window| window == PACKED.0);
    minor.chain(packed.then_some(PACKED.1)).max()
}

/// Gives a file its permissions, whatever the umask is.
fn chmod(path: &Path, mode: u32) -> Result<()> {
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(mode))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_needs_the_newest_c_library_that_its_binary_names() {
        let binary = b"\0GLIBC_2.2.5\0GLIBC_2.34\0GLIBC_2.9\0GLIBC_PRIVATE\0";
        assert_eq!(libc_version(binary), Some(34));
        let packed = b"\0GLIBC_2.34\0GLIBC_ABI_DT_RELR\0";
        assert_eq!(libc_version(packed), Some(36));
        let control = control("amd64", binary, 7).unwrap();
        assert!(
            control.contains("\nDepends: libc6 (>= 2.34), libgcc-s1\n"),
            "{control}"
        );
        assert!(
            control.lines().skip(10).all(|line| line.starts_with(' ')),
            "{control}"
        );
    }

    #[test]
    fn the_script_fetches_this_version() {
        let script = fs::read_to_string(root().join("deploy/install.sh")).unwrap();
        assert!(script.contains(&format!("\nversion={VERSION}\n")));
    }

    #[test]
    fn a_static_binary_makes_no_debian_package() {
        assert!(control("amd64", b"nothing", 7).is_err());
        assert!(architecture("sparc").is_err());
    }

    #[test]
    fn what_is_linked_in_is_named_with_its_licence() {
        let notices = licences::of(&Kind::Deb.target()).unwrap();
        for part in ["\nring ", "\ntokio ", "Permission is hereby granted"] {
            assert!(notices.contains(part), "{part}");
        }
        // Used by tests alone.
        assert!(!notices.contains("\nproptest "));
    }
}
