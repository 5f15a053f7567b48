#include "store/checkpoint.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>

#include "crypto/hash.h"
#include "store/manifest.h"

namespace loom::store {
namespace {

static_assert(std::endian::native == std::endian::little, "checkpoints are little-endian");

constexpr std::string_view kAside = ".tmp";
constexpr std::string_view kReplaced = ".old";
constexpr std::size_t kChunk = 1u << 20;
constexpr std::uint32_t kMaxTileElements = 1u << 24;

std::string ExtraPath(std::string_view name) { return fmt::format("extra/{}.bin", name); }

std::optional<Round> ParseRound(std::string_view name) {
  Round round = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), round);
  if (error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  if (std::to_string(round) != name) return std::nullopt;
  return round;
}

}  // namespace

/// Appends to a new file and knows its size and hash.
class HashedFile final : public ByteSink {
 public:
  static Result<HashedFile> Create(FileSystem& fs, const std::string& folder, std::string name) {
    HashedFile out;
    LOOM_ASSIGN(out.file_, fs.Open(JoinPath(folder, name), OpenMode::kCreate));
    out.row_.name = std::move(name);
    out.stream_ = std::make_unique<crypto::Sha256Stream>();
    return out;
  }
  Status Write(ByteView bytes) override {
    for (std::size_t at = 0; at < bytes.size(); at += kChunk) {
      const ByteView part = bytes.subspan(at, std::min(kChunk, bytes.size() - at));
      stream_->Update(part);
      LOOM_RETURN_IF_ERROR(file_->WriteAt(row_.size, part));
      row_.size += part.size();
    }
    return {};
  }
  Result<ManifestFile> Finish() {
    LOOM_RETURN_IF_ERROR(file_->Sync());
    row_.sha256 = stream_->Finish();
    return row_;
  }

 private:
  std::unique_ptr<File> file_;
  std::unique_ptr<crypto::Sha256Stream> stream_;
  ManifestFile row_;
};

PendingCheckpoint::PendingCheckpoint() = default;
PendingCheckpoint::~PendingCheckpoint() = default;
PendingCheckpoint::PendingCheckpoint(PendingCheckpoint&&) noexcept = default;
PendingCheckpoint& PendingCheckpoint::operator=(PendingCheckpoint&&) noexcept = default;

namespace {

Result<ManifestFile> WriteWhole(FileSystem& fs, const std::string& folder, std::string name,
                                ByteView bytes) {
  LOOM_ASSIGN(HashedFile file, HashedFile::Create(fs, folder, std::move(name)));
  LOOM_RETURN_IF_ERROR(file.Write(bytes));
  return file.Finish();
}

/// A file from its beginning, read a piece at a time; knows the hash of what was read.
class HashedSource final : public ByteSource {
 public:
  HashedSource(const File& file, std::string path, std::uint64_t size)
      : file_(&file), path_(std::move(path)), left_(size) {}
  std::uint64_t left() const override { return left_; }
  Status Read(MutableByteView out) override {
    if (out.size() > left_) {
      return MakeError(Code::kCorrupt, fmt::format("{}: {} bytes are wanted at {}, {} are left",
                                                   path_, out.size(), at_, left_));
    }
    for (std::size_t done = 0; done < out.size(); done += kChunk) {
      const MutableByteView part = out.subspan(done, std::min(kChunk, out.size() - done));
      LOOM_RETURN_IF_ERROR(ReadExactly(*file_, path_, at_, part));
      stream_.Update(part);
      at_ += part.size();
      left_ -= part.size();
    }
    return {};
  }
  Hash Finish() { return stream_.Finish(); }

