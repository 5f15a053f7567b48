// Token shards: the tokenized corpus on disk. A shard is a 64-byte header and the ids:
//   magic "LOOMTOK\0" | u32 version 1 | u32 bytes per id (2 or 4) | u64 count | u32 vocabulary |
//   u32 zero | 32 bytes SHA-256 of the ids as stored
// little-endian, memory-mapped, and checked whole (size, hash, every id) when it is opened.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/file.h"
#include "base/id.h"
#include "base/result.h"

namespace loom::data {

inline constexpr std::size_t kShardHeaderBytes = 64;
inline constexpr std::uint64_t kMaxShardTokens = 1ULL << 32;

/// What the header of a shard says; the payload has been checked against it.
struct ShardHeader {
  std::uint32_t id_bytes = 2;
  std::uint64_t count = 0;
  std::uint32_t vocab = 0;
  Hash payload_hash;
};

/// Reads and checks the bytes of a whole shard file; every id must be < vocab.
Result<ShardHeader> ParseShard(ByteView file, std::uint32_t vocab);

/// One shard in memory: mapped from a file, or made from ids. Immutable, thread-safe.
class Shard {
 public:
  static Result<std::shared_ptr<const Shard>> Open(const std::string& path, std::uint32_t vocab);
  static std::shared_ptr<const Shard> FromTokens(std::vector<std::int32_t> tokens);

  std::uint64_t size() const { return count_; }
  void Read(std::uint64_t first, std::span<std::int32_t> out) const;  ///< range must be inside

 private:
  Shard() = default;
  std::vector<MappedFile> map_;  // none or one
  std::vector<std::int32_t> owned_;
  const std::byte* payload_ = nullptr;
  std::uint32_t id_bytes_ = 4;
  std::uint64_t count_ = 0;
};

/// The ids of several shards, one after the other. Cheap to copy, immutable, thread-safe.
class TokenStream {
 public:
  TokenStream() = default;
  explicit TokenStream(std::vector<std::shared_ptr<const Shard>> shards);
  static TokenStream FromTokens(std::vector<std::int32_t> tokens);

  std::uint64_t size() const { return starts_.empty() ? 0 : starts_.back(); }
  std::int32_t At(std::uint64_t index) const;
  /// Ids [first, first + out.size()); the range must be inside the stream.
  void Read(std::uint64_t first, std::span<std::int32_t> out) const;

 private:
  std::vector<std::shared_ptr<const Shard>> shards_;
  std::vector<std::uint64_t> starts_;  // of each shard, then the total
};

struct ShardFile {
  std::string name;  ///< file name, without its folder
  std::uint64_t tokens = 0;
  std::uint64_t bytes = 0;
  Hash hash;  ///< SHA-256 of the whole file: its content id
};

/// Writes ids as <folder>/<prefix>-00000.tokens and on. The same ids give the same files.
class ShardWriter {
 public:
  ShardWriter(std::string folder, std::string prefix, std::uint32_t vocab,
              std::uint64_t shard_tokens);
  /// Ids must be < vocab.
  Status Append(std::span<const std::int32_t> tokens);
  /// Writes the last shard. At least one shard exists only when there was at least one id.
  Result<std::vector<ShardFile>> Finish();

 private:
  Status Flush();
  std::string folder_, prefix_;
  std::uint32_t vocab_;
  std::uint64_t shard_tokens_;
  std::vector<std::int32_t> pending_;
  std::vector<ShardFile> files_;
};

/// Entropy of the ids' frequencies, in nats a token: what a model that ignores context can reach.
double UnigramEntropy(const TokenStream& stream);

}  // namespace loom::data
