//! Blocks of bytes, compressed with lz4 where that makes them smaller.
