// 32-byte identities. Every id is a SHA-256; the strong types keep a peer from being taken for a
// run.
#pragma once

#include <array>
#include <compare>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"

namespace loom {

template <class Tag>
struct Id32 {
  std::array<std::byte, 32> bytes{};

  auto operator<=>(const Id32&) const = default;
  bool operator==(const Id32&) const = default;
  bool IsZero() const { return *this == Id32{}; }
  ByteView View() const { return bytes; }
  /// 64 lower-case hex digits.
  std::string Hex() const { return loom::Hex(bytes); }
  /// The first 8 hex digits, for people.
  std::string Short() const { return Hex().substr(0, 8); }
  static Result<Id32> FromHex(std::string_view hex) {
    Id32 id;
    if (!ParseHex(hex, id.bytes)) {
      return MakeError(Code::kInvalid, fmt::format("'{}' is not 64 hex digits", hex.substr(0, 80)));
    }
    return id;
  }
};

using Hash = Id32<struct HashTag>;    ///< SHA-256 of some bytes
using PeerId = Id32<struct PeerTag>;  ///< SHA-256 of the peer's SubjectPublicKeyInfo
using RunId = Id32<struct RunTag>;    ///< hash of the genesis body

using Round = std::uint64_t;  ///< 0 is the genesis record; record r is the state after round r
using Era = std::uint32_t;
using Term = std::uint32_t;
using WorkerIndex = std::uint32_t;

}  // namespace loom

template <class Tag>
struct std::hash<loom::Id32<Tag>> {
  std::size_t operator()(const loom::Id32<Tag>& id) const noexcept {
    std::size_t out = 0;
    std::memcpy(&out, id.bytes.data(), sizeof out);
    return out;
  }
};
