#include "store/peer_folder.h"

#include <charconv>
#include <set>

#include "crypto/hash.h"
#include "wire/bytes_io.h"

namespace loom::store {
namespace {

constexpr std::string_view kGenesisMagic = "LOOMGEN1";
constexpr std::size_t kGenesisOverhead = 8 + 4 + 32;
constexpr std::size_t kMaxStatusBytes = 16u << 20;

Hash LogId(ByteView genesis, std::string_view name) {
  wire::Writer out;
  out.Text("loom log");
  out.Id(crypto::Sha256(genesis));
  out.Text(name);
  return crypto::Sha256(out.bytes());
}

Bytes EncodeGenesis(ByteView genesis) {
  wire::Writer out;
  out.Raw(AsBytes(kGenesisMagic));
  out.Var(genesis);
  out.Id(crypto::Sha256(out.bytes()));
  return std::move(out).Take();
}

constexpr std::array<const char*, 2> kGenesisNames = {"genesis", "genesis.copy"};

Result<Bytes> ReadGenesisFile(const FileSystem& fs, const std::string& path) {
  LOOM_ASSIGN(const Bytes raw, ReadWholeFile(fs, path, kMaxGenesisBytes + kGenesisOverhead));
  wire::Reader in(raw);
  const bool magic = AsText(in.Raw(kGenesisMagic.size())) == kGenesisMagic;
  const ByteView genesis = in.Var(kMaxGenesisBytes);
  const Hash check = in.GetId<HashTag>();
  if (!magic || !in.Finish("genesis") || genesis.empty() ||
      check != crypto::Sha256(ByteView(raw).first(raw.size() - 32))) {
    return MakeError(Code::kCorrupt, fmt::format("{}: is damaged", path));
  }
  return ToBytes(genesis);
}

/// The first of the two files that is whole.
Result<Bytes> ReadGenesis(const FileSystem& fs, const std::string& folder) {
  std::string why;
  for (const char* name : kGenesisNames) {
    auto genesis = ReadGenesisFile(fs, JoinPath(folder, name));
    if (genesis) return genesis;
    why += (why.empty() ? "" : "; ") + genesis.error().message;
  }
  return MakeError(Code::kCorrupt, std::move(why),
                   "bring back the file (every member of the run has the same one), or give "
                   "another --dir");
}

Status WriteGenesis(FileSystem& fs, const std::string& folder, ByteView genesis) {
  const Bytes file = EncodeGenesis(genesis);
  // The first one says that there is a run, so the other one is there before it.
  for (const char* name : {kGenesisNames[1], kGenesisNames[0]})
    LOOM_RETURN_IF_ERROR(WriteFileAtomically(fs, JoinPath(folder, name), file));
  return {};
}

/// "<round>-<16 hex digits>".
std::optional<Round> RoundOfName(std::string_view name) {
  Round round = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), round);
  if (error != std::errc() || end == name.data() + name.size() || *end != '-') return std::nullopt;
  return round;
}

std::string RoundPathIn(const std::string& folder, Round round, const Hash& id) {
  return JoinPath(JoinPath(folder, "rounds"), fmt::format("{}-{}", round, id.Hex().substr(0, 16)));
}

Result<RoundFile> OpenRoundAt(const FileSystem& fs, const std::string& path, Round round,
                              const Hash& id) {
  LOOM_ASSIGN(RoundFile file, RoundFile::Open(fs, path, round));
  if (crypto::MerkleRoot(file.hashes()) != id) {
    return MakeError(Code::kCorrupt, fmt::format("{}: holds other bytes than {}", path, id.Hex()));
  }
  return file;
}

bool IsKeyName(std::string_view name) {
  return !name.empty() && name.size() <= 64 &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_-") == std::string_view::npos;
}

}  // namespace

PeerFolder::PeerFolder(FileSystem& fs, std::string path, const Options& options)
    : fs_(&fs),
      path_(std::move(path)),
      checkpoints_(fs, JoinPath(path_, "checkpoints"), options.keep_checkpoints) {}

Result<PeerFolder> PeerFolder::Open(FileSystem& fs, const std::string& path,
                                    const Options& options) {
  PeerFolder folder(fs, path, options);
  LOOM_RETURN_IF_ERROR(fs.MakeDirs(path));
  LOOM_ASSIGN(folder.lock_, fs.Lock(JoinPath(path, "lock"), std::to_string(options.pid)));
  LOOM_RETURN_IF_ERROR(fs.MakeDirs(JoinPath(path, "keys"), Access::kPrivate));
  for (const char* name : {"rounds", "checkpoints"}) {
    LOOM_RETURN_IF_ERROR(fs.MakeDirs(JoinPath(path, name)));
  }
  LOOM_RETURN_IF_ERROR(folder.checkpoints_.Clean());
  LOOM_ASSIGN(const auto rounds, fs.List(JoinPath(path, "rounds")));
  for (const DirEntry& entry : rounds) {
    if (entry.name.ends_with(".tmp")) {
      LOOM_RETURN_IF_ERROR(fs.Remove(JoinPath(JoinPath(path, "rounds"), entry.name)));
    }
  }
  if (fs.Exists(JoinPath(path, "genesis")) || fs.Exists(JoinPath(path, "records.log"))) {
    LOOM_RETURN_IF_ERROR(folder.OpenGenesis());
    LOOM_RETURN_IF_ERROR(folder.OpenLogs());
  }
  return folder;
}

