// Each file keeps its synced bytes, its current bytes and the ranges that differ since the last
// sync; each folder keeps synced and current entries and the list of unsynced name changes. A crash
// draws, for every 512-byte sector that was not synced, whether it holds new bytes or old ones
// (zeros past the old end), and for every unsynced name change whether it happened; a rename is one
// change.
#include "store/sim_file_system.h"

#include <algorithm>

namespace loom::store {
namespace {

constexpr std::uint64_t kSector = 512;

/// SplitMix64: the draws of a crash.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : state_(seed) {}
  std::uint64_t Next() {
    state_ += 0x9e3779b97f4a7c15u;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  std::uint64_t Below(std::uint64_t n) { return Next() % n; }

 private:
  std::uint64_t state_;
};

struct Range {
  std::uint64_t begin;
  std::uint64_t end;
};

}  // namespace

using NodePtr = std::shared_ptr<SimFileSystem::Node>;

struct NameChange {
  std::string removed;  ///< empty: nothing
  std::string set;      ///< empty: nothing
  NodePtr node;         ///< what `set` names afterwards
};

struct SimFileSystem::Node {
  bool is_dir = false;
  Bytes synced;
  Bytes current;
  std::vector<Range> dirty;
  std::map<std::string, NodePtr> synced_names;
  std::map<std::string, NodePtr> names;
  std::vector<NameChange> changes;

  void Write(std::uint64_t offset, ByteView bytes) {
    const std::uint64_t end = offset + bytes.size();
    const std::uint64_t begin = std::min<std::uint64_t>(offset, current.size());
    if (end > current.size()) current.resize(end);
    std::copy(bytes.begin(), bytes.end(), current.begin() + static_cast<std::ptrdiff_t>(offset));
    if (!dirty.empty() && dirty.back().end == begin) {
      dirty.back().end = end;
    } else {
      dirty.push_back({begin, end});
    }
  }

  void Sync() {
    synced.resize(current.size());
    for (const Range& range : dirty) {
      const auto begin =
          static_cast<std::ptrdiff_t>(std::min<std::uint64_t>(range.begin, current.size()));
      const auto end =
          static_cast<std::ptrdiff_t>(std::min<std::uint64_t>(range.end, current.size()));
      std::copy(current.begin() + begin, current.begin() + end, synced.begin() + begin);
    }
    dirty.clear();
  }

  void Apply(const NameChange& change) {
    if (!change.removed.empty()) names.erase(change.removed);
    if (!change.set.empty()) names[change.set] = change.node;
    changes.push_back(change);
  }

  void SyncNames() {
    synced_names = names;
    changes.clear();
  }

  void Crash(Draw& draw) {
    if (is_dir) {
      CrashNames(draw);
      for (auto& [name, child] : names) child->Crash(draw);
      SyncNames();
    } else {
      CrashBytes(draw);
    }
  }

  void CrashNames(Draw& draw) {
    names = synced_names;
    // Half the time a journal kept the order: a prefix of the changes is there. Else any subset.
    const bool in_order = draw.Below(2) == 0;
    const std::uint64_t kept = draw.Below(changes.size() + 1);
    for (std::size_t i = 0; i < changes.size(); ++i) {
      if (in_order ? i >= kept : draw.Below(2) == 0) continue;
      if (!changes[i].removed.empty()) names.erase(changes[i].removed);
      if (!changes[i].set.empty()) names[changes[i].set] = changes[i].node;
    }
  }

  void CrashBytes(Draw& draw) {
    if (dirty.empty() && synced.size() == current.size()) return;
    const std::uint64_t low = std::min(synced.size(), current.size());
    const std::uint64_t high = std::max(synced.size(), current.size());
    std::uint64_t size = low + draw.Below(high - low + 1);
    if (const std::uint64_t pick = draw.Below(3); pick < 2) {
      size = pick == 0 ? current.size() : synced.size();
    }
    Bytes after = synced;
    after.resize(size);
    for (const Range& range : dirty) {
      for (std::uint64_t at = range.begin; at < range.end;) {
        const std::uint64_t end = std::min({range.end, (at / kSector + 1) * kSector, size});
        if (end <= at) break;
        const bool arrived = draw.Below(2) == 0;
        for (std::uint64_t i = at; arrived && i < std::min<std::uint64_t>(end, current.size());
             ++i) {
          after[i] = current[i];
        }
        at = end;
      }
    }
    synced = after;
    current = std::move(after);
    dirty.clear();
  }

