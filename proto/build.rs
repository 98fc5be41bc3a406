//! Generates the wire types from `trefoil/v1/*.proto`, in pure Rust: no protoc is needed.

use std::error::Error;
use std::path::PathBuf;

use prost::Message;

const FILES: [&str; 8] = [
    "trefoil/v1/types.proto",
    "trefoil/v1/errors.proto",
    "trefoil/v1/schema.proto",
    "trefoil/v1/data.proto",
    "trefoil/v1/cluster.proto",
    "trefoil/v1/backup.proto",
    "trefoil/v1/peer.proto",
    "trefoil/v1/restore.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=trefoil");
    let mut compiler = protox::Compiler::new(["."])?;
    compiler.include_imports(true).include_source_info(true).open_files(FILES)?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    // Comments are of no use to reflection, and half of its bytes.
    let mut described = compiler.file_descriptor_set();
    for file in &mut described.file {
        file.source_code_info = None;
    }
    std::fs::write(out.join("trefoil.descriptors"), described.encode_to_vec())?;
    // `bytes` fields are slices of the received message; maps are ordered, so that equal messages have equal bytes.
    tonic_prost_build::configure().bytes(".").btree_map(".").compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}
