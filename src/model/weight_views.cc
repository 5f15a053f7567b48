#include "model/weight_views.h"

#include <ATen/ATen.h>

#include "base/check.h"

namespace loom::model {
namespace {

at::Tensor ViewAt(const at::Tensor& flat, std::uint64_t begin,
                  const std::vector<std::int64_t>& shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return flat.narrow(0, static_cast<std::int64_t>(begin), count).view(shape);
}

std::vector<std::int64_t> Sizes(const agreed::TensorShape& tensor) {
  return {tensor.shape.begin(), tensor.shape.end()};
}

}  // namespace

WeightViews::WeightViews(std::vector<FlatTensors> flats, const Tuning& tuning)
    : flats_(std::move(flats)), tuning_(tuning) {
  for (std::size_t f = 0; f < flats_.size(); ++f) {
    const auto& tensors = flats_[f].grid->tensors();
    for (std::size_t t = 0; t < tensors.size(); ++t)
      index_.emplace(tensors[t].name, std::pair(f, t));
  }
}

tensor::Stack WeightViews::operator()(std::initializer_list<std::string> names) const {
  std::vector<Place> places;
  for (const std::string& name : names) {
    const auto [flat, t] = index_.at(name);
    const agreed::TileGrid& grid = *flats_[flat].grid;
    const agreed::TensorShape& tensor = grid.tensors()[t];
    const std::uint64_t begin = grid.TensorOffset(t);
    std::int64_t first = 0;
    if (places.empty() || places.back().flat != flat || places.back().end != begin) {
      places.push_back({flat, begin, 0, Sizes(tensor), {}});  // the first, or padding lies between
    } else {
      first = places.back().shape[0];
      places.back().shape[0] += static_cast<std::int64_t>(tensor.shape[0]);
    }
    places.back().end = begin + tensor.Numel();
    AddLora(name, first, places.back());
  }
  tensor::Stack stack;
  for (Place& place : places) stack.push_back(WeightOf(std::move(place)));
  return stack;
}

tensor::Weight WeightViews::WeightOf(Place place) const {
  const tensor::Weight& flat = flats_[place.flat].values;
  return {ViewAt(flat.value(), place.begin, place.shape),
          flat.grad().defined() ? ViewAt(flat.grad(), place.begin, place.shape) : at::Tensor(),
          std::move(place.additions)};
}

void WeightViews::AddLora(const std::string& name, std::int64_t first, Place& place) const {
  const auto lora = FindLora(tuning_, name);
  if (!lora || !index_.contains(lora->a)) return;  // a vector has none
  const auto one = [&](const std::string& part) {
    const auto [flat, t] = index_.at(part);
    const agreed::TileGrid& grid = *flats_[flat].grid;
    return WeightOf({flat, grid.TensorOffset(t), 0, Sizes(grid.tensors()[t]), {}});
  };
  const double scale = static_cast<double>(tuning_.lora_alpha) / tuning_.lora_rank;
  place.additions.push_back({first, one(lora->a), one(lora->b), scale});
}

}  // namespace loom::model
