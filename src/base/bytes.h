// Owned and borrowed bytes, hex, and the little-endian loads every format of Loom uses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace loom {

using Bytes = std::vector<std::byte>;
using ByteView = std::span<const std::byte>;
using MutableByteView = std::span<std::byte>;

/// Immutable bytes shared between threads, messages and caches without a copy. Never null.
using Blob = std::shared_ptr<const Bytes>;

inline Blob MakeBlob(Bytes bytes) { return std::make_shared<const Bytes>(std::move(bytes)); }

/// A part of a blob; it keeps the whole alive. A null blob is an empty view.
struct Slice {
  Blob blob;
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  ByteView View() const {
    return blob == nullptr ? ByteView() : ByteView(*blob).subspan(offset, size);
  }
};
inline Slice WholeOf(Blob blob) {
  const std::uint64_t size = blob->size();
  return {std::move(blob), 0, size};
}

inline ByteView AsBytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}
template <class T>
ByteView AsBytes(std::span<const T> values) {
  return std::as_bytes(values);
}
inline std::string_view AsText(ByteView bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
inline Bytes ToBytes(ByteView view) { return {view.begin(), view.end()}; }

/// Lower-case hex.
std::string Hex(ByteView bytes);
/// Parses hex of exactly out.size() bytes, lower or upper case; false on any other input.
bool ParseHex(std::string_view hex, MutableByteView out);

}  // namespace loom
