#include "data/shards.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "crypto/hash.h"
#include "wire/bytes_io.h"

static_assert(std::endian::native == std::endian::little, "shards are mapped in place");

namespace loom::data {

namespace {

constexpr std::string_view kMagic{"LOOMTOK\0", 8};
constexpr std::uint32_t kPlainVersion = 1;
constexpr std::uint32_t kMarkedVersion = 2;

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

bool BitAt(const std::byte* bits, std::uint64_t index) {
  return (static_cast<unsigned>(bits[index / 8]) >> (index % 8) & 1U) != 0;
}

std::uint64_t RowBytes(std::uint64_t count) { return (count + 7) / 8; }

std::uint64_t CountBits(const std::byte* bits, std::uint64_t first, std::uint64_t count) {
  std::uint64_t sum = 0;
  for (; count > 0 && first % 8 != 0; ++first, --count) sum += BitAt(bits, first) ? 1 : 0;
  for (; count >= 8; first += 8, count -= 8) {
    sum += static_cast<std::uint64_t>(std::popcount(static_cast<unsigned char>(bits[first / 8])));
  }
  for (; count > 0; ++first, --count) sum += BitAt(bits, first) ? 1 : 0;
  return sum;
}

void AppendBits(const std::vector<bool>& bits, Bytes& out) {
  const std::size_t at = out.size();
  out.resize(at + RowBytes(bits.size()));
  for (std::size_t i = 0; i < bits.size(); ++i) {
    if (bits[i]) out[at + i / 8] |= std::byte{1} << (i % 8);
  }
}

Bytes HeaderBytes(const ShardHeader& header) {
  wire::Writer w;
  w.Raw(AsBytes(kMagic));
  w.Int<std::uint32_t>(header.marks == 0 ? kPlainVersion : kMarkedVersion);
  w.Int<std::uint32_t>(header.id_bytes);
  w.Int<std::uint64_t>(header.count);
  w.Int<std::uint32_t>(header.vocab);
  w.Int<std::uint32_t>(header.marks);
  w.Id(header.payload_hash);
  return std::move(w).Take();
}

/// Bits behind the last token would give one content two hashes.
bool EndsClean(const ShardHeader& header, ByteView payload) {
  if (header.marks == 0 || header.count % 8 == 0) return true;
  return static_cast<unsigned>(payload.back()) >> (header.count % 8) == 0;
}

}  // namespace

std::uint64_t ShardHeader::PayloadBytes() const {
  return count * id_bytes + (marks == 0 ? 0 : RowBytes(count));
}

Result<ShardHeader> ParseShard(ByteView file, std::uint32_t vocab) {
  if (file.size() < kShardHeaderBytes) {
    return Bad(fmt::format("{} bytes, the header alone has {}", file.size(), kShardHeaderBytes));
  }
  wire::Reader r(file.first(kShardHeaderBytes));
  if (AsText(r.Raw(kMagic.size())) != kMagic) return Bad("wrong magic: not a token shard");
  const auto version = r.Int<std::uint32_t>();
  if (version != kPlainVersion && version != kMarkedVersion) {
    return Bad(fmt::format("version {}, this Loom reads {} and {}", version, kPlainVersion,
                           kMarkedVersion));
  }
  ShardHeader header;
  header.id_bytes = r.Int<std::uint32_t>();
  header.count = r.Int<std::uint64_t>();
  header.vocab = r.Int<std::uint32_t>();
  header.marks = r.Int<std::uint32_t>();
  header.payload_hash = r.GetId<HashTag>();
  if (header.id_bytes != 2 && header.id_bytes != 4) {
    return Bad(fmt::format("{} bytes an id, must be 2 or 4", header.id_bytes));
  }
  if ((header.marks == 0) != (version == kPlainVersion) || header.marks > kLossBits) {
    return Bad(fmt::format("marks {} in version {}", header.marks, version));
  }
  if (header.count > kMaxShardTokens) {
    return Bad(fmt::format("{} ids, the limit is {}", header.count, kMaxShardTokens));
  }
  if (header.vocab != vocab) {
    return Bad(
        fmt::format("made for a vocabulary of {}, the tokenizer has {}", header.vocab, vocab));
  }
  const ByteView payload = file.subspan(kShardHeaderBytes);
  if (payload.size() != header.PayloadBytes()) {
    return Bad(fmt::format("{} bytes of ids, {} ids of {} bytes were promised", payload.size(),
                           header.count, header.id_bytes));
  }
  if (crypto::Sha256(payload) != header.payload_hash) return Bad("the hash does not match");
  if (!EndsClean(header, payload)) return Bad("a mark behind the last token");
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
  if (header->marks != 0) shard->loss_ = shard->payload_ + header->count * header->id_bytes;
  shard->num_targets_ = shard->CountTargets(0, header->count);
  shard->map_.push_back(std::move(map));
  return std::shared_ptr<const Shard>(std::move(shard));
}

std::shared_ptr<const Shard> Shard::FromTokens(std::vector<std::int32_t> tokens,
                                               const std::vector<bool>& loss) {
  LOOM_CHECK(loss.empty() || loss.size() == tokens.size(), "{} marks of {} tokens", loss.size(),
             tokens.size());
  std::shared_ptr<Shard> shard(new Shard);
  shard->owned_ = std::move(tokens);
  shard->payload_ = std::as_bytes(std::span(shard->owned_)).data();
  shard->count_ = shard->owned_.size();
  if (!loss.empty()) {
    AppendBits(loss, shard->owned_loss_);
    shard->loss_ = shard->owned_loss_.data();
  }
  shard->num_targets_ = shard->CountTargets(0, shard->count_);
  return shard;
}

void Shard::Read(std::uint64_t first, std::span<std::int32_t> out) const {
  LOOM_CHECK(first <= count_ && out.size() <= count_ - first, "ids [{}, +{}) of {}", first,
             out.size(), count_);
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<std::int32_t>(IdAt(payload_, id_bytes_, first + i));
  }
}

