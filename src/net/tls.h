// The adapter of OpenSSL's TLS: mutual TLS 1.3 over a non-blocking socket, pinned by peer id.
// Chains, names and dates of certificates play no part; the key is the identity. Several records
// share a system call: what is written gathers until Flush, what is read is taken ahead.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/id.h"
#include "crypto/keys.h"

namespace loom::net {

/// The library behind it, as "OpenSSL 3.0.17".
std::string TlsLibrary();

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
  static constexpr std::size_t kReadAhead = 64 * 1024;
  static constexpr std::size_t kMaxUnsent = 1024 * 1024;

  enum class Io : std::uint8_t { kDone, kWantRead, kWantWrite, kClosed, kFailed };
  enum class Failure : std::uint8_t { kNone, kPin, kRejected, kNotTls, kOther };

  /// The context and the descriptor outlive the stream. `expected` pins the other side's id.
  TlsStream(const TlsContext& context, int fd, bool accepting, std::optional<PeerId> expected);
  ~TlsStream();
  TlsStream(const TlsStream&) = delete;
  TlsStream& operator=(const TlsStream&) = delete;

  Io Handshake();
  /// Up to out.size() bytes of one record; n says how many. Takes at most `allowance` bytes from
  /// the socket, as far as kReadAhead beyond the record; with 0 it only gives what was taken
  /// before.
  Io Read(MutableByteView out, std::size_t allowance, std::size_t& n);
  /// The last Read wanted more than its allowance, not more than the socket had.
  bool starved() const;
  /// Makes records of all of `in`; they wait for Flush. kClosed with more than kMaxUnsent waiting.
  Io Write(ByteView in);
  /// Hands waiting records to the socket, many in one system call. kWantWrite: some still wait.
  Io Flush();
  /// Bytes of records that the socket has not taken.
  std::size_t unsent() const;
  /// Tells the other side that nothing follows, if the socket takes it.
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
