#include "round_floor.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <optional>

#include "agreed/combine.h"
#include "agreed/outer.h"
#include "agreed/random.h"
#include "agreed/state.h"
#include "codec/codec.h"
#include "crypto/hash.h"
#include "net/transport.h"
#include "pipe.h"

namespace loom {
namespace {

/// Where a process listens, as the others need it.
struct Door {
  std::uint16_t port = 0;
  PeerId id;
};

/// One process. Frame types: kPart or kSum, with the parity of the round; the tile is the request.
/// A process can be one round ahead of another, never two.
class Process final : public net::TransportEvents {
 public:
  Process(std::size_t self, std::size_t peers, std::size_t elements, const std::string& file)
      : self_(self),
        peers_(peers),
        grid_(agreed::TileGrid::Make({{"x", {elements}}}).value()),
        state_(agreed::State::Make(grid_, 1).value()),
        delta_(grid_.flat_size()),
        mean_(agreed::TileGrid::kMaxTile),
        value_(agreed::TileGrid::kMaxTile),
        sum_(agreed::TileGrid::kMaxTile),
        codec_(codec::MakeCodec(codec::CodecKind::kInt8)),
        transport_(reactor_, crypto::SigningKey::Generate(), Options(), *this),
        fd_(::open(file.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600)) {
    if (fd_ < 0) Die("cannot write " + file);
    agreed::FillNormal(state_.weights(), 1, 0, 0.02F);
    agreed::FillNormal(delta_.span(), 2, self_, 0.001F);
    for (Half& half : halves_) half = {std::vector<Parts>(grid_.size()), 0, {}};
  }
  ~Process() override { ::close(fd_); }

  Door Listen() { return {transport_.Listen({"127.0.0.1:0"}).value().front(), transport_.id()}; }
  void Connect(const std::vector<Door>& doors) {
    doors_ = doors;
    for (std::size_t i = 0; i < self_; ++i)
      transport_.Dial(fmt::format("127.0.0.1:{}", doors[i].port), doors[i].id);
    if (!reactor_.RunUntil([&] { return transport_.Peers().size() + 1 == peers_; }, 20s))
      Die("no connection");
  }
  double Round() {
    const Time begin = reactor_.Now();
    for (std::size_t t = 0; t < grid_.size(); ++t) {
      const agreed::Tile& tile = grid_[t];
      auto bytes = Encode(agreed::TileSpan(tile, std::as_const(delta_).span()));
      if (Owner(t) == self_) {
        Part(round_ % 2, t, self_, std::move(bytes));
      } else {
        Send(Owner(t), kPart, t, bytes);
      }
    }
    const std::size_t parity = round_ % 2;
    if (!reactor_.RunUntil([&] { return halves_[parity].done == grid_.size(); }, 60s))
      Die("a round did not end");
    root_ = crypto::MerkleRoot(leaves_);
    halves_[parity].done = 0;
    for (const Blob& sum : halves_[parity].sums)
      if (::write(fd_, sum->data(), sum->size()) < 0) Die("the disk is full");
    halves_[parity].sums.clear();
    if (::fdatasync(fd_) != 0) Die("the disk failed");
    ++round_;
    return Seconds(reactor_.Now() - begin);
  }
  /// Until the others have what was sent to them.
  void Close() {
    reactor_.RunUntil([&] { return transport_.Peers().empty(); }, 500ms);
  }

 private:
  using Parts = std::vector<Blob>;  ///< of one tile, by process; empty until one came
  struct Half {
    std::vector<Parts> parts;
    std::size_t done = 0;
    std::vector<Blob> sums;
  };
  static constexpr std::uint16_t kPart = 16, kSum = 18;

  static net::TransportOptions Options() {
    net::TransportOptions options;
    options.bulk_queue = 1ULL << 34;
    return options;
  }
  std::size_t Owner(std::size_t tile) const { return tile * peers_ / grid_.size(); }
  Blob Encode(std::span<const float> x) const {
    Bytes bytes(codec_->EncodedSize(x.size()));
    if (!codec_->Encode(x, bytes)) Die("a value is not finite");
    return MakeBlob(std::move(bytes));
  }
  void Send(std::size_t to, std::uint16_t type, std::size_t tile, const Blob& bytes) {
    const auto kind = static_cast<std::uint16_t>(type + round_ % 2);
    if (!transport_.Send(doors_[to].id, net::Channel::kBulk, kind, bytes, tile + 1))
      Die("a frame was not taken");
  }