Status PeerFolder::OpenGenesis() {
  LOOM_ASSIGN(genesis_, ReadGenesis(*fs_, path_));
  for (const char* name : kGenesisNames) {
    const std::string path = JoinPath(path_, name);
    if (const auto held = ReadGenesisFile(*fs_, path); held && *held == genesis_) continue;
    notes_.push_back(
        fmt::format("{} was damaged or missing: written again from the other copy", path));
    LOOM_RETURN_IF_ERROR(WriteFileAtomically(*fs_, path, EncodeGenesis(genesis_)));
  }
  return {};
}

Status PeerFolder::OpenLogs() {
  const bool begun =
      fs_->Exists(JoinPath(path_, "votes.log")) || fs_->Exists(JoinPath(path_, "records.log"));
  for (const char* name : {"votes.log", "records.log"}) {
    if (begun && !fs_->Exists(JoinPath(path_, name)))
      notes_.push_back(fmt::format("{} is missing: begun anew", JoinPath(path_, name)));
    LOOM_ASSIGN(AppendLog log, AppendLog::Open(*fs_, JoinPath(path_, name), LogId(genesis_, name)));
    if (const auto& torn = log.torn()) {
      notes_.push_back(fmt::format("{}: cut {} bytes at offset {} (entry {}): torn, or damaged",
                                   JoinPath(path_, name), torn->bytes, torn->offset, torn->entry));
    }
    notes_.insert(notes_.end(), log.repaired().begin(), log.repaired().end());
    (std::string_view(name) == "votes.log" ? votes_ : records_).emplace(std::move(log));
  }
  return {};
}

Status PeerFolder::SetGenesis(ByteView genesis) {
  if (genesis.empty() || genesis.size() > kMaxGenesisBytes) {
    return MakeError(Code::kLimit, fmt::format("genesis of {} bytes, the limit is {}",
                                               genesis.size(), kMaxGenesisBytes));
  }
  if (has_run()) {
    const Hash ours = crypto::Sha256(genesis_);
    const Hash theirs = crypto::Sha256(genesis);
    if (ours == theirs) return {};
    return MakeError(
        Code::kConflict,
        fmt::format("{}: belongs to run {}, not to run {}", path_, ours.Hex(), theirs.Hex()),
        "use another folder for the other run");
  }
  LOOM_RETURN_IF_ERROR(WriteGenesis(*fs_, path_, genesis));
  genesis_ = ToBytes(genesis);
  return OpenLogs();
}

std::string PeerFolder::RoundPath(Round round, const Hash& id) const {
  return RoundPathIn(path_, round, id);
}

Result<Hash> PeerFolder::WriteRound(Round round, std::span<const ByteView> tiles,
                                    std::vector<Hash> hashes) {
  if (hashes.empty()) {
    hashes.reserve(tiles.size());
    for (const ByteView tile : tiles) hashes.push_back(crypto::Sha256(tile));
  }
  const Hash id = crypto::MerkleRoot(hashes);
  LOOM_RETURN_IF_ERROR(WriteRoundFile(*fs_, RoundPath(round, id), round, tiles, hashes));
  return id;
}

Result<RoundFile> PeerFolder::OpenRound(Round round, const Hash& id) const {
  return OpenRoundAt(*fs_, RoundPath(round, id), round, id);
}

bool PeerFolder::HasRound(Round round, const Hash& id) const {
  return fs_->Exists(RoundPath(round, id));
}

Status PeerFolder::KeepOnlyRound(Round round, const Hash& id) {
  const std::string folder = JoinPath(path_, "rounds");
  LOOM_ASSIGN(const auto entries, fs_->List(folder));
  for (const DirEntry& entry : entries) {
    const std::string path = JoinPath(folder, entry.name);
    if (RoundOfName(entry.name) == round && path != RoundPath(round, id)) {
      LOOM_RETURN_IF_ERROR(fs_->Remove(path));
    }
  }
  return {};
}

Status PeerFolder::PruneRounds() {
  const std::vector<Round> kept = checkpoints_.List();
  if (kept.empty()) return {};
  const std::string folder = JoinPath(path_, "rounds");
  LOOM_ASSIGN(const auto entries, fs_->List(folder));
  for (const DirEntry& entry : entries) {
    const auto round = RoundOfName(entry.name);
    if (round && *round <= kept.front()) {
      LOOM_RETURN_IF_ERROR(fs_->Remove(JoinPath(folder, entry.name)));
    }
  }
  return {};
}

