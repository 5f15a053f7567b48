// The shards of a data set while it is built. After every shard a journal (building.json) says how
// far the build is, so that one that was killed goes on behind its last whole shard: the same files
// as if it had run through.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "data/corpus_pass.h"
#include "data/shards.h"

namespace loom::data {

class DatasetWriter {
 public:
  /// Makes the folder ready: shards of a build of the same content that was cut off stay, anything
  /// older goes. `kept` is told the tokens of each shard that stays.
  static Result<DatasetWriter> Begin(const std::string& folder, const FirstPass& first,
                                     const std::function<void(bool val, const Shard&)>& kept);

  /// The first part to append; those before it are in whole shards.
  std::uint64_t first_part() const { return part_; }
  /// Leaves out what of the first part lies in whole shards.
  Status DropKept(EncodedPart& part) const;
  /// Parts in order, from the first one on.
  Status Append(const EncodedPart& part);

  struct Files {
    std::vector<ShardFile> train, val;
    std::vector<std::uint64_t> shards_of_source;  ///< of train
  };
  Result<Files> Finish();
  /// The data set is complete: the journal may go.
  static Status End(const std::string& folder);

 private:
  DatasetWriter(std::string folder, const FirstPass& first);
  Result<bool> Continue(const std::function<void(bool val, const Shard&)>& kept);
  void CountShards(std::uint64_t train);
  Status Turn(const EncodedPart& part);
  Status Settle(std::uint64_t part, std::uint64_t offset);

  std::string folder_;
  std::uint32_t vocab_;
  Hash content_;
  ShardWriter train_, val_;
  std::vector<std::uint64_t> shards_of_source_;
  std::uint64_t part_ = 0, offset_ = 0;  ///< where the build begins
  bool in_val_ = false;                  ///< of the last part
  std::size_t source_ = 0;
};

std::string ShardName(std::string_view split, std::size_t index);
/// [{"name", "tokens", "bytes", "sha256"}]
json::Array FilesJson(const std::vector<ShardFile>& files);

}  // namespace loom::data
