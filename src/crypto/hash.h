// SHA-256, the one hash of Loom: content ids, Merkle trees, record chains. OpenSSL stays in
// hash.cc.
#pragma once

#include <memory>
#include <span>

#include "base/bytes.h"
#include "base/id.h"

namespace loom::crypto {

Hash Sha256(ByteView bytes);

/// Incremental SHA-256. Not thread-safe.
class Sha256Stream {
 public:
  Sha256Stream();
  ~Sha256Stream();
  Sha256Stream(const Sha256Stream&) = delete;
  Sha256Stream& operator=(const Sha256Stream&) = delete;
  void Update(ByteView bytes);
  Hash Finish();  ///< ends the stream; Update may then start a new one

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Root of the binary Merkle tree over the leaves. An inner node is SHA-256(0x01 | left | right);
/// an odd node moves up unchanged; one leaf is its own root; no leaves give the zero hash. Leaves
/// are content hashes, which never start with the byte 0x01 by construction of their own prefix or
/// size.
Hash MerkleRoot(std::span<const Hash> leaves);

}  // namespace loom::crypto
