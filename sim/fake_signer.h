// Signatures without elliptic curves: a keyed hash that anyone could forge, which no simulated peer
// does.
#pragma once

#include "collab/signer.h"

namespace loom::sim {

class FakeSigner final : public collab::Signer {
 public:
  explicit FakeSigner(crypto::PublicKey key) : key_(key) {}

  crypto::Signature Sign(std::string_view domain, ByteView message) const override {
    return SignAs(key_, domain, message);
  }
  bool Verify(const crypto::PublicKey& key, std::string_view domain, ByteView message,
              const crypto::Signature& signature) const override {
    return SignAs(key, domain, message) == signature;
  }

 private:
  static void Mix(std::uint64_t& h, ByteView bytes) {
    for (const std::byte b : bytes) h = (h ^ static_cast<std::uint64_t>(b)) * 0x100000001B3ULL;
    h ^= bytes.size() + (h >> 29U);
  }
  static crypto::Signature SignAs(const crypto::PublicKey& key, std::string_view domain,
                                  ByteView message) {
    std::uint64_t h = 0xCBF29CE484222325ULL;
    Mix(h, key.View());
    Mix(h, AsBytes(domain));
    Mix(h, message);
    crypto::Signature out;
    std::memcpy(out.bytes.data(), &h, sizeof h);
    return out;
  }

  crypto::PublicKey key_;
};

}  // namespace loom::sim
