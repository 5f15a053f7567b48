#include "crypto/hash.h"

#include <openssl/evp.h>

#include <vector>

namespace loom::crypto {

struct Sha256Stream::State {
  EVP_MD_CTX* ctx = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(ctx); }
};

Sha256Stream::Sha256Stream() : state_(std::make_unique<State>()) {
  LOOM_CHECK(EVP_DigestInit_ex(state_->ctx, EVP_sha256(), nullptr) == 1);
}
Sha256Stream::~Sha256Stream() = default;

void Sha256Stream::Update(ByteView bytes) {
  LOOM_CHECK(EVP_DigestUpdate(state_->ctx, bytes.data(), bytes.size()) == 1);
}

Hash Sha256Stream::Finish() {
  Hash out;
  unsigned size = 0;
  LOOM_CHECK(EVP_DigestFinal_ex(state_->ctx, reinterpret_cast<unsigned char*>(out.bytes.data()),
                                &size) == 1);
  LOOM_CHECK(EVP_DigestInit_ex(state_->ctx, EVP_sha256(), nullptr) == 1);
  return out;
}

Hash Sha256(ByteView bytes) {
  Hash out;
  unsigned size = 0;
  LOOM_CHECK(EVP_Digest(bytes.data(), bytes.size(),
                        reinterpret_cast<unsigned char*>(out.bytes.data()), &size, EVP_sha256(),
                        nullptr) == 1);
  return out;
}

Hash MerkleRoot(std::span<const Hash> leaves) {
  std::vector<Hash> level(leaves.begin(), leaves.end());
  if (level.empty()) return {};
  while (level.size() > 1) {
    std::vector<Hash> up;
    up.reserve((level.size() + 1) / 2);
    for (std::size_t i = 0; i + 1 < level.size(); i += 2) {
      std::array<std::byte, 65> node{};
      node[0] = std::byte{1};
      std::memcpy(node.data() + 1, level[i].bytes.data(), 32);
      std::memcpy(node.data() + 33, level[i + 1].bytes.data(), 32);
      up.push_back(Sha256(node));
    }
    if (level.size() % 2 == 1) up.push_back(level.back());
    level = std::move(up);
  }
  return level[0];
}

}  // namespace loom::crypto
