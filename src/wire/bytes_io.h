// The one way Loom turns structures into bytes and back: little-endian, length-prefixed, bounded.
// A Reader never reads past its input and never allocates more than the bytes it was given; after
// the first failure it returns zeros, so that a decoder checks once at its end.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/id.h"
#include "base/result.h"

namespace loom::wire {

class Writer {
 public:
  template <std::unsigned_integral T>
  void Int(T value) {
    std::array<std::byte, sizeof(T)> raw;
    for (std::size_t i = 0; i < sizeof(T); ++i) raw[i] = static_cast<std::byte>(value >> (8 * i));
    Raw(raw);
  }
  void Bool(bool value) { Int<std::uint8_t>(value ? 1 : 0); }
  void F32(float value);
  void F64(double value);
  template <class Tag>
  void Id(const Id32<Tag>& id) {
    Raw(id.bytes);
  }
  /// Bytes without a length: the reader must know it.
  void Raw(ByteView bytes) { out_.insert(out_.end(), bytes.begin(), bytes.end()); }
  /// u32 length, then the bytes.
  void Var(ByteView bytes);
  void Text(std::string_view text) { Var(AsBytes(text)); }
  /// u32 count; the caller writes that many items after it.
  void Count(std::size_t n);

  const Bytes& bytes() const { return out_; }
  Bytes Take() && { return std::move(out_); }

 private:
  Bytes out_;
};

class Reader {
 public:
  explicit Reader(ByteView in) : in_(in) {}

  template <std::unsigned_integral T>
  T Int() {
    T value = 0;
    const ByteView raw = Raw(sizeof(T));
    for (std::size_t i = 0; i < raw.size(); ++i) {
      value = static_cast<T>(value | (static_cast<std::uint64_t>(raw[i]) << (8 * i)));
    }
    return value;
  }
  /// Anything but 0 and 1 is an error.
  bool Bool();
  float F32();
  double F64();
  template <class Tag>
  Id32<Tag> GetId() {
    Id32<Tag> id;
    const ByteView raw = Raw(id.bytes.size());
    if (!raw.empty()) std::memcpy(id.bytes.data(), raw.data(), raw.size());
    return id;
  }
  /// Exactly n bytes, or an empty view and a failed reader.
  ByteView Raw(std::size_t n);
  /// A u32 length of at most max, then that many bytes.
  ByteView Var(std::size_t max);
  std::string Text(std::size_t max) { return std::string(AsText(Var(max))); }
  /// A count of items of at least min_item_bytes each: refused when they cannot fit what is left,
  /// so that reserve(count) is always safe.
  std::size_t Count(std::size_t max, std::size_t min_item_bytes);

  /// Marks the input as bad; what names the field.
  void Fail(std::string_view what);
  bool ok() const { return error_.empty(); }
  std::size_t left() const { return in_.size(); }
  /// Ok when nothing failed and every byte was read.
  Status Finish(std::string_view message_name) const;

 private:
  ByteView in_;
  std::string error_;
};

}  // namespace loom::wire