  NodePtr Copy() const {
    auto copy = std::make_shared<Node>();
    copy->is_dir = is_dir;
    copy->current = current;
    copy->synced = current;
    for (const auto& [name, child] : names) copy->names[name] = child->Copy();
    copy->synced_names = copy->names;
    return copy;
  }

  std::uint64_t TotalBytes() const {
    std::uint64_t total = current.size();
    for (const auto& [name, child] : names) total += child->TotalBytes();
    return total;
  }
};

namespace {

std::vector<std::string> Parts(const std::string& path) {
  std::vector<std::string> out;
  std::size_t at = 0;
  while (at < path.size()) {
    const std::size_t slash = std::min(path.find('/', at), path.size());
    if (slash > at && path.substr(at, slash - at) != ".")
      out.push_back(path.substr(at, slash - at));
    at = slash + 1;
  }
  return out;
}

Error NoSuch(const std::string& path) {
  return MakeError(Code::kNotFound, fmt::format("{}: no such file or folder", path));
}

std::string LastPart(const std::string& path) {
  auto parts = Parts(path);
  return parts.empty() ? std::string() : parts.back();
}

}  // namespace

class SimFile final : public File {
 public:
  SimFile(SimFileSystem& fs, NodePtr node, std::string path, bool writable)
      : fs_(&fs),
        node_(std::move(node)),
        path_(std::move(path)),
        writable_(writable),
        generation_(fs.generation_) {}

  Status Append(ByteView bytes) override { return WriteAt(node_->current.size(), bytes); }

  Status WriteAt(std::uint64_t offset, ByteView bytes) override {
    LOOM_RETURN_IF_ERROR(Alive(true));
    Status status = fs_->Begin(path_);
    if (status) {
      const std::uint64_t end = offset + bytes.size();
      const std::uint64_t size = node_->current.size();
      status = fs_->Reserve(path_, end > size ? end - size : 0);
    }
    if (!status) {
      if (fs_->Stopped()) return status;
      // What a real disk does: the part that still fitted is there.
      bytes = bytes.first(bytes.size() / 2);
      const std::uint64_t end = offset + bytes.size();
      if (end > node_->current.size()) {
        if (!fs_->Reserve(path_, end - node_->current.size())) return status;
      }
    }
    node_->Write(offset, bytes);
    return status;
  }

  Result<std::size_t> ReadAt(std::uint64_t offset, MutableByteView out) const override {
    LOOM_RETURN_IF_ERROR(Alive(false));
    if (offset >= node_->current.size()) return std::size_t{0};
    const std::size_t n = std::min<std::size_t>(out.size(), node_->current.size() - offset);
    std::copy_n(node_->current.begin() + static_cast<std::ptrdiff_t>(offset), n, out.begin());
    return n;
  }

  Status Truncate(std::uint64_t size) override {
    LOOM_RETURN_IF_ERROR(Alive(true));
    LOOM_RETURN_IF_ERROR(fs_->Begin(path_));
    const std::uint64_t old = node_->current.size();
    if (size > old) {
      LOOM_RETURN_IF_ERROR(fs_->Reserve(path_, size - old));
    } else {
      fs_->used_ -= old - size;
    }
    node_->current.resize(size);
    node_->dirty.push_back({std::min(size, old), std::max(size, old)});
    return {};
  }

  Result<std::uint64_t> Size() const override {
    LOOM_RETURN_IF_ERROR(Alive(false));
    return std::uint64_t{node_->current.size()};
  }

  Status Sync() override {
    LOOM_RETURN_IF_ERROR(Alive(false));
    LOOM_RETURN_IF_ERROR(fs_->Begin(path_));
    if (!fs_->ignore_syncs_) node_->Sync();
    return {};
  }

