//! Packages of the binary, each tried at once on a root that has nothing else.

mod formats;
mod formula;
mod licences;
mod platform;
mod sbom;
mod tree;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail, ensure};

use self::formats::Parts;
use self::platform::Platform;
use crate::run::{cargo, finish, root};

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// What a build for packages is called in `Cargo.toml`, and its folder below `target`.
const PROFILE: &str = "dist";
/// Where packages go, below the root.
const OUT: &str = "target/package";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A Debian package, of a binary that needs the C library.
    Deb,
    /// A binary that needs nothing.
    Static,
    /// An archive of that, and its bill of materials, with their sums.
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
    fn target(self, platform: &Platform) -> String {
        platform.target(match self {
            Self::Deb => "gnu",
            Self::Static | Self::Archive | Self::Npm | Self::Wheel => "musl",
        })
    }

    fn is_for(self, platform: &Platform) -> bool {
        platform.is_linux() || !matches!(self, Self::Deb | Self::Static)
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
    let platform = Platform::here()?;
    let is_asked =
        |(of, kind): &&(&str, Kind)| word == *of || word == "all" && kind.is_for(platform);
    let asked: Vec<_> = KINDS.iter().filter(is_asked).collect();
    let with_formula = ["all", "formula"].contains(&word);
    if asked.is_empty() && !with_formula {
        bail!(
            "package takes `all`, `deb`, `static`, `archive`, `npm`, `wheel` or `formula`, and then \
             `--binary FILE` or nothing"
        );
    }
    for (word, kind) in asked {
        ensure!(kind.is_for(platform), "{word} is made on Linux only");
        let tried = make(word, *kind, platform, given)?;
        if tried != ExitCode::SUCCESS {
            return Ok(tried);
        }
    }
    if with_formula {
        println!("{}", formula::write(&root().join(OUT))?.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes one kind, tries it, and says where it is.
fn make(
    word: &str,
    kind: Kind,
    platform: &'static Platform,
    given: Option<&str>,
) -> Result<ExitCode> {
    let target = kind.target(platform);
    let binary = match given {
        Some(file) => {
            fs::canonicalize(file).with_context(|| format!("there is no binary {file}"))?
        }
        None => build(&target)?,
    };
    let out = root().join(OUT);
    fs::create_dir_all(&out)?;
    let metadata = licences::metadata(&target)?;
    let notices = out.join("THIRD-PARTY.txt");
    fs::write(&notices, licences::text(&metadata)?)?;
    let parts = Parts {
        binary: &binary,
        notices: &notices,
        out: &out,
        platform,
        metadata: &metadata,
    };
    let made = match kind {
        Kind::Deb => vec![deb(&parts, given.is_none())?],
        Kind::Static => {
            let made = out.join(platform.archive());
            tree::copy(&binary, &made, 0o755)?;
            vec![made]
        }
        Kind::Archive => vec![parts.archive()?],
        Kind::Npm => parts.npm()?.into(),
        Kind::Wheel => vec![parts.wheel()?],
    };
    let script = match kind {
        Kind::Deb | Kind::Static => "clean.sh",
        Kind::Archive | Kind::Npm | Kind::Wheel => "installed.sh",
    };
    let tried = attempt(script, word, platform, &made)?;
    if tried == ExitCode::SUCCESS {
        for made in made {
            println!("{}", made.display());
        }
    }
    Ok(tried)
}

/// Tries what was made, which takes Linux' namespaces.
fn attempt(script: &str, word: &str, platform: &Platform, made: &[PathBuf]) -> Result<ExitCode> {
    if !platform.is_linux() {
        println!("not tried: the try of {word} takes namespaces of Linux");
        return Ok(ExitCode::SUCCESS);
    }
    finish(
        Command::new("bash")
            .arg(root().join("tests/packages").join(script))
            .args([word, VERSION])
            .args(made),
    )
}

fn build(target: &str) -> Result<PathBuf> {
    let build = ["build", "--locked", "--package", "peerbus"];
    let of = ["--profile", PROFILE, "--target", target];
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
fn deb(parts: &Parts<'_>, compress: bool) -> Result<PathBuf> {
    let Parts {
        binary,
        notices,
        out,
        ..
    } = parts;
    let arch = architecture(parts.platform.arch)?;
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
mod tests;