Status PeerFolder::Rewind(Round keep, std::span<const Bytes> records) {
  LOOM_ASSIGN(std::vector<Bytes> entries, records_->ReadAll());
  if (entries.size() < keep) {
    return MakeError(Code::kInternal,
                     fmt::format("{}: {} records, {} are to be kept", path_, entries.size(), keep));
  }
  const std::string name = "orphaned.log";
  LOOM_ASSIGN(AppendLog orphans,
              AppendLog::Open(*fs_, JoinPath(path_, name), LogId(genesis_, name)));
  // A rewind that was interrupted has written some of them already.
  LOOM_ASSIGN(const std::vector<Bytes> there, orphans.ReadAll());
  const std::set<Bytes> known(there.begin(), there.end());
  for (std::size_t i = keep; i < entries.size(); ++i) {
    if (!known.contains(entries[i])) LOOM_RETURN_IF_ERROR(orphans.Append(entries[i]));
  }
  LOOM_RETURN_IF_ERROR(orphans.Sync());
  for (const Round round : checkpoints_.List()) {
    if (round > keep) {
      LOOM_RETURN_IF_ERROR(checkpoints_.Remove(round));
    }
  }
  const std::string rounds = JoinPath(path_, "rounds");
  LOOM_ASSIGN(const auto files, fs_->List(rounds));
  for (const DirEntry& entry : files) {
    const auto round = RoundOfName(entry.name);
    if (round && *round > keep) {
      LOOM_RETURN_IF_ERROR(fs_->Remove(JoinPath(rounds, entry.name)));
    }
  }
  entries.resize(keep);
  entries.insert(entries.end(), records.begin(), records.end());
  return records_->Rewrite(entries);
}

Status PeerFolder::WriteKey(const std::string& name, ByteView bytes) {
  if (!IsKeyName(name))
    return MakeError(Code::kInvalid, fmt::format("'{}' cannot name a key", name));
  return WriteFileAtomically(*fs_, JoinPath(JoinPath(path_, "keys"), name), bytes,
                             Access::kPrivate);
}

Result<Bytes> PeerFolder::ReadKey(const std::string& name) const {
  if (!IsKeyName(name))
    return MakeError(Code::kInvalid, fmt::format("'{}' cannot name a key", name));
  return ReadWholeFile(*fs_, JoinPath(JoinPath(path_, "keys"), name), kMaxKeyBytes);
}

Status PeerFolder::WriteStatus(std::string_view json) {
  const std::string path = JoinPath(path_, "status.json");
  {
    LOOM_ASSIGN(const auto file, fs_->Open(path + ".tmp", OpenMode::kCreate));
    LOOM_RETURN_IF_ERROR(file->Append(AsBytes(json)));
  }
  return fs_->Rename(path + ".tmp", path);
}

Status PeerFolder::AppendMetrics(std::string_view json_line) {
  if (metrics_ == nullptr) {
    const std::string path = JoinPath(path_, "metrics.jsonl");
    LOOM_ASSIGN(auto file, fs_->Open(path, OpenMode::kWrite));
    LOOM_ASSIGN(const std::uint64_t size, file->Size());
    std::array<std::byte, 1> last{std::byte{'\n'}};
    if (size > 0) LOOM_RETURN_IF_ERROR(ReadExactly(*file, path, size - 1, last));
    if (last[0] != std::byte{'\n'}) LOOM_RETURN_IF_ERROR(file->Append(AsBytes("\n")));
    metrics_ = std::move(file);
  }
  return metrics_->Append(AsBytes(std::string(json_line) + "\n"));
}

bool PeerFolderView::HasRun() const {
  return fs_->Exists(JoinPath(path_, "genesis")) || fs_->Exists(JoinPath(path_, "records.log"));
}

Result<Bytes> PeerFolderView::Genesis() const { return ReadGenesis(*fs_, path_); }

Result<LogContents> PeerFolderView::Records() const {
  LOOM_ASSIGN(const Bytes genesis, Genesis());
  return ReadLog(*fs_, JoinPath(path_, "records.log"), LogId(genesis, "records.log"));
}

Result<LogContents> PeerFolderView::Votes() const {
  LOOM_ASSIGN(const Bytes genesis, Genesis());
  return ReadLog(*fs_, JoinPath(path_, "votes.log"), LogId(genesis, "votes.log"));
}

Result<RoundFile> PeerFolderView::OpenRound(Round round, const Hash& id) const {
  return OpenRoundAt(*fs_, RoundPathIn(path_, round, id), round, id);
}

Result<std::string> PeerFolderView::StatusJson() const {
  LOOM_ASSIGN(const Bytes bytes,
              ReadWholeFile(*fs_, JoinPath(path_, "status.json"), kMaxStatusBytes));
  return std::string(AsText(bytes));
}

}  // namespace loom::store
