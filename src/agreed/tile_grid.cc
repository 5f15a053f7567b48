// Cuts tensors into tiles, with every product and sum checked.
#include "agreed/tile_grid.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <unordered_set>
#include <utility>

namespace loom::agreed {

std::uint64_t TensorShape::Numel() const {
  if (std::find(shape.begin(), shape.end(), 0U) != shape.end()) return 0;
  std::uint64_t numel = 1;
  for (const std::uint64_t extent : shape) {
    if (numel > std::numeric_limits<std::uint64_t>::max() / extent) {
      return std::numeric_limits<std::uint64_t>::max();
    }
    numel *= extent;
  }
  return numel;
}

Result<TileGrid> TileGrid::Make(std::vector<TensorShape> tensors, std::uint32_t tile_elements) {
  if (tile_elements == 0 || tile_elements % 256 != 0 || tile_elements > kMaxTile) {
    return MakeError(Code::kInvalid,
                     fmt::format("tile of {} elements; must be a multiple of 256 up to {}",
                                 tile_elements, kMaxTile));
  }
  if (tensors.size() > kMaxTensors) {
    return MakeError(Code::kLimit,
                     fmt::format("{} tensors, at most {}", tensors.size(), kMaxTensors));
  }
  TileGrid grid;
  grid.tile_elements_ = tile_elements;
  std::unordered_set<std::string> names;
  std::uint64_t end = 0;
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const TensorShape& tensor = tensors[t];
    if (tensor.name.empty() || !names.insert(tensor.name).second) {
      return MakeError(Code::kInvalid, fmt::format("tensor {} has the empty or repeated name '{}'",
                                                   t, tensor.name));
    }
    const std::uint64_t numel = tensor.Numel();
    if (numel > kMaxElements || end + numel > kMaxElements) {
      return MakeError(Code::kLimit, fmt::format("tensor {} brings the model over {} elements",
                                                 tensor.name, kMaxElements));
    }
    grid.offsets_.push_back(end);
    for (std::uint64_t done = 0; done < numel; done += tile_elements) {
      const auto size =
          static_cast<std::uint32_t>(std::min<std::uint64_t>(tile_elements, numel - done));
      grid.tiles_.push_back({static_cast<std::uint32_t>(t), end + done, size});
    }
    grid.num_elements_ += numel;
    end = (end + numel + kAlign - 1) / kAlign * kAlign;
  }
  grid.flat_size_ = end;
  grid.tensors_ = std::move(tensors);
  return grid;
}

}  // namespace loom::agreed
