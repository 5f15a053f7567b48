#include "data/shards.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "crypto/hash.h"
#include "wire/bytes_io.h"

static_assert(std::endian::native == std::endian::little, "shards are mapped in place");

namespace loom::data {

namespace {

constexpr std::string_view kMagic{"LOOMTOK\0", 8};
constexpr std::uint32_t kVersion = 1;

Error Bad(std::string what) {
  return MakeError(Code::kCorrupt, "token shard: " + std::move(what),
                   "build the shards again from the corpus");
}

std::uint32_t IdBytesFor(std::uint32_t vocab) { return vocab <= 0x10000 ? 2 : 4; }

std::uint32_t IdAt(const std::byte* payload, std::uint32_t id_bytes, std::uint64_t index) {
  std::uint32_t id = 0;
  std::memcpy(&id, payload + index * id_bytes, id_bytes);
  return id;
}

Bytes HeaderBytes(const ShardHeader& header) {
  wire::Writer w;
  w.Raw(AsBytes(kMagic));
  w.Int<std::uint32_t>(kVersion);
  w.Int<std::uint32_t>(header.id_bytes);
  w.Int<std::uint64_t>(header.count);
  w.Int<std::uint32_t>(header.vocab);
  w.Int<std::uint32_t>(0);
  w.Id(header.payload_hash);
  return std::move(w).Take();
}

}  // namespace

Result<ShardHeader> ParseShard(ByteView file, std::uint32_t vocab) {
  if (file.size() < kShardHeaderBytes) {
    return Bad(fmt::format("{} bytes, the header alone has {}", file.size(), kShardHeaderBytes));
  }
  wire::Reader r(file.first(kShardHeaderBytes));
  if (AsText(r.Raw(kMagic.size())) != kMagic) return Bad("wrong magic: not a token shard");
  if (const auto version = r.Int<std::uint32_t>(); version != kVersion) {
    return Bad(fmt::format("version {}, this Loom reads {}", version, kVersion));
  }
  ShardHeader header;
  header.id_bytes = r.Int<std::uint32_t>();
  header.count = r.Int<std::uint64_t>();
  header.vocab = r.Int<std::uint32_t>();
  const auto reserved = r.Int<std::uint32_t>();
  header.payload_hash = r.GetId<HashTag>();
  if (header.id_bytes != 2 && header.id_bytes != 4) {
    return Bad(fmt::format("{} bytes an id, must be 2 or 4", header.id_bytes));
  }
  if (reserved != 0) return Bad("reserved field is not zero");
  if (header.count > kMaxShardTokens) {
    return Bad(fmt::format("{} ids, the limit is {}", header.count, kMaxShardTokens));
  }
  if (header.vocab != vocab) {
    return Bad(
        fmt::format("made for a vocabulary of {}, the tokenizer has {}", header.vocab, vocab));
  }
  const ByteView payload = file.subspan(kShardHeaderBytes);
  if (payload.size() != header.count * header.id_bytes) {
    return Bad(fmt::format("{} bytes of ids, {} ids of {} bytes were promised", payload.size(),
                           header.count, header.id_bytes));
  }
  if (crypto::Sha256(payload) != header.payload_hash) return Bad("the hash does not match");
  for (std::uint64_t i = 0; i < header.count; ++i) {
    if (const std::uint32_t id = IdAt(payload.data(), header.id_bytes, i); id >= vocab) {
      return Bad(fmt::format("id {} at index {} is not below the vocabulary {}", id, i, vocab));
    }
  }
  return header;
}

Result<std::shared_ptr<const Shard>> Shard::Open(const std::string& path, std::uint32_t vocab) {
  LOOM_ASSIGN(auto map, MappedFile::Open(path));
  auto header = ParseShard(map.bytes(), vocab);
  if (!header) return std::move(header).error().Context(fmt::format("'{}'", path));
  std::shared_ptr<Shard> shard(new Shard);
  shard->payload_ = map.bytes().data() + kShardHeaderBytes;
  shard->id_bytes_ = header->id_bytes;
  shard->count_ = header->count;
  shard->map_.push_back(std::move(map));
  return std::shared_ptr<const Shard>(std::move(shard));
}

std::shared_ptr<const Shard> Shard::FromTokens(std::vector<std::int32_t> tokens) {
  std::shared_ptr<Shard> shard(new Shard);
  shard->owned_ = std::move(tokens);
  shard->payload_ = std::as_bytes(std::span(shard->owned_)).data();
  shard->count_ = shard->owned_.size();
  return shard;
}

void Shard::Read(std::uint64_t first, std::span<std::int32_t> out) const {
  LOOM_CHECK(first <= count_ && out.size() <= count_ - first, "ids [{}, +{}) of {}", first,
             out.size(), count_);
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<std::int32_t>(IdAt(payload_, id_bytes_, first + i));
  }
}

