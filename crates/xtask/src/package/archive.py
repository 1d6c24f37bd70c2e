"""Packs a folder into an archive, the same each time: ARCHIVE FOLDER."""
import gzip, os, sys, tarfile

archive, folder = sys.argv[1:]


def plain(entry):
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
    return entry


with open(archive, "wb") as file, gzip.GzipFile("", "wb", 9, file, 0) as packed:
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        # Folders are read in the order of their names.
        tar.add(folder, os.path.basename(folder), filter=plain)
