// Read-only, with the file formats of `store`, the numbers of collab::Engine and nothing of a
// daemon. A running peer may prune a checkpoint or a round between two reads; then the reader looks
// again.
#include "app/peer_folder_source.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <ranges>

#include "base/file.h"
#include "codec/codec.h"
#include "collab/engine.h"
#include "data/dataset.h"
#include "model/config.h"
#include "node/restore.h"
#include "node/run_start.h"
#include "store/append_log.h"
#include "store/peer_folder.h"

namespace loom::app {
namespace {

namespace fs = std::filesystem;

constexpr int kAttempts = 4;
constexpr std::string_view kTokenizerHint =
    "start the peer again: the file is made again from the corpus, or fetched from another peer";

store::FileSystem& Disk() {
  static store::PosixFileSystem disk;
  return disk;
}

Error NoPeerFolder(const std::string& path) {
  return MakeError(Code::kNotFound, fmt::format("{} is no peer's folder", path),
                   "loom host, loom join and loom train make one; give it with --dir");
}

Result<Blob> ReadRound(const std::string& dir, const collab::TileLayout& layout,
                       const collab::Body& body) {
  const store::PeerFolderView view(Disk(), dir);
  LOOM_ASSIGN(const store::RoundFile file, view.OpenRound(body.round, node::RoundIdOf(body)));
  return node::WholeRound(file, layout, body.round);
}

std::vector<Round> Ancestors(const std::vector<collab::Record>& records) {
  return collab::Ancestry(records.size(),
                          [&](Round r) -> const collab::Body& { return records[r - 1].body; });
}

/// Gives the engine the settings that hold in a round, when an order has changed them.
Status Configure(const std::vector<collab::Record>& records, Round round, collab::Engine& engine) {
  for (Round r = round - 1; r > 0; --r) {
    const auto& order = records[r - 1].body.order;
    if (!order || order->settings.empty()) continue;
    LOOM_ASSIGN(const train::RunSpec spec, train::ParseCanonicalSpec(AsText(order->settings)));
    engine.Configure(spec.sync);
    return {};
  }
  return {};
}

/// Takes the engine from its state after `round` as far as the reduced bytes on disk lead.
Round Replay(const std::string& dir, const std::vector<collab::Record>& records, Round round,
             collab::Engine& engine, std::vector<std::string>& notes) {
  const std::vector<Round> ancestors = Ancestors(records);
  for (const Round next_round : std::views::reverse(ancestors)) {
    if (next_round <= round) continue;
    const collab::Body& body = records[next_round - 1].body;
    if (body.contributions.empty()) continue;
    const auto step = [&]() -> Status {
      LOOM_RETURN_IF_ERROR(Configure(records, next_round, engine));
      LOOM_ASSIGN(const Blob bytes, ReadRound(dir, engine.layout(), body));
      LOOM_ASSIGN(const collab::NextState next,
                  engine.Next(*bytes, collab::ClockOf(body), body.tiles));
      if (next.root != body.root) {
        return MakeError(Code::kCorrupt, fmt::format("its root would be {}, the record says {}",
                                                     next.root.Hex(), body.root.Hex()));
      }
      return engine.Apply(*bytes, collab::ClockOf(body));
    }();
    if (!step) {
      notes.push_back(fmt::format("the state stops at round {} of {}: round {}: {}", round,
                                  records.size(), body.round, step.error().message));
      return round;
    }
    round = next_round;
  }
  return records.size();
}

/// The newest checkpoint that belongs to the records, or the run's first weights (0).
Result<Round> LoadNewest(const std::string& dir, const FolderRecords& folder,
                         collab::Engine& engine, std::vector<std::string>& notes) {
  const store::Checkpoints checkpoints(Disk(), store::JoinPath(dir, "checkpoints"));
  const store::StateLayout layout =
      node::StateLayoutOf(engine.grid(), engine.layout().num_planes());
  const std::vector<Round> ancestors = Ancestors(folder.records);
  for (Round newest = folder.records.size(); newest > 0;) {
    const auto loaded = checkpoints.LoadLastGood(layout, engine.state().planes(), newest);
    if (!loaded) {
      if (!checkpoints.List().empty()) notes.push_back(loaded.error().message);
      break;
    }
    notes.insert(notes.end(), loaded->skipped.begin(), loaded->skipped.end());
    const Round round = loaded->info.round;
    if (round == 0) break;
    const collab::Record& record = folder.records[round - 1];
    const bool ours = loaded->info.record == record.hash && loaded->info.root == record.body.root;
    if (ours && std::ranges::find(ancestors, round) != ancestors.end()) return round;
    if (!ours) {
      notes.push_back(
          fmt::format("checkpoint {} belongs to another record than the chain's", round));
    }
    newest = round - 1;
  }
  engine.state().Clear();
  LOOM_RETURN_IF_ERROR(node::ReadFirstWeights(folder.run, dir, engine.grid(), engine.weights()));
  if (const Hash root = engine.Root(); root != folder.run.genesis.body.root) {
    return MakeError(Code::kCorrupt,
                     fmt::format("{}: the first weights have root {}, the genesis record says {}",
                                 dir, root.Hex(), folder.run.genesis.body.root.Hex()),
                     "this program makes other first weights than the one that began the run");
  }
  return Round{0};
}

void NoteDamage(const std::string& path, const store::LogContents& log,
                std::vector<std::string>& notes) {
  if (log.torn) {
    notes.push_back(fmt::format("{}: left out {} bytes at offset {} (entry {}): torn, or damaged",
                                path, log.torn->bytes, log.torn->offset, log.torn->entry));
  }
  notes.insert(notes.end(), log.repaired.begin(), log.repaired.end());
}

std::vector<Round> CheckpointsOf(const std::string& dir) {
  return store::Checkpoints(Disk(), store::JoinPath(dir, "checkpoints")).List();
}

Result<std::unique_ptr<data::Tokenizer>> ReadTokenizer(const std::string& dir,
                                                       const node::Run& run) {
  const std::string path = dir + "/" + std::string(node::kDataFolder) + "/tokenizer.json";
  const auto json = ReadFile(path, data::Tokenizer::kMaxJsonBytes);
  if (!json) return MakeError(json.error().code, json.error().message, std::string(kTokenizerHint));
  if (store::PieceList::Of(AsBytes(*json)).Root() != run.content.tokenizer.id) {
    return MakeError(Code::kCorrupt, fmt::format("{}: its hash is not the one the run names", path),
                     std::string(kTokenizerHint));
  }
  return data::Tokenizer::FromJson(AsBytes(*json));
}

}  // namespace

bool IsPeerFolder(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path + "/genesis", ignored) || fs::exists(path + "/keys/peer", ignored);
}

