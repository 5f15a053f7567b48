#include "text/vocab.h"

#include <cstring>

namespace loom::text {
namespace {

constexpr std::uint64_t kPrime = 0x9E3779B97F4A7C15ULL;

std::uint64_t Mix(std::uint64_t x) {
  x ^= x >> 32;
  x *= kPrime;
  x ^= x >> 29;
  return x;
}

}  // namespace

std::uint64_t MixHash(std::string_view bytes) {
  std::uint64_t hash = bytes.size() * kPrime;
  std::size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, 8);
    hash = Mix(hash ^ word);
  }
  std::uint64_t tail = 0;
  for (std::size_t shift = 0; at < bytes.size(); ++at, shift += 8) {
    tail |= std::uint64_t{static_cast<unsigned char>(bytes[at])} << shift;
  }
  return Mix(Mix(hash ^ tail));
}

bool Vocab::Add(std::string_view bytes, std::int32_t id) {
  if (bytes.empty() || id < 0 || Find(bytes) != kNone || Has(id)) return false;
  if (2 * (count_ + 1) > table_.size()) Grow();
  if (static_cast<std::size_t>(id) >= spans_.size())
    spans_.resize(static_cast<std::size_t>(id) + 1);
  spans_[static_cast<std::size_t>(id)] = {static_cast<std::uint32_t>(arena_.size()),
                                          static_cast<std::uint32_t>(bytes.size())};
  arena_ += bytes;
  Insert(static_cast<std::uint32_t>(MixHash(bytes)), id);
  ++count_;
  return true;
}

std::int32_t Vocab::Find(std::string_view bytes) const {
  if (table_.empty()) return kNone;
  const auto hash = static_cast<std::uint32_t>(MixHash(bytes));
  for (std::size_t at = hash & (table_.size() - 1);; at = (at + 1) & (table_.size() - 1)) {
    const Slot& slot = table_[at];
    if (slot.id == kNone) return kNone;
    if (slot.hash == hash && BytesOf(slot.id) == bytes) return slot.id;
  }
}

std::string_view Vocab::BytesOf(std::int32_t id) const {
  if (id < 0 || static_cast<std::size_t>(id) >= spans_.size()) return {};
  const Span& span = spans_[static_cast<std::size_t>(id)];
  return std::string_view(arena_).substr(span.offset, span.size);
}

void Vocab::Grow() {
  const std::vector<Slot> old = std::move(table_);
  table_.assign(old.empty() ? 1024 : 2 * old.size(), Slot{});
  for (const Slot& slot : old) {
    if (slot.id != kNone) Insert(slot.hash, slot.id);
  }
}

void Vocab::Insert(std::uint32_t hash, std::int32_t id) {
  std::size_t at = hash & (table_.size() - 1);
  while (table_[at].id != kNone) at = (at + 1) & (table_.size() - 1);
  table_[at] = {hash, id};
}

}  // namespace loom::text
