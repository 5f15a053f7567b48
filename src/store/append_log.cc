#include "store/append_log.h"

#include <algorithm>
#include <functional>

#include "crypto/hash.h"
#include "store/log_entry.h"
#include "wire/bytes_io.h"

namespace loom::store {
namespace {

constexpr std::string_view kMagic = "LOOMLOG1";
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kSearchWindow = 1u << 20;

Bytes EncodeHeader(const Hash& file_id) {
  wire::Writer out;
  out.Raw(AsBytes(kMagic));
  out.Int(kVersion);
  out.Int(std::uint32_t{0});
  out.Id(file_id);
  const Hash check = crypto::Sha256(out.bytes());
  out.Raw(check.View().first(kLogCheckBytes));
  return std::move(out).Take();
}

Result<Hash> DecodeHeader(const File& file, const std::string& path, const Hash& wanted) {
  Bytes raw(kLogHeaderBytes);
  LOOM_RETURN_IF_ERROR(ReadExactly(file, path, 0, raw));
  wire::Reader in(raw);
  if (AsText(in.Raw(kMagic.size())) != kMagic) {
    return MakeError(Code::kCorrupt, fmt::format("{}: does not start with {}", path, kMagic));
  }
  const auto version = in.Int<std::uint32_t>();
  (void)in.Int<std::uint32_t>();
  const Hash file_id = in.GetId<HashTag>();
  const Hash check = crypto::Sha256(ByteView(raw).first(kLogHeaderBytes - kLogCheckBytes));
  const ByteView held = in.Raw(kLogCheckBytes);
  if (!std::equal(held.begin(), held.end(), check.bytes.begin())) {
    return MakeError(Code::kCorrupt, fmt::format("{}: the header at offset 0 is damaged", path));
  }
  if (version != kVersion) {
    return MakeError(
        Code::kInvalid,
        fmt::format("{}: format version {}, this program reads {}", path, version, kVersion),
        "use the version of loom that wrote it");
  }
  if (!wanted.IsZero() && file_id != wanted) {
    return MakeError(
        Code::kConflict,
        fmt::format("{}: belongs to log {}, expected {}", path, file_id.Short(), wanted.Short()),
        "the file was copied from another run or folder");
  }
  return file_id;
}

/// Whether a whole entry after `offset` says that entry `bad` had been synced when it was written.
Result<bool> LaterEntryProvesSync(const File& file, const std::string& path, const Hash& file_id,
                                  std::uint64_t offset, std::uint64_t end, std::uint64_t bad) {
  Bytes window;
  for (std::uint64_t base = offset + 1; base + kLogEntryOverhead <= end;) {
    window.resize(std::min<std::uint64_t>(kSearchWindow + kLogHeadBytes, end - base));
    LOOM_RETURN_IF_ERROR(ReadExactly(file, path, base, window));
    const std::size_t candidates = window.size() - kLogHeadBytes + 1;
    for (std::size_t i = 0; i < candidates; ++i) {
      const auto head = DecodeLogHead(file_id, ByteView(window).subspan(i));
      if (!head || head->synced <= bad) continue;
      LOOM_ASSIGN(const auto entry, ReadLogEntry(file, path, file_id, base + i, end, head->number));
      if (entry) return true;
    }
    base += candidates;
  }
  return false;
}

/// The one byte in which a header differs from the one that belongs there.
std::optional<ByteRepair> HeaderRepair(ByteView held, const Hash& wanted) {
  const Bytes right = EncodeHeader(wanted);
  std::optional<ByteRepair> repair;
  for (std::size_t i = 0; i < right.size(); ++i) {
    if (held[i] == right[i]) continue;
    if (repair) return std::nullopt;
    repair = ByteRepair{i, right[i], {}};
  }
  return repair;
}

struct Scan {
  Hash file_id;
  std::vector<std::uint64_t> offsets;
  std::uint64_t end = kLogHeaderBytes;
  std::optional<TornTail> torn;
  std::vector<ByteRepair> repairs;
};

/// "PATH: ...", a line for each.
std::vector<std::string> RepairNotes(const std::string& path, const Scan& scan) {
  std::vector<std::string> notes;
  notes.reserve(scan.repairs.size());
  for (const ByteRepair& r : scan.repairs) {
    notes.push_back(fmt::format(
        "{}: the disk changed the byte at offset {}; its check told which it was", path, r.offset));
  }
  return notes;
}

/// A log is made with its header in one step, so what is shorter was cut by something else.
std::string BegunAnew(const std::string& path, std::uint64_t bytes) {
  return fmt::format("{}: only {} bytes are left of it: begun anew", path, bytes);
}

Result<Scan> ScanLog(const File& file, const std::string& path, const Hash& wanted,
                     const std::function<void(Bytes)>& entry_read) {
  Scan scan;
  const auto header = DecodeHeader(file, path, wanted);
  if (header) {
    scan.file_id = *header;
  } else {
    if (header.error().code != Code::kCorrupt || wanted.IsZero()) return header.error();
    Bytes raw(kLogHeaderBytes);
    if (!ReadExactly(file, path, 0, raw)) return header.error();
    auto repair = HeaderRepair(raw, wanted);
    if (!repair) return header.error();
    scan.repairs.push_back(std::move(*repair));
    scan.file_id = wanted;
  }
  LOOM_ASSIGN(const std::uint64_t size, file.Size());
  while (scan.end < size) {
    const std::uint64_t number = scan.offsets.size();
    LOOM_ASSIGN(auto entry, ReadLogEntry(file, path, scan.file_id, scan.end, size, number));
    if (!entry) {
      LOOM_ASSIGN(const bool promised,
                  LaterEntryProvesSync(file, path, scan.file_id, scan.end, size, number));
      if (!promised) {
        scan.torn = TornTail{scan.end, size - scan.end, number};
        break;
      }
      LOOM_ASSIGN(auto repair, FindByteRepair(file, path, scan.file_id, scan.end, size, number));
      if (!repair) {
        return MakeError(
            Code::kCorrupt,
            fmt::format("{}: entry {} at offset {} is damaged, and later ones are not", path,
                        number, scan.end),
            "the disk changed what was written: bring back a copy of the file, or join "
            "again with a new folder");
      }
      entry = repair->payload;
      scan.repairs.push_back(std::move(*repair));
    }
    scan.offsets.push_back(scan.end);
    scan.end += entry->size() + kLogEntryOverhead;
    if (entry_read) entry_read(std::move(*entry));
  }
  return scan;
}

}  // namespace

Result<LogContents> ReadLog(const FileSystem& fs, const std::string& path, const Hash& file_id) {
  LOOM_ASSIGN(const auto file, fs.OpenToRead(path));
  LogContents contents;
  LOOM_ASSIGN(const std::uint64_t size, file->Size());
  if (size < kLogHeaderBytes) {
    contents.repaired.push_back(BegunAnew(path, size));
    return contents;
  }
  LOOM_ASSIGN(const Scan scan, ScanLog(*file, path, file_id, [&](Bytes entry) {
                contents.entries.push_back(std::move(entry));
              }));
  contents.torn = scan.torn;
  contents.repaired = RepairNotes(path, scan);
  return contents;
}

Result<AppendLog> AppendLog::Open(FileSystem& fs, const std::string& path, const Hash& file_id) {
  const bool exists = fs.Exists(path);
  std::uint64_t size = 0;
  if (exists) {
    LOOM_ASSIGN(size, fs.Size(path));
  }
  const bool empty = size < kLogHeaderBytes;
  if (empty) LOOM_RETURN_IF_ERROR(WriteFileAtomically(fs, path, EncodeHeader(file_id)));
  AppendLog log(fs, path, file_id);
  LOOM_ASSIGN(log.file_, fs.Open(path, OpenMode::kWrite));
  LOOM_ASSIGN(Scan scan, ScanLog(*log.file_, path, file_id, nullptr));
  log.offsets_ = std::move(scan.offsets);
  log.end_ = scan.end;
  log.torn_ = scan.torn;
  log.repaired_ = RepairNotes(path, scan);
  if (empty && exists) log.repaired_.push_back(BegunAnew(path, size));
  for (const ByteRepair& repair : scan.repairs)
    LOOM_RETURN_IF_ERROR(log.file_->WriteAt(repair.offset, ByteView(&repair.value, 1)));
  if (log.torn_) LOOM_RETURN_IF_ERROR(log.file_->Truncate(log.end_));
  // What kill -9 left in the page cache was read above; from here on it is relied upon.
  LOOM_RETURN_IF_ERROR(log.file_->Sync());
  LOOM_RETURN_IF_ERROR(fs.SyncDir(ParentPath(path)));
  log.synced_ = log.offsets_.size();
  return log;
}

Status AppendLog::Usable() {
  if (!broken_.empty()) {
    return MakeError(Code::kIo, fmt::format("{}: unusable since: {}", path_, broken_),
                     "start the peer again");
  }
  if (part_written_) {
    LOOM_RETURN_IF_ERROR(file_->Truncate(end_));
    part_written_ = false;
  }
  return {};
}

Status AppendLog::Append(ByteView payload) {
  if (payload.size() > kMaxLogEntry) {
    return MakeError(Code::kLimit, fmt::format("{}: an entry of {} bytes, the limit is {}", path_,
                                               payload.size(), kMaxLogEntry));
  }
  LOOM_RETURN_IF_ERROR(Usable());
  wire::Writer out;
  EncodeLogEntry(out, file_id_, offsets_.size(), synced_, payload);
  if (Status status = file_->WriteAt(end_, out.bytes()); !status) {
    part_written_ = !file_->Truncate(end_);
    return status;
  }
  offsets_.push_back(end_);
  end_ += out.bytes().size();
  return {};
}

Status AppendLog::Sync() {
  LOOM_RETURN_IF_ERROR(Usable());
  if (Status status = file_->Sync(); !status) {
    broken_ = status.error().message;
    return status;
  }
  synced_ = offsets_.size();
  return {};
}

Status AppendLog::AppendAndSync(ByteView payload) {
  LOOM_RETURN_IF_ERROR(Append(payload));
  return Sync();
}

Result<Bytes> AppendLog::Read(std::uint64_t entry) const {
  if (entry >= offsets_.size()) {
    return MakeError(Code::kNotFound,
                     fmt::format("{}: entry {} of {}", path_, entry, offsets_.size()));
  }
  LOOM_ASSIGN(auto bytes, ReadLogEntry(*file_, path_, file_id_, offsets_[entry], end_, entry));
  if (!bytes) {
    return MakeError(Code::kCorrupt, fmt::format("{}: entry {} at offset {} is damaged", path_,
                                                 entry, offsets_[entry]));
  }
  return std::move(*bytes);
}

Result<std::vector<Bytes>> AppendLog::ReadAll() const {
  std::vector<Bytes> out;
  for (std::uint64_t i = 0; i < offsets_.size(); ++i) {
    LOOM_ASSIGN(Bytes entry, Read(i));
    out.push_back(std::move(entry));
  }
  return out;
}

Status AppendLog::Rewrite(const std::vector<Bytes>& entries) {
  LOOM_RETURN_IF_ERROR(Usable());
  wire::Writer out;
  out.Raw(EncodeHeader(file_id_));
  std::vector<std::uint64_t> offsets;
  for (const Bytes& entry : entries) {
    if (entry.size() > kMaxLogEntry) {
      return MakeError(Code::kLimit, fmt::format("{}: an entry of {} bytes, the limit is {}", path_,
                                                 entry.size(), kMaxLogEntry));
    }
    const std::uint64_t number = offsets.size();
    offsets.push_back(out.bytes().size());
    // All of them are durable before any of them can be seen, so each may vouch for those before.
    EncodeLogEntry(out, file_id_, number, number, entry);
  }
  Status status = WriteFileAtomically(*fs_, path_, out.bytes());
  if (status) {
    auto file = fs_->Open(path_, OpenMode::kWrite);
    if (!file) {
      status = file.error();
    } else {
      file_ = std::move(file).value();
    }
  }
  if (!status) {
    // The name may already stand for the new file while file_ is the old one.
    broken_ = status.error().message;
    return status;
  }
  offsets_ = std::move(offsets);
  end_ = out.bytes().size();
  synced_ = offsets_.size();
  return {};
}

}  // namespace loom::store
