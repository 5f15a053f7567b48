#include "net/connection.h"

namespace loom::net {
namespace {

constexpr std::size_t kRecord = 16 * 1024;  ///< plain bytes of the largest TLS record
constexpr std::size_t kReadTurn = 1 << 20;  ///< bytes read before others get their turn
constexpr std::size_t kWriteTurn = 256 * 1024;
constexpr std::size_t kFirstAllocation = 2 << 20;  ///< a payload buffer grows with what arrives
constexpr Duration kGentleClose = 1s;

const wire::FrameCaps& HelloCaps() {
  static const wire::FrameCaps caps{wire::kMaxHelloFrame - wire::kFrameHeaderBytes, {}};
  return caps;
}

}  // namespace

Connection::Connection(Reactor& reactor, ConnectionHost& host, const TlsContext& tls,
                       std::unique_ptr<FdWatch> socket, bool accepted, std::string remote,
                       std::optional<PeerId> expected)
    : reactor_(reactor),
      host_(host),
      accepted_(accepted),
      remote_(std::move(remote)),
      watch_(std::move(socket)),
      tls_(std::make_unique<TlsStream>(tls, watch_->fd(), accepted, expected)),
      caps_(&HelloCaps()) {
  TuneSocket(watch_->fd(), false);
}

Connection::~Connection() { Close(); }

void Connection::Start() { Handshake(); }

std::function<void()> Connection::Bound(void (Connection::*step)()) {
  return [weak = weak_from_this(), step] {
    if (const auto self = weak.lock()) (self.get()->*step)();
  };
}

void Connection::WaitReadable() { watch_->WhenReadable(Bound(&Connection::Read)); }

void Connection::WaitWritable() {
  write_waits_ = true;
  watch_->WhenWritable([weak = weak_from_this()] {
    if (const auto self = weak.lock()) {
      self->write_waits_ = false;
      self->Write();
    }
  });
}

void Connection::LaterReadable(Time when) {
  reactor_.Cancel(read_timer_);
  read_timer_ = reactor_.SetTimer(when, Bound(&Connection::Read));
}

void Connection::LaterWritable(Time when) {
  write_waits_ = true;
  reactor_.Cancel(write_timer_);
  write_timer_ = reactor_.SetTimer(when, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) {
      self->write_waits_ = false;
      self->Write();
    }
  });
}

void Connection::Handshake() {
  const auto self = shared_from_this();
  if (phase_ != Phase::kHandshake) return;
  const TlsStream::Io io = tls_->Handshake();
  CountTraffic();
  switch (io) {
    case TlsStream::Io::kWantRead:
      watch_->WhenReadable(Bound(&Connection::Handshake));
      return;
    case TlsStream::Io::kWantWrite:
      watch_->WhenWritable(Bound(&Connection::Handshake));
      return;
    case TlsStream::Io::kDone:
      break;
    default:
      End(tls_->failure(), tls_->error());
      return;
  }
  phase_ = Phase::kOpen;
  host_.OnSecure(*this);
  if (closed()) return;
  Write();
  if (!closed()) Read();
}

