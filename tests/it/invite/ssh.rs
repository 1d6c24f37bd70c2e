//! A machine that joins over its user's own ssh: a real `ssh`, and a real `sshd` for each connection.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::*;

/// Two machines of one user, of whom the laptop may log in at the desk.
struct Login {
    desk: Home,
    laptop: Home,
    sshd: PathBuf,
}

/// Somebody else's words on a terminal: its title changes.
const NOISE: &str = "\u{1b}]0;owned\u{7}";

impl Login {
    /// `None` where there is no sshd to be had.
    fn new() -> Option<Self> {
        let places = [
            "/usr/sbin/sshd",
            "/usr/lib/ssh/sshd",
            "/usr/local/sbin/sshd",
        ];
        let found = places.iter().map(PathBuf::from).find(|it| it.is_file());
        // It drops its rights there, where root starts it.
        let ready = !rustix::process::geteuid().is_root() || Path::new("/run/sshd").is_dir();
        let Some(sshd) = found.filter(|_| ready) else {
            println!("skipped: no sshd is installed, or it has no /run/sshd");
            return None;
        };
        let (desk, laptop) = (Home::new(), Home::new());
        let login = Self { desk, laptop, sshd };
        for key in ["host", "user"] {
            let file = login.file(key);
            let mut keygen = Command::new("ssh-keygen");
            let made = keygen
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(file);
            assert!(made.status().expect("ssh-keygen").success());
        }
        let host = fs::read_to_string(login.file("host.pub")).expect("a key");
        fs::write(login.file("known"), format!("desk {host}")).expect("our file");
        fs::copy(login.file("user.pub"), login.file("authorized")).expect("a key");
        login.has_peerbus(true);
        login.reaches(true);
        // As the user's own configuration, which their `ssh` reads without being told.
        let real = std::env::var("PATH").expect("a PATH");
        let config = login.file("config");
        let ssh = format!(
            "#!/bin/sh\nPATH={real:?} exec ssh -F {} \"$@\"\n",
            config.display()
        );
        let path = login.laptop.path().join("ssh");
        fs::write(&path, ssh).expect("our file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("ours");
        Some(login)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.desk.path().join(name)
    }

    /// The programs of a shell without a terminal at the desk.
    fn has_peerbus(&self, has: bool) {
        let binary = Path::new(env!("CARGO_BIN_EXE_peerbus"));
        let path = match has {
            true => binary.parent().expect("a directory").display().to_string(),
            false => String::new(),
        };
        let config = format!(
            "HostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\nPasswordAuthentication no\n\
             KbdInteractiveAuthentication no\nPrintMotd no\nPidFile none\n\
             SetEnv HOME={} PATH={path}:/usr/bin:/bin\n",
            self.file("host").display(),
            self.file("authorized").display(),
            self.desk.path().display(),
        );
        fs::write(self.file("sshd_config"), config).expect("our file");
    }

    /// Whether the network leads there.
    fn reaches(&self, reaches: bool) {
        let sshd = format!(
            "{} -i -f {}",
            self.sshd.display(),
            self.file("sshd_config").display()
        );
        let config = format!(
            "Host desk\n ProxyCommand {}\n IdentityFile {}\n IdentitiesOnly yes\n UserKnownHostsFile {}\n \
             GlobalKnownHostsFile none\n StrictHostKeyChecking yes\n LocalForward 127.0.0.1:1 127.0.0.1:1\n",
            if reaches { &sshd } else { "false" },
            self.file("user").display(),
            self.file("known").display(),
        );
        fs::write(self.file("config"), config).expect("our file");
    }

    /// `peerbus` on the laptop, whose `ssh` is its user's.
    fn peerbus(&self, args: &[&str]) -> Command {
        let mut command = self.laptop.peerbus(args);
        let path = std::env::var("PATH").expect("a PATH");
        command.env("PATH", format!("{}:{path}", self.laptop.path().display()));
        command
    }

    fn run(&self, args: &[&str]) -> Finished {
        Finished::of(&mut self.peerbus(args))
    }

    fn join(&self) -> Finished {
        self.run(&["join", "ssh:desk", "--name", "laptop", "--yes"])
    }
}

impl Drop for Login {
    fn drop(&mut self) {
        // One that was started there.
        let _gone = self.desk.peerbus(&["stop"]).output();
    }
}

#[test]
fn a_login_is_enough_to_join_and_mail_goes_both_ways() {
    let Some(login) = Login::new() else { return };
    // The shell there greets everybody.
    fs::write(
        login.file(".bashrc"),
        "echo Welcome; printf %s 'no end of line'\n",
    )
    .expect("ours");
    // Its first command there starts a broker, which listens for nobody else.
    let said = login.join();
    let plan = "will be made, with a token, HMAC secret and url (ssh:desk)";
    assert!(said.stderr.contains(plan), "{}", said.stderr);
    let said = said.ok();
    let joined = "joined the broker at ssh:desk: names here are laptop*\n";
    assert_eq!(said, joined);
    let secret = login.desk.credential("hmac_secret");
    assert_eq!(login.laptop.credential("hmac_secret"), secret);
    assert_ne!(
        login.laptop.credential("token"),
        login.desk.credential("token")
    );

    // The token may no more than that of another machine that was invited.
    assert_eq!(
        login.desk.run(&["token", "list"]).ok(),
        "laptop: send; laptop*\n"
    );
    let said = login.desk.run(&["audit", "sessions"]).ok();
    assert!(
        said.contains("laptop join joined source \"unix\""),
        "{said}"
    );
    let said = login.run(&["history"]).fails(2);
    assert!(
        said.contains("names a broker elsewhere (ssh:desk)"),
        "{said}"
    );

    login
        .desk
        .run(&["recv", "--name", "ann", "--timeout", "0.1"])
        .ok();
    login.run(&["send", "ann", "from the laptop"]).ok();
    let got = login
        .desk
        .run(&["recv", "--name", "ann", "--count", "1"])
        .ok();
    assert!(
        got.contains("from the laptop") && got.contains("\"from\":\"laptop-"),
        "{got}"
    );
    let mut agent = Mcp::spawn(&mut login.peerbus(&["adapter", "--name", "laptop-bob"]));
    agent.initialize("some-bot");
    eventually("the agent is there", || {
        let sent = login.desk.run(&["send", "laptop-bob", "from the desk"]);
        (sent.code == Some(0)).then_some(())
    });
    eventually("it reads that", || {
        let got = agent.call("bus.inbox", json!({})).to_string();
        got.contains("from the desk").then_some(())
    });
    drop(agent);
    login.run(&["uninstall", "--join"]).ok();
    assert!(!login.laptop.credentials().exists());
}

#[test]
fn what_fails_over_ssh_is_named_and_nothing_is_lost() {
    let Some(login) = Login::new() else { return };
    let broker = Broker::start(&login.desk);
    let before = files(&login.laptop);
    let fails = |why: &str| {
        let said = login.join().fails(1);
        assert!(
            said.contains(why) && said.contains("nothing was written"),
            "{said}"
        );
        assert!(!said.contains('\u{1b}'), "{said:?}");
        assert_eq!(files(&login.laptop), before);
    };
    login.reaches(false);
    fails("`ssh desk` must work, and ask nothing");
    login.reaches(true);
    login.has_peerbus(false);
    fails("there is no `peerbus` for the login desk: install it there");
    let fake = login.desk.path().join(".local/bin/peerbus");
    let bin = fake.parent().expect("a directory");
    fs::create_dir_all(bin).expect("ours");
    let says = |script: String| {
        fs::write(&fake, format!("#!/bin/sh\n{script}\n")).expect("ours");
        fs::set_permissions(&fake, fs::Permissions::from_mode(0o755)).expect("ours");
    };
    says(format!("echo '{NOISE}' >&2; exit 1"));
    fails("peerbus there says \"\\u001b]0;owned");
    says(format!("echo '{NOISE}'"));
    fails("printed \"\\u001b]0;owned");
    fs::remove_file(&fake).expect("ours");
    login.has_peerbus(true);
    assert_eq!(
        login.desk.run(&["invite", "list"]).ok(),
        "no machine was invited\n"
    );

    // One whose answer was lost asks anew; one that is there is not replaced.
    login.desk.run(&["invite", "laptop", "--ssh"]).ok();
    login.join().ok();
    login.run(&["uninstall", "--join"]).ok();
    fails("peerbus there says \"peerbus: there is a token laptop already");
    login.desk.run(&["invite", "revoke", "laptop"]).ok();
    login.join().ok();

    // Mail waits where it is until the way is back.
    login
        .run(&["recv", "--name", "laptop-bob", "--timeout", "0.1"])
        .ok();
    login.desk.run(&["send", "laptop-bob", "wait for me"]).ok();
    login.reaches(false);
    let bob = ["recv", "--name", "laptop-bob", "--count", "1"];
    let said = login.run(&["peers", "--timeout", "5"]).fails(1);
    let why = "no broker at ssh:desk (ssh says \"";
    assert!(said.contains(why), "{said}");
    login.reaches(true);
    let got = login.run(&bob).ok();
    assert!(got.contains("wait for me"), "{got}");
    broker.stop();
}

#[test]
fn a_login_is_no_option_of_ssh_and_no_word_of_a_shell() {
    let laptop = Home::new();
    for place in [
        "ssh:-V",
        "ssh:-V@desk",
        "ssh:ann@-V",
        "ssh://-V",
        "ssh:desk;id",
        "ssh:$(id)",
        "ssh:",
    ] {
        let said = laptop
            .run(&["join", place, "--name", "laptop", "--yes"])
            .fails(2);
        assert!(
            said.contains("names no [user@]host that ssh may be given"),
            "{said}"
        );
    }
    let said = laptop
        .run(&["join", "ssh:desk", "--name", "a;id", "--yes"])
        .fails(2);
    assert!(said.contains("--name laptop"), "{said}");
    assert_eq!(files(&laptop), []);
}