 private:
  const File* file_;
  std::string path_;
  std::uint64_t at_ = 0;
  std::uint64_t left_;
  crypto::Sha256Stream stream_;
};

Status CheckFile(const FileSystem& fs, const std::string& folder, const ManifestFile& row) {
  const std::string path = JoinPath(folder, row.name);
  LOOM_ASSIGN(const auto file, fs.OpenToRead(path));
  LOOM_ASSIGN(const std::uint64_t size, file->Size());
  if (size != row.size) {
    return MakeError(Code::kCorrupt,
                     fmt::format("{}: {} bytes, the manifest says {}", path, size, row.size));
  }
  crypto::Sha256Stream stream;
  Bytes chunk(std::min<std::uint64_t>(kChunk, size));
  for (std::uint64_t at = 0; at < size; at += kChunk) {
    const MutableByteView part =
        MutableByteView(chunk).first(std::min<std::uint64_t>(kChunk, size - at));
    LOOM_RETURN_IF_ERROR(ReadExactly(*file, path, at, part));
    stream.Update(part);
  }
  if (stream.Finish() != row.sha256) {
    return MakeError(Code::kCorrupt,
                     fmt::format("{}: does not match its hash in the manifest", path));
  }
  return {};
}

Result<Manifest> ReadManifest(const FileSystem& fs, const std::string& folder, Round round) {
  const std::string path = JoinPath(folder, "manifest.json");
  LOOM_ASSIGN(const Bytes text, ReadWholeFile(fs, path, kMaxManifestBytes));
  auto manifest = FromJson(AsText(text));
  if (!manifest) return std::move(manifest).error().Context(path);
  if (manifest->round != round) {
    return MakeError(Code::kCorrupt,
                     fmt::format("{}: is of round {}, expected {}", path, manifest->round, round));
  }
  for (const ManifestFile& row : manifest->files) {
    LOOM_ASSIGN(const std::uint64_t size, fs.Size(JoinPath(folder, row.name)));
    if (size != row.size) {
      return MakeError(Code::kCorrupt, fmt::format("{}: {} bytes, the manifest says {}",
                                                   JoinPath(folder, row.name), size, row.size));
    }
  }
  return manifest;
}

std::string TensorName(const StateLayout& layout, const StateTile& tile) {
  return tile.tensor < layout.tensors.size() ? layout.tensors[tile.tensor]
                                             : fmt::format("number {}", tile.tensor);
}

/// Tiles of a layout are ours, not a peer's: a wrong one is a defect.
template <class Planes>
void CheckLayout(const StateLayout& layout, const Planes& planes) {
  LOOM_CHECK(planes.size() == layout.planes, "{} planes, layout of {}", planes.size(),
             layout.planes);
  for (const auto& plane : planes) {
    LOOM_CHECK(plane.size() == layout.flat_size, "a plane of {}, layout of {}", plane.size(),
               layout.flat_size);
  }
  for (const StateTile& tile : layout.tiles) {
    LOOM_CHECK(tile.size <= kMaxTileElements, "a tile of {} elements", tile.size);
    LOOM_CHECK(tile.offset + tile.size <= layout.flat_size, "tile at {} of {} past {}", tile.offset,
               tile.size, layout.flat_size);
  }
}

}  // namespace

Result<Bytes> StateFile::ReadTile(std::size_t tile) const {
  if (tile >= leaves_.size()) {
    return MakeError(Code::kNotFound,
                     fmt::format("{}: tile {} of {}", path_, tile, leaves_.size()));
  }
  Bytes bytes(sizes_[tile]);
  LOOM_RETURN_IF_ERROR(ReadExactly(*file_, path_, offsets_[tile], bytes));
  if (crypto::Sha256(bytes) != leaves_[tile]) {
    return MakeError(Code::kCorrupt, fmt::format("{}: tile {} of tensor {} at offset {} is damaged",
                                                 path_, tile, tensors_[tile], offsets_[tile]));
  }
  return bytes;
}

Status Checkpoints::Clean() {
  LOOM_ASSIGN(const auto entries, fs_->List(folder_));
  for (const DirEntry& entry : entries) {
    const std::string path = JoinPath(folder_, entry.name);
    if (entry.name.ends_with(kReplaced)) {
      const std::string whole = path.substr(0, path.size() - kReplaced.size());
      if (!fs_->Exists(whole)) {
        LOOM_RETURN_IF_ERROR(fs_->Rename(path, whole));
        LOOM_RETURN_IF_ERROR(fs_->SyncDir(folder_));
        continue;
      }
    }
    if (entry.name.ends_with(kAside) || entry.name.ends_with(kReplaced)) {
      LOOM_RETURN_IF_ERROR(RemoveTree(*fs_, path));
    }
  }
  return {};
}

