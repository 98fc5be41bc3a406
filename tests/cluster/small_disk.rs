//! A disk that can be filled: a file system in memory, mounted where a process of its own sees it. Nothing of it is left
//! when the test ends, however it ends.
//!
//! ```text
//!   holder ─ a mount namespace, and in it the file system     what is started through it lives there too, and others look in
//!                                                             by /proc/HOLDER/root
//! ```

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Mounts, says so, and holds the namespace until its standard input ends.
const HOLD: &str = "mount -t tmpfs -o size=\"$1\",mode=0755 small-disk \"$2\" && echo mounted && exec cat";

/// Files are filled in pieces of this size.
const PIECE_BYTES: usize = 1 << 16;

/// A small file system of a test's own.
pub struct SmallDisk {
    holder: Child,
    directory: PathBuf,
}

impl SmallDisk {
    /// One of so many bytes at `directory`, which is made; the reason, where this machine lets nobody mount anything.
    pub fn mount(directory: &Path, bytes: u64) -> Result<SmallDisk, String> {
        fs::create_dir_all(directory).unwrap();
        let namespaces: &[&[&str]] = &[&["--mount"], &["--user", "--map-root-user", "--mount"]];
        let mut reasons = Vec::new();
        for namespace in namespaces {
            match hold(namespace, directory, bytes) {
                Ok(holder) => return Ok(SmallDisk { holder, directory: directory.to_owned() }),
                Err(reason) => reasons.push(reason),
            }
        }
        Err(reasons.join("; "))
    }

    /// A command that sees the file system when it is run.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--mount=/proc/{}/ns/mnt", self.holder.id()));
        // Where the namespace belongs to another user, as whom one becomes its root.
        let own = fs::read_link("/proc/self/ns/user").unwrap();
        let holders = PathBuf::from(format!("/proc/{}/ns/user", self.holder.id()));
        if fs::read_link(&holders).unwrap() != own {
            command.arg(format!("--user={}", holders.display())).arg("--preserve-credentials");
        }
        command.arg("--").arg(program);
        command
    }

    /// Leaves no room on it.
    pub fn fill(&self) {
        let mut ballast = File::create(self.ballast()).unwrap();
        let piece = [1; PIECE_BYTES];
        let error = loop {
            if let Err(error) = ballast.write_all(&piece) {
                break error;
            }
        };
        assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
    }

    /// Gives back what [`SmallDisk::fill`] took.
    pub fn make_room(&self) {
        fs::remove_file(self.ballast()).unwrap();
    }

    /// Its directory, as those see it that live elsewhere.
    pub fn seen(&self) -> PathBuf {
        let inside = self.directory.strip_prefix("/").unwrap();
        PathBuf::from(format!("/proc/{}/root", self.holder.id())).join(inside)
    }

    fn ballast(&self) -> PathBuf {
        self.seen().join("ballast")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Its input ends with it, too.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

fn hold(namespace: &[&str], directory: &Path, bytes: u64) -> Result<Child, String> {
    let mut command = Command::new("unshare");
    command.args(namespace).args(["--propagation", "private", "--", "sh", "-c", HOLD, "sh"]);
    command.arg(bytes.to_string()).arg(directory);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut holder = command.spawn().map_err(|error| format!("unshare: {error}"))?;
    let mut said = [0; "mounted\n".len()];
    if holder.stdout.as_mut().unwrap().read_exact(&mut said).is_ok() {
        return Ok(holder);
    }
    let output = holder.wait_with_output().unwrap();
    Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
}