 private:
  Status Alive(bool to_write) const {
    if (generation_ != fs_->generation_) {
      return MakeError(Code::kIo, fmt::format("{}: opened before a crash", path_));
    }
    if (to_write && !writable_) {
      return MakeError(Code::kIo, fmt::format("{}: opened for reading", path_));
    }
    return {};
  }

  SimFileSystem* fs_;
  NodePtr node_;
  std::string path_;
  bool writable_;
  std::uint64_t generation_;
};

class SimLock final : public FileLock {
 public:
  SimLock(SimFileSystem& fs, std::string path)
      : fs_(&fs), path_(std::move(path)), generation_(fs.generation_) {}
  ~SimLock() override {
    if (generation_ == fs_->generation_) fs_->locks_.erase(path_);
  }
  SimLock(const SimLock&) = delete;
  SimLock& operator=(const SimLock&) = delete;

 private:
  SimFileSystem* fs_;
  std::string path_;
  std::uint64_t generation_;
};

SimFileSystem::SimFileSystem(std::uint64_t capacity)
    : capacity_(capacity), root_(std::make_shared<Node>()) {
  root_->is_dir = true;
}

SimFileSystem::~SimFileSystem() = default;

Status SimFileSystem::Begin(const std::string& path) {
  const std::uint64_t number = operations_++;
  if (failure_ && (number == failure_->operation ||
                   (failure_->and_all_later && number > failure_->operation))) {
    return MakeError(failure_->code,
                     fmt::format("{}: operation {} was made to fail", path, number));
  }
  return {};
}

bool SimFileSystem::Stopped() const {
  return failure_ && failure_->and_all_later && operations_ - 1 > failure_->operation;
}

Status SimFileSystem::Reserve(const std::string& path, std::uint64_t bytes) {
  if (used_ > capacity_ || bytes > capacity_ - used_) {
    return MakeError(Code::kDiskFull, fmt::format("{}: {} more bytes, {} of {} are used", path,
                                                  bytes, used_, capacity_));
  }
  used_ += bytes;
  return {};
}

NodePtr SimFileSystem::Find(const std::string& path) const {
  NodePtr node = root_;
  for (const std::string& part : Parts(path)) {
    const auto child = node->names.find(part);
    if (child == node->names.end()) return nullptr;
    node = child->second;
  }
  return node;
}

Result<NodePtr> SimFileSystem::Folder(const std::string& path) const {
  NodePtr node = Find(path);
  if (node == nullptr || !node->is_dir) return NoSuch(path);
  return node;
}

Result<std::unique_ptr<File>> SimFileSystem::Open(const std::string& path, OpenMode mode, Access) {
  NodePtr node = Find(path);
  if (node != nullptr && node->is_dir) {
    return MakeError(Code::kIo, fmt::format("{}: not a file", path));
  }
  if (node == nullptr) {
    if (mode == OpenMode::kRead) return NoSuch(path);
    LOOM_ASSIGN(const NodePtr folder, Folder(ParentPath(path)));
    LOOM_RETURN_IF_ERROR(Begin(path));
    node = std::make_shared<Node>();
    folder->Apply({"", LastPart(path), node});
  } else if (mode == OpenMode::kCreate) {
    LOOM_RETURN_IF_ERROR(Begin(path));
    used_ -= node->current.size();
    node->current.clear();
  }
  return std::unique_ptr<File>(
      std::make_unique<SimFile>(*this, node, path, mode != OpenMode::kRead));
}

Status SimFileSystem::Rename(const std::string& from, const std::string& to) {
  const NodePtr node = Find(from);
  if (node == nullptr) return NoSuch(from);
  LOOM_ASSIGN(const NodePtr source, Folder(ParentPath(from)));
  LOOM_ASSIGN(const NodePtr target, Folder(ParentPath(to)));
  const NodePtr old = Find(to);
  if (old != nullptr && (old->is_dir != node->is_dir || !old->names.empty())) {
    return MakeError(Code::kIo, fmt::format("{}: cannot be replaced by {}", to, from));
  }
  LOOM_RETURN_IF_ERROR(Begin(from));
  if (old != nullptr && old != node) used_ -= old->TotalBytes();
  if (source == target) {
    source->Apply({LastPart(from), LastPart(to), node});
  } else {
    target->Apply({"", LastPart(to), node});
    source->Apply({LastPart(from), "", nullptr});
  }
  return {};
}

Status SimFileSystem::Remove(const std::string& path) {
  const NodePtr node = Find(path);
  if (node == nullptr || node == root_) return NoSuch(path);
  if (!node->names.empty()) {
    return MakeError(Code::kIo, fmt::format("{}: folder is not empty", path));
  }
  LOOM_RETURN_IF_ERROR(Begin(path));
  used_ -= node->current.size();
  Find(ParentPath(path))->Apply({LastPart(path), "", nullptr});
  return {};
}

Result<std::vector<DirEntry>> SimFileSystem::List(const std::string& path) const {
  LOOM_ASSIGN(const NodePtr folder, Folder(path));
  std::vector<DirEntry> out;
  for (const auto& [name, node] : folder->names) out.push_back({name, node->is_dir});
  return out;
}

Status SimFileSystem::MakeDirs(const std::string& path, Access) {
  NodePtr node = root_;
  for (const std::string& part : Parts(path)) {
    NodePtr& child = node->names[part];
    if (child == nullptr) {
      if (Status status = Begin(path); !status) {
        node->names.erase(part);
        return status;
      }
      child = std::make_shared<Node>();
      child->is_dir = true;
      node->synced_names[part] = child;
    } else if (!child->is_dir) {
      return MakeError(Code::kIo, fmt::format("{}: is a file where a folder is needed", path));
    }
    node = child;
  }
  return {};
}

Status SimFileSystem::SyncDir(const std::string& path) {
  LOOM_ASSIGN(const NodePtr folder, Folder(path));
  LOOM_RETURN_IF_ERROR(Begin(path));
  if (!ignore_syncs_) folder->SyncNames();
  return {};
}

Result<std::uint64_t> SimFileSystem::Size(const std::string& path) const {
  const NodePtr node = Find(path);
  if (node == nullptr) return NoSuch(path);
  return std::uint64_t{node->current.size()};
}

bool SimFileSystem::Exists(const std::string& path) const { return Find(path) != nullptr; }

Result<std::uint64_t> SimFileSystem::FreeBytes(const std::string&) const {
  return used_ > capacity_ ? 0 : capacity_ - used_;
}

Result<std::unique_ptr<FileLock>> SimFileSystem::Lock(const std::string& path,
                                                      std::string_view owner) {
  LOOM_RETURN_IF_ERROR(Folder(ParentPath(path)));
  const auto [held, taken] = locks_.emplace(path, owner);
  if (!taken) {
    return MakeError(Code::kConflict,
                     fmt::format("{}: in use by process {}", ParentPath(path), held->second),
                     "stop that process, or use another folder");
  }
  return std::unique_ptr<FileLock>(std::make_unique<SimLock>(*this, path));
}

void SimFileSystem::Crash(std::uint64_t seed) {
  Draw draw(seed);
  root_->Crash(draw);
  Kill();
}

void SimFileSystem::Kill() {
  ++generation_;
  locks_.clear();
  failure_.reset();
  used_ = root_->TotalBytes();
}

void SimFileSystem::FailAt(std::uint64_t operation, Code code, bool and_all_later) {
  failure_ = Failure{operation, code, and_all_later};
}

Status SimFileSystem::FlipByte(const std::string& path, std::uint64_t offset, std::byte mask) {
  const NodePtr node = Find(path);
  if (node == nullptr || offset >= node->current.size()) return NoSuch(path);
  node->current[offset] ^= mask;
  if (offset < node->synced.size()) node->synced[offset] ^= mask;
  return {};
}

std::shared_ptr<const SimFileSystem::Node> SimFileSystem::Snapshot() const { return root_->Copy(); }

void SimFileSystem::Restore(const std::shared_ptr<const Node>& snapshot) {
  root_ = snapshot->Copy();
  Kill();
}

}  // namespace loom::store