Result<std::string> FindPeerFolder(const std::string& dir) {
  if (!dir.empty()) {
    if (!IsPeerFolder(dir)) return NoPeerFolder(dir);
    return dir;
  }
  if (IsPeerFolder(".")) return std::string(".");
  std::vector<std::string> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(".", ignored)) {
    const std::string path = entry.path().string();
    if (entry.path().filename().string().starts_with("loom-") && IsPeerFolder(path)) {
      found.push_back(path);
    }
  }
  std::sort(found.begin(), found.end());
  if (found.size() == 1) return found[0];
  if (found.empty()) return NoPeerFolder("this folder");
  std::string list = found[0];
  for (std::size_t i = 1; i < std::min<std::size_t>(found.size(), 8); ++i) list += ", " + found[i];
  return MakeError(Code::kInvalid,
                   fmt::format("{} peers' folders are here: {}", found.size(), list),
                   "say which one with --dir");
}

Result<FolderRecords> ReadFolderRecords(const std::string& dir) {
  const store::PeerFolderView view(Disk(), dir);
  FolderRecords out;
  if (!view.HasRun()) {
    if (!IsPeerFolder(dir)) return NoPeerFolder(dir);
    return MakeError(Code::kNotFound, fmt::format("{} holds no run yet", dir),
                     "its peer has not reached the others; see loom status");
  }
  LOOM_ASSIGN(const Bytes genesis, view.Genesis());
  auto run = node::ReadRun(genesis);
  if (!run) return std::move(run).error().Context(store::JoinPath(dir, "genesis"));
  out.run = *std::move(run);
  const std::string path = store::JoinPath(dir, "records.log");
  if (!Disk().Exists(path)) return out;  // the run began this very moment
  LOOM_ASSIGN(const store::LogContents log, view.Records());
  NoteDamage(path, log, out.notes);
  const collab::Record* parent = &out.run.genesis;
  out.records.reserve(log.entries.size());
  for (const Bytes& entry : log.entries) {
    auto record = collab::Record::Decode(entry);
    if (!record) {
      return std::move(record).error().Context(
          fmt::format("{}: entry {}", path, out.records.size()));
    }
    if (record->body.parent != parent->hash || record->body.round != parent->body.round + 1) {
      return MakeError(Code::kCorrupt, fmt::format("{}: entry {} does not follow from record {}",
                                                   path, out.records.size(), parent->body.round));
    }
    out.records.push_back(*std::move(record));
    parent = &out.records.back();
  }
  return out;
}

Result<std::vector<collab::Record>> ReadOrphans(const std::string& dir,
                                                std::vector<std::string>& notes) {
  std::vector<collab::Record> orphans;
  const std::string path = store::JoinPath(dir, "orphaned.log");
  if (!Disk().Exists(path)) return orphans;
  LOOM_ASSIGN(const store::LogContents log, store::ReadLog(Disk(), path, {}));
  NoteDamage(path, log, notes);
  for (const Bytes& entry : log.entries) {
    LOOM_ASSIGN(collab::Record record, collab::Record::Decode(entry));
    orphans.push_back(std::move(record));
  }
  return orphans;
}

