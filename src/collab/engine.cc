#include "collab/engine.h"

#include <algorithm>
#include <cmath>

#include "agreed/combine.h"
#include "agreed/random.h"
#include "agreed/state.h"
#include "codec/error_feedback.h"
#include "crypto/hash.h"
#include "wire/bytes_io.h"

namespace loom::collab {

using agreed::Tile;
using agreed::TileSpan;

TileLayout::TileLayout(const agreed::TileGrid& grid, const codec::Codec& codec) {
  offsets_.reserve(grid.size() + 1);
  offsets_.push_back(0);
  for (const Tile& tile : grid.tiles()) {
    offsets_.push_back(offsets_.back() + codec.EncodedSize(tile.size));
    state_sizes_.push_back(2 * sizeof(float) * std::uint64_t{tile.size});
  }
}

Engine::Engine(agreed::TileGrid grid, const SyncConfig& config, codec::CodecKind codec,
               agreed::Isa isa, WorkerFactory factory)
    : grid_(std::move(grid)),
      config_(config),
      codec_(codec::MakeCodec(codec, isa)),
      isa_(isa),
      outer_{config.outer, config.outer_lr, config.outer_momentum},
      layout_(grid_, *codec_),
      factory_(std::move(factory)),
      w_(grid_.flat_size()),
      b_(grid_.flat_size()) {}

Hash Engine::Root() const { return agreed::StateRoot(grid_, w_.span(), b_.span()); }

Result<Engine::Local*> Engine::LocalOf(WorkerIndex index) {
  auto it = locals_.find(index);
  if (it == locals_.end()) {
    LOOM_ASSIGN(auto worker, factory_(index));
    it = locals_.emplace(index, Local{std::move(worker), {}, {}}).first;
  }
  return &it->second;
}

Result<EncodedWork> Engine::Work(const WorkOrder& order, const std::atomic<bool>& cut) {
  LOOM_ASSIGN(Local * local, LocalOf(order.worker));
  if (theta_.size() == 0) theta_ = agreed::FlatBuffer(grid_.flat_size());
  if (config_.inner_state == InnerStateRule::kReset) local->worker->Reset();
  EncodedWork out;
  LOOM_ASSIGN(out.done, local->worker->Work(order, w_.span(), theta_.span(), cut));
  const bool lossy = codec_->kind() != codec::CodecKind::kFp32;
  if (lossy && local->candidate.size() == 0) {
    local->residual = agreed::FlatBuffer(grid_.flat_size());
    local->candidate = agreed::FlatBuffer(grid_.flat_size());
  }
  Bytes encoded(layout_.total());
  std::vector<float> delta(grid_.tile_elements());
  for (std::size_t i = 0; i < grid_.size(); ++i) {
    const Tile& tile = grid_[i];
    const std::span<float> d(delta.data(), tile.size);
    agreed::Subtract(TileSpan(tile, std::as_const(w_).span()),
                     TileSpan(tile, std::as_const(theta_).span()), d, isa_);
    const MutableByteView bytes =
        MutableByteView(encoded).subspan(layout_.Offset(i), layout_.Size(i));
    const Status encoded_ok =
        lossy ? codec::EncodeWithFeedback(*codec_, d,
                                          TileSpan(tile, std::as_const(local->residual).span()),
                                          bytes, TileSpan(tile, local->candidate.span()))
              : codec_->Encode(d, bytes);
    if (!encoded_ok) {
      return Error(encoded_ok.error())
          .Context(fmt::format("pseudo-gradient of {}", grid_.tensors()[tile.tensor].name));
    }
    out.hashes.push_back(crypto::Sha256(bytes));
  }
  out.encoded = MakeBlob(std::move(encoded));
  return out;
}

void Engine::Settle(WorkerIndex worker, bool used) {
  const auto it = locals_.find(worker);
  if (it != locals_.end() && used) std::swap(it->second.residual, it->second.candidate);
}

Status Engine::CheckPart(std::size_t first, ByteView bytes, std::span<const Hash> hashes) const {
  std::vector<float> values(grid_.tile_elements());
  double squares = 0;
  for (std::size_t k = 0; k < hashes.size(); ++k) {
    const std::size_t i = first + k;
    const std::span<float> x(values.data(), grid_[i].size);
    const ByteView encoded =
        bytes.subspan(layout_.Offset(i) - layout_.Offset(first), layout_.Size(i));
    if (crypto::Sha256(encoded) != hashes[k]) {
      return MakeError(Code::kCorrupt, fmt::format("tile {}: other bytes than committed to", i));
    }
    if (const Status decoded = codec_->Decode(encoded, x); !decoded) {
      return Error(decoded.error())
          .Context(fmt::format("tile {} ({})", i, grid_.tensors()[grid_[i].tensor].name));
    }
    if (config_.max_norm > 0) squares += agreed::SumSquares(x, isa_);
  }
  if (config_.max_norm > 0 && squares > double{config_.max_norm} * double{config_.max_norm}) {
    return MakeError(Code::kLimit, fmt::format("norm {} over the limit {}", std::sqrt(squares),
                                               config_.max_norm));
  }
  return {};
}

Result<Bytes> Engine::Reduce(std::size_t first, std::size_t count,
                             std::span<const ReduceInput> inputs) const {
  const std::uint64_t begin = layout_.Offset(first);
  Bytes out(layout_.Offset(first + count) - begin);
  // Sums in double, rounded once: equal contributions then give exactly what one of them gives.
  std::vector<double> sum(grid_.tile_elements());
  std::vector<float> values(grid_.tile_elements());
  for (std::size_t k = 0; k < count; ++k) {
    const std::size_t i = first + k;
    const std::span<double> acc(sum.data(), grid_[i].size);
    const std::span<float> x(values.data(), grid_[i].size);
    std::fill(acc.begin(), acc.end(), 0.0);
    for (const ReduceInput& input : inputs) {
      LOOM_RETURN_IF_ERROR(codec_->Decode(input.tiles[k].View(), x));
      agreed::AddScaled(acc, x, input.weight, isa_);
    }
    agreed::Round(acc, x, isa_);
    LOOM_RETURN_IF_ERROR(codec_->Encode(
        x, MutableByteView(out).subspan(layout_.Offset(i) - begin, layout_.Size(i))));
  }
  return out;
}

Result<NextState> Engine::Next(ByteView reduced) const {
  if (reduced.size() != layout_.total()) {
    return MakeError(Code::kCorrupt, fmt::format("the reduced bytes are {}, the grid needs {}",
                                                 reduced.size(), layout_.total()));
  }
  NextState next;
  std::vector<float> delta(grid_.tile_elements());
  std::vector<Hash> leaves;
  leaves.reserve(grid_.size());
  for (std::size_t i = 0; i < grid_.size(); ++i) {
    const Tile& tile = grid_[i];
    const std::span<float> d(delta.data(), tile.size);
    const ByteView encoded = layout_.View(reduced, i);
    next.tiles.push_back(crypto::Sha256(encoded));
    LOOM_RETURN_IF_ERROR(codec_->Decode(encoded, d));
    bool finite = true;
    leaves.push_back(agreed::NextStateLeaf(TileSpan(tile, w_.span()), TileSpan(tile, b_.span()), d,
                                           outer_, &finite, isa_));
    if (!finite) {
      return MakeError(Code::kInvalid, fmt::format("the step would make {} non-finite",
                                                   grid_.tensors()[tile.tensor].name));
    }
  }
  next.root = crypto::MerkleRoot(leaves);
  return next;
}

Status Engine::Apply(ByteView reduced) {
  std::vector<float> delta(grid_.tile_elements());
  for (std::size_t i = 0; i < grid_.size(); ++i) {
    const Tile& tile = grid_[i];
    const std::span<float> d(delta.data(), tile.size);
    LOOM_RETURN_IF_ERROR(codec_->Decode(layout_.View(reduced, i), d));
    const std::span<float> w = TileSpan(tile, w_.span());
    const std::span<float> b = TileSpan(tile, b_.span());
    agreed::OuterStep(w, b, d, outer_, w, b, isa_);
  }
  return {};
}

Bytes Engine::StateTile(std::size_t tile) const {
  const std::span<const float> w = TileSpan(grid_[tile], w_.span());
  const std::span<const float> b = TileSpan(grid_[tile], b_.span());
  Bytes out = ToBytes(std::as_bytes(w));
  const ByteView tail = std::as_bytes(b);
  out.insert(out.end(), tail.begin(), tail.end());
  return out;
}

Status Engine::LoadStateTile(std::size_t tile, ByteView bytes) {
  const std::span<float> w = TileSpan(grid_[tile], w_.span());
  const std::span<float> b = TileSpan(grid_[tile], b_.span());
  if (bytes.size() != w.size_bytes() + b.size_bytes()) {
    return MakeError(Code::kCorrupt, fmt::format("state tile {}: {} bytes, expected {}", tile,
                                                 bytes.size(), w.size_bytes() + b.size_bytes()));
  }
  std::memcpy(w.data(), bytes.data(), w.size_bytes());
  std::memcpy(b.data(), bytes.data() + w.size_bytes(), b.size_bytes());
  if (!agreed::AllFinite(w, isa_) || !agreed::AllFinite(b, isa_)) {
    return MakeError(Code::kInvalid,
                     fmt::format("state tile {} holds a value that is not finite", tile));
  }
  return {};
}

Hash Engine::Possession(const PeerId& peer, const Hash& salt) const {
  constexpr std::size_t kSamples = 16;
  crypto::Sha256Stream stream;
  stream.Update(AsBytes("loom possession"));
  stream.Update(peer.bytes);
  stream.Update(salt.bytes);
  std::uint64_t seed = 0;
  std::memcpy(&seed, salt.bytes.data(), sizeof seed);
  std::uint64_t stream_id = 0;
  std::memcpy(&stream_id, peer.bytes.data(), sizeof stream_id);
  const agreed::Philox philox(seed, stream_id);
  for (std::size_t k = 0; k < std::min(kSamples, grid_.size()); ++k) {
    stream.Update(StateTile(philox.At(k)[0] % grid_.size()));
  }
  return stream.Finish();
}

std::map<WorkerIndex, Bytes> Engine::SaveInner() const {
  std::map<WorkerIndex, Bytes> out;
  for (const auto& [index, local] : locals_) {
    wire::Writer writer;
    writer.Var(local.worker->SaveState());
    writer.Var(std::as_bytes(local.residual.span()));
    out.emplace(index, std::move(writer).Take());
  }
  return out;
}

Status Engine::RestoreInner(WorkerIndex worker, ByteView bytes) {
  wire::Reader in(bytes);
  const ByteView state = in.Var(UINT32_MAX);
  const ByteView residual = in.Var(UINT32_MAX);
  LOOM_RETURN_IF_ERROR(in.Finish("inner state"));
  LOOM_ASSIGN(Local * local, LocalOf(worker));
  LOOM_RETURN_IF_ERROR(local->worker->RestoreState(state));
  if (residual.empty()) return {};
  if (residual.size() != grid_.flat_size() * sizeof(float)) {
    return MakeError(Code::kCorrupt, "the error feedback is of another model");
  }
  local->residual = agreed::FlatBuffer(grid_.flat_size());
  local->candidate = agreed::FlatBuffer(grid_.flat_size());
  std::memcpy(local->residual.data(), residual.data(), residual.size());
  return {};
}

}  // namespace loom::collab