void Shard::ReadTargets(std::uint64_t first, std::span<std::int32_t> out) const {
  Read(first, out);
  if (loss_ == nullptr) return;
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (!BitAt(loss_, first + i)) out[i] = kNoLoss;
  }
}

std::uint64_t Shard::CountTargets(std::uint64_t first, std::uint64_t count) const {
  LOOM_CHECK(first <= count_ && count <= count_ - first, "ids [{}, +{}) of {}", first, count,
             count_);
  return loss_ == nullptr ? count : CountBits(loss_, first, count);
}

TokenStream::TokenStream(std::vector<std::shared_ptr<const Shard>> shards)
    : shards_(std::move(shards)), starts_{0} {
  for (const auto& shard : shards_) {
    starts_.push_back(starts_.back() + shard->size());
    num_targets_ += shard->num_targets();
  }
}

TokenStream TokenStream::FromTokens(std::vector<std::int32_t> tokens,
                                    const std::vector<bool>& loss) {
  return TokenStream({Shard::FromTokens(std::move(tokens), loss)});
}

std::int32_t TokenStream::At(std::uint64_t index) const {
  std::int32_t id = 0;
  Read(index, {&id, 1});
  return id;
}

template <class Part>
void TokenStream::ForParts(std::uint64_t first, std::uint64_t count, const Part& part) const {
  LOOM_CHECK(first <= size() && count <= size() - first, "ids [{}, +{}) of {}", first, count,
             size());
  if (count == 0) return;
  auto at = static_cast<std::size_t>(std::upper_bound(starts_.begin(), starts_.end(), first) -
                                     starts_.begin() - 1);
  for (; count > 0; ++at) {
    const std::uint64_t offset = first - starts_[at];
    const std::uint64_t n = std::min(count, shards_[at]->size() - offset);
    part(*shards_[at], offset, static_cast<std::size_t>(n));
    first += n;
    count -= n;
  }
}

void TokenStream::Read(std::uint64_t first, std::span<std::int32_t> out) const {
  ForParts(first, out.size(), [&](const Shard& shard, std::uint64_t offset, std::size_t n) {
    shard.Read(offset, out.first(n));
    out = out.subspan(n);
  });
}

void TokenStream::ReadTargets(std::uint64_t first, std::span<std::int32_t> out) const {
  ForParts(first, out.size(), [&](const Shard& shard, std::uint64_t offset, std::size_t n) {
    shard.ReadTargets(offset, out.first(n));
    out = out.subspan(n);
  });
}

std::uint64_t TokenStream::CountTargets(std::uint64_t first, std::uint64_t count) const {
  if (num_targets_ == size()) return count;
  std::uint64_t sum = 0;
  ForParts(first, count, [&](const Shard& shard, std::uint64_t offset, std::size_t n) {
    sum += shard.CountTargets(offset, n);
  });
  return sum;
}

ShardWriter::ShardWriter(std::string folder, std::string prefix, std::uint32_t vocab,
                         std::uint64_t shard_tokens)
    : folder_(std::move(folder)),
      prefix_(std::move(prefix)),
      vocab_(vocab),
      shard_tokens_(std::clamp<std::uint64_t>(shard_tokens, 1, kMaxShardTokens)) {}

Status ShardWriter::Append(std::span<const std::int32_t> tokens, bool loss) {
  for (const std::int32_t id : tokens) {
    LOOM_CHECK(id >= 0 && static_cast<std::uint32_t>(id) < vocab_, "id {} of {}", id, vocab_);
  }
  while (!tokens.empty()) {
    const auto n = static_cast<std::size_t>(
        std::min<std::uint64_t>(tokens.size(), shard_tokens_ - pending_.size()));
    pending_.insert(pending_.end(), tokens.begin(),
                    tokens.begin() + static_cast<std::ptrdiff_t>(n));
    tokens = tokens.subspan(n);
    loss_.resize(pending_.size(), loss);
    if (pending_.size() == shard_tokens_) LOOM_RETURN_IF_ERROR(Flush());
  }
  return {};
}

Status ShardWriter::EndShard() { return pending_.empty() ? Status() : Flush(); }

Status ShardWriter::Flush() {
  const bool all = std::ranges::find(loss_, false) == loss_.end();
  ShardHeader header{.id_bytes = IdBytesFor(vocab_),
                     .count = pending_.size(),
                     .vocab = vocab_,
                     .marks = all ? 0 : kLossBits,
                     .payload_hash = {}};
  Bytes payload(pending_.size() * header.id_bytes);
  for (std::size_t i = 0; i < pending_.size(); ++i) {
    std::memcpy(payload.data() + i * header.id_bytes, &pending_[i], header.id_bytes);
  }
  if (!all) AppendBits(loss_, payload);
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
  LOOM_RETURN_IF_ERROR(WriteFileAtomic(InFolder(folder_, file.name), pieces));
  files_.push_back(std::move(file));
  pending_.clear();
  loss_.clear();
  return {};
}

Result<std::vector<ShardFile>> ShardWriter::Finish() {
  LOOM_RETURN_IF_ERROR(EndShard());
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
