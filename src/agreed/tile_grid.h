// One flat index space for all tensors of a model, and its cut into tiles. The grid is a pure
// function of the tensor shapes, so every peer has the same one; who owns which tile changes no bit
// (rule R20).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace loom::agreed {

struct TensorShape {
  std::string name;
  std::vector<std::uint64_t> shape;  ///< empty: a scalar
  std::uint64_t Numel() const;       ///< product of the shape; UINT64_MAX when it overflows
  bool operator==(const TensorShape&) const = default;
};

/// A run of elements of one tensor.
struct Tile {
  std::uint32_t tensor = 0;  ///< index into TileGrid::tensors()
  std::uint64_t offset = 0;  ///< first element, in the flat buffer
  std::uint32_t size = 0;    ///< elements, never 0
  bool operator==(const Tile&) const = default;
};

/// Tensors stand one after the other, each start a multiple of kAlign elements (64 bytes); the
/// elements between two tensors are padding, always zero, and belong to no tile. Immutable.
class TileGrid {
 public:
  static constexpr std::uint64_t kAlign = 16;
  static constexpr std::uint32_t kMaxTile = 65536;
  static constexpr std::uint64_t kMaxElements = std::uint64_t{1} << 40;
  static constexpr std::size_t kMaxTensors = 1 << 20;

  /// tile_elements is a multiple of 256 (the codec block), at most kMaxTile. kInvalid for an empty
  /// or repeated name, kLimit above the caps. Tensors without elements are legal and have no tile.
  static Result<TileGrid> Make(std::vector<TensorShape> tensors,
                               std::uint32_t tile_elements = kMaxTile);

  TileGrid() = default;
  std::size_t size() const { return tiles_.size(); }
  const Tile& operator[](std::size_t i) const { return tiles_[i]; }
  const std::vector<Tile>& tiles() const { return tiles_; }
  std::uint64_t flat_size() const { return flat_size_; }        ///< elements with padding
  std::uint64_t num_elements() const { return num_elements_; }  ///< elements without padding
  std::uint64_t TensorOffset(std::size_t tensor) const { return offsets_[tensor]; }
  const std::vector<TensorShape>& tensors() const { return tensors_; }
  std::uint32_t tile_elements() const { return tile_elements_; }

 private:
  std::vector<TensorShape> tensors_;
  std::vector<std::uint64_t> offsets_;
  std::vector<Tile> tiles_;
  std::uint64_t flat_size_ = 0;
  std::uint64_t num_elements_ = 0;
  std::uint32_t tile_elements_ = kMaxTile;
};

}  // namespace loom::agreed