TokenStream::TokenStream(std::vector<std::shared_ptr<const Shard>> shards)
    : shards_(std::move(shards)), starts_{0} {
  for (const auto& shard : shards_) starts_.push_back(starts_.back() + shard->size());
}

TokenStream TokenStream::FromTokens(std::vector<std::int32_t> tokens) {
  return TokenStream({Shard::FromTokens(std::move(tokens))});
}

std::int32_t TokenStream::At(std::uint64_t index) const {
  std::int32_t id = 0;
  Read(index, {&id, 1});
  return id;
}

void TokenStream::Read(std::uint64_t first, std::span<std::int32_t> out) const {
  LOOM_CHECK(first <= size() && out.size() <= size() - first, "ids [{}, +{}) of {}", first,
             out.size(), size());
  if (out.empty()) return;
  auto at = static_cast<std::size_t>(std::upper_bound(starts_.begin(), starts_.end(), first) -
                                     starts_.begin() - 1);
  while (!out.empty()) {
    const std::uint64_t offset = first - starts_[at];
    const auto n =
        static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), shards_[at]->size() - offset));
    shards_[at]->Read(offset, out.first(n));
    out = out.subspan(n);
    first += n;
    ++at;
  }
}

ShardWriter::ShardWriter(std::string folder, std::string prefix, std::uint32_t vocab,
                         std::uint64_t shard_tokens)
    : folder_(std::move(folder)),
      prefix_(std::move(prefix)),
      vocab_(vocab),
      shard_tokens_(std::clamp<std::uint64_t>(shard_tokens, 1, kMaxShardTokens)) {}

Status ShardWriter::Append(std::span<const std::int32_t> tokens) {
  for (const std::int32_t id : tokens) {
    LOOM_CHECK(id >= 0 && static_cast<std::uint32_t>(id) < vocab_, "id {} of {}", id, vocab_);
  }
  while (!tokens.empty()) {
    const auto n = static_cast<std::size_t>(
        std::min<std::uint64_t>(tokens.size(), shard_tokens_ - pending_.size()));
    pending_.insert(pending_.end(), tokens.begin(),
                    tokens.begin() + static_cast<std::ptrdiff_t>(n));
    tokens = tokens.subspan(n);
    if (pending_.size() == shard_tokens_) LOOM_RETURN_IF_ERROR(Flush());
  }
  return {};
}

Status ShardWriter::Flush() {
  ShardHeader header{.id_bytes = IdBytesFor(vocab_),
                     .count = pending_.size(),
                     .vocab = vocab_,
                     .payload_hash = {}};
  Bytes payload(pending_.size() * header.id_bytes);
  for (std::size_t i = 0; i < pending_.size(); ++i) {
    std::memcpy(payload.data() + i * header.id_bytes, &pending_[i], header.id_bytes);
  }
  header.payload_hash = crypto::Sha256(payload);
  const Bytes head = HeaderBytes(header);
  crypto::Sha256Stream whole;
  whole.Update(head);
  whole.Update(payload);
  ShardFile file{.name = fmt::format("{}-{:05}.tokens", prefix_, files_.size()),
                 .tokens = header.count,
                 .bytes = head.size() + payload.size(),
                 .hash = whole.Finish()};
  const std::array<ByteView, 2> pieces{head, payload};
  LOOM_RETURN_IF_ERROR(
      WriteFileAtomic((std::filesystem::path(folder_) / file.name).string(), pieces));
  files_.push_back(std::move(file));
  pending_.clear();
  return {};
}

Result<std::vector<ShardFile>> ShardWriter::Finish() {
  if (!pending_.empty()) LOOM_RETURN_IF_ERROR(Flush());
  return std::move(files_);
}

double UnigramEntropy(const TokenStream& stream) {
  std::vector<std::uint64_t> counts;
  std::array<std::int32_t, 4096> ids{};
  for (std::uint64_t at = 0; at < stream.size(); at += ids.size()) {
    const std::span part(ids.data(), std::min<std::uint64_t>(ids.size(), stream.size() - at));
    stream.Read(at, part);
    for (const std::int32_t id : part) {
      const auto i = static_cast<std::size_t>(id);
      if (i >= counts.size()) counts.resize(i + 1);
      ++counts[i];
    }
  }
  double entropy = 0;
  const auto total = static_cast<double>(stream.size());
  for (const std::uint64_t count : counts) {
    if (count == 0) continue;
    const double p = static_cast<double>(count) / total;
    entropy -= p * std::log(p);
  }
  return entropy;
}

}  // namespace loom::data
