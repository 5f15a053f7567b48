// Ed25519 identities and signatures. A peer's key is its TLS key and its vote key; the peer id is
// the SHA-256 of the DER SubjectPublicKeyInfo. Every signature covers a domain string, so that
// bytes signed for one purpose are worth nothing for another. OpenSSL stays in keys.cc.
// Thread-safe.
#pragma once

#include <array>
#include <compare>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/id.h"
#include "base/result.h"

namespace loom::crypto {

/// N raw bytes of one meaning; the tag keeps a key from being taken for a signature.
template <class Tag, std::size_t N>
struct FixedBytes {
  std::array<std::byte, N> bytes{};

  auto operator<=>(const FixedBytes&) const = default;
  bool operator==(const FixedBytes&) const = default;
  ByteView View() const { return bytes; }
  std::string Hex() const { return loom::Hex(bytes); }
  /// Bytes of exactly N, else kInvalid.
  static Result<FixedBytes> FromBytes(ByteView view) {
    FixedBytes out;
    if (view.size() != N) {
      return MakeError(Code::kInvalid, fmt::format("{} bytes where {} belong", view.size(), N));
    }
    std::copy(view.begin(), view.end(), out.bytes.begin());
    return out;
  }
  static Result<FixedBytes> FromHex(std::string_view hex) {
    FixedBytes out;
    if (!ParseHex(hex, out.bytes)) {
      return MakeError(Code::kInvalid,
                       fmt::format("'{}' is not {} hex digits", hex.substr(0, 160), 2 * N));
    }
    return out;
  }
};

using PublicKey = FixedBytes<struct PublicKeyTag, 32>;  ///< raw Ed25519 public key
using Signature = FixedBytes<struct SignatureTag, 64>;  ///< raw Ed25519 signature
using Seed = FixedBytes<struct SeedTag, 32>;            ///< raw Ed25519 secret; never logged

/// SHA-256 of the key's DER SubjectPublicKeyInfo (a fixed 12-byte prefix and the 32 bytes).
PeerId PeerIdOf(const PublicKey& key);

/// Fills out from the operating system's random source.
void RandomBytes(MutableByteView out);

class SigningKey {
 public:
  static SigningKey Generate();
  static SigningKey FromSeed(const Seed& seed);
  /// Any 32 bytes are a valid seed; another size is kInvalid.
  static Result<SigningKey> FromSeedBytes(ByteView seed);
  /// Reads PKCS#8 PEM text, 64 hex digits or 32 raw bytes. kNotFound when there is no file,
  /// kInvalid when it holds anything else. Warns when others than the owner can read it.
  static Result<SigningKey> Load(const std::filesystem::path& path);
  /// Writes PKCS#8 PEM with mode 600, synced and renamed into place. kConflict when the file
  /// exists.
  Status Save(const std::filesystem::path& path) const;

  const PublicKey& public_key() const;
  PeerId id() const;
  const Seed& seed() const;
  /// Signs domain and message together; sign a hash instead of something large (the message is
  /// copied).
  Signature Sign(std::string_view domain, ByteView message) const;

 private:
  struct State;
  explicit SigningKey(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  std::shared_ptr<const State> state_;
};

/// True when `signature` is the key's signature over this domain and message. False for anything
/// else.
bool Verify(const PublicKey& key, std::string_view domain, ByteView message,
            const Signature& signature);

}  // namespace loom::crypto
