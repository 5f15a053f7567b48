#include "collab/engine.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "agreed/combine.h"
#include "agreed/math.h"
#include "agreed/random.h"
#include "codec/error_feedback.h"
#include "collab/ledger.h"
#include "crypto/hash.h"
#include "wire/bytes_io.h"

namespace loom::collab {

using agreed::Tile;
using agreed::TileSpan;

namespace {

constexpr std::uint64_t kInnerMagic = 0x524E4E494D4F4F4CULL;  // "LOOMINNR"
constexpr std::uint32_t kInnerVersion = 2;
constexpr std::size_t kInnerHeadBytes = 8 + 4 + 8;

}  // namespace

TileLayout::TileLayout(const agreed::TileGrid& grid, const SyncConfig& config,
                       const codec::Codec& codec)
    : num_tensors_(grid.tensors().size()), num_planes_(1 + MakeStepRule(config)->num_slots()) {
  offsets_.reserve(grid.size() + 1);
  offsets_.push_back(0);
  for (const Tile& tile : grid.tiles()) {
    offsets_.push_back(offsets_.back() + codec.EncodedSize(tile.size));
    state_sizes_.push_back(num_planes_ * sizeof(float) * std::uint64_t{tile.size});
  }
}

Result<Engine> Engine::Make(agreed::TileGrid grid, const SyncConfig& config, codec::CodecKind codec,
                            agreed::Isa isa, WorkerFactory factory) {
  LOOM_ASSIGN(agreed::State state, agreed::State::Make(grid, MakeStepRule(config)->num_slots()));
  return Engine(std::move(grid), config, codec, isa, std::move(factory), std::move(state));
}

Engine::Engine(agreed::TileGrid grid, const SyncConfig& config, codec::CodecKind codec,
               agreed::Isa isa, WorkerFactory factory, agreed::State state)
    : grid_(std::move(grid)),
      config_(config),
      codec_(codec::MakeCodec(codec, isa)),
      isa_(isa),
      method_(MakeSyncMethod(config, isa)),
      layout_(grid_, config, *codec_),
      factory_(std::move(factory)),
      state_(std::move(state)) {}

void Engine::Configure(const SyncConfig& config) {
  config_ = config;
  method_ = MakeSyncMethod(config, isa_);
}

Hash Engine::Root() const { return agreed::StateRoot(grid_, state_.planes(), parallel_); }

Status Engine::ForRanges(const std::function<Status(std::size_t, std::size_t)>& body) const {
  std::vector<Status> outcomes(grid_.size());
  parallel_(grid_.size(),
            [&](std::size_t begin, std::size_t end) { outcomes[begin] = body(begin, end); });
  for (Status& outcome : outcomes) LOOM_RETURN_IF_ERROR(std::move(outcome));
  return {};
}

Result<Engine::Local*> Engine::LocalOf(WorkerIndex index) {
  auto it = locals_.find(index);
  if (it == locals_.end()) {
    LOOM_ASSIGN(auto worker, factory_(index));
    it = locals_.emplace(index, Local{std::move(worker), {}, {}}).first;
  }
  return &it->second;
}

Status Engine::MakeFeedback(Local& local) const {
  for (agreed::FlatBuffer* buffer : {&local.residual, &local.candidate}) {
    if (buffer->size() > 0) continue;
    LOOM_ASSIGN(*buffer, agreed::FlatBuffer::Allocate(grid_.flat_size(), "error feedback"));
  }
  return {};
}

Result<std::span<float>> Engine::SharedWork() {
  if (work_.size() == 0) {
    LOOM_ASSIGN(work_, agreed::FlatBuffer::Allocate(grid_.flat_size(), "the weights in training"));
  }
  return work_.span();
}

Result<EncodedWork> Engine::Work(const WorkOrder& order, const std::atomic<bool>& cut) {
  LOOM_ASSIGN(Local * local, LocalOf(order.worker));
  const bool lossy = codec_->kind() != codec::CodecKind::kFp32;
  std::span<float> work;
  if (lossy) {
    LOOM_RETURN_IF_ERROR(MakeFeedback(*local));
    work = local->candidate.span();
  } else {
    LOOM_ASSIGN(work, SharedWork());
  }
  EncodedWork out;
  LOOM_ASSIGN(out.done, method_->Contribute(*local->worker, order, weights(), work, cut));
  out.shares.push_back({order.worker, out.done.samples, out.done.tokens});
  Bytes encoded(layout_.total());
  out.hashes.resize(grid_.size());
  const auto encode = [&](std::size_t i) -> Status {
    const Tile& tile = grid_[i];
    const std::span<float> x = TileSpan(tile, work);
    const MutableByteView bytes =
        MutableByteView(encoded).subspan(layout_.Offset(i), layout_.Size(i));
    LOOM_RETURN_IF_ERROR(CheckMagnitude(x, tile.tensor));
    const Status done =
        lossy ? codec::EncodeWithFeedback(
                    *codec_, x, TileSpan(tile, std::as_const(local->residual).span()), bytes, x)
              : codec_->Encode(x, bytes);
    if (!done) {
      return Error(done.error())
          .Context(fmt::format("contribution of {}", grid_.tensors()[tile.tensor].name));
    }
    out.hashes[i] = crypto::Sha256(bytes);
    return {};
  };
  const Status encoded_all = ForRanges([&](std::size_t begin, std::size_t end) -> Status {
    for (std::size_t i = begin; i < end; ++i) LOOM_RETURN_IF_ERROR(encode(i));
    return {};
  });
  LOOM_RETURN_IF_ERROR(encoded_all);
  out.encoded = MakeBlob(std::move(encoded));
  return out;
}

Result<EncodedWork> Engine::SumUnits(std::span<const WorkOrder> orders, const Bounds& bounds,
                                     const std::atomic<bool>& cut) {
  if (bounds.size() != grid_.tensors().size()) {
    return MakeError(Code::kInternal, fmt::format("{} bounds for {} tensors", bounds.size(),
                                                  grid_.tensors().size()));
  }
  LOOM_ASSIGN(const std::span<float> work, SharedWork());
  const std::uint64_t units_in_step = NumUnits(config_);
  const std::uint64_t unit = config_.batch / config_.accumulation;
  const float loss_scale =
      1.0F / static_cast<float>(std::uint64_t{config_.workers} * config_.batch * config_.context);
  const bool several = orders.size() * config_.accumulation > 1;
  std::optional<UnitSum> sum;
  if (several) sum.emplace(grid_, bounds, units_in_step, isa_);
  EncodedWork out;
  bool broken = false;
  for (const WorkOrder& order : orders) {
    LOOM_ASSIGN(Local * local, LocalOf(order.worker));
    WorkShare share{order.worker, 0, 0};
    bool finite = true;
    for (WorkOrder rest = order; !rest.ranges.empty();) {
      if (cut.load()) return EncodedWork{};
      WorkOrder one = rest;
      one.ranges = Prefix(rest.ranges, unit).value_or(rest.ranges);
      rest.ranges = Suffix(rest.ranges, unit);
      LOOM_ASSIGN(const WorkDone done, local->worker->Gradient(one, weights(), work, loss_scale));
      share.samples += done.samples;
      share.tokens += done.tokens;
      out.done.targets += done.targets;
      out.done.loss_sum += done.loss_sum;
      out.done.learning_rate = done.learning_rate;
      const std::vector<Exponent> exponents = ExponentsOf(grid_, work, isa_);
      if (std::ranges::find(exponents, agreed::kNotFinite) != exponents.end()) {
        finite = false;
        continue;
      }
      Widen(out.exponents, exponents);
      broken = broken || Breaks(exponents, bounds);
      if (sum && !broken) sum->Add(work);
    }
    if (!finite) out.not_finite.push_back(order.worker);
    out.done.samples += share.samples;
    out.done.tokens += share.tokens;
    out.shares.push_back(share);
  }
  out.done.steps = 1;
  out.exponents.resize(grid_.tensors().size(), agreed::kNoExponent);
  if (broken || !out.not_finite.empty()) return out;
  const std::size_t width = several ? kWide : 1;
  Bytes encoded = several ? std::move(*sum).Take() : Bytes(layout_.total());
  for (std::size_t i = 0; i < grid_.size(); ++i) {
    const MutableByteView bytes =
        MutableByteView(encoded).subspan(width * layout_.Offset(i), width * layout_.Size(i));
    if (!several) LOOM_RETURN_IF_ERROR(codec_->Encode(TileSpan(grid_[i], work), bytes));
    out.hashes.push_back(crypto::Sha256(bytes));
  }
  out.encoded = MakeBlob(std::move(encoded));
  return out;
}

void Engine::Settle(WorkerIndex worker, bool used) {
  const auto it = locals_.find(worker);
  if (it != locals_.end() && used) std::swap(it->second.residual, it->second.candidate);
}

Status Engine::CheckMagnitude(std::span<const float> x, std::size_t tensor) const {
  if (agreed::ExponentOf(x, isa_) != agreed::kNotFinite) return {};
  return MakeError(Code::kInvalid,
                   fmt::format("{} holds a value of 2^{} or more, or one that is not finite",
                               grid_.tensors()[tensor].name, agreed::kMaxExponent));
}

Status Engine::CheckPart(const TileClaim& claim, ByteView bytes) const {
  std::vector<float> values(grid_.tile_elements());
  double squares = 0;
  const std::size_t width = claim.units > 1 ? kWide : 1;
  const std::uint64_t needed =
      width * (layout_.Offset(claim.first + claim.hashes.size()) - layout_.Offset(claim.first));
  if (bytes.size() != needed) {
    return MakeError(Code::kCorrupt,
                     fmt::format("{} tiles from {}: {} bytes, expected {}", claim.hashes.size(),
                                 claim.first, bytes.size(), needed));
  }
  for (std::size_t k = 0; k < claim.hashes.size(); ++k) {
    const std::size_t i = claim.first + k;
    const std::span<float> x(values.data(), grid_[i].size);
    const ByteView encoded = bytes.subspan(
        width * (layout_.Offset(i) - layout_.Offset(claim.first)), width * layout_.Size(i));
    if (crypto::Sha256(encoded) != claim.hashes[k]) {
      return MakeError(Code::kCorrupt, fmt::format("tile {}: other bytes than committed to", i));
    }
    const std::uint32_t tensor = grid_[i].tensor;
    const Status good = config_.exact
                            ? CheckExactTile({encoded, claim.units}, claim.exponents[tensor],
                                             claim.bounds[tensor], NumUnits(config_), isa_)
                            : codec_->Decode(encoded, x);
    if (!good) {
      return Error(good.error())
          .Context(fmt::format("tile {} ({})", i, grid_.tensors()[tensor].name));
    }
    if (config_.exact) continue;
    LOOM_RETURN_IF_ERROR(CheckMagnitude(x, tensor));
    if (config_.max_norm > 0) squares += agreed::SumSquares(x, isa_);
  }
  if (config_.max_norm > 0 && squares > double{config_.max_norm} * double{config_.max_norm}) {
    return MakeError(Code::kLimit, fmt::format("norm {} over the limit {}", std::sqrt(squares),
                                               config_.max_norm));
  }
  return {};
}

Result<Bytes> Engine::Reduce(std::size_t first, std::size_t count,
                             std::span<const ReduceInput> inputs, const Bounds& bounds) const {
  const std::uint64_t begin = layout_.Offset(first);
  Bytes out(layout_.Offset(first + count) - begin);
  // Sums in double, rounded once: equal contributions then give exactly what one of them gives.
  std::vector<double> sum(config_.exact ? 0 : grid_.tile_elements());
  std::vector<float> values(grid_.tile_elements());
  std::vector<ExactTile> exact(config_.exact ? inputs.size() : 0);
  for (std::size_t k = 0; k < count; ++k) {
    const std::size_t i = first + k;
    const std::span<float> x(values.data(), grid_[i].size);
    if (config_.exact) {
      for (std::size_t n = 0; n < inputs.size(); ++n) {
        exact[n] = {inputs[n].tiles[k].View(), inputs[n].units};
      }
      SumExactTiles(exact, bounds[grid_[i].tensor], NumUnits(config_), x, isa_);
    } else {
      const std::span<double> acc(sum.data(), grid_[i].size);
      std::fill(acc.begin(), acc.end(), 0.0);
      for (const ReduceInput& input : inputs) {
        LOOM_RETURN_IF_ERROR(codec_->Decode(input.tiles[k].View(), x));
        agreed::AddScaled(acc, x, input.weight, isa_);
      }
      agreed::Round(acc, x, isa_);
    }
    LOOM_RETURN_IF_ERROR(codec_->Encode(
        x, MutableByteView(out).subspan(layout_.Offset(i) - begin, layout_.Size(i))));
  }
  return out;
}

Result<agreed::StepScalars> Engine::ScalarsOf(ByteView reduced,
                                              const agreed::StepClock& clock) const {
  double squares = 0;
  if (method_->step().needs_norm()) {
    std::vector<float> mean(grid_.tile_elements());
    for (std::size_t i = 0; i < grid_.size(); ++i) {
      const std::span<float> x(mean.data(), grid_[i].size);
      LOOM_RETURN_IF_ERROR(codec_->Decode(layout_.View(reduced, i), x));
      squares += agreed::SumSquares(x, isa_);
    }
  }
  return method_->step().Scalars(clock, agreed::Sqrt(squares));
}

Result<NextState> Engine::Next(ByteView reduced, const agreed::StepClock& clock,
                               std::vector<Hash> tiles) const {
  if (reduced.size() != layout_.total()) {
    return MakeError(Code::kCorrupt, fmt::format("the reduced bytes are {}, the grid needs {}",
                                                 reduced.size(), layout_.total()));
  }
  LOOM_ASSIGN(const agreed::StepScalars scalars, ScalarsOf(reduced, clock));
  if (tiles.size() != grid_.size()) {
    tiles.clear();
    tiles.reserve(grid_.size());
    for (std::size_t i = 0; i < grid_.size(); ++i)
      tiles.push_back(crypto::Sha256(layout_.View(reduced, i)));
  }
  NextState next{{}, std::move(tiles)};
  std::vector<Hash> leaves(grid_.size());
  const Status stepped = ForRanges([&](std::size_t begin, std::size_t end) -> Status {
    std::vector<float> mean(grid_.tile_elements());
    agreed::NextLeaf next_leaf(grid_, method_->step(), isa_);
    for (std::size_t i = begin; i < end; ++i) {
      const Tile& tile = grid_[i];
      const std::span<float> x(mean.data(), tile.size);
      LOOM_RETURN_IF_ERROR(codec_->Decode(layout_.View(reduced, i), x));
      bool finite = true;
      leaves[i] = next_leaf.Of(state_.Of(tile), x, scalars, IsMatrix(tile), &finite);
      if (!finite) {
        return MakeError(Code::kInvalid, fmt::format("the step would make {} non-finite",
                                                     grid_.tensors()[tile.tensor].name));
      }
    }
    return {};
  });
  LOOM_RETURN_IF_ERROR(stepped);
  next.root = crypto::MerkleRoot(leaves);
  return next;
}

Status Engine::Apply(ByteView reduced, const agreed::StepClock& clock) {
  LOOM_ASSIGN(const agreed::StepScalars scalars, ScalarsOf(reduced, clock));
  return ForRanges([&](std::size_t begin, std::size_t end) -> Status {
    std::vector<float> mean(grid_.tile_elements());
    for (std::size_t i = begin; i < end; ++i) {
      const Tile& tile = grid_[i];
      const std::span<float> x(mean.data(), tile.size);
      LOOM_RETURN_IF_ERROR(codec_->Decode(layout_.View(reduced, i), x));
      method_->step().Step(state_.Of(tile), x, scalars, IsMatrix(tile), isa_);
    }
    return {};
  });
}

Bytes Engine::StateTile(std::size_t tile) const {
  Bytes out;
  out.reserve(layout_.StateSize(tile));
  for (const std::span<const float> plane : state_.Of(grid_[tile])) {
    const ByteView bytes = std::as_bytes(plane);
    out.insert(out.end(), bytes.begin(), bytes.end());
  }
  return out;
}

Status Engine::LoadStateTile(std::size_t tile, ByteView bytes) {
  if (bytes.size() != layout_.StateSize(tile)) {
    return MakeError(Code::kCorrupt, fmt::format("state tile {}: {} bytes, expected {}", tile,
                                                 bytes.size(), layout_.StateSize(tile)));
  }
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  if (!agreed::AllFinite(values, isa_)) {
    return MakeError(Code::kInvalid,
                     fmt::format("state tile {} holds a value that is not finite", tile));
  }
  for (auto from = values.begin(); const std::span<float> plane : state_.Of(grid_[tile])) {
    std::copy_n(from, plane.size(), plane.begin());
    from += static_cast<std::ptrdiff_t>(plane.size());
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

std::vector<WorkerIndex> Engine::InnerWorkers() const {
  std::vector<WorkerIndex> workers;
  for (const auto& [index, local] : locals_) {
    if (method_->has_inner_state() || local.residual.size() > 0) workers.push_back(index);
  }
  return workers;
}

// u64 magic, u32 version, u64 bytes of the error feedback, the error feedback (fp32, little-endian,
// as the flat buffer lies), then whatever the worker keeps.
Status Engine::SaveInner(WorkerIndex worker, ByteSink& out) const {
  const Local& local = locals_.at(worker);
  const ByteView residual = std::as_bytes(local.residual.span());
  wire::Writer head;
  head.Int(kInnerMagic);
  head.Int(kInnerVersion);
  head.Int(std::uint64_t{residual.size()});
  LOOM_RETURN_IF_ERROR(out.Write(head.bytes()));
  LOOM_RETURN_IF_ERROR(out.Write(residual));
  return method_->has_inner_state() ? local.worker->SaveState(out) : Status();
}

Status Engine::RestoreInner(WorkerIndex worker, ByteSource& in) {
  std::array<std::byte, kInnerHeadBytes> raw{};
  LOOM_RETURN_IF_ERROR(in.Read(raw));
  wire::Reader head(raw);
  const auto magic = head.Int<std::uint64_t>();
  const auto version = head.Int<std::uint32_t>();
  const auto residual = head.Int<std::uint64_t>();
  if (magic != kInnerMagic || version != kInnerVersion) {
    return MakeError(Code::kCorrupt,
                     fmt::format("inner state: magic {:016x} version {}, expected {:016x} version "
                                 "{}",
                                 magic, version, kInnerMagic, kInnerVersion),
                     "another version of loom wrote it: go on with that one");
  }
  if (residual != 0 && residual != grid_.flat_size() * sizeof(float))
    return MakeError(Code::kCorrupt, "the error feedback is of another model");
  LOOM_ASSIGN(Local * local, LocalOf(worker));
  if (residual != 0) {
    LOOM_RETURN_IF_ERROR(MakeFeedback(*local));
    LOOM_RETURN_IF_ERROR(in.Read(std::as_writable_bytes(local->residual.span())));
    if (!agreed::AllFinite(local->residual.span(), isa_))
      return MakeError(Code::kCorrupt, "the error feedback holds a value that is not finite");
  }
  if (method_->has_inner_state()) return local->worker->RestoreState(in);
  return in.left() == 0 ? Status()
                        : MakeError(Code::kCorrupt, "inner state of a method that has none");
}

}  // namespace loom::collab
