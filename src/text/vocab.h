// Tokens of a byte-level vocabulary: their bytes by id and their id by bytes, in one arena with one
// open-addressed table, so that a lookup touches two cache lines.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace loom::text {

/// Ids may have gaps; no token is empty.
class Vocab {
 public:
  static constexpr std::int32_t kNone = -1;

  /// False when these bytes or this id are there already. Invalidates views.
  bool Add(std::string_view bytes, std::int32_t id);
  std::int32_t Find(std::string_view bytes) const;  ///< kNone when there is no such token
  /// Empty for an id without a token.
  std::string_view BytesOf(std::int32_t id) const;
  bool Has(std::int32_t id) const { return !BytesOf(id).empty(); }
  /// One more than the largest id.
  std::uint32_t size() const { return static_cast<std::uint32_t>(spans_.size()); }
  std::uint32_t count() const { return count_; }

 private:
  struct Span {
    std::uint32_t offset = 0;
    std::uint32_t size = 0;
  };
  struct Slot {
    std::uint32_t hash = 0;
    std::int32_t id = kNone;
  };
  void Grow();
  void Insert(std::uint32_t hash, std::int32_t id);

  std::string arena_;
  std::vector<Span> spans_;  ///< by id
  std::vector<Slot> table_;  ///< a power of two, at most half full
  std::uint32_t count_ = 0;
};

/// A well-mixed hash of bytes, the same on every machine.
std::uint64_t MixHash(std::string_view bytes);

}  // namespace loom::text