Result<FolderModel> ReadFolderModel(const std::string& dir) {
  FolderModel out;
  LOOM_ASSIGN(FolderRecords folder, ReadFolderRecords(dir));
  const train::RunSpec spec = folder.run.spec;
  LOOM_ASSIGN(agreed::TileGrid grid,
              agreed::TileGrid::Make(model::ParameterShapes(spec.model), spec.sync.tile_elements));
  LOOM_ASSIGN(const codec::CodecKind codec, codec::ParseCodec(spec.sync.codec));
  LOOM_ASSIGN(collab::Engine engine,
              collab::Engine::Make(std::move(grid), spec.sync, codec, agreed::BestIsa(),
                                   [](WorkerIndex) -> Result<std::unique_ptr<collab::Worker>> {
                                     return MakeError(Code::kInternal,
                                                      "a folder that is only read has no workers");
                                   }));
  for (int attempt = 1;; ++attempt) {
    const std::vector<Round> before = CheckpointsOf(dir);
    out.notes = folder.notes;
    LOOM_ASSIGN(out.round, LoadNewest(dir, folder, engine, out.notes));
    out.round = Replay(dir, folder.records, out.round, engine, out.notes);
    if (out.round == folder.records.size() || attempt == kAttempts) break;
    if (CheckpointsOf(dir) == before) break;  // it is missing, not pruned under our eyes
    LOOM_ASSIGN(folder, ReadFolderRecords(dir));
  }
  LOOM_ASSIGN(out.model.tokenizer, ReadTokenizer(dir, folder.run));
  LOOM_ASSIGN(out.model.texts, node::ReadStartTexts(folder.run, dir));
  out.model.texts.files.emplace("tokenizer.json", out.model.tokenizer->ToJson());
  out.model.config = spec.model;
  out.model.config.tuning = {};
  LOOM_ASSIGN(out.model.grid,
              agreed::TileGrid::Make(model::NetworkShapes(spec.model), spec.sync.tile_elements));
  LOOM_ASSIGN(const train::FrozenWeights frozen, node::ReadFrozenWeights(folder.run, dir));
  LOOM_ASSIGN(out.model.weights,
              train::WholeNetwork(spec.model, engine.grid(), engine.weights(), frozen));
  if (spec.model.tuning.lora_rank > 0) {
    out.adapter.emplace(spec.model, engine.grid(), agreed::FlatBuffer(), "");
    LOOM_ASSIGN(out.adapter->weights, agreed::FlatBuffer::Allocate(engine.weights().size()));
    std::ranges::copy(engine.weights(), out.adapter->weights.data());
  }
  return out;
}

Result<data::TokenStream> ReadFolderSplit(const std::string& dir, const std::string& split) {
  if (split != "val" && split != "train") {
    return MakeError(Code::kInvalid, fmt::format("--split {}: there is train and val", split));
  }
  LOOM_ASSIGN(const FolderRecords folder, ReadFolderRecords(dir));
  const std::string data = dir + "/" + std::string(node::kDataFolder);
  LOOM_ASSIGN(const std::string manifest, ReadFile(data + "/dataset.json", 1U << 20));
  if (manifest != AsText(folder.run.content.dataset)) {
    return MakeError(Code::kCorrupt,
                     fmt::format("{}/dataset.json is not the manifest of this run", data),
                     "start the peer again: missing data is fetched from the others");
  }
  LOOM_ASSIGN(data::Dataset dataset, data::OpenDataset(data));
  return split == "val" ? std::move(dataset.val) : std::move(dataset.train);
}

Result<train::StartModel> StartOfFolder(const std::string& dir) {
  LOOM_ASSIGN(const FolderRecords folder, ReadFolderRecords(dir));
  if (folder.run.content.start.empty())
    return MakeError(Code::kNotFound, fmt::format("{}: its run started from drawn weights", dir));
  model::ModelConfig config = folder.run.spec.model;
  config.tuning = {};
  return train::StartModel{model::ForContext(config, model::NumPositions(config)),
                           InFolder(InFolder(dir, node::kDataFolder), "tokenizer.json")};
}

Result<model::Tuning> AdapterOfFolder(const std::string& dir) {
  LOOM_ASSIGN(const FolderRecords folder, ReadFolderRecords(dir));
  if (!node::StartsFromAdapter(folder.run.content))
    return MakeError(Code::kNotFound, fmt::format("{}: its run started from no adapter", dir));
  return folder.run.spec.model.tuning;
}

// The pid is looked at first: a try of the lock itself, however short, could be in the way of a
// peer that starts at that moment.
std::optional<std::int64_t> FolderHolder(const std::string& dir) {
  const std::string path = dir + "/lock";
  const auto text = ReadFile(path, 64);
  if (!text) return std::nullopt;
  std::int64_t pid = 0;
  std::from_chars(text->data(), text->data() + text->size(), pid);
  if (pid <= 0 || (::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH)) return std::nullopt;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  const bool is_free = ::flock(fd, LOCK_SH | LOCK_NB) == 0;
  ::close(fd);
  if (is_free) return std::nullopt;
  return pid;
}

}  // namespace loom::app
