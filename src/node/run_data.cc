#include "node/run_data.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "agreed/flat_buffer.h"
#include "base/file.h"
#include "collab/chain.h"
#include "collab/ledger.h"
#include "model/config.h"
#include "node/run_start.h"
#include "train/start_model.h"

namespace loom::node {
namespace {

std::string DataPath(const std::string& dir) { return InFolder(dir, kDataFolder); }

Result<store::PieceList> PiecesOf(const std::string& path) {
  LOOM_ASSIGN(const MappedFile file, MappedFile::Open(path));
  return store::PieceList::Of(file.bytes());
}

/// What a run that cannot draw a sample would find out only after it began.
Status CheckSamples(const train::RunSpec& spec, const data::DataReport& report,
                    const std::string& folder) {
  if (spec.data.weights.empty() && report.no_loss == 0) return {};
  LOOM_ASSIGN(const data::Dataset dataset, data::OpenDataset(folder));
  if (!dataset.mix.empty()) {
    LOOM_RETURN_IF_ERROR(data::Sampler::Make(dataset.mix, spec.model.context, spec.data.seed));
  }
  if (dataset.train.num_targets() > 0) return {};
  return MakeError(Code::kInvalid, "no token of the training split has a loss",
                   "use more text, or data.loss = \"all\"");
}

bool LiesIn(const DataFile& file, std::string_view folder) {
  return file.name.starts_with(InFolder(std::string(folder), ""));
}
bool IsOfModel(const DataFile& file) { return LiesIn(file, kStartFolder); }
bool IsOfAdapter(const DataFile& file) { return LiesIn(file, kAdapterFolder); }
bool IsOfCorpus(const DataFile& file) { return LiesIn(file, kDataFolder); }

/// A file whose source gives another one, or none any more.
Error CannotRebuild(const std::string& path, const DataFile& file, const train::RunFile& run,
                    const Status& made) {
  const std::string source = IsOfModel(file)     ? fmt::format("model folder '{}'", run.model_from)
                             : IsOfAdapter(file) ? fmt::format("adapter '{}'", run.tune_from)
                                                 : "corpus";
  return MakeError(
      Code::kCorrupt,
      fmt::format("{} is damaged or missing, and {}", path,
                  made ? fmt::format("the {} gives another one", source)
                       : "cannot be made again: " + made.error().message),
      IsOfCorpus(file)
          ? "the corpus was changed since the run began: bring back its old text or the file"
          : fmt::format("bring back the {} that the run began with, or a copy of the file",
                        IsOfModel(file) ? "model" : "adapter"));
}

Result<std::vector<std::string>> RebuildInto(const std::string& scratch,
                                             const std::vector<DataFile>& missing,
                                             const train::RunFile& source, const std::string& dir) {
  Status model, adapter;
  if (std::ranges::any_of(missing, IsOfModel)) model = KeepModel(source, scratch);
  if (std::ranges::any_of(missing, IsOfAdapter)) adapter = KeepAdapter(source, scratch);
  if (std::ranges::any_of(missing, IsOfCorpus))
    LOOM_RETURN_IF_ERROR(data::BuildDataset(source.spec.data, DataPath(scratch)));
  for (const DataFile& file : missing) {
    const auto ref = RefOf(InFolder(scratch, file.name));
    if (ref && *ref == file.ref) continue;
    const Status made = IsOfModel(file) ? model : IsOfAdapter(file) ? adapter : Status();
    return CannotRebuild(InFolder(dir, file.name), file, source, made);
  }
  std::vector<std::string> rebuilt;
  for (const DataFile& file : missing) {
    rebuilt.push_back(InFolder(dir, file.name));
    std::error_code error;
    std::filesystem::rename(InFolder(scratch, file.name), rebuilt.back(), error);
    if (error) return MakeError(Code::kIo, fmt::format("{}: {}", rebuilt.back(), error.message()));
  }
  return rebuilt;
}

}  // namespace

Result<collab::ObjectRef> RefOf(const std::string& path) {
  LOOM_ASSIGN(const store::PieceList pieces, PiecesOf(path));
  return collab::ObjectRef{pieces.Root(), pieces.size};
}

Result<train::RunSpec> SettingsOf(store::PeerFolder& folder, const Run& run) {
  LOOM_ASSIGN(const std::vector<Bytes> entries, folder.records().ReadAll());
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    LOOM_ASSIGN(const collab::Record record, collab::Record::Decode(*entry));
    if (record.body.order && !record.body.order->settings.empty())
      return train::ParseCanonicalSpec(AsText(record.body.order->settings));
  }
  return run.spec;
}

