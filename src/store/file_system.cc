#include "store/file_system.h"

#include <algorithm>

namespace loom::store {

std::string JoinPath(std::string_view folder, std::string_view name) {
  if (folder.empty()) return std::string(name);
  std::string out(folder);
  if (out.back() != '/') out += '/';
  out += name;
  return out;
}

std::string ParentPath(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  const auto slash = path.rfind('/');
  if (slash == std::string_view::npos) return ".";
  return slash == 0 ? "/" : std::string(path.substr(0, slash));
}

Result<std::unique_ptr<File>> FileSystem::OpenToRead(const std::string& path) const {
  // Open is not const for the sake of its other modes.
  return const_cast<FileSystem*>(this)->Open(path, OpenMode::kRead);
}

Status ReadExactly(const File& file, const std::string& path, std::uint64_t offset,
                   MutableByteView out) {
  LOOM_ASSIGN(const std::size_t n, file.ReadAt(offset, out));
  if (n != out.size()) {
    return MakeError(Code::kCorrupt, fmt::format("{}: ends at offset {}, {} bytes were expected "
                                                 "from offset {}",
                                                 path, offset + n, out.size(), offset));
  }
  return {};
}

Result<Bytes> ReadWholeFile(const FileSystem& fs, const std::string& path,
                            std::uint64_t max_bytes) {
  // Opening for reading changes nothing; the interface is non-const for the sake of the other
  // modes.
  LOOM_ASSIGN(const auto file, fs.OpenToRead(path));
  LOOM_ASSIGN(const std::uint64_t size, file->Size());
  if (size > max_bytes) {
    return MakeError(Code::kLimit,
                     fmt::format("{}: {} bytes, the limit is {}", path, size, max_bytes));
  }
  Bytes out(size);
  LOOM_RETURN_IF_ERROR(ReadExactly(*file, path, 0, out));
  return out;
}

namespace {

Status WriteSynced(FileSystem& fs, const std::string& path, ByteView bytes, Access access) {
  LOOM_ASSIGN(const auto file, fs.Open(path, OpenMode::kCreate, access));
  LOOM_RETURN_IF_ERROR(file->Append(bytes));
  return file->Sync();
}

}  // namespace

Status WriteFileAtomically(FileSystem& fs, const std::string& path, ByteView bytes, Access access) {
  const std::string aside = path + ".tmp";
  Status written = WriteSynced(fs, aside, bytes, access);
  if (written) written = fs.Rename(aside, path);
  if (!written) {
    (void)fs.Remove(aside);
    return written;
  }
  return fs.SyncDir(ParentPath(path));
}

Status RemoveTree(FileSystem& fs, const std::string& path) {
  if (const auto entries = fs.List(path)) {
    for (const DirEntry& entry : *entries) {
      LOOM_RETURN_IF_ERROR(RemoveTree(fs, JoinPath(path, entry.name)));
    }
  }
  Status removed = fs.Remove(path);
  if (!removed && removed.error().code == Code::kNotFound) return {};
  return removed;
}

}  // namespace loom::store
