//! RocksDB: the system's library (Debian: `librocksdb-dev`), through its C interface.
//!
//! The crates that bind it either build it from its sources, which is another version than a user's and takes minutes,
//! or generate their declarations with libclang. The few functions that are needed here are declared by hand instead;
//! they are those of `rocksdb/c.h` of version 7.8, and that header is the place to compare with.
#![allow(unsafe_code, reason = "a C library is called; each call says why it is sound")]

use std::ffi::{CStr, CString, c_char, c_double, c_int, c_uchar, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::{NonNull, null_mut};
use std::thread::sleep;
use std::time::Duration;

use trefoil::sstable::BLOCK_BYTES;

use super::rows::Wanted;
use super::{Engine, Found, GROUP, Limits, Read, Row, files_below};
use crate::Result;

/// `rocksdb_lz4_compression`.
const LZ4: c_int = 4;
const BLOOM_BITS: c_double = 10.0;
/// One flush and one compaction at a time, as with the others.
const BACKGROUND_JOBS: c_int = 2;
/// Its own default relation of the first level to the write buffer.
const LEVEL_BASE_BUFFERS: u64 = 4;

const LOOK: Duration = Duration::from_millis(10);
const QUIET: usize = 5;

/// Whatever the library hands out: only ever passed back to it.
type Handle = *mut c_void;

#[link(name = "rocksdb")]
unsafe extern "C" {
    fn rocksdb_options_create() -> Handle;
    fn rocksdb_options_destroy(options: Handle);
    fn rocksdb_options_set_create_if_missing(options: Handle, yes: c_uchar);
    fn rocksdb_options_set_write_buffer_size(options: Handle, bytes: usize);
    fn rocksdb_options_set_max_background_jobs(options: Handle, jobs: c_int);
    fn rocksdb_options_set_compression(options: Handle, kind: c_int);
    fn rocksdb_options_set_target_file_size_base(options: Handle, bytes: u64);
    fn rocksdb_options_set_max_bytes_for_level_base(options: Handle, bytes: u64);
    fn rocksdb_options_set_block_based_table_factory(options: Handle, table: Handle);
    fn rocksdb_block_based_options_create() -> Handle;
    fn rocksdb_block_based_options_destroy(table: Handle);
    fn rocksdb_block_based_options_set_block_size(table: Handle, bytes: usize);
    fn rocksdb_block_based_options_set_filter_policy(table: Handle, policy: Handle);
    fn rocksdb_block_based_options_set_block_cache(table: Handle, cache: Handle);
    fn rocksdb_filterpolicy_create_bloom_full(bits: c_double) -> Handle;
    fn rocksdb_cache_create_lru(bytes: usize) -> Handle;
    fn rocksdb_cache_destroy(cache: Handle);
    fn rocksdb_open(options: Handle, name: *const c_char, error: *mut *mut c_char) -> Handle;
    fn rocksdb_close(database: Handle);
    fn rocksdb_writeoptions_create() -> Handle;
    fn rocksdb_writeoptions_destroy(options: Handle);
    fn rocksdb_readoptions_create() -> Handle;
    fn rocksdb_readoptions_destroy(options: Handle);
    fn rocksdb_flushoptions_create() -> Handle;
    fn rocksdb_flushoptions_destroy(options: Handle);
    fn rocksdb_writebatch_create() -> Handle;
    fn rocksdb_writebatch_destroy(batch: Handle);
    fn rocksdb_writebatch_clear(batch: Handle);
    fn rocksdb_writebatch_put(batch: Handle, key: *const u8, key_len: usize, value: *const u8, value_len: usize);
    fn rocksdb_write(database: Handle, options: Handle, batch: Handle, error: *mut *mut c_char);
    fn rocksdb_get_pinned(
        database: Handle,
        options: Handle,
        key: *const u8,
        len: usize,
        error: *mut *mut c_char,
    ) -> Handle;
    fn rocksdb_pinnableslice_value(slice: Handle, len: *mut usize) -> *const u8;
    fn rocksdb_pinnableslice_destroy(slice: Handle);
    fn rocksdb_create_iterator(database: Handle, options: Handle) -> Handle;
    fn rocksdb_iter_destroy(iterator: Handle);
    fn rocksdb_iter_seek(iterator: Handle, key: *const u8, len: usize);
    fn rocksdb_iter_valid(iterator: Handle) -> c_uchar;
    fn rocksdb_iter_next(iterator: Handle);
    fn rocksdb_iter_key(iterator: Handle, len: *mut usize) -> *const u8;
    fn rocksdb_iter_value(iterator: Handle, len: *mut usize) -> *const u8;
    fn rocksdb_iter_get_error(iterator: Handle, error: *mut *mut c_char);
    fn rocksdb_flush(database: Handle, options: Handle, error: *mut *mut c_char);
    fn rocksdb_property_int(database: Handle, name: *const c_char, value: *mut u64) -> c_int;
    fn rocksdb_free(memory: *mut c_void);
}

/// An open database with what each call needs.
///
/// Soundness of every call below: the handles are made in `open` and freed in `drop` only, nothing else holds them, and
/// `Rocks` is not `Send`, so that they are used by one thread, one call at a time. Keys and values are passed with their
/// lengths and copied by the library before the call returns.
pub struct Rocks {
    database: Handle,
    cache: Handle,
    writing: Handle,
    reading: Handle,
    flushing: Handle,
    batch: Handle,
    rows: Vec<Row>,
    reads: Vec<Wanted>,
    directory: PathBuf,
}

impl Rocks {
    pub fn open(directory: &Path, limits: Limits) -> Result<Rocks> {
        let name = CString::new(directory.as_os_str().as_bytes())?;
        // SAFETY: each handle is fresh and of the kind that the function asks for; the table's options take over the
        // filter policy and the options copy the table's, so that neither is used afterwards; the cache is counted by
        // those who share it. `name` lives until the call has returned.
        unsafe {
            let cache = rocksdb_cache_create_lru(limits.cache_bytes as usize);
            let table = rocksdb_block_based_options_create();
            rocksdb_block_based_options_set_block_size(table, BLOCK_BYTES);
            rocksdb_block_based_options_set_filter_policy(table, rocksdb_filterpolicy_create_bloom_full(BLOOM_BITS));
            rocksdb_block_based_options_set_block_cache(table, cache);
            let options = rocksdb_options_create();
            rocksdb_options_set_create_if_missing(options, 1);
            rocksdb_options_set_write_buffer_size(options, limits.write_buffer_bytes as usize);
            rocksdb_options_set_max_background_jobs(options, BACKGROUND_JOBS);
            rocksdb_options_set_compression(options, LZ4);
            rocksdb_options_set_target_file_size_base(options, limits.write_buffer_bytes);
            rocksdb_options_set_max_bytes_for_level_base(options, LEVEL_BASE_BUFFERS * limits.write_buffer_bytes);
            rocksdb_options_set_block_based_table_factory(options, table);
            let opened = checked(|error| rocksdb_open(options, name.as_ptr(), error));
            rocksdb_block_based_options_destroy(table);
            rocksdb_options_destroy(options);
            let database = opened.inspect_err(|_| rocksdb_cache_destroy(cache))?;
            Ok(Rocks {
                database,
                cache,
                writing: rocksdb_writeoptions_create(),
                reading: rocksdb_readoptions_create(),
                flushing: rocksdb_flushoptions_create(),
                batch: rocksdb_writebatch_create(),
                rows: Vec::new(),
                reads: Vec::new(),
                directory: directory.to_owned(),
            })
        }
    }

    fn property(&self, name: &CStr) -> Result<u64> {
        let mut value = 0;
        // SAFETY: see `Rocks`; the name ends with its zero, and the value is written before the call returns.
        match unsafe { rocksdb_property_int(self.database, name.as_ptr(), &raw mut value) } {
            0 => Ok(value),
            _ => Err(format!("RocksDB has no property {name:?}").into()),
        }
    }

    fn get(&self, key: &[u8], found: &mut Found) -> Result<()> {
        // SAFETY: see `Rocks`. The slice is null where there is no such key; else its bytes stay until it is destroyed,
        // and they are not used behind that.
        unsafe {
            let slice =
                checked(|error| rocksdb_get_pinned(self.database, self.reading, key.as_ptr(), key.len(), error))?;
            if !slice.is_null() {
                found.value(bytes(|len| rocksdb_pinnableslice_value(slice, len)));
                rocksdb_pinnableslice_destroy(slice);
            }
        }
        Ok(())
    }

    fn range(&self, first: &[u8], last: &[u8], found: &mut Found) -> Result<()> {
        // SAFETY: see `Rocks`. The iterator ends before the database does; key and value are asked for only while it is
        // valid, and their bytes are not used once it has moved on.
        unsafe {
            let iterator = rocksdb_create_iterator(self.database, self.reading);
            rocksdb_iter_seek(iterator, first.as_ptr(), first.len());
            while rocksdb_iter_valid(iterator) != 0 && bytes(|len| rocksdb_iter_key(iterator, len)) <= last {
                found.value(bytes(|len| rocksdb_iter_value(iterator, len)));
                rocksdb_iter_next(iterator);
            }
            let outcome = checked(|error| rocksdb_iter_get_error(iterator, error));
            rocksdb_iter_destroy(iterator);
            outcome
        }
    }
}

/// Calls a function that reports errors as text.
///
/// # Safety
///
/// `call` must leave the error alone or make it a string that the library allocated.
unsafe fn checked<T>(call: impl FnOnce(*mut *mut c_char) -> T) -> Result<T> {
    let mut error = null_mut();
    let answer = call(&raw mut error);
    let Some(error) = NonNull::new(error) else { return Ok(answer) };
    // SAFETY: by the contract of this function it is such a string; it is copied, and freed as `c.h` asks for.
    unsafe {
        let text = CStr::from_ptr(error.as_ptr()).to_string_lossy().into_owned();
        rocksdb_free(error.as_ptr().cast());
        Err(format!("RocksDB: {text}").into())
    }
}

/// Bytes that the library points to.
///
/// # Safety
///
/// `call` must answer so many readable bytes as it puts into its argument, and they must stay for as long as `'a`.
unsafe fn bytes<'a>(call: impl FnOnce(*mut usize) -> *const u8) -> &'a [u8] {
    let mut len = 0;
    let at = call(&raw mut len);
    // SAFETY: by the contract of this function.
    unsafe { std::slice::from_raw_parts(at, len) }
}

impl Engine for Rocks {
    fn prepare_rows(&mut self, rows: &[Row]) -> Result<()> {
        self.rows = rows.to_vec();
        Ok(())
    }

    fn put(&mut self, from: usize) -> Result<()> {
        // SAFETY: see `Rocks`.
        unsafe {
            rocksdb_writebatch_clear(self.batch);
            for row in &self.rows[from..self.rows.len().min(from + GROUP)] {
                let (key, value) = (row.key(), row.value());
                rocksdb_writebatch_put(self.batch, key.as_ptr(), key.len(), value.as_ptr(), value.len());
            }
            checked(|error| rocksdb_write(self.database, self.writing, self.batch, error))
        }
    }

    fn prepare_reads(&mut self, reads: &[Read]) -> Result<()> {
        self.reads = reads.iter().map(|read| Wanted::of(*read)).collect();
        Ok(())
    }

    fn read(&mut self, at: usize) -> Result<Found> {
        let mut found = Found::default();
        match self.reads[at] {
            Wanted::One(key) => self.get(&key, &mut found)?,
            Wanted::Range(first, last) => self.range(&first, &last, &mut found)?,
        }
        Ok(found)
    }

    fn settle(&mut self) -> Result<()> {
        // SAFETY: see `Rocks`.
        unsafe { checked(|error| rocksdb_flush(self.database, self.flushing, error))? };
        let mut quiet = 0;
        while quiet < QUIET {
            sleep(LOOK);
            let under_way = [
                c"rocksdb.mem-table-flush-pending",
                c"rocksdb.num-running-flushes",
                c"rocksdb.compaction-pending",
                c"rocksdb.num-running-compactions",
            ];
            let sum: u64 = under_way.into_iter().map(|name| self.property(name)).sum::<Result<u64>>()?;
            quiet = if sum == 0 { quiet + 1 } else { 0 };
        }
        Ok(())
    }

    fn files(&self) -> Result<u64> {
        let files = files_below(&self.directory)?;
        Ok(files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "sst")).count() as u64)
    }

    fn close(self: Box<Self>) -> Result<()> {
        drop(self);
        Ok(())
    }
}

impl Drop for Rocks {
    fn drop(&mut self) {
        // SAFETY: see `Rocks`; nobody has them any more, and the database goes before what it was opened with.
        unsafe {
            rocksdb_writebatch_destroy(self.batch);
            rocksdb_flushoptions_destroy(self.flushing);
            rocksdb_readoptions_destroy(self.reading);
            rocksdb_writeoptions_destroy(self.writing);
            rocksdb_close(self.database);
            rocksdb_cache_destroy(self.cache);
        }
    }
}