Result<collab::SyncConfig> ReadAmendment(ByteView before, ByteView after) {
  LOOM_ASSIGN(const train::RunSpec spec, train::ReadAmended(AsText(before), AsText(after)));
  return spec.sync;
}

Result<Run> MakeRun(const train::RunFile& file, const std::string& dir, const Founding& founding) {
  const std::string folder = DataPath(dir);
  const bool started = !file.model_from.empty();
  Run run;
  run.spec = file.spec;
  if (started) {
    train::RunFile fitted = file;
    LOOM_ASSIGN(const auto tokenizer, data::MakeTokenizer(file.spec.data));
    LOOM_RETURN_IF_ERROR(train::FitTokenizer(fitted, *tokenizer));
    LOOM_ASSIGN(run.content.start, KeepStart(file, dir));
  }
  LOOM_ASSIGN(const data::DataReport report,
              data::BuildDataset(file.spec.data, folder, {.progress = founding.progress}));
  if (founding.report) founding.report(report);
  if (!started) LOOM_RETURN_IF_ERROR(train::FitVocab(run.spec, report.vocab_size));
  // Where the corpus lay is this machine's affair; the agreed settings must not carry its paths.
  run.spec.data.paths = {"corpus"};
  LOOM_RETURN_IF_ERROR(train::ResolveSpec(run.spec));
  LOOM_RETURN_IF_ERROR(train::CheckTrainTokens(run.spec, report.train_tokens));
  LOOM_RETURN_IF_ERROR(CheckSamples(run.spec, report, folder));
  run.content.spec = ToBytes(AsBytes(train::CanonicalSpec(run.spec)));
  crypto::RandomBytes(run.content.nonce.bytes);
  run.content.owners = {founding.owner.public_key()};
  for (const crypto::PublicKey& key : founding.co_owners) run.content.owners.push_back(key);
  LOOM_ASSIGN(run.content.tokenizer, RefOf(folder + "/tokenizer.json"));
  for (const auto& [files, refs] : {std::pair(&report.train_files, &run.content.train_shards),
                                    std::pair(&report.val_files, &run.content.val_shards)}) {
    for (const data::ShardFile& shard : *files) {
      LOOM_ASSIGN(const collab::ObjectRef ref, RefOf(folder + "/" + shard.name));
      refs->push_back(ref);
    }
  }
  LOOM_ASSIGN(const std::string manifest, ReadFile(folder + "/dataset.json", 1U << 20));
  run.content.dataset = ToBytes(AsBytes(manifest));
  if (run.spec.sync.exact) {
    LOOM_ASSIGN(run.content.probe, founding.probe(run.spec));
  }
  run.content.created = founding.wall_seconds;
  run.content.name = founding.name.substr(0, 64);

  LOOM_ASSIGN(
      const agreed::TileGrid grid,
      agreed::TileGrid::Make(model::ParameterShapes(run.spec.model), run.spec.sync.tile_elements));
  LOOM_ASSIGN(agreed::FlatBuffer weights,
              agreed::FlatBuffer::Allocate(grid.flat_size(), "the first weights"));
  LOOM_RETURN_IF_ERROR(ReadFirstWeights(run, dir, grid, weights.span()));
  const Hash root = FirstRoot(run.spec, grid, weights.span());
  const collab::Body body =
      collab::GenesisBody(run.content.Encode(), founding.founder, root, run.spec.sync);
  LOOM_ASSIGN(run.genesis, collab::Record::FromBody(MakeBlob(body.Encode())));
  run.genesis.owner = founding.owner.Sign(collab::Chain::kGenesisDomain, run.genesis.hash.View());
  run.id.bytes = run.genesis.hash.bytes;
  return run;
}

