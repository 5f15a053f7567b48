// Token shards: the tokenized corpus on disk. A shard is a 64-byte header and what it says follows:
//   magic "LOOMTOK\0" | u32 version | u32 bytes per id (2 or 4) | u64 count | u32 vocabulary |
//   u32 marks | 32 bytes SHA-256 of all behind the header
//   ids | loss bits, if marks is 1
// Loss bit i is bit i mod 8 of byte i / 8, the rest of the last byte is zero; it says that token i
// is a target. Version 1 has marks 0, version 2 marks 1. Little-endian, memory-mapped, and checked
// whole (size, hash, every id) when it is opened.
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
inline constexpr std::uint32_t kLossBits = 1;
/// In place of an id: a target without a loss.
inline constexpr std::int32_t kNoLoss = -100;

/// What the header of a shard says; the payload has been checked against it.
struct ShardHeader {
  std::uint32_t id_bytes = 2;
  std::uint64_t count = 0;
  std::uint32_t vocab = 0;
  std::uint32_t marks = 0;
  Hash payload_hash;

  /// Of ids and loss bits. Requires a count within kMaxShardTokens.
  std::uint64_t PayloadBytes() const;
};

/// Reads and checks the bytes of a whole shard file; every id must be < vocab.
Result<ShardHeader> ParseShard(ByteView file, std::uint32_t vocab);

/// One shard in memory: mapped from a file, or made from ids. Immutable, thread-safe. Ranges must
/// be inside.
class Shard {
 public:
  static Result<std::shared_ptr<const Shard>> Open(const std::string& path, std::uint32_t vocab);
  /// `loss` has an entry for each token, or none: a loss on all.
  static std::shared_ptr<const Shard> FromTokens(std::vector<std::int32_t> tokens,
                                                 const std::vector<bool>& loss = {});

  std::uint64_t size() const { return count_; }
  std::uint64_t num_targets() const { return num_targets_; }  ///< tokens with a loss
  void Read(std::uint64_t first, std::span<std::int32_t> out) const;
  /// Those without a loss become kNoLoss.
  void ReadTargets(std::uint64_t first, std::span<std::int32_t> out) const;
  std::uint64_t CountTargets(std::uint64_t first, std::uint64_t count) const;

 private:
  Shard() = default;
  std::vector<MappedFile> map_;  // none or one
  std::vector<std::int32_t> owned_;
  Bytes owned_loss_;
  const std::byte* payload_ = nullptr;
  const std::byte* loss_ = nullptr;  // null: a loss on all
  std::uint32_t id_bytes_ = 4;
  std::uint64_t count_ = 0;
  std::uint64_t num_targets_ = 0;
};

/// The ids of several shards, one after the other. Cheap to copy, immutable, thread-safe. Ranges
/// must be inside the stream.
class TokenStream {
 public:
  TokenStream() = default;
  explicit TokenStream(std::vector<std::shared_ptr<const Shard>> shards);
  static TokenStream FromTokens(std::vector<std::int32_t> tokens,
                                const std::vector<bool>& loss = {});

  std::uint64_t size() const { return starts_.empty() ? 0 : starts_.back(); }
  std::int32_t At(std::uint64_t index) const;
  /// Ids [first, first + out.size()).
  void Read(std::uint64_t first, std::span<std::int32_t> out) const;

  std::uint64_t num_targets() const { return num_targets_; }  ///< tokens with a loss
  /// As Read; tokens without a loss become kNoLoss.
  void ReadTargets(std::uint64_t first, std::span<std::int32_t> out) const;
  std::uint64_t CountTargets(std::uint64_t first, std::uint64_t count) const;

 private:
  /// Calls `part` with each shard that the range touches, the first index in it, and how many.
  template <class Part>
  void ForParts(std::uint64_t first, std::uint64_t count, const Part& part) const;

  std::vector<std::shared_ptr<const Shard>> shards_;
  std::vector<std::uint64_t> starts_;  // of each shard, then the total
  std::uint64_t num_targets_ = 0;
};

struct ShardFile {
  std::string name;  ///< file name, without its folder
  std::uint64_t tokens = 0;
  std::uint64_t bytes = 0;
  Hash hash;  ///< SHA-256 of the whole file: its content id
};

/// Writes ids as <folder>/<prefix>-00000.tokens and on. The same ids and marks give the same files:
/// loss bits stand only in shards with a token that has none.
class ShardWriter {
 public:
  ShardWriter(std::string folder, std::string prefix, std::uint32_t vocab,
              std::uint64_t shard_tokens);
  /// Ids must be < vocab.
  Status Append(std::span<const std::int32_t> tokens, bool loss = true);
  /// Ends the shard that is being filled, if it has a token.
  Status EndShard();
  /// Writes the last shard. At least one shard exists only when there was at least one id.
  Result<std::vector<ShardFile>> Finish();
  const std::vector<ShardFile>& files() const { return files_; }  ///< written so far
  std::size_t pending() const { return pending_.size(); }         ///< tokens in no file yet
  /// Goes on behind shards that lie in the folder already.
  void Keep(std::vector<ShardFile> files) { files_ = std::move(files); }

 private:
  Status Flush();
  std::string folder_, prefix_;
  std::uint32_t vocab_;
  std::uint64_t shard_tokens_;
  std::vector<std::int32_t> pending_;
  std::vector<bool> loss_;  // of pending_
  std::vector<ShardFile> files_;
};

/// Entropy of the ids' frequencies, in nats a token: what a model that ignores context can reach.
double UnigramEntropy(const TokenStream& stream);

}  // namespace loom::data
