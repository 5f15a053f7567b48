#include "train/frozen.h"

#include <algorithm>
#include <utility>

#include "train/hf_adapter.h"
#include "train/start_model.h"

namespace loom::train {
namespace {

/// Copies the tensors of one layout to where another one has those of the same name.
void CopyTensors(const agreed::TileGrid& from, std::span<const float> values,
                 const agreed::TileGrid& to, std::span<float> out) {
  std::size_t t = 0;  // both are in the network's order
  for (std::size_t f = 0; f < from.tensors().size(); ++f) {
    while (t < to.tensors().size() && to.tensors()[t].name != from.tensors()[f].name) ++t;
    if (t == to.tensors().size()) return;
    std::ranges::copy(values.subspan(from.TensorOffset(f), from.tensors()[f].Numel()),
                      out.begin() + static_cast<std::ptrdiff_t>(to.TensorOffset(t)));
  }
}

/// Null, or a buffer that `fill` has filled.
template <class Fill>
Result<FrozenWeights> MakeFrozen(const model::ModelConfig& config, Fill fill) {
  if (config.tuning.trains_all()) return FrozenWeights();
  LOOM_ASSIGN(const agreed::TileGrid grid, agreed::TileGrid::Make(model::FrozenShapes(config)));
  LOOM_ASSIGN(agreed::FlatBuffer buffer,
              agreed::FlatBuffer::Allocate(grid.flat_size(), "the frozen weights"));
  LOOM_RETURN_IF_ERROR(fill(grid, buffer.span()));
  return FrozenWeights(std::make_shared<const agreed::FlatBuffer>(std::move(buffer)));
}

}  // namespace

Result<FrozenWeights> ReadFrozen(const std::string& folder, const model::ModelConfig& config) {
  return MakeFrozen(config, [&](const agreed::TileGrid& grid, std::span<float> out) {
    return ReadStartWeights(folder, config, grid, out);
  });
}

Result<FrozenWeights> DrawFrozen(const model::ModelConfig& config, std::uint64_t seed) {
  return MakeFrozen(config, [&](const agreed::TileGrid& grid, std::span<float> out) {
    model::InitWeights(config, grid, seed, out);
    return Status();
  });
}

Result<agreed::FlatBuffer> WholeNetwork(const model::ModelConfig& config,
                                        const agreed::TileGrid& grid,
                                        std::span<const float> weights,
                                        const FrozenWeights& frozen) {
  LOOM_ASSIGN(const agreed::TileGrid network, agreed::TileGrid::Make(model::NetworkShapes(config)));
  LOOM_ASSIGN(agreed::FlatBuffer out,
              agreed::FlatBuffer::Allocate(network.flat_size(), "the model"));
  LOOM_ASSIGN(const agreed::TileGrid rest, agreed::TileGrid::Make(model::FrozenShapes(config)));
  if (frozen != nullptr) CopyTensors(rest, frozen->span(), network, out.span());
  if (config.tuning.lora_rank > 0) {
    LOOM_RETURN_IF_ERROR(MergeAdapter(config, grid, weights, out.span()));
  } else {
    CopyTensors(grid, weights, network, out.span());
  }
  return out;
}

}  // namespace loom::train