  void Part(std::size_t parity, std::size_t t, std::size_t from, Blob bytes) {
    Parts& parts = halves_[parity].parts[t];
    parts.resize(peers_);
    parts[from] = std::move(bytes);
    if (std::ranges::any_of(parts, [](const Blob& b) { return b == nullptr; })) return;
    const std::size_t n = grid_[t].size;
    const std::span<double> sum = std::span(sum_).first(n);
    std::ranges::fill(sum, 0.0);
    for (const Blob& part : parts) {
      if (!codec_->Decode(*part, value_.span().first(n))) Die("a part is damaged");
      agreed::AddScaled(sum, value_.span().first(n), 1.0F / static_cast<float>(peers_));
    }
    parts.clear();
    agreed::Round(sum, mean_.span().first(n));
    const Blob encoded = Encode(mean_.span().first(n));
    for (std::size_t i = 0; i < peers_; ++i) {
      if (i != self_) Send(i, kSum, t, encoded);
    }
    Sum(parity, t, encoded);
  }
  void Sum(std::size_t parity, std::size_t t, Blob bytes) {
    const agreed::Tile& tile = grid_[t];
    const std::span<float> mean = mean_.span().first(tile.size);
    if (!codec_->Decode(*bytes, mean)) Die("a sum is damaged");
    const agreed::Planes planes = state_.Of(tile);
    agreed::OuterStep(planes[0], planes[1], mean, {}, planes[0], planes[1]);
    leaves_.resize(grid_.size());
    leaves_[t] = agreed::StateLeaf(std::as_const(state_).Of(tile));
    halves_[parity].sums.push_back(std::move(bytes));
    ++halves_[parity].done;
  }

  void OnPeerUp(const net::PeerInfo&) override {}
  void OnPeerDown(const PeerId&, net::DownReason, const std::string&) override {}
  void OnFrame(const PeerId& from, net::Channel, net::Frame frame) override {
    const std::size_t t = frame.request_id - 1, parity = frame.type % 2;
    if (frame.type >= kSum) {
      Sum(parity, t, std::move(frame.payload));
    } else {
      const auto door = std::ranges::find(doors_, from, &Door::id);
      Part(parity, t, static_cast<std::size_t>(door - doors_.begin()), std::move(frame.payload));
    }
  }
  void OnPeerSilent(const PeerId&) override {}
  void OnPeerHeard(const PeerId&) override {}
  void OnDialFailed(const std::string&, net::DialStep, const Error& error) override {
    Die(error.ToString());
  }
  void OnRefused(const std::string&, const std::string& text) override { Die(text); }
  void OnSendSpace(const PeerId&, net::Channel) override {}

  std::size_t self_, peers_;
  agreed::TileGrid grid_;
  agreed::State state_;
  agreed::FlatBuffer delta_, mean_, value_;
  std::vector<double> sum_;
  std::unique_ptr<codec::Codec> codec_;
  net::Reactor reactor_;
  net::Transport transport_;
  int fd_;
  std::vector<Door> doors_;
  std::array<Half, 2> halves_;
  std::vector<Hash> leaves_;
  Hash root_;
  std::size_t round_ = 0;
};

[[noreturn]] void RunProcess(int fd, std::size_t self, std::size_t peers, std::size_t elements,
                             std::size_t rounds, const std::string& file) {
  {
    Process process(self, peers, elements, file);
    Put(fd, process.Listen());
    std::vector<Door> doors;
    for (std::size_t i = 0; i < peers; ++i) doors.push_back(Get<Door>(fd));
    process.Connect(doors);
    for (std::size_t r = 0; r < rounds; ++r) Put(fd, process.Round());
    process.Close();
  }
  std::_Exit(0);
}

}  // namespace

std::vector<double> RoundFloor(const std::string& dir, std::size_t peers, std::size_t elements,
                               std::size_t rounds) {
  std::vector<int> pipes;
  std::vector<pid_t> children;
  for (std::size_t i = 0; i < peers; ++i) {
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
      Die("no socketpair");
    const pid_t child = ::fork();
    if (child < 0) Die("no process");
    if (child == 0)
      RunProcess(ends[1], i, peers, elements, rounds, fmt::format("{}/floor.{}", dir, i));
    ::close(ends[1]);
    pipes.push_back(ends[0]);
    children.push_back(child);
  }
  std::vector<Door> doors;
  for (const int fd : pipes) doors.push_back(Get<Door>(fd));
  for (const int fd : pipes)
    for (const Door& door : doors) Put(fd, door);
  std::vector<double> seconds;
  for (std::size_t r = 0; r < rounds; ++r) {
    seconds.push_back(Get<double>(pipes[0]));
    for (std::size_t i = 1; i < peers; ++i) (void)Get<double>(pipes[i]);
  }
  for (std::size_t i = 0; i < peers; ++i) {
    ::close(pipes[i]);
    int status = 0;
    ::waitpid(children[i], &status, 0);
  }
  return seconds;
}

}  // namespace loom
