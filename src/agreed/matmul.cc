// Register tiles over packed blocks (Goto and van de Geijn 2008), without fused multiply-add. A
// tile of the result is loaded with its partial sums, goes through one block of k, and is stored,
// so every element sums in the order of k.
#include "agreed/matmul.h"

#include <algorithm>
#include <cstring>

#include "agreed/kernel.h"
#include "base/check.h"

namespace loom::agreed {
namespace {

constexpr std::size_t kDepth = 128;    ///< k of a block
constexpr std::size_t kColumns = 256;  ///< columns of a block; both blocks stay in the caches
constexpr std::size_t kMaxTileRows = 6;

/// One register tile: kRows rows of kVectors vectors of kLanes floats.
template <std::size_t Lanes, std::size_t Rows, std::size_t Vectors>
struct TileShape {
  using Vector [[gnu::vector_size(Lanes * sizeof(float))]] = float;
  static constexpr std::size_t kLanes = Lanes, kRows = Rows, kVectors = Vectors;
  static constexpr std::size_t kWidth = Lanes * Vectors;
};
using PlainTile = TileShape<4, 4, 2>;    // 8 of 16 registers hold sums
using Avx2Tile = TileShape<8, 6, 2>;     // 12 of 16
using Avx512Tile = TileShape<16, 6, 4>;  // 24 of 32

/// sums [kRows, width of a row: stride] += a [depth, kRows] * b [depth, kWidth].
template <class Tile>
LOOM_KERNEL_INLINE void MultiplyTile(const float* a, const float* b, std::size_t depth, float* sums,
                                     std::size_t stride) {
  using Vector = typename Tile::Vector;
  Vector acc[Tile::kRows][Tile::kVectors];
  for (std::size_t r = 0; r < Tile::kRows; ++r) {
    for (std::size_t v = 0; v < Tile::kVectors; ++v) {
      std::memcpy(&acc[r][v], sums + r * stride + v * Tile::kLanes, sizeof(Vector));
    }
  }
  for (std::size_t k = 0; k < depth; ++k, a += Tile::kRows, b += Tile::kWidth) {
    Vector columns[Tile::kVectors];
    std::memcpy(columns, b, sizeof columns);
    for (std::size_t r = 0; r < Tile::kRows; ++r) {
      for (std::size_t v = 0; v < Tile::kVectors; ++v) {
        acc[r][v] = acc[r][v] + a[r] * columns[v];
      }
    }
  }
  for (std::size_t r = 0; r < Tile::kRows; ++r) {
    for (std::size_t v = 0; v < Tile::kVectors; ++v) {
      std::memcpy(sums + r * stride + v * Tile::kLanes, &acc[r][v], sizeof(Vector));
    }
  }
}

/// A block of b, [depth, columns] from (k0, j0), as panels [depth, kWidth]; zeros at the edge.
template <class Tile>
LOOM_KERNEL_INLINE void PackColumns(const MatrixView& b, std::size_t k0, std::size_t depth,
                                    std::size_t j0, std::size_t columns, float* packed) {
  for (std::size_t j = 0; j < columns; j += Tile::kWidth) {
    const std::size_t width = std::min(Tile::kWidth, columns - j);
    const float* from = b.data + k0 * b.row_step + (j0 + j) * b.column_step;
    for (std::size_t k = 0; k < depth; ++k, packed += Tile::kWidth) {
      for (std::size_t i = 0; i < width; ++i) {
        packed[i] = from[k * b.row_step + i * b.column_step];
      }
      for (std::size_t i = width; i < Tile::kWidth; ++i) packed[i] = 0.0F;
    }
  }
}

/// Rows i0.. of a, [rows, depth] from column k0, as one panel [depth, kRows]; zeros at the edge.
template <class Tile>
LOOM_KERNEL_INLINE void PackRows(const MatrixView& a, std::size_t i0, std::size_t rows,
                                 std::size_t k0, std::size_t depth, float* packed) {
  for (std::size_t r = 0; r < Tile::kRows; ++r) {
    const float* from = a.data + (i0 + r) * a.row_step + k0 * a.column_step;
    for (std::size_t k = 0; k < depth; ++k) {
      packed[k * Tile::kRows + r] = r < rows ? from[k * a.column_step] : 0.0F;
    }
  }
}

/// c = a b; with upper_only at least what lies on and above the diagonal.
template <class Tile>
LOOM_KERNEL_INLINE void Multiply(const MatrixView& a, const MatrixView& b, float* c,
                                 bool upper_only) {
  alignas(64) float b_block[kDepth * kColumns];
  alignas(64) float a_panel[kDepth * kMaxTileRows];
  alignas(64) float edge[kMaxTileRows * Tile::kWidth];
  static_assert(kColumns % Tile::kWidth == 0 && Tile::kRows <= kMaxTileRows);
  const std::size_t n = b.columns;
  for (std::size_t j0 = 0; j0 < n; j0 += kColumns) {
    const std::size_t columns = std::min(kColumns, n - j0);
    for (std::size_t k0 = 0; k0 < a.columns; k0 += kDepth) {
      const std::size_t depth = std::min(kDepth, a.columns - k0);
      PackColumns<Tile>(b, k0, depth, j0, columns, b_block);
      for (std::size_t i0 = 0; i0 < a.rows; i0 += Tile::kRows) {
        if (upper_only && i0 >= j0 + columns) break;
        const std::size_t rows = std::min(Tile::kRows, a.rows - i0);
        PackRows<Tile>(a, i0, rows, k0, depth, a_panel);
        const std::size_t first =
            upper_only && i0 > j0 ? (i0 - j0) / Tile::kWidth * Tile::kWidth : 0;
        for (std::size_t j = first; j < columns; j += Tile::kWidth) {
          const float* panel = b_block + j * depth;
          const std::size_t width = std::min(Tile::kWidth, columns - j);
          float* sums = c + i0 * n + j0 + j;
          if (rows == Tile::kRows && width == Tile::kWidth) {
            MultiplyTile<Tile>(a_panel, panel, depth, sums, n);
            continue;
          }
          for (std::size_t r = 0; r < rows; ++r) {
            std::memcpy(edge + r * Tile::kWidth, sums + r * n, width * sizeof(float));
          }
          MultiplyTile<Tile>(a_panel, panel, depth, edge, Tile::kWidth);
          for (std::size_t r = 0; r < rows; ++r) {
            std::memcpy(sums + r * n, edge + r * Tile::kWidth, width * sizeof(float));
          }
        }
      }
    }
  }
}

using MultiplyFunction = void (*)(const MatrixView&, const MatrixView&, float*, bool);

void MultiplyPlain(const MatrixView& a, const MatrixView& b, float* c, bool upper_only) {
  Multiply<PlainTile>(a, b, c, upper_only);
}
LOOM_TARGET_AVX2 void MultiplyAvx2(const MatrixView& a, const MatrixView& b, float* c,
                                   bool upper_only) {
  Multiply<Avx2Tile>(a, b, c, upper_only);
}
LOOM_TARGET_AVX512 void MultiplyAvx512(const MatrixView& a, const MatrixView& b, float* c,
                                       bool upper_only) {
  Multiply<Avx512Tile>(a, b, c, upper_only);
}

void Run(const MatrixView& a, const MatrixView& b, std::span<float> c, bool symmetric, Isa isa) {
  LOOM_CHECK(a.columns == b.rows && c.size() == a.rows * b.columns, "[{}, {}] [{}, {}] into {}",
             a.rows, a.columns, b.rows, b.columns, c.size());
  LOOM_CHECK(!symmetric || a.rows == b.columns, "[{}, {}] is not square", a.rows, b.columns);
  const FpControlGuard guard;
  const MultiplyFunction multiply = isa == Isa::kAvx512 ? MultiplyAvx512
                                    : isa == Isa::kAvx2 ? MultiplyAvx2
                                                        : MultiplyPlain;
  std::fill(c.begin(), c.end(), 0.0F);
  multiply(a, b, c.data(), symmetric);
}

}  // namespace

MatrixView RowMajor(std::span<const float> x, std::size_t rows, std::size_t columns) {
  LOOM_CHECK(x.size() == rows * columns, "{} values are not [{}, {}]", x.size(), rows, columns);
  return {x.data(), rows, columns, columns, 1};
}

void Matmul(const MatrixView& a, const MatrixView& b, std::span<float> c, Isa isa) {
  Run(a, b, c, false, isa);
}

void MatmulSymmetric(const MatrixView& a, const MatrixView& b, std::span<float> c, Isa isa) {
  Run(a, b, c, true, isa);
  for (std::size_t i = 0; i < a.rows; ++i) {
    for (std::size_t j = 0; j < i; ++j) c[i * a.rows + j] = c[j * a.rows + i];
  }
}

}  // namespace loom::agreed
