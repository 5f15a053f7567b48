// How the core signs and checks signatures: pure computation behind an interface, so that thousands
// of simulated rounds need no elliptic curve.
#pragma once

#include <string_view>

#include "base/bytes.h"
#include "crypto/keys.h"

namespace loom::collab {

class Signer {
 public:
  virtual ~Signer() = default;
  virtual crypto::Signature Sign(std::string_view domain, ByteView message) const = 0;
  virtual bool Verify(const crypto::PublicKey& key, std::string_view domain, ByteView message,
                      const crypto::Signature& signature) const = 0;
};

/// Ed25519 with the peer's own key.
class KeySigner final : public Signer {
 public:
  explicit KeySigner(crypto::SigningKey key) : key_(std::move(key)) {}
  crypto::Signature Sign(std::string_view domain, ByteView message) const override {
    return key_.Sign(domain, message);
  }
  bool Verify(const crypto::PublicKey& key, std::string_view domain, ByteView message,
              const crypto::Signature& signature) const override {
    return crypto::Verify(key, domain, message, signature);
  }

 private:
  crypto::SigningKey key_;
};

}  // namespace loom::collab
