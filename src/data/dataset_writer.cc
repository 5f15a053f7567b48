#include "data/dataset_writer.h"

#include <fmt/format.h>

#include <filesystem>
#include <numeric>
#include <optional>

#include "base/file.h"
#include "base/log.h"
#include "crypto/hash.h"

namespace loom::data {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kJournal = "building.json";
constexpr std::uint64_t kJournalSchema = 1;
constexpr std::size_t kMaxJournalBytes = 64 << 20;

std::uint64_t NumberAt(const json::Value& value, std::string_view key) {
  const json::Value* number = value.Find(key);
  return number == nullptr || number->AsUnsigned() == nullptr ? 0 : *number->AsUnsigned();
}

struct Kept {
  std::vector<ShardFile> files;
  std::vector<std::shared_ptr<const Shard>> shards;
};

/// The shards that a journal lists; none when one of them is not what it says.
std::optional<Kept> ReadKept(const std::string& folder, std::string_view split,
                             const json::Value& journal, std::uint32_t vocab) {
  const json::Value* list = journal.Find(split);
  if (list == nullptr || list->AsArray() == nullptr) return std::nullopt;
  Kept kept;
  for (const json::Value& entry : *list->AsArray()) {
    const std::string name = ShardName(split, kept.files.size());
    const json::Value* hex = entry.Find("sha256");
    auto map = MappedFile::Open(InFolder(folder, name));
    if (!map || hex == nullptr || hex->AsString() == nullptr) return std::nullopt;
    const Hash hash = crypto::Sha256(map->bytes());
    if (hash.Hex() != *hex->AsString()) return std::nullopt;
    auto shard = Shard::Open(InFolder(folder, name), vocab);
    if (!shard) return std::nullopt;
    kept.files.push_back({name, (*shard)->size(), map->bytes().size(), hash});
    kept.shards.push_back(*std::move(shard));
  }
  return kept;
}

Status Clear(const std::string& folder) {
  std::error_code error;
  for (const std::string_view split : {"train", "val"}) {
    for (std::size_t i = 0; fs::remove(InFolder(folder, ShardName(split, i)), error); ++i) {
    }
  }
  fs::remove(InFolder(folder, kJournal), error);
  return SyncFolder(folder);
}

}  // namespace

std::string ShardName(std::string_view split, std::size_t index) {
  return fmt::format("{}-{:05}.tokens", split, index);
}

json::Array FilesJson(const std::vector<ShardFile>& files) {
  json::Array out;
  for (const ShardFile& file : files) {
    out.emplace_back(json::Object{{"name", file.name},
                                  {"tokens", file.tokens},
                                  {"bytes", file.bytes},
                                  {"sha256", file.hash.Hex()}});
  }
  return out;
}

DatasetWriter::DatasetWriter(std::string folder, const FirstPass& first)
    : folder_(std::move(folder)),
      vocab_(first.tokenizer->vocab_size()),
      content_(first.content),
      train_(folder_, "train", vocab_, first.config.shard_tokens),
      val_(folder_, "val", vocab_, first.config.shard_tokens),
      shards_of_source_(first.characters.size()) {}

Result<DatasetWriter> DatasetWriter::Begin(
    const std::string& folder, const FirstPass& first,
    const std::function<void(bool val, const Shard&)>& kept) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    return MakeError(Code::kIo, fmt::format("cannot create '{}': {}", folder, error.message()));
  }
  // Without a manifest the folder is no data set; then the shards of an older one may go.
  fs::remove(InFolder(folder, "dataset.json"), error);
  DatasetWriter writer(folder, first);
  LOOM_ASSIGN(const bool goes_on, writer.Continue(kept));
  if (!goes_on) LOOM_RETURN_IF_ERROR(Clear(folder));
  return writer;
}