void Connection::Read() {
  const auto self = shared_from_this();
  std::size_t turn = 0;
  std::array<std::byte, 4096> waste;
  while (phase_ == Phase::kOpen || phase_ == Phase::kClosing) {
    if (turn >= kReadTurn) {
      reactor_.Post(Bound(&Connection::Read));
      return;
    }
    const Time ready = host_.ReadyAt(*this, false);
    const bool may = ready <= reactor_.Now();
    const std::size_t allowance =
        may ? std::min(TlsStream::kReadAhead, host_.Slice(*this, false)) : 0;
    MutableByteView room;
    if (phase_ == Phase::kClosing) {
      room = waste;
    } else if (!frame_) {
      room = MutableByteView(header_).subspan(header_got_);
    } else {
      if (payload_got_ == payload_->size()) {
        payload_->resize(std::min(frame_->payload_size(), 4 * payload_got_));
      }
      room = MutableByteView(*payload_).subspan(payload_got_);
    }
    std::size_t n = 0;
    const TlsStream::Io io = tls_->Read(room, allowance, n);
    CountTraffic();
    if (tls_->unsent() > 0) Wake();  // OpenSSL's own answers
    if (io == TlsStream::Io::kWantRead) {
      if (!tls_->starved()) {
        WaitReadable();
        return;
      }
      if (may) continue;
      if (turn == 0) {
        LaterReadable(ready);
      } else {
        // Behind the others that wait for the same cap, so that each gets its turn.
        reactor_.Post([weak = weak_from_this(), ready] {
          const auto me = weak.lock();
          if (me && !me->closed()) me->LaterReadable(ready);
        });
      }
      return;
    }
    if (io != TlsStream::Io::kDone) {
      End(tls_->failure(), tls_->error());
      return;
    }
    turn += n + wire::kFrameHeaderBytes;
    if (phase_ == Phase::kClosing) continue;
    if (frame_) {
      payload_got_ += n;
    } else {
      header_got_ += n;
    }
    if (!TakeFrame()) return;
  }
}

bool Connection::TakeFrame() {
  if (!frame_) {
    if (header_got_ < header_.size()) return true;
    auto header = wire::DecodeFrameHeader(header_, *caps_);
    if (!header) {
      End(TlsStream::Failure::kOther, header.error().message);
      return false;
    }
    frame_ = *header;
    payload_ = std::make_shared<Bytes>(std::min(frame_->payload_size(), kFirstAllocation));
    payload_got_ = 0;
  }
  if (payload_got_ < frame_->payload_size()) return true;
  Frame frame{frame_->type, frame_->flags, frame_->request_id, std::move(payload_)};
  frame_.reset();
  header_got_ = 0;
  host_.OnConnectionFrame(*this, std::move(frame));
  return !closed();
}

void Connection::Send(std::uint16_t type, std::uint16_t flags, std::uint64_t request_id,
                      Blob payload) {
  if (phase_ == Phase::kClosed || phase_ == Phase::kClosing) return;
  const auto header = wire::EncodeFrameHeader(type, flags, request_id, payload->size());
  own_.Push({header, std::move(payload)});
  Wake();
}

void Connection::ServeBulk(std::shared_ptr<FrameQueue> queue) {
  bulk_queue_ = std::move(queue);
  TuneSocket(watch_->fd(), true);
}

void Connection::Pace() {
  if (phase_ != Phase::kOpen || !bulk() || (!Pending() && pacer_.rate() == 0)) return;
  if (pacer_.OnSample(ReadPath(watch_->fd()))) SetPacingRate(watch_->fd(), pacer_.rate());
}

void Connection::Wake() {
  if (phase_ == Phase::kOpen && !write_waits_) {
    // Not at once: frames queued in one turn share a record, and no callback runs inside Send.
    write_waits_ = true;
    reactor_.Post([weak = weak_from_this()] {
      if (const auto self = weak.lock()) {
        self->write_waits_ = false;
        self->Write();
      }
    });
  }
}

bool Connection::Pending() const {
  return current_ || !own_.frames.empty() || (bulk_queue_ && !bulk_queue_->frames.empty());
}

bool Connection::PopFrame() {
  FrameQueue* queue = !own_.frames.empty() ? &own_ : bulk_queue_.get();
  if (queue == nullptr || queue->frames.empty()) return false;
  current_ = std::move(queue->frames.front());
  queue->frames.pop_front();
  queue->bytes -= current_->size();
  offset_ = 0;
  return true;
}

ByteView Connection::NextSlice(std::size_t largest) {
  stage_.clear();
  while (stage_.size() < largest) {
    if (!current_ && !PopFrame()) break;
    const std::size_t left = current_->size() - offset_;
    if (stage_.empty() && offset_ >= current_->header.size() && left >= largest) {
      return ByteView(*current_->payload).subspan(offset_ - current_->header.size(), largest);
    }
    const ByteView from =
        offset_ < current_->header.size()
            ? ByteView(current_->header).subspan(offset_)
            : ByteView(*current_->payload).subspan(offset_ - current_->header.size());
    const std::size_t n = std::min(from.size(), largest - stage_.size());
    stage_.insert(stage_.end(), from.begin(), from.begin() + static_cast<std::ptrdiff_t>(n));
    Advance(n);
  }
  return stage_;
}