Status Checkpoints::WriteExtras(PendingCheckpoint& pending,
                                std::span<const ExtraWriter> extras) const {
  LOOM_RETURN_IF_ERROR(RemoveTree(*fs_, pending.aside_));
  LOOM_RETURN_IF_ERROR(fs_->MakeDirs(JoinPath(pending.aside_, "extra")));
  for (const ExtraWriter& extra : extras) {
    LOOM_ASSIGN(HashedFile file, HashedFile::Create(*fs_, pending.aside_, ExtraPath(extra.name)));
    LOOM_RETURN_IF_ERROR(extra.write(file));
    pending.extras_.push_back(std::make_unique<HashedFile>(std::move(file)));
  }
  return {};
}

Status Checkpoints::WriteState(PendingCheckpoint& pending, const StateLayout& layout,
                               const agreed::ConstPlanes& planes) const {
  const std::string& folder = pending.aside_;
  CheckpointInfo& info = pending.info_;
  Manifest manifest{info.round, info.record, info.root, layout.grid, {}};

  LOOM_ASSIGN(HashedFile state, HashedFile::Create(*fs_, folder, "state.bin"));
  std::vector<Hash> leaves;
  Bytes region;
  for (const StateTile& tile : layout.tiles) {
    region.clear();
    for (const std::span<const float> plane : planes) {
      const auto values = plane.subspan(tile.offset, tile.size);
      if (!std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); })) {
        return MakeError(
            Code::kInvalid,
            fmt::format("not saved: tensor {} of round {} holds a value that is not finite",
                        TensorName(layout, tile), info.round),
            "the run diverged; the last good checkpoint is kept");
      }
      const ByteView bytes = std::as_bytes(values);
      region.insert(region.end(), bytes.begin(), bytes.end());
    }
    leaves.push_back(crypto::Sha256(region));
    LOOM_RETURN_IF_ERROR(state.Write(region));
  }
  const Hash root = crypto::MerkleRoot(leaves);
  if (info.root.IsZero()) info.root = root;
  if (info.root != root) {
    return MakeError(
        Code::kCorrupt,
        fmt::format("not saved: the state in memory has root {}, the record of round {} "
                    "says {}",
                    root.Hex(), info.round, info.root.Hex()));
  }
  manifest.root = root;
  LOOM_ASSIGN(ManifestFile state_row, state.Finish());
  manifest.files.push_back(std::move(state_row));
  LOOM_ASSIGN(ManifestFile leaves_row,
              WriteWhole(*fs_, folder, "leaves.bin", std::as_bytes(std::span(leaves))));
  manifest.files.push_back(std::move(leaves_row));
  for (const auto& extra : pending.extras_) {
    LOOM_ASSIGN(ManifestFile row, extra->Finish());
    manifest.files.push_back(std::move(row));
  }
  const std::string json = ToJson(manifest);
  LOOM_ASSIGN(const ManifestFile last, WriteWhole(*fs_, folder, "manifest.json", AsBytes(json)));
  (void)last;
  LOOM_RETURN_IF_ERROR(fs_->SyncDir(JoinPath(folder, "extra")));
  return fs_->SyncDir(folder);
}

Result<CheckpointInfo> Checkpoints::Save(const CheckpointInfo& info, const StateLayout& layout,
                                         const agreed::ConstPlanes& planes,
                                         std::span<const ExtraWriter> extras) {
  LOOM_ASSIGN(PendingCheckpoint pending, Begin(info, extras));
  return Finish(std::move(pending), layout, planes);
}

Result<PendingCheckpoint> Checkpoints::Begin(const CheckpointInfo& info,
                                             std::span<const ExtraWriter> extras) {
  if (extras.size() > kMaxExtras) {
    return MakeError(Code::kLimit,
                     fmt::format("{} extra files, the limit is {}", extras.size(), kMaxExtras));
  }
  for (std::size_t i = 0; i < extras.size(); ++i) {
    const bool twice = std::any_of(extras.begin(), extras.begin() + static_cast<std::ptrdiff_t>(i),
                                   [&](const ExtraWriter& e) { return e.name == extras[i].name; });
    if (!IsExtraName(extras[i].name) || twice) {
      return MakeError(Code::kInvalid, fmt::format("'{}' cannot name an extra file of a checkpoint",
                                                   extras[i].name));
    }
  }
  PendingCheckpoint pending;
  pending.info_ = info;
  pending.aside_ = JoinPath(folder_, std::to_string(info.round)) + std::string(kAside);
  if (Status status = WriteExtras(pending, extras); !status) {
    (void)RemoveTree(*fs_, pending.aside_);
    return std::move(status).error().Context(fmt::format("checkpoint of round {}", info.round));
  }
  return pending;
}