Result<Run> ReadRun(ByteView genesis_record) {
  Run run;
  LOOM_ASSIGN(run.genesis, collab::Record::Decode(genesis_record));
  const collab::KeySigner signer(crypto::SigningKey::Generate());  // only checks
  LOOM_RETURN_IF_ERROR(collab::Chain::CheckGenesis(run.genesis, signer));
  LOOM_ASSIGN(run.content, collab::Genesis::Decode(run.genesis.body.payload));
  LOOM_ASSIGN(run.spec, train::ParseCanonicalSpec(AsText(run.content.spec)));
  LOOM_RETURN_IF_ERROR(train::ResolveSpec(run.spec));
  LOOM_RETURN_IF_ERROR(CheckStart(run.content.start, run.spec.model));
  run.id.bytes = run.genesis.hash.bytes;
  return run;
}

std::vector<DataFile> DataFilesOf(const collab::Genesis& genesis) {
  const std::string data(kDataFolder);
  std::vector<DataFile> files{{InFolder(data, "tokenizer.json"), genesis.tokenizer}};
  for (const auto& [split, refs] :
       {std::pair("train", &genesis.train_shards), std::pair("val", &genesis.val_shards)}) {
    for (std::size_t i = 0; i < refs->size(); ++i)
      files.push_back({InFolder(data, fmt::format("{}-{:05}.tokens", split, i)), (*refs)[i]});
  }
  for (const collab::NamedObject& file : genesis.start)
    files.push_back({StartFilePath(file.name), file.ref});
  return files;
}

Result<DataState> CheckData(const Run& run, const std::string& dir) {
  std::error_code error;
  DataState state;
  for (const DataFile& file : DataFilesOf(run.content)) {
    const std::string path = InFolder(dir, file.name);
    std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
    const auto size = std::filesystem::file_size(path, error);
    if (error || size != file.ref.size) {
      state.missing.push_back(file);
      continue;
    }
    LOOM_ASSIGN(store::PieceList pieces, PiecesOf(path));
    if (pieces.Root() == file.ref.id) {
      state.here.emplace(file.ref.id, std::move(pieces));
    } else {
      state.missing.push_back(file);
    }
  }
  if (!state.missing.empty()) return state;
  const std::string manifest = InFolder(DataPath(dir), "dataset.json");
  const auto held = ReadFile(manifest, run.content.dataset.size());
  if (!held || !std::ranges::equal(AsBytes(*held), run.content.dataset)) {
    state.manifest_mended = true;
    LOOM_RETURN_IF_ERROR(WriteFileAtomic(manifest, run.content.dataset));
  }
  return state;
}

Result<std::vector<std::string>> RebuildData(const std::vector<DataFile>& missing,
                                             const train::RunFile& source, const std::string& dir) {
  const std::string scratch = InFolder(dir, "rebuilt");
  std::error_code error;
  std::filesystem::remove_all(scratch, error);
  auto rebuilt = RebuildInto(scratch, missing, source, dir);
  std::filesystem::remove_all(scratch, error);
  return rebuilt;
}

DataServer::DataServer(const Run& run, const std::string& dir,
                       std::map<Hash, store::PieceList> here)
    : lists_(std::move(here)) {
  for (const DataFile& file : DataFilesOf(run.content)) {
    const auto list = lists_.find(file.ref.id);
    if (list == lists_.end()) continue;
    const std::string path = InFolder(dir, file.name);
    for (std::size_t i = 0; i < list->second.pieces.size(); ++i) {
      pieces_[list->second.pieces[i]] = {path, i * store::kPieceBytes, list->second.PieceSize(i)};
    }
  }
}

const store::PieceList* DataServer::ListOf(const Hash& object) const {
  const auto it = lists_.find(object);
  return it == lists_.end() ? nullptr : &it->second;
}

std::optional<Bytes> DataServer::Read(const Hash& piece) const {
  const auto it = pieces_.find(piece);
  if (it == pieces_.end()) return std::nullopt;
  auto file = MappedFile::Open(it->second.path);
  if (!file || file->bytes().size() < it->second.offset + it->second.size) return std::nullopt;
  return ToBytes(file->bytes().subspan(it->second.offset, it->second.size));
}

}  // namespace loom::node
