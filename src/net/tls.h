// The adapter of OpenSSL's TLS: mutual TLS 1.3 over a non-blocking socket, pinned by peer id.
// Chains, names and dates of certificates play no part; the key is the identity.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/id.h"
#include "crypto/keys.h"

namespace loom::net {

/// Key, certificate and rules of one peer, shared by its connections.
class TlsContext {
 public:
  explicit TlsContext(const crypto::SigningKey& key);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

 private:
  friend class TlsStream;
  struct State;
  std::unique_ptr<State> state_;
};

class TlsStream {
 public:
  enum class Io : std::uint8_t { kDone, kWantRead, kWantWrite, kClosed, kFailed };
  enum class Failure : std::uint8_t { kNone, kPin, kRejected, kNotTls, kOther };

  /// The context and the descriptor outlive the stream. `expected` pins the other side's id.
  TlsStream(const TlsContext& context, int fd, bool accepting, std::optional<PeerId> expected);
  ~TlsStream();
  TlsStream(const TlsStream&) = delete;
  TlsStream& operator=(const TlsStream&) = delete;

  Io Handshake();
  /// Up to out.size() bytes; n says how many.
  Io Read(MutableByteView out, std::size_t& n);
  /// At most one TLS record (16 KiB). After kWantWrite the same bytes must be offered again.
  Io Write(ByteView in, std::size_t& n);
  /// Tells the other side that nothing follows.
  void CloseNotify();

  /// After the handshake.
  const crypto::PublicKey& peer_key() const;
  /// Bytes that went through the socket.
  std::uint64_t wire_read() const;
  std::uint64_t wire_written() const;
  Failure failure() const;
  /// Why the last call failed, for people.
  const std::string& error() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace loom::net