Result<CheckpointInfo> Checkpoints::Finish(PendingCheckpoint pending, const StateLayout& layout,
                                           const agreed::ConstPlanes& planes) {
  CheckLayout(layout, planes);
  const Round round = pending.info_.round;
  const std::string path = JoinPath(folder_, std::to_string(round));
  const std::string replaced = path + std::string(kReplaced);
  const auto publish = [&]() -> Status {
    LOOM_RETURN_IF_ERROR(WriteState(pending, layout, planes));
    const bool replace = fs_->Exists(path);
    if (replace) {
      LOOM_RETURN_IF_ERROR(RemoveTree(*fs_, replaced));
      LOOM_RETURN_IF_ERROR(fs_->Rename(path, replaced));
    }
    if (Status status = fs_->Rename(pending.aside_, path); !status) {
      if (replace) (void)fs_->Rename(replaced, path);
      return status;
    }
    return fs_->SyncDir(folder_);
  };
  if (Status status = publish(); !status) {
    (void)RemoveTree(*fs_, pending.aside_);
    return std::move(status).error().Context(fmt::format("checkpoint of round {}", round));
  }
  (void)RemoveTree(*fs_, replaced);
  Prune(round);
  return pending.info_;
}

Result<LoadedCheckpoint> Checkpoints::Verify(Round round, const StateLayout& layout,
                                             const agreed::Planes& planes) const {
  CheckLayout(layout, planes);
  const std::string path = JoinPath(folder_, std::to_string(round));
  LOOM_ASSIGN(const Manifest manifest, ReadManifest(*fs_, path, round));
  LOOM_ASSIGN(const StateFile state, OpenState(round, layout));
  for (std::size_t i = 0; i < state.num_tiles(); ++i) {
    LOOM_ASSIGN(const Bytes region, state.ReadTile(i));
    const StateTile& tile = layout.tiles[i];
    const std::size_t size = region.size() / planes.size();
    for (std::size_t p = 0; p < planes.size(); ++p) {
      std::memcpy(planes[p].data() + tile.offset, region.data() + p * size, size);
    }
  }
  LoadedCheckpoint loaded{state.info(), {}, {}};
  for (const ManifestFile& row : manifest.files) {
    if (!row.name.starts_with("extra/")) continue;
    LOOM_RETURN_IF_ERROR(CheckFile(*fs_, path, row));
    loaded.extras.push_back({row.name.substr(6, row.name.size() - 10), row.size});
  }
  return loaded;
}

Result<LoadedCheckpoint> Checkpoints::Load(Round round, const StateLayout& layout,
                                           const agreed::Planes& planes) const {
  auto loaded = Verify(round, layout, planes);
  if (!loaded) {
    return std::move(loaded).error().Context(fmt::format("checkpoint of round {}", round));
  }
  return loaded;
}

Result<LoadedCheckpoint> Checkpoints::LoadLastGood(const StateLayout& layout,
                                                   const agreed::Planes& planes,
                                                   Round newest) const {
  std::vector<std::string> skipped;
  const std::vector<Round> rounds = AllRounds();
  for (auto round = rounds.rbegin(); round != rounds.rend(); ++round) {
    if (*round > newest) continue;
    auto loaded = Load(*round, layout, planes);
    if (loaded) {
      loaded->skipped = std::move(skipped);
      return loaded;
    }
    skipped.push_back(loaded.error().message);
  }
  std::string message = fmt::format("{}: no checkpoint can be loaded", folder_);
  for (const std::string& reason : skipped) message += "; " + reason;
  return MakeError(Code::kNotFound, std::move(message), "the state is fetched from other members");
}

Status Checkpoints::ReadExtra(Round round, const std::string& name, const ExtraReader& read) const {
  const std::string path = JoinPath(folder_, std::to_string(round));
  LOOM_ASSIGN(const Manifest manifest, ReadManifest(*fs_, path, round));
  const ManifestFile* row = manifest.Find(ExtraPath(name));
  if (row == nullptr) {
    return MakeError(Code::kNotFound, fmt::format("{}: has no extra file '{}'", path, name));
  }
  const std::string file_path = JoinPath(path, row->name);
  LOOM_ASSIGN(const auto file, fs_->OpenToRead(file_path));
  HashedSource source(*file, file_path, row->size);
  if (Status done = read(source); !done) return std::move(done).error().Context(file_path);
  if (source.left() > 0 || source.Finish() != row->sha256) {
    return MakeError(Code::kCorrupt,
                     fmt::format("{}: does not match its hash in the manifest", file_path));
  }
  return {};
}

