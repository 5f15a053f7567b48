// A model's parameters as tensors over flat buffers, under the names that its network asks for:
// trained ones, frozen ones, and LoRA's additions to them. Internal to model.
#pragma once

#include <initializer_list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "agreed/tile_grid.h"
#include "model/config.h"
#include "tensor/ops.h"

namespace loom::model {

/// A flat buffer with its gradients (or none), laid out by a grid that outlives the views.
struct FlatTensors {
  const agreed::TileGrid* grid = nullptr;
  tensor::Weight values;
};

/// A WeightLookup. Every parameter stands in one of the buffers, in either order.
class WeightViews {
 public:
  WeightViews(std::vector<FlatTensors> flats, const Tuning& tuning);

  tensor::Stack operator()(std::initializer_list<std::string> names) const;

 private:
  struct Place {  ///< tensors of one buffer that lie side by side: one matrix or vector
    std::size_t flat = 0;
    std::uint64_t begin = 0, end = 0;
    std::vector<std::int64_t> shape;  ///< rows summed
    std::vector<tensor::LowRank> additions;
  };
  tensor::Weight WeightOf(Place place) const;
  void AddLora(const std::string& name, std::int64_t first, Place& place) const;

  std::vector<FlatTensors> flats_;
  Tuning tuning_;
  std::map<std::string, std::pair<std::size_t, std::size_t>, std::less<>> index_;  // buffer, tensor
};

}  // namespace loom::model
