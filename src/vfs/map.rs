//! Mapped files: the one place of this crate that needs `unsafe`.
#![allow(
    unsafe_code,
    reason = "mapping a file is unsafe by nature; the proof stands below and depends on `File::map` alone"
)]

use std::fs::File;
use std::io;

use bytes::Bytes;
use memmap2::MmapOptions;

/// The bytes `offset..offset + len` of `file`, mapped. An error if the file ends before.
pub(super) fn map(file: &File, offset: u64, len: usize) -> io::Result<Bytes> {
    if len == 0 {
        return Ok(Bytes::new());
    }
    let end = offset.checked_add(len as u64).ok_or(io::ErrorKind::InvalidInput)?;
    if end > file.metadata()?.len() {
        // Reading mapped memory behind the end of its file is a fatal signal, so this must be an error now.
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    // SAFETY: a mapping is sound as long as nobody changes or shortens the file while it is mapped. That is the contract
    // of `vfs::File::map`: only files that never change again (finished SSTables) are mapped; they are written under
    // another name, synced, renamed, and from then on only read and removed, and a removed file keeps its pages. The
    // lock of the data directory keeps other processes of ours away, and the range was found inside the file above.
    let map = unsafe { MmapOptions::new().offset(offset).len(len).map(file)? };
    Ok(Bytes::from_owner(map))
}