Result<StateFile> Checkpoints::OpenState(Round round, const StateLayout& layout) const {
  const std::string path = JoinPath(folder_, std::to_string(round));
  LOOM_ASSIGN(const Manifest manifest, ReadManifest(*fs_, path, round));
  if (manifest.grid != layout.grid) {
    return MakeError(Code::kConflict,
                     fmt::format("{}: is of tile grid {}, this run has {}", path,
                                 manifest.grid.Hex(), layout.grid.Hex()),
                     "the checkpoint belongs to another model");
  }
  StateFile out;
  out.info_ = {round, manifest.record, manifest.root};
  out.path_ = JoinPath(path, "state.bin");
  std::uint64_t at = 0;
  for (const StateTile& tile : layout.tiles) {
    out.offsets_.push_back(at);
    out.sizes_.push_back(tile.size * static_cast<std::uint32_t>(sizeof(float) * layout.planes));
    out.tensors_.push_back(TensorName(layout, tile));
    at += out.sizes_.back();
  }
  const ManifestFile* state_row = manifest.Find("state.bin");
  const ManifestFile* leaves_row = manifest.Find("leaves.bin");
  if (state_row == nullptr || leaves_row == nullptr || state_row->size != at ||
      leaves_row->size != layout.tiles.size() * sizeof(Hash)) {
    return MakeError(Code::kCorrupt, fmt::format("{}: the sizes of state.bin and leaves.bin do not "
                                                 "fit {} tiles of {} bytes",
                                                 path, layout.tiles.size(), at));
  }
  LOOM_RETURN_IF_ERROR(CheckFile(*fs_, path, *leaves_row));
  LOOM_ASSIGN(const Bytes leaves,
              ReadWholeFile(*fs_, JoinPath(path, "leaves.bin"), leaves_row->size));
  out.leaves_.resize(layout.tiles.size());
  if (!leaves.empty()) std::memcpy(out.leaves_.data(), leaves.data(), leaves.size());
  if (crypto::MerkleRoot(out.leaves_) != manifest.root) {
    return MakeError(Code::kCorrupt,
                     fmt::format("{}: the leaves do not give the root {}",
                                 JoinPath(path, "leaves.bin"), manifest.root.Hex()));
  }
  LOOM_ASSIGN(out.file_, fs_->Open(out.path_, OpenMode::kRead));
  return out;
}

std::vector<Round> Checkpoints::AllRounds() const {
  std::vector<Round> rounds;
  if (const auto entries = fs_->List(folder_)) {
    for (const DirEntry& entry : *entries) {
      if (const auto round = ParseRound(entry.name); round && entry.is_dir)
        rounds.push_back(*round);
    }
  }
  std::sort(rounds.begin(), rounds.end());
  return rounds;
}

std::vector<Round> Checkpoints::List() const {
  std::vector<Round> rounds = AllRounds();
  std::erase_if(rounds, [&](Round round) {
    return !ReadManifest(*fs_, JoinPath(folder_, std::to_string(round)), round);
  });
  return rounds;
}

Status Checkpoints::Remove(Round round) {
  LOOM_RETURN_IF_ERROR(RemoveTree(*fs_, JoinPath(folder_, std::to_string(round))));
  return fs_->SyncDir(folder_);
}

void Checkpoints::Prune(Round saved) {
  std::vector<Round> good = List();
  std::erase(good, saved);
  std::reverse(good.begin(), good.end());
  if (good.size() > keep_ - 1) good.resize(keep_ - 1);
  good.push_back(saved);
  for (const Round round : AllRounds()) {
    if (std::find(good.begin(), good.end(), round) != good.end()) continue;
    // Losing the race with a full or read-only disk only leaves an old folder for the next time.
    (void)RemoveTree(*fs_, JoinPath(folder_, std::to_string(round)));
  }
}

}  // namespace loom::store