Result<bool> DatasetWriter::Continue(const std::function<void(bool val, const Shard&)>& kept) {
  const auto text = ReadFile(InFolder(folder_, kJournal), kMaxJournalBytes);
  if (!text) return false;
  const auto journal = json::Parse(*text);
  if (!journal || NumberAt(*journal, "schema") != kJournalSchema) return false;
  const json::Value* content = journal->Find("content");
  const json::Value* sources = journal->Find("shards_of_source");
  if (content == nullptr || content->AsString() == nullptr ||
      *content->AsString() != content_.Hex() || sources == nullptr ||
      sources->AsArray() == nullptr || sources->AsArray()->size() != shards_of_source_.size()) {
    return false;
  }
  auto train = ReadKept(folder_, "train", *journal, vocab_);
  auto val = ReadKept(folder_, "val", *journal, vocab_);
  if (!train || !val) return false;
  std::vector<std::uint64_t> of_source;
  of_source.reserve(shards_of_source_.size());
  for (const json::Value& number : *sources->AsArray()) {
    if (number.AsUnsigned() == nullptr) return false;
    of_source.push_back(*number.AsUnsigned());
  }
  if (std::accumulate(of_source.begin(), of_source.end(), std::uint64_t{0}) !=
      train->files.size()) {
    return false;
  }
  for (const auto& shard : train->shards) kept(false, *shard);
  for (const auto& shard : val->shards) kept(true, *shard);
  Log(LogLevel::kInfo, "data", "{}: the build goes on after {} shards", folder_,
      train->files.size() + val->files.size());
  train_.Keep(std::move(train->files));
  val_.Keep(std::move(val->files));
  shards_of_source_ = std::move(of_source);
  part_ = NumberAt(*journal, "part");
  offset_ = NumberAt(*journal, "offset");
  in_val_ = NumberAt(*journal, "in_val") != 0;
  source_ = std::min<std::size_t>(NumberAt(*journal, "source"), shards_of_source_.size() - 1);
  return true;
}

// Of training shards those that no other source has are of the one that is written.
void DatasetWriter::CountShards(std::uint64_t train) {
  shards_of_source_[source_] +=
      train - std::accumulate(shards_of_source_.begin(), shards_of_source_.end(), std::uint64_t{0});
}

// What was written so far lies in whole shards, but for what is pending.
Status DatasetWriter::Settle(std::uint64_t part, std::uint64_t offset) {
  CountShards(train_.files().size());
  json::Array of_source;
  of_source.reserve(shards_of_source_.size());
  for (const std::uint64_t shards : shards_of_source_) of_source.emplace_back(shards);
  const std::string journal = json::Dump(json::Object{
      {"schema", kJournalSchema},
      {"content", content_.Hex()},
      {"part", part},
      {"offset", offset},
      {"source", source_},
      {"in_val", in_val_ ? 1 : 0},
      {"shards_of_source", std::move(of_source)},
      {"train", FilesJson(train_.files())},
      {"val", FilesJson(val_.files())},
  });
  return WriteFileAtomic(InFolder(folder_, kJournal), AsBytes(journal));
}

/// Ends the shard of the split and source that the last part had.
Status DatasetWriter::Turn(const EncodedPart& part) {
  ShardWriter& last = in_val_ ? val_ : train_;
  if (last.pending() > 0) {
    LOOM_RETURN_IF_ERROR(last.EndShard());
    LOOM_RETURN_IF_ERROR(Settle(part.number, 0));
  }
  in_val_ = part.val;
  source_ = part.source;
  return {};
}

Status DatasetWriter::DropKept(EncodedPart& part) const {
  if (part.number != part_ || offset_ == 0) return {};
  if (offset_ > part.ids.size()) {
    return MakeError(Code::kCorrupt,
                     fmt::format("'{}' of '{}' asks for token {} of a part of {}", kJournal,
                                 folder_, offset_, part.ids.size()),
                     "delete the file and build again");
  }
  part.ids.erase(part.ids.begin(), part.ids.begin() + static_cast<std::ptrdiff_t>(offset_));
  part.before = offset_;
  return {};
}

Status DatasetWriter::Append(const EncodedPart& part) {
  if (part.val != in_val_ || part.source != source_) LOOM_RETURN_IF_ERROR(Turn(part));
  ShardWriter& writer = part.val ? val_ : train_;
  const std::size_t before = writer.files().size();
  LOOM_RETURN_IF_ERROR(writer.Append(part.ids, part.loss));
  if (writer.files().size() == before) return {};
  return Settle(part.number, part.before + part.ids.size() - writer.pending());
}

Result<DatasetWriter::Files> DatasetWriter::Finish() {
  Files files;
  LOOM_ASSIGN(files.train, train_.Finish());
  LOOM_ASSIGN(files.val, val_.Finish());
  CountShards(files.train.size());
  files.shards_of_source = std::move(shards_of_source_);
  return files;
}

Status DatasetWriter::End(const std::string& folder) {
  std::error_code error;
  fs::remove(InFolder(folder, kJournal), error);
  return SyncFolder(folder);
}

}  // namespace loom::data
