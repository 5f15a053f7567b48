// One TLS connection: handshake, frames in, frames out, paced by the host's caps. It knows no peers
// and makes no decisions; its host does. Runs on the reactor thread.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "net/bulk_pacer.h"
#include "net/reactor.h"
#include "net/tls.h"
#include "net/transport.h"
#include "wire/frame.h"

namespace loom::net {

class Connection;

/// A frame on its way out.
struct OutFrame {
  std::array<std::byte, wire::kFrameHeaderBytes> header;
  Blob payload;
  std::size_t size() const { return header.size() + payload->size(); }
};

/// Frames that wait; the bulk connections of a peer share one.
struct FrameQueue {
  std::deque<OutFrame> frames;
  std::size_t bytes = 0;  ///< what is not yet handed to TLS, in whole frames

  void Push(OutFrame frame) {
    bytes += frame.size();
    frames.push_back(std::move(frame));
  }
};

class ConnectionHost {
 public:
  virtual ~ConnectionHost() = default;
  /// The other side has proved its key.
  virtual void OnSecure(Connection& connection) = 0;
  virtual void OnConnectionFrame(Connection& connection, Frame frame) = 0;
  /// The connection has ended by itself (never after Close). `text` says why.
  virtual void OnEnded(Connection& connection, TlsStream::Failure failure,
                       const std::string& text) = 0;
  /// Frames left the queue.
  virtual void OnDrained(Connection& connection) = 0;
  /// Bytes went through the socket.
  virtual void OnTraffic(Connection& connection, std::uint64_t up, std::uint64_t down) = 0;
  /// When the connection may write (or read) again; the past means at once.
  virtual Time ReadyAt(Connection& connection, bool up) = 0;
  /// Most bytes of one write (or read).
  virtual std::size_t Slice(Connection& connection, bool up) = 0;
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  /// Takes over the connected socket.
  Connection(Reactor& reactor, ConnectionHost& host, const TlsContext& tls,
             std::unique_ptr<FdWatch> socket, bool accepted, std::string remote,
             std::optional<PeerId> expected);
  ~Connection();

  void Start();
  /// Queues behind what this connection already has, then writes.
  void Send(std::uint16_t type, std::uint16_t flags, std::uint64_t request_id, Blob payload);
  /// Takes frames from this queue from now on; the connection is a paced bulk connection.
  void ServeBulk(std::shared_ptr<FrameQueue> queue);
  /// Called some times a second: holds bulk back where it fills the queues on its way (R34).
  void Pace();
  /// The queue got something.
  void Wake();
  void SetCaps(const wire::FrameCaps* caps) { caps_ = caps; }
  /// Ends it now and silently: no callback follows.
  void Close();
  /// Sends what waits in its own queue, says goodbye, waits for the other side to close, at most a
  /// second.
  void CloseGently();

  bool secure() const { return phase_ == Phase::kOpen; }
  bool closed() const { return phase_ == Phase::kClosed; }
  bool accepted() const { return accepted_; }
  bool bulk() const { return bulk_queue_ != nullptr; }
  const std::string& remote() const { return remote_; }
  const crypto::PublicKey& peer_key() const { return tls_->peer_key(); }
  const FrameQueue& own_queue() const { return own_; }
  std::uint64_t wire_read() const { return seen_read_; }
  int fd() const { return watch_->fd(); }

 private:
  enum class Phase : std::uint8_t { kHandshake, kOpen, kClosing, kClosed };

  void Handshake();
  void Read();
  void Write();
  /// False when the connection has ended meanwhile.
  bool TakeFrame();
  /// Makes TLS records of at most `largest` bytes of frames.
  TlsStream::Io Gather(std::size_t largest);
  ByteView NextSlice(std::size_t largest);
  void Advance(std::size_t n);
  bool PopFrame();
  bool Pending() const;
  void CountTraffic();
  void End(TlsStream::Failure failure, const std::string& text);
  void WaitReadable();
  void WaitWritable();
  void LaterReadable(Time when);
  void LaterWritable(Time when);
  std::function<void()> Bound(void (Connection::*step)());

  Reactor& reactor_;
  ConnectionHost& host_;
  const bool accepted_;
  const std::string remote_;
  std::unique_ptr<FdWatch> watch_;
  std::unique_ptr<TlsStream> tls_;
  Phase phase_ = Phase::kHandshake;

  // out
  BulkPacer pacer_;
  FrameQueue own_;
  std::shared_ptr<FrameQueue> bulk_queue_;
  std::optional<OutFrame> current_;
  std::size_t offset_ = 0;  ///< into current_, header first
  Bytes stage_;             ///< one record gathered from small pieces
  bool write_waits_ = false;
  Reactor::TimerId write_timer_ = 0;

  // in
  const wire::FrameCaps* caps_;
  std::array<std::byte, wire::kFrameHeaderBytes> header_{};
  std::size_t header_got_ = 0;
  std::optional<wire::FrameHeader> frame_;
  std::shared_ptr<Bytes> payload_;
  std::size_t payload_got_ = 0;
  Reactor::TimerId read_timer_ = 0;
  Reactor::TimerId close_timer_ = 0;

  std::uint64_t seen_read_ = 0, seen_written_ = 0;
};

}  // namespace loom::net
