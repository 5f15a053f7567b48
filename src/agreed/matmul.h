// The matrix product whose bits are the same on every machine. Element (i, j) of A B is
//   ((0 + a_i0 * b_0j) + a_i1 * b_1j) + ...  in the order of k, each product and sum rounded to
// fp32. Blocking and vectors, which run over columns and rows, change nothing of that.
#pragma once

#include <cstddef>
#include <span>

#include "agreed/isa.h"

namespace loom::agreed {

/// Element (i, j) is data[i * row_step + j * column_step]: a matrix or its transpose.
struct MatrixView {
  const float* data = nullptr;
  std::size_t rows = 0, columns = 0;
  std::size_t row_step = 0, column_step = 1;

  MatrixView Transposed() const { return {data, columns, rows, column_step, row_step}; }
};

/// x as [rows, columns], row-major. Requires: the sizes fit.
MatrixView RowMajor(std::span<const float> x, std::size_t rows, std::size_t columns);

/// c = a b, row-major [a.rows, b.columns]. c overlaps neither a nor b. Requires: the sizes fit.
void Matmul(const MatrixView& a, const MatrixView& b, std::span<float> c, Isa isa = BestIsa());

/// The same bits for a product that is symmetric, in little more than half the time: b is a
/// transposed, or both are one symmetric matrix. Computes what lies on and above the diagonal and
/// mirrors it.
void MatmulSymmetric(const MatrixView& a, const MatrixView& b, std::span<float> c,
                     Isa isa = BestIsa());

}  // namespace loom::agreed