void Connection::Advance(std::size_t n) {
  offset_ += n;
  if (offset_ == current_->size()) current_.reset();
}

TlsStream::Io Connection::Gather(std::size_t largest) {
  for (std::size_t gathered = 0; gathered < largest;) {
    const ByteView slice = NextSlice(std::min(kRecord, largest - gathered));
    if (slice.empty()) break;
    gathered += slice.size();
    const TlsStream::Io io = tls_->Write(slice);
    if (io != TlsStream::Io::kDone) return io;
    if (stage_.empty()) Advance(slice.size());
  }
  return TlsStream::Io::kDone;
}

void Connection::Write() {
  const auto self = shared_from_this();
  std::size_t turn = 0;
  while (phase_ == Phase::kOpen || phase_ == Phase::kClosing) {
    if (write_waits_) return;
    if (turn >= kWriteTurn) {
      WaitWritable();
      break;
    }
    if (tls_->unsent() == 0 && !Pending()) {
      if (phase_ == Phase::kClosing) {
        tls_->CloseNotify();
        ::shutdown(watch_->fd(), SHUT_WR);
      }
      break;
    }
    if (const Time ready = host_.ReadyAt(*this, true); ready > reactor_.Now()) {
      if (turn == 0) {
        LaterWritable(ready);
      } else {
        write_waits_ = true;
        reactor_.Post([weak = weak_from_this(), ready] {
          const auto me = weak.lock();
          if (me && !me->closed()) me->LaterWritable(ready);
        });
      }
      break;
    }
    TlsStream::Io io = TlsStream::Io::kDone;
    if (tls_->unsent() == 0) io = Gather(std::min(kWriteTurn, host_.Slice(*this, true)));
    if (io == TlsStream::Io::kDone) {
      turn += tls_->unsent();
      io = tls_->Flush();
      CountTraffic();
    }
    if (io == TlsStream::Io::kWantWrite) {
      WaitWritable();
      break;
    }
    if (io != TlsStream::Io::kDone) {
      End(tls_->failure(), tls_->error());
      return;
    }
  }
  if (turn > 0 && phase_ == Phase::kOpen) host_.OnDrained(*this);
}

void Connection::CountTraffic() {
  const std::uint64_t read = tls_->wire_read(), written = tls_->wire_written();
  const std::uint64_t down = read - seen_read_, up = written - seen_written_;
  seen_read_ = read;
  seen_written_ = written;
  if (up + down > 0) host_.OnTraffic(*this, up, down);
}

void Connection::End(TlsStream::Failure failure, const std::string& text) {
  const bool told = phase_ == Phase::kClosing;
  // Close may free the text.  NOLINTNEXTLINE(performance-unnecessary-copy-initialization)
  const std::string copy = text;
  Close();
  if (!told) host_.OnEnded(*this, failure, copy);
}

void Connection::Close() {
  if (phase_ == Phase::kClosed) return;
  phase_ = Phase::kClosed;
  for (const Reactor::TimerId timer : {read_timer_, write_timer_, close_timer_}) {
    reactor_.Cancel(timer);
  }
  watch_.reset();
}

void Connection::CloseGently() {
  if (phase_ != Phase::kOpen) {
    Close();
    return;
  }
  phase_ = Phase::kClosing;
  bulk_queue_.reset();
  // The timer holds the connection until it has said its last word.
  close_timer_ = reactor_.SetTimer(reactor_.Now() + kGentleClose,
                                   [self = shared_from_this()] { self->Close(); });
  if (!write_waits_) {
    write_waits_ = true;
    reactor_.Post([self = shared_from_this()] {
      self->write_waits_ = false;
      self->Write();
      if (self->phase_ == Phase::kClosing) self->Read();
    });
  }
}

}  // namespace loom::net
